"""StarCoder2: LayerNorm, a plain MLP, biases, tied.

Source: transformers/models/starcoder2, Starcoder2ForCausalLM; the same parameters in 4.57, 5 and published checkpoints.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config
from .decoder import attention, check_layer_types, decoder, read_sizes
from .rotary import plain_rope

TP_PLAN = {
    "layers.*.self_attn.q_proj": "colwise",
    "layers.*.self_attn.k_proj": "colwise",
    "layers.*.self_attn.v_proj": "colwise",
    "layers.*.self_attn.o_proj": "rowwise",
    "layers.*.mlp.c_fc": "colwise",
    "layers.*.mlp.c_proj": "rowwise",
}


def build(config: Config, implementation: str) -> Model:
    """Starcoder2ForCausalLM."""
    sizes = read_sizes(
        config,
        implementation,
        vocab=49152,
        hidden=3072,
        intermediate=12288,
        layers=30,
        heads=24,
        kv_heads=2,
        kv_nullable=False,
        tied=True,
    )
    check_layer_types(config, sizes.layers, implementation, declared=False)
    bias = config.flag("use_bias", True, nullable=False)
    layer = Builder()
    attention(layer, sizes, bias, bias)
    layer.linear("mlp.c_fc", sizes.hidden, sizes.intermediate, bias)
    layer.linear("mlp.c_proj", sizes.intermediate, sizes.hidden, bias)
    layer.norm("input_layernorm", sizes.hidden, bias=True)
    layer.norm("post_attention_layernorm", sizes.hidden, bias=True)
    return decoder(
        layer,
        sizes,
        implementation,
        family="starcoder2",
        name="Starcoder2",
        frequencies=plain_rope(
            config,
            implementation,
            sizes.head_dim,
            head_dim_stated=sizes.head_dim_stated,
            head_dim_null=config.is_null("head_dim"),
        ),
        norm="LayerNorm",
        norm_bias=True,
        plan=TP_PLAN,
    )
