"""Gemma 3: text only (``gemma3_text``: 270M, 1B), and with its SigLIP vision tower (``gemma3``: 4B, 12B, 27B).

Source: transformers/models/gemma3 and models/siglip: Gemma3ForCausalLM, and Gemma3ForConditionalGeneration, which is
what AutoModelForCausalLM builds for ``gemma3``. transformers 5 keeps a rotary embedding per kind of layer and has no
``vision_model`` level in the tower; checkpoints of the vision models (and what save_pretrained writes) have
``language_model.model``, ``vision_tower.vision_model`` and ``multi_modal_projector`` at the top.
"""

from __future__ import annotations

from collections.abc import Mapping

from shardguide.guidance.hints import Any
from shardguide.guidance.model import Model

from .base import Builder, Config
from .decoder import TP_PLAN, Sizes, attention, check_layer_types, gated_mlp, model_dtype, prefixed, read_sizes
from .rotary import check_even, frequencies, is_current, partial_factor, rope_fields, rope_kind

_NORMS = {
    "layers.*.self_attn.q_norm": "replicated_with_grad_allreduce",
    "layers.*.self_attn.k_norm": "replicated_with_grad_allreduce",
}
_PATTERN = 6  # every sixth layer sees everything, unless sliding_window_pattern says otherwise


def _plan(module: str, implementation: str) -> dict[str, str]:
    """The text model's tensor-parallel plan; only transformers 5 names the norms."""
    return prefixed(TP_PLAN | _NORMS if is_current(implementation) else TP_PLAN, module, implementation)


def _sizes(config: Config, implementation: str) -> Sizes:
    """Defaults of Gemma3TextConfig."""
    return read_sizes(
        config,
        implementation,
        vocab=262208,
        hidden=2304,
        intermediate=9216,
        layers=26,
        heads=8,
        kv_heads=4,
        kv_nullable=False,
        head_dim=256,
        head_dim_nullable=False,
        divisible=True,
        tied=True,
        padding=0,
    )


def _layer_kinds(config: Config, layers: int, implementation: str) -> set[str]:
    """The kinds of layers that occur."""
    kinds = check_layer_types(config, layers, implementation, declared=True)
    if kinds:
        return set(kinds)
    pattern = config.integer("sliding_window_pattern", default=_PATTERN, nullable=False)
    return {"sliding_attention" if (i + 1) % pattern else "full_attention" for i in range(layers)}


def _ropes(config: Config) -> dict[str, Mapping[str, Any]]:
    """The settings of each kind of layer; a ``rope_scaling`` is for full attention only (transformers 5)."""
    given = config.values.get("rope_parameters")
    if given is not None and not isinstance(given, Mapping):
        raise config.refuse(f"rope_parameters must be an object, not {str(given)[:40]!r}.")
    ropes: dict[str, Mapping[str, Any]] = {}
    for kind in ("full_attention", "sliding_attention"):
        rope = (given or {}).get(kind)
        if rope is not None and not isinstance(rope, Mapping):
            raise config.refuse(f"rope_parameters.{kind} must be an object, not {str(rope)[:40]!r}.")
        ropes[kind] = rope if rope is not None else {"rope_type": "default"}
    scaling = config.values.get("rope_scaling")
    if scaling is not None:
        if not isinstance(scaling, Mapping) or (given is not None and given.get("full_attention") is None):
            raise config.refuse(
                "rope_scaling must be an object, and rope_parameters must not leave out full_attention."
            )
        ropes["full_attention"] = {**ropes["full_attention"], **scaling}
    return ropes


def _rotary(b: Builder, module: str, config: Config, sizes: Sizes, implementation: str) -> None:
    """The frequencies: per kind of layer in transformers 5, a global and a local set before."""
    kinds = _layer_kinds(config, sizes.layers, implementation)
    head_dim = sizes.head_dim
    if not is_current(implementation):
        rope = rope_fields(config, implementation)
        if config.values.get("rope_scaling") is not None and "rope_type" not in rope:
            raise config.refuse("rope_scaling has no rope_type.")
        rotated = int(head_dim * partial_factor(config, rope, "partial_rotary_factor", 1.0, implementation))
        kind = rope_kind(config, rope, implementation)
        for name, count in (
            ("rotary_emb", frequencies(config, rope, kind, head_dim, rotated)),
            ("rotary_emb_local", frequencies(config, {}, "default", head_dim, rotated)),
        ):
            b.buffer(f"{module}.{name}.inv_freq", count, persistent=False)
        return
    ropes = _ropes(config)
    for layer_kind in sorted(kinds):
        rope = ropes[layer_kind]
        kind = rope_kind(config, rope, implementation)
        rotated = int(head_dim * partial_factor(config, rope, "partial_rotary_factor", 1.0, implementation))
        # the check comes before a factor outside rope_parameters is read
        own = rotated if rope.get("partial_rotary_factor") is not None else head_dim
        check_even(config, head_dim, own, implementation)
        count = frequencies(config, rope, kind, head_dim, head_dim if kind == "default" else rotated)
        b.buffer(f"{module}.rotary_emb.{layer_kind}_inv_freq", count, persistent=False)
        b.buffer(f"{module}.rotary_emb.{layer_kind}_original_inv_freq", count, persistent=False)


def _text(b: Builder, module: str, config: Config, sizes: Sizes, implementation: str, dtype: str, head: str) -> None:
    """Gemma3TextModel at ``module``; ``head`` is the name that a tied output projection has."""
    bias = config.flag("attention_bias", False, nullable=False)
    layer = Builder()
    attention(layer, sizes, bias, bias)
    layer.norm("self_attn.q_norm", sizes.head_dim)
    layer.norm("self_attn.k_norm", sizes.head_dim)
    gated_mlp(layer, sizes)
    layer.norm("input_layernorm", sizes.hidden)
    layer.norm("post_attention_layernorm", sizes.hidden)
    layer.norm("pre_feedforward_layernorm", sizes.hidden)
    layer.norm("post_feedforward_layernorm", sizes.hidden)
    b.add(f"{module}.embed_tokens.weight", sizes.vocab, sizes.hidden, aliases=(f"{head}.weight",) if head else ())
    b.buffer(f"{module}.embed_tokens.embed_scale", dtype=dtype, persistent=False)
    b.repeat(f"{module}.layers", sizes.layers, "Gemma3DecoderLayer", layer)
    b.norm(f"{module}.norm", sizes.hidden)
    _rotary(b, module, config, sizes, implementation)


def _output(b: Builder, module: str, head: str, sizes: Sizes) -> None:
    """The output projection of an untied model, with its units."""
    b.linear(head, sizes.hidden, sizes.vocab)
    b.unit("embedding", "Gemma3TextScaledWordEmbedding", f"{module}.embed_tokens")
    b.unit("head", "Gemma3RMSNorm+Linear", f"{module}.norm", head)


def _vision(b: Builder, module: str, config: Config) -> int:
    """SiglipVisionModel at ``module``; returns its width."""
    hidden = config.integer("hidden_size", default=768, nullable=False)
    inner = config.integer("intermediate_size", default=3072, nullable=False)
    layers = config.count("num_hidden_layers", default=12, nullable=False)
    heads = config.integer("num_attention_heads", default=12, nullable=False)
    channels = config.integer("num_channels", default=3, nullable=False)
    image = config.integer("image_size", default=224, nullable=False)
    patch = config.integer("patch_size", default=16, nullable=False)
    if hidden % heads:
        raise config.refuse(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}.")
    if image < patch:
        raise config.refuse(f"an image of {image} pixels has no patch of {patch}.")
    positions = (image // patch) ** 2

    layer = Builder()
    layer.norm("layer_norm1", hidden, bias=True)
    for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
        layer.linear(f"self_attn.{name}", hidden, hidden, bias=True)
    layer.norm("layer_norm2", hidden, bias=True)
    layer.linear("mlp.fc1", hidden, inner, bias=True)
    layer.linear("mlp.fc2", inner, hidden, bias=True)

    b.add(f"{module}.embeddings.patch_embedding.weight", hidden, channels, patch, patch)
    b.add(f"{module}.embeddings.patch_embedding.bias", hidden)
    b.add(f"{module}.embeddings.position_embedding.weight", positions, hidden)
    b.buffer(f"{module}.embeddings.position_ids", 1, positions, dtype="int64", persistent=False)
    b.repeat(f"{module}.encoder.layers", layers, "SiglipEncoderLayer", layer)
    b.norm(f"{module}.post_layernorm", hidden, bias=True)
    if config.flag("vision_use_head", True, nullable=False):
        b.add(f"{module}.head.probe", 1, 1, hidden)
        b.add(f"{module}.head.attention.in_proj_weight", 3 * hidden, hidden)
        b.add(f"{module}.head.attention.in_proj_bias", 3 * hidden)
        b.linear(f"{module}.head.attention.out_proj", hidden, hidden, bias=True)
        b.norm(f"{module}.head.layernorm", hidden, bias=True)
        b.linear(f"{module}.head.mlp.fc1", hidden, inner, bias=True)
        b.linear(f"{module}.head.mlp.fc2", inner, hidden, bias=True)
    return hidden


def build(config: Config, implementation: str) -> Model:
    """Gemma3ForCausalLM for ``gemma3_text``, Gemma3ForConditionalGeneration for ``gemma3``."""
    if config.text("model_type") == "gemma3":
        return _build_with_vision(config, implementation)
    sizes = _sizes(config, implementation)
    b = Builder()
    _text(b, "model", config, sizes, implementation, model_dtype(config), "lm_head" if sizes.tied else "")
    if not sizes.tied:
        _output(b, "model", "lm_head", sizes)
    return b.model(
        family="gemma3_text",
        implementation=implementation,
        architecture="Gemma3ForCausalLM",
        tp_plan=_plan("model", implementation),
    )


def _build_with_vision(config: Config, implementation: str) -> Model:
    text = config.sub("text_config") or Config({}, f"{config.where}: text_config")
    vision = config.sub("vision_config") or Config({}, f"{config.where}: vision_config")
    kind = vision.text("model_type", "siglip_vision_model")
    if is_current(implementation) and kind != "siglip_vision_model":
        raise config.refuse(f"the vision tower {kind[:40]!r} is not the SigLIP one whose shapes are known.")
    tokens = config.integer("mm_tokens_per_image", default=256, nullable=False)
    if tokens < 1:
        raise config.refuse("mm_tokens_per_image must be at least 1.")
    sizes = _sizes(text, implementation)
    # transformers 5 asks the whole configuration, 4.57 its text part
    tied = _flag_or_false(config) if is_current(implementation) else sizes.tied

    top = "" if implementation == "checkpoint" else "model."
    language = "language_model.model" if implementation == "checkpoint" else "model.language_model"
    head = "language_model.lm_head" if implementation == "checkpoint" else "lm_head"
    tower = f"{top}vision_tower" if is_current(implementation) else f"{top}vision_tower.vision_model"
    b = Builder()
    width = _vision(b, tower, vision)
    b.add(f"{top}multi_modal_projector.mm_input_projection_weight", width, sizes.hidden)
    b.norm(f"{top}multi_modal_projector.mm_soft_emb_norm", width)
    dtype = model_dtype(config)
    if not is_current(implementation):
        dtype = model_dtype(text, default=dtype)  # 4.57 builds each part in its own dtype, where it states one
    _text(b, language, text, sizes, implementation, dtype, head if tied else "")
    if not tied:
        _output(b, language, head, sizes)
    return b.model(
        family="gemma3",
        implementation=implementation,
        architecture="Gemma3ForConditionalGeneration",
        tp_plan=_plan(language, implementation),
    )


def _flag_or_false(config: Config) -> bool:
    """tie_word_embeddings of the whole model: absent means tied, null means not."""
    return config.flag("tie_word_embeddings", not config.is_null("tie_word_embeddings"))
