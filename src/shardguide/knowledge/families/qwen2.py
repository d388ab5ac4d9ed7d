"""Qwen 2 and 2.5 (text): Llama with biases on query, key and value only.

Source: transformers/models/qwen2, Qwen2ForCausalLM; the same parameters in 4.57, 5 and published checkpoints.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config
from .decoder import attention, check_layer_types, decoder, gated_mlp, read_sizes
from .rotary import plain_rope


def build(config: Config, implementation: str) -> Model:
    """Qwen2ForCausalLM."""
    sizes = read_sizes(
        config,
        implementation,
        vocab=151936,
        hidden=4096,
        intermediate=22016,
        layers=32,
        heads=32,
        kv_heads=32,
        head_dim_nullable=False,
    )
    check_layer_types(config, sizes.layers, implementation, declared=True)
    layer = Builder()
    attention(layer, sizes, bias=True, output_bias=False)
    gated_mlp(layer, sizes)
    layer.norm("input_layernorm", sizes.hidden)
    layer.norm("post_attention_layernorm", sizes.hidden)
    frequencies = plain_rope(
        config, implementation, sizes.head_dim, head_dim_stated=sizes.head_dim_stated, per_layer_type=True
    )
    return decoder(layer, sizes, implementation, family="qwen2", name="Qwen2", frequencies=frequencies)
