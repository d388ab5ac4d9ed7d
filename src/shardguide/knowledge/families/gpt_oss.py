"""gpt-oss: attention with sinks and biases, every layer's experts stacked, with biases of their own.

Source: transformers/models/gpt_oss, GptOssForCausalLM; the experts are stacked in transformers 4.57 too. The published
files hold the experts in mxfp4: names as in openai/gpt-oss-20b's model.safetensors.index.json, sizes as in
transformers/integrations/mxfp4.py; they add up to the index's total_size of 13,761,264,768 bytes.
"""

from __future__ import annotations

from shardguide.guidance.model import Model, Parameter

from . import moe
from .base import Builder, Config
from .decoder import attention, check_layer_types, prefixed, read_sizes
from .rotary import is_current, plain_rope
from .tasks import architecture, ask_for_files

_PLAN_5 = {"embed_tokens": "embedding_rowwise"}
_PLAN_4 = {
    "layers.*.self_attn.q_proj": "colwise",
    "layers.*.self_attn.k_proj": "colwise",
    "layers.*.self_attn.v_proj": "colwise",
    "layers.*.self_attn.o_proj": "rowwise",
    "layers.*.self_attn.sinks": "local_rowwise",
    "layers.*.mlp.experts": "gather",
    "layers.*.mlp.router": "ep_router",
    "layers.*.mlp.experts.gate_up_proj": "grouped_gemm",
    "layers.*.mlp.experts.gate_up_proj_bias": "grouped_gemm",
    "layers.*.mlp.experts.down_proj": "grouped_gemm",
    "layers.*.mlp.experts.down_proj_bias": "grouped_gemm",
}
_YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}  # the classes' default
_BLOCK = 32  # mxfp4: so many values share a scale byte; two values to a byte make blocks of 16 bytes


def _packed(layer: Builder, name: str, experts: int, outputs: int, inputs: int, config: Config) -> None:
    """An expert projection as mxfp4 stores it: per output, blocks of 16 bytes and one scale byte each."""
    if inputs % _BLOCK:
        raise config.refuse(f"mxfp4 packs {_BLOCK} values at a time, {inputs} is not a multiple.")
    blocks = inputs // _BLOCK
    layer.parameters += [
        Parameter(f"{name}_blocks", (experts, outputs, blocks, _BLOCK // 2), "uint8", requires_grad=False),
        Parameter(f"{name}_scales", (experts, outputs, blocks), "uint8", requires_grad=False),
    ]


def build(config: Config, implementation: str) -> Model:
    """GptOssForCausalLM."""
    name = architecture(config, "GptOssForCausalLM")
    current = is_current(implementation)
    quantised = config.values.get("quantization_config") is not None
    packed = implementation == "checkpoint"
    if packed:
        stated = config.sub("quantization_config")
        if stated is None or stated.text("quant_method") != "mxfp4":
            ask_for_files(config, "only the mxfp4 files are known")
    sizes = read_sizes(
        config,
        implementation,
        vocab=201088,
        hidden=2880,
        intermediate=2880,
        layers=36,
        heads=64,
        kv_heads=8,
        kv_nullable=not current,
        head_dim=64,
        head_dim_nullable=False,
    )
    check_layer_types(config, sizes.layers, implementation, declared=True)
    bias = config.flag("attention_bias", True, nullable=False)
    alias = "num_experts" if current else ""  # transformers 4 knows no other name
    experts = moe.either(config, "num_local_experts", alias, 128)
    hidden, width = sizes.hidden, sizes.intermediate

    layer = Builder()
    layer.add("self_attn.sinks", sizes.heads)
    attention(layer, sizes, bias, bias)
    layer.linear("mlp.router", hidden, experts, bias=True)
    if packed:
        _packed(layer, "mlp.experts.gate_up_proj", experts, 2 * width, hidden, config)
    else:
        layer.add("mlp.experts.gate_up_proj", experts, hidden, 2 * width)
    layer.add("mlp.experts.gate_up_proj_bias", experts, 2 * width)
    if packed:
        _packed(layer, "mlp.experts.down_proj", experts, hidden, width, config)
    else:
        layer.add("mlp.experts.down_proj", experts, width, hidden)
    layer.add("mlp.experts.down_proj_bias", experts, hidden)
    moe.norms(layer, hidden)

    b = Builder()
    absent = "rope_scaling" not in config.values
    if current:
        absent = not config.values.get("rope_scaling") and config.values.get("rope_parameters") is None
    rope = Config({**config.values, "rope_scaling": _YARN}, config.where) if absent else config
    frequencies = plain_rope(rope, implementation, sizes.head_dim, head_dim_stated=True, per_layer_type=True)
    moe.decoder(b, sizes, implementation, name="GptOss", layer=lambda _: layer, frequencies=frequencies)
    notes = ["The experts are stacked on dim 0, their biases too, in transformers 4.57 and 5."]
    if quantised and not packed:
        notes.append("The published experts are in mxfp4; the shapes here are those of the dequantised model.")
    return b.model(
        family="gpt_oss",
        implementation=implementation,
        architecture=name,
        tp_plan=prefixed(_PLAN_5 if current else _PLAN_4, "model", implementation),
        notes=tuple(notes),
    )
