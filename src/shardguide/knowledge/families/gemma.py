"""Gemma (1): Llama with its own head_dim and a scaled embedding, tied.

Source: transformers/models/gemma, GemmaForCausalLM; the same parameters in 4.57, 5 and published checkpoints. The
embedding's scale is a buffer in transformers 5 only, in the dtype in which the model is built.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config
from .decoder import attention, check_layer_types, decoder, gated_mlp, model_dtype, read_sizes
from .rotary import is_current, plain_rope


def build(config: Config, implementation: str) -> Model:
    """GemmaForCausalLM."""
    sizes = read_sizes(
        config,
        implementation,
        vocab=256000,
        hidden=3072,
        intermediate=24576,
        layers=28,
        heads=16,
        kv_heads=16,
        kv_nullable=False,
        head_dim=256,
        head_dim_nullable=False,
        tied=True,
        padding=0,
    )
    check_layer_types(config, sizes.layers, implementation, declared=False)
    bias = config.flag("attention_bias", False, nullable=False)
    layer = Builder()
    attention(layer, sizes, bias, bias)
    gated_mlp(layer, sizes)
    layer.norm("input_layernorm", sizes.hidden)
    layer.norm("post_attention_layernorm", sizes.hidden)
    return decoder(
        layer,
        sizes,
        implementation,
        family="gemma",
        name="Gemma",
        frequencies=plain_rope(config, implementation, sizes.head_dim, head_dim_stated=True, type_first=False),
        embed_scale=model_dtype(config) if is_current(implementation) else "",
    )
