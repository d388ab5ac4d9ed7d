"""Llama 4 (Scout, Maverick): the language model alone, or with its vision encoder.

Source: transformers/models/llama4, Llama4ForCausalLM (``llama4_text``) and Llama4ForConditionalGeneration (``llama4``,
whose ``text_config`` and ``vision_config`` are read each by its own defaults). The experts are stacked, inputs before
outputs, in transformers 4.57 and 5 alike; the query and key norms have no weights.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from . import moe
from .base import Builder, Config
from .decoder import attention, prefixed, read_sizes
from .rotary import is_current, plain_rope
from .tasks import architecture, ask_for_files

_ATTENTION = {
    "layers.*.self_attn.q_proj": "colwise",
    "layers.*.self_attn.k_proj": "colwise",
    "layers.*.self_attn.v_proj": "colwise",
    "layers.*.self_attn.o_proj": "rowwise",
}
_PLAN_5 = _ATTENTION | {
    "layers.*.feed_forward.shared_expert.gate_proj": "colwise",
    "layers.*.feed_forward.shared_expert.up_proj": "colwise",
    "layers.*.feed_forward.shared_expert.down_proj": "rowwise",
    "layers.*.feed_forward.experts.gate_up_proj": "packed_rowwise",
    "layers.*.feed_forward.experts.down_proj": "colwise",
    "layers.*.feed_forward.experts": "moe_tp_experts",
    "layers.*.feed_forward.gate_proj": "colwise",
    "layers.*.feed_forward.up_proj": "colwise",
    "layers.*.feed_forward.down_proj": "rowwise",
}
_PLAN_4 = _ATTENTION | {
    "layers.*.feed_forward.shared_expert.gate_proj": "local_colwise",
    "layers.*.feed_forward.shared_expert.up_proj": "local_colwise",
    "layers.*.feed_forward.shared_expert.down_proj": "local_rowwise",
    "layers.*.feed_forward.experts.gate_up_proj": "local_packed_rowwise",
    "layers.*.feed_forward.experts.down_proj": "local_colwise",
    "layers.*.feed_forward.experts": "local",
    "layers.*.feed_forward.gate_proj": "local_colwise",
    "layers.*.feed_forward.up_proj": "local_colwise",
    "layers.*.feed_forward.down_proj": "local_rowwise",
    "layers.*.feed_forward": "gather",
}
_VISION_PLAN = {f"model.{name}": style for name, style in _ATTENTION.items()} | {
    "vision_adapter.mlp.fc1": "colwise",
    "vision_adapter.mlp.fc2": "rowwise",
    "patch_embedding.linear": "colwise_gather_output",
}
_PROJECTOR_PLAN = {"linear_1": "colwise_gather_output"}
_STACKED = "The experts are stacked on dim 0 in transformers 4.57 and 5."


def _text(b: Builder, config: Config, implementation: str, root: str) -> int:
    """Llama4ForCausalLM under the prefix ``root``; its hidden size."""
    current = is_current(implementation)
    hidden = config.integer("hidden_size", default=5120, nullable=False)
    heads = config.integer("num_attention_heads", default=40, nullable=False)
    if config.is_null("head_dim") and not current:
        config = Config({**config.values, "head_dim": hidden // heads}, config.where)
    sizes = read_sizes(
        config,
        implementation,
        vocab=202048,
        hidden=5120,
        intermediate=8192,
        layers=48,
        heads=40,
        kv_heads=8,
        kv_nullable=not current,
        head_dim=128,
        head_dim_nullable=False,
    )
    kinds = config.values.get("layer_types")
    if kinds is not None and not (isinstance(kinds, list) and len(kinds) == sizes.layers):
        raise config.refuse(f"layer_types must be a list of {sizes.layers} kinds of attention.")
    rows = config.values.get("no_rope_layers")
    if rows and not (isinstance(rows, list) and len(rows) >= sizes.layers):
        raise config.refuse(f"no_rope_layers must be a list of {sizes.layers} numbers.")
    bias = config.flag("attention_bias", False, nullable=False) and current  # transformers 4 never has them
    dense_width = config.integer("intermediate_size_mlp", default=16384, nullable=False)
    experts = config.integer("num_local_experts", default=16, nullable=False)
    step = config.integer("interleave_moe_layer_step", default=1, nullable=False)
    routed = moe.indices(config, "moe_layers")
    width = sizes.intermediate

    dense, sparse = Builder(), Builder()
    for layer in (dense, sparse):
        attention(layer, sizes, bias, bias)
    moe.gated(dense, "feed_forward", hidden, dense_width)
    sparse.add("feed_forward.experts.gate_up_proj", experts, hidden, 2 * width)
    sparse.add("feed_forward.experts.down_proj", experts, width, hidden)
    sparse.linear("feed_forward.router", hidden, experts)
    moe.gated(sparse, "feed_forward.shared_expert", hidden, width)
    for layer in (dense, sparse):
        moe.norms(layer, hidden)

    def pick(i: int) -> Builder:
        return sparse if ((i + 1) % step == 0 if routed is None else i in routed) else dense

    frequencies = plain_rope(config, implementation, sizes.head_dim, head_dim_stated=True, type_first=False)
    moe.decoder(b, sizes, implementation, name="Llama4Text", layer=pick, frequencies=frequencies, root=root)
    return hidden


def _vision(b: Builder, config: Config, implementation: str) -> int:
    """Llama4VisionModel; the width of its output."""
    hidden = config.integer("hidden_size", default=768, nullable=False)
    heads = config.integer("num_attention_heads", default=16, nullable=False)
    width = config.integer("intermediate_size", default=5632, nullable=False)
    channels = config.integer("num_channels", default=3, nullable=False)
    patch = config.integer("patch_size", default=14, nullable=False)
    side = config.integer("image_size", default=448, nullable=False) // patch
    inputs = config.integer("projector_input_dim", default=4096, nullable=False)
    outputs = config.integer("projector_output_dim", default=4096, nullable=False)
    if not side:
        raise config.refuse("image_size is smaller than patch_size.")
    head_dim = hidden // heads
    if head_dim < 4:
        raise config.refuse(f"a head of {head_dim} channels is too narrow for the two-dimensional rotary embedding.")

    root = "vision_model"
    b.add(f"{root}.class_embedding", hidden)
    b.add(f"{root}.positional_embedding_vlm", side * side + 1, hidden)
    b.linear(f"{root}.patch_embedding.linear", channels * patch * patch, hidden)
    b.norm(f"{root}.layernorm_pre", hidden, bias=True)
    b.norm(f"{root}.layernorm_post", hidden, bias=True)
    if is_current(implementation):  # one complex number per pair of channels and axis; no buffer in transformers 4
        pairs = head_dim // 2 // 2 * 2
        b.buffer(f"{root}.rotary_embedding.freqs_ci", side * side + 1, 1, pairs, dtype="complex64", persistent=False)
    layer = Builder()
    for part in ("q_proj", "k_proj", "v_proj"):
        layer.linear(f"self_attn.{part}", hidden, heads * head_dim, bias=True)
    layer.linear("self_attn.o_proj", heads * head_dim, hidden, bias=True)
    layer.linear("mlp.fc1", hidden, width, bias=True)
    layer.linear("mlp.fc2", width, hidden, bias=True)
    layer.norm("input_layernorm", hidden, bias=True)
    layer.norm("post_attention_layernorm", hidden, bias=True)
    count = config.count("num_hidden_layers", default=34, nullable=False)
    b.repeat(f"{root}.model.layers", count, "Llama4VisionEncoderLayer", layer)
    b.linear(f"{root}.vision_adapter.mlp.fc1", width, inputs)
    b.linear(f"{root}.vision_adapter.mlp.fc2", outputs, outputs)
    return config.integer("vision_output_dim", default=7680, nullable=False)


def build(config: Config, implementation: str) -> Model:
    """Llama4ForConditionalGeneration; Llama4ForCausalLM for a text configuration, or when the file names that class."""
    if implementation == "checkpoint":
        ask_for_files(config, "the published files come in bfloat16 and in fp8 with other names")
    plan = _PLAN_5 if is_current(implementation) else _PLAN_4
    b = Builder()
    if config.values.get("model_type") == "llama4_text":
        name = architecture(config, "Llama4ForCausalLM")
        text = config
    else:
        name = architecture(config, "Llama4ForConditionalGeneration", "Llama4ForCausalLM")
        text = config.sub("text_config") or Config({}, config.where)
    if name == "Llama4ForCausalLM":
        _text(b, text, implementation, "")
        plans = prefixed(plan, "model", implementation)
    else:
        vision = config.sub("vision_config") or Config({}, config.where)
        outputs = _vision(b, vision, implementation)
        hidden = text.integer("hidden_size", default=5120, nullable=False)
        b.linear("multi_modal_projector.linear_1", outputs, hidden)
        _text(b, text, implementation, "language_model.")
        plans = {
            **prefixed(_PROJECTOR_PLAN, "multi_modal_projector", implementation),
            **prefixed(_VISION_PLAN, "vision_model", implementation),
            **prefixed(plan, "language_model.model", implementation),
        }
    return b.model(
        family=str(config.values.get("model_type")),
        implementation=implementation,
        architecture=name,
        tp_plan=plans,
        notes=(_STACKED,),
    )
