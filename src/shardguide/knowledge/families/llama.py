"""Llama 2, 3, 3.1, 3.2 (text): grouped-query attention, gated MLP, RMSNorm.

Source: transformers/models/llama, LlamaForCausalLM; the same parameters in 4.57 and 5. A published checkpoint has the
same names; those of Llama 2 may hold an ``inv_freq`` per layer, which is no parameter.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config
from .decoder import attention, check_layer_types, decoder, gated_mlp, read_sizes
from .rotary import plain_rope


def build(config: Config, implementation: str) -> Model:
    """LlamaForCausalLM."""
    sizes = read_sizes(
        config,
        implementation,
        vocab=32000,
        hidden=4096,
        intermediate=11008,
        layers=32,
        heads=32,
        kv_heads=None,
        head_dim_always=True,
        divisible=True,
    )
    check_layer_types(config, sizes.layers, implementation, declared=False)
    bias = config.flag("attention_bias", False, nullable=False)
    layer = Builder()
    attention(layer, sizes, bias, bias)
    gated_mlp(layer, sizes, config.flag("mlp_bias", False, nullable=False))
    layer.norm("input_layernorm", sizes.hidden)
    layer.norm("post_attention_layernorm", sizes.hidden)
    frequencies = plain_rope(config, implementation, sizes.head_dim, head_dim_stated=True)
    return decoder(layer, sizes, implementation, family="llama", name="Llama", frequencies=frequencies)
