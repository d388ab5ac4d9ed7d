"""ViT: the image encoder, for classification, masked images or alone.

Source: transformers/models/vit, ViTForImageClassification, ViTModel, ViTForMaskedImageModeling. transformers 5 renamed
the layers (``vit.layers.0.attention.q_proj`` for ``vit.encoder.layer.0.attention.attention.query``).
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config
from .rotary import is_current
from .tasks import architecture, ask_for_files, labels, refuse_pruned


def _pair(config: Config, name: str, default: int) -> tuple[int, int]:
    """Height and width: one number for both, or a list of two."""
    value = config.values.get(name, default)
    if not isinstance(value, list):
        value = [value, value]
    if len(value) != 2 or not all(type(item) is int and 1 <= item <= config.LIMIT for item in value):
        raise config.refuse(f"{name} must be a whole number of at least 1, or two of them, not {str(value)[:40]!r}.")
    return value[0], value[1]


def _layer(config: Config, current: bool, hidden: int, heads: int) -> Builder:
    """One ViTLayer."""
    intermediate = config.integer("intermediate_size", default=3072, nullable=False)
    bias = config.flag("qkv_bias", True, nullable=False)
    layer = Builder()
    if current:
        if hidden < heads and "head_dim" not in config.values:
            raise config.refuse(f"num_attention_heads {heads} is more than hidden_size {hidden}.")
        width = heads * config.integer("head_dim", default=hidden // heads, nullable=False)
        for part in ("q_proj", "k_proj", "v_proj"):
            layer.linear(f"attention.{part}", hidden, width, bias)
        layer.linear("attention.o_proj", width, hidden, bias=True)
        layer.norm("layernorm_before", hidden, bias=True)
        layer.norm("layernorm_after", hidden, bias=True)
        layer.linear("mlp.fc1", hidden, intermediate, bias=True)
        layer.linear("mlp.fc2", intermediate, hidden, bias=True)
        return layer
    if hidden % heads:
        raise config.refuse(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}.")
    for part in ("query", "key", "value"):
        layer.linear(f"attention.attention.{part}", hidden, hidden, bias)
    layer.linear("attention.output.dense", hidden, hidden, bias=True)
    layer.linear("intermediate.dense", hidden, intermediate, bias=True)
    layer.linear("output.dense", intermediate, hidden, bias=True)
    layer.norm("layernorm_before", hidden, bias=True)
    layer.norm("layernorm_after", hidden, bias=True)
    return layer


def build(config: Config, implementation: str) -> Model:
    """ViTForImageClassification, or the class that the file names."""
    name = architecture(config, "ViTForImageClassification", "ViTModel", "ViTForMaskedImageModeling")
    if implementation == "checkpoint":
        ask_for_files(config, "ViT files differ in the heads they hold")
    refuse_pruned(config, implementation)
    current = is_current(implementation)
    hidden = config.integer("hidden_size", default=768, nullable=False)
    heads = config.integer("num_attention_heads", default=12, nullable=False)
    channels = config.integer("num_channels", default=3, nullable=False)
    height, width = _pair(config, "image_size", 224)
    patch_height, patch_width = _pair(config, "patch_size", 16)
    patches = (height // patch_height) * (width // patch_width)

    b = Builder()
    root = "" if name == "ViTModel" else "vit."
    embeddings = f"{root}embeddings"
    b.add(f"{embeddings}.cls_token", 1, 1, hidden)
    if name == "ViTForMaskedImageModeling":
        b.add(f"{embeddings}.mask_token", 1, 1, hidden)
    b.add(f"{embeddings}.position_embeddings", 1, patches + 1, hidden)
    b.add(f"{embeddings}.patch_embeddings.projection.weight", hidden, channels, patch_height, patch_width)
    b.add(f"{embeddings}.patch_embeddings.projection.bias", hidden)
    count = config.count("num_hidden_layers", default=12, nullable=False)
    layers = f"{root}layers" if current else f"{root}encoder.layer"
    b.repeat(layers, count, "ViTLayer", _layer(config, current, hidden, heads))
    b.norm(f"{root}layernorm", hidden, bias=True)
    b.unit("embedding", "ViTEmbeddings", embeddings)
    if name == "ViTModel":
        stated = config.values.get("pooler_output_size")  # 0 means the same as null
        pooled = hidden if type(stated) is int and not stated else config.integer("pooler_output_size", default=hidden)
        b.linear("pooler.dense", hidden, pooled, bias=True)
    elif name == "ViTForMaskedImageModeling":
        stride = config.integer("encoder_stride", default=16, nullable=False)
        b.add("decoder.0.weight", stride * stride * channels, hidden, 1, 1)
        b.add("decoder.0.bias", stride * stride * channels)
    elif number := labels(config, implementation, least=0):
        b.linear("classifier", hidden, number, bias=True)
        b.unit("head", "LayerNorm+Linear", "vit.layernorm", "classifier")
    return b.model(family="vit", implementation=implementation, architecture=name)
