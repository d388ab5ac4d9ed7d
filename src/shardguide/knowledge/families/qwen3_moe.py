"""Qwen 3 MoE: a norm on every head of query and key; every ``decoder_sparse_step``-th layer has routed experts.

Source: transformers/models/qwen3_moe, Qwen3MoeForCausalLM. The published files have transformers 4's layout
(conversion_mapping.py of transformers 5 converts from exactly these names).
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from . import moe
from .base import Builder, Config
from .decoder import attention, check_layer_types, gated_mlp, prefixed, read_sizes
from .rotary import is_current, plain_rope
from .tasks import architecture

_ATTENTION = {
    "layers.*.self_attn.q_proj": "colwise",
    "layers.*.self_attn.k_proj": "colwise",
    "layers.*.self_attn.v_proj": "colwise",
}
_NORMS = {
    "layers.*.self_attn.q_norm": "replicated_with_grad_allreduce",
    "layers.*.self_attn.k_norm": "replicated_with_grad_allreduce",
}
_OUTPUT = {"layers.*.self_attn.o_proj": "rowwise"}
_STACKED = {
    "layers.*.mlp.experts.gate_up_proj": "packed_colwise",
    "layers.*.mlp.experts.down_proj": "rowwise",
    "layers.*.mlp.experts": "moe_tp_experts",
}
_LISTED = {
    "layers.*.mlp.experts.*.gate_proj": "colwise",
    "layers.*.mlp.experts.*.up_proj": "colwise",
    "layers.*.mlp.experts.*.down_proj": "rowwise",
}
_DENSE = {
    "layers.*.mlp.gate_proj": "colwise",
    "layers.*.mlp.up_proj": "colwise",
    "layers.*.mlp.down_proj": "rowwise",
}
_PLAN_5 = _ATTENTION | _NORMS | _OUTPUT | _STACKED | _DENSE
_PLAN_4 = _ATTENTION | _OUTPUT | _LISTED | _DENSE


def build(config: Config, implementation: str) -> Model:
    """Qwen3MoeForCausalLM."""
    name = architecture(config, "Qwen3MoeForCausalLM")
    current = is_current(implementation)
    sizes = read_sizes(
        config,
        implementation,
        vocab=151936,
        hidden=2048,
        intermediate=6144,
        layers=24,
        heads=32,
        kv_heads=4,
        kv_nullable=not current,
        head_dim_nullable=False,
    )
    check_layer_types(config, sizes.layers, implementation, declared=False)
    bias = config.flag("attention_bias", False, nullable=False)
    width = config.integer("moe_intermediate_size", default=768, nullable=False)
    alias = "num_local_experts" if current else ""  # transformers 4 knows no other name
    experts = moe.either(config, "num_experts", alias, 128, least=0)
    step = config.integer("decoder_sparse_step", default=1, nullable=False)
    always_dense = moe.indices(config, "mlp_only_layers") or frozenset()
    moe.check_number(config, sizes.layers, experts)

    dense, sparse = Builder(), Builder()
    for layer in (dense, sparse):
        attention(layer, sizes, bias, bias)
        layer.norm("self_attn.q_norm", sizes.head_dim)
        layer.norm("self_attn.k_norm", sizes.head_dim)
    gated_mlp(dense, sizes)
    if current:  # 5 registers the experts before the router, 4 after it
        moe.experts(sparse, "mlp.experts", True, experts, sizes.hidden, width)
        sparse.add("mlp.gate.weight", experts, sizes.hidden)
    else:
        sparse.linear("mlp.gate", sizes.hidden, experts)
        moe.experts(sparse, "mlp.experts", False, experts, sizes.hidden, width)
    for layer in (dense, sparse):
        moe.norms(layer, sizes.hidden)

    def pick(i: int) -> Builder:
        return dense if i in always_dense or not experts or (i + 1) % step else sparse

    b = Builder()
    frequencies = plain_rope(config, implementation, sizes.head_dim, head_dim_stated=sizes.head_dim_stated)
    moe.decoder(b, sizes, implementation, name="Qwen3Moe", layer=pick, frequencies=frequencies)
    return b.model(
        family="qwen3_moe",
        implementation=implementation,
        architecture=name,
        tp_plan=prefixed(_PLAN_5 if current else _PLAN_4, "model", implementation),
        notes=(moe.STACKED,) if current else (),
    )
