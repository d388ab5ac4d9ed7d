"""Mixtral: every layer's MLP is a router with equal experts.

Source: transformers/models/mixtral, MixtralForCausalLM. The published files have transformers 4's layout
(conversion_mapping.py of transformers 5 converts from exactly these names).
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from . import moe
from .base import Builder, Config
from .decoder import attention, check_layer_types, prefixed, read_sizes
from .rotary import is_current, plain_rope
from .tasks import architecture

_ATTENTION = {
    "layers.*.self_attn.q_proj": "colwise",
    "layers.*.self_attn.k_proj": "colwise",
    "layers.*.self_attn.v_proj": "colwise",
    "layers.*.self_attn.o_proj": "rowwise",
}
_PLAN_5 = _ATTENTION | {
    "layers.*.mlp.experts.gate_up_proj": "packed_colwise",
    "layers.*.mlp.experts.down_proj": "rowwise",
    "layers.*.mlp.experts": "moe_tp_experts",
}
_PLAN_4 = _ATTENTION | {
    "layers.*.block_sparse_moe.gate": "colwise_rep",
    "layers.*.block_sparse_moe.experts.*.w1": "colwise",
    "layers.*.block_sparse_moe.experts.*.w2": "rowwise",
    "layers.*.block_sparse_moe.experts.*.w3": "colwise",
}


def build(config: Config, implementation: str) -> Model:
    """MixtralForCausalLM."""
    name = architecture(config, "MixtralForCausalLM")
    current = is_current(implementation)
    sizes = read_sizes(
        config,
        implementation,
        vocab=32000,
        hidden=4096,
        intermediate=14336,
        layers=32,
        heads=32,
        kv_heads=8,
        kv_nullable=not current,
        head_dim_always=True,
    )
    check_layer_types(config, sizes.layers, implementation, declared=False)
    alias = "num_experts" if current else ""  # transformers 4 knows no other name
    experts = moe.either(config, "num_local_experts", alias, 8)
    moe.check_number(config, sizes.layers, experts)

    layer = Builder()
    attention(layer, sizes, bias=False, output_bias=False)
    if current:
        layer.add("mlp.gate.weight", experts, sizes.hidden)
        moe.experts(layer, "mlp.experts", True, experts, sizes.hidden, sizes.intermediate)
    else:
        layer.linear("block_sparse_moe.gate", sizes.hidden, experts)
        for i in range(experts):
            layer.linear(f"block_sparse_moe.experts.{i}.w1", sizes.hidden, sizes.intermediate)
            layer.linear(f"block_sparse_moe.experts.{i}.w2", sizes.intermediate, sizes.hidden)
            layer.linear(f"block_sparse_moe.experts.{i}.w3", sizes.hidden, sizes.intermediate)
    moe.norms(layer, sizes.hidden)

    b = Builder()
    frequencies = plain_rope(
        config,
        implementation,
        sizes.head_dim,
        head_dim_stated=config.values.get("head_dim") is not None,
        type_first=False,
    )
    moe.decoder(b, sizes, implementation, name="Mixtral", layer=lambda _: layer, frequencies=frequencies)
    return b.model(
        family="mixtral",
        implementation=implementation,
        architecture=name,
        tp_plan=prefixed(_PLAN_5 if current else _PLAN_4, "model", implementation),
        notes=(moe.STACKED,) if current else (),
    )
