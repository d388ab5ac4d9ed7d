"""Mistral 7B, Nemo, Small (text): Llama without biases.

Source: transformers/models/mistral, MistralForCausalLM; the same parameters in 4.57 and 5. Published checkpoints in the
Hugging Face layout have the same names (a ``consolidated`` file has Mistral's own, read it instead).
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config
from .decoder import attention, check_layer_types, decoder, gated_mlp, read_sizes
from .rotary import is_current, plain_rope


def build(config: Config, implementation: str) -> Model:
    """MistralForCausalLM."""
    sizes = read_sizes(
        config,
        implementation,
        vocab=32000,
        hidden=4096,
        intermediate=14336,
        layers=32,
        heads=32,
        kv_heads=8,
        kv_nullable=not is_current(implementation),
        head_dim_always=True,
    )
    check_layer_types(config, sizes.layers, implementation, declared=False)
    layer = Builder()
    attention(layer, sizes, bias=False, output_bias=False)
    gated_mlp(layer, sizes)
    layer.norm("input_layernorm", sizes.hidden)
    layer.norm("post_attention_layernorm", sizes.hidden)
    frequencies = plain_rope(
        config,
        implementation,
        sizes.head_dim,
        head_dim_stated=True,
        type_first=False,
        head_dim_null=not is_current(implementation) and config.values.get("head_dim") is None,
    )
    return decoder(layer, sizes, implementation, family="mistral", name="Mistral", frequencies=frequencies)
