"""Qwen 3 dense (text): Llama with a norm on every head of query and key.

Source: transformers/models/qwen3, Qwen3ForCausalLM; the same parameters in 4.57, 5 and published checkpoints.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config
from .decoder import TP_PLAN, attention, check_layer_types, decoder, gated_mlp, read_sizes
from .rotary import is_current, plain_rope

# Only transformers 5 names the norms.
_NORMS = {
    "layers.*.self_attn.q_norm": "replicated_with_grad_allreduce",
    "layers.*.self_attn.k_norm": "replicated_with_grad_allreduce",
}


def build(config: Config, implementation: str) -> Model:
    """Qwen3ForCausalLM."""
    sizes = read_sizes(
        config,
        implementation,
        vocab=151936,
        hidden=4096,
        intermediate=22016,
        layers=32,
        heads=32,
        kv_heads=32,
        head_dim=128,
        head_dim_nullable=False,
    )
    check_layer_types(config, sizes.layers, implementation, declared=True)
    bias = config.flag("attention_bias", False, nullable=False)
    layer = Builder()
    attention(layer, sizes, bias, bias)
    layer.norm("self_attn.q_norm", sizes.head_dim)
    layer.norm("self_attn.k_norm", sizes.head_dim)
    gated_mlp(layer, sizes)
    layer.norm("input_layernorm", sizes.hidden)
    layer.norm("post_attention_layernorm", sizes.hidden)
    return decoder(
        layer,
        sizes,
        implementation,
        family="qwen3",
        name="Qwen3",
        frequencies=plain_rope(config, implementation, sizes.head_dim, head_dim_stated=True, per_layer_type=True),
        plan=TP_PLAN | _NORMS if is_current(implementation) else TP_PLAN,
    )
