"""Qwen 1.5 and 2 MoE: routed experts next to one shared expert with a gate of its own.

Source: transformers/models/qwen2_moe, Qwen2MoeForCausalLM. The published files have transformers 4's layout
(conversion_mapping.py of transformers 5 converts from exactly these names).
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from . import moe
from .base import Builder, Config
from .decoder import TP_PLAN, attention, check_layer_types, gated_mlp, prefixed, read_sizes
from .rotary import add_frequencies, is_current, plain_rope
from .tasks import architecture

_STACKED = {
    "layers.*.mlp.experts.gate_up_proj": "packed_colwise",
    "layers.*.mlp.experts.down_proj": "rowwise",
    "layers.*.mlp.experts": "moe_tp_experts",
}


def build(config: Config, implementation: str) -> Model:
    """Qwen2MoeForCausalLM."""
    name = architecture(config, "Qwen2MoeForCausalLM")
    current = is_current(implementation)
    sizes = read_sizes(
        config,
        implementation,
        vocab=151936,
        hidden=2048,
        intermediate=5632,
        layers=24,
        heads=16,
        kv_heads=16,
        kv_nullable=False,
        head_dim_nullable=False,
    )
    if implementation == "transformers4" and sizes.heads * sizes.head_dim != sizes.hidden:
        raise config.refuse(f"transformers 4 needs {sizes.heads} heads of {sizes.head_dim} to make {sizes.hidden}.")
    check_layer_types(config, sizes.layers, implementation, declared=current)
    bias = config.flag("qkv_bias", True, nullable=False)
    width = config.integer("moe_intermediate_size", default=1408, nullable=False)
    shared = config.integer("shared_expert_intermediate_size", default=5632, nullable=False)
    experts = moe.extent(config, "num_experts", 60, least=0)
    step = config.integer("decoder_sparse_step", default=1, nullable=False)
    always_dense = moe.indices(config, "mlp_only_layers") or frozenset()
    moe.check_number(config, sizes.layers, experts)
    frequencies = plain_rope(
        config, implementation, sizes.head_dim, head_dim_stated=sizes.head_dim_stated, per_layer_type=True
    )

    dense, sparse = Builder(), Builder()
    for layer in (dense, sparse):
        attention(layer, sizes, bias, output_bias=False)
        if not current:  # every attention of transformers 4 has a rotary embedding of its own
            add_frequencies(layer, "self_attn.rotary_emb", frequencies, implementation)
    gated_mlp(dense, sizes)
    sparse.linear("mlp.gate", sizes.hidden, experts)
    moe.experts(sparse, "mlp.experts", current, experts, sizes.hidden, width)
    moe.gated(sparse, "mlp.shared_expert", sizes.hidden, shared)
    sparse.linear("mlp.shared_expert_gate", sizes.hidden, 1)
    for layer in (dense, sparse):
        moe.norms(layer, sizes.hidden)

    def pick(i: int) -> Builder:
        return dense if i in always_dense or not experts or (i + 1) % step else sparse

    b = Builder()
    moe.decoder(b, sizes, implementation, name="Qwen2Moe", layer=pick, frequencies=frequencies)
    return b.model(
        family="qwen2_moe",
        implementation=implementation,
        architecture=name,
        tp_plan=prefixed(TP_PLAN | _STACKED if current else TP_PLAN, "model", implementation),
        notes=(moe.STACKED,) if current else (),
    )
