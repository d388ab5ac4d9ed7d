"""OLMo 2: norms after attention and MLP, and a norm over the whole query and key.

Source: transformers/models/olmo2, Olmo2ForCausalLM; the same parameters in 4.57, 5 and published checkpoints.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config
from .decoder import TP_PLAN, attention, check_layer_types, decoder, gated_mlp, read_sizes
from .rotary import is_current, plain_rope

_PLAN = TP_PLAN | {
    "layers.*.self_attn.q_proj": "colwise_gather_output",
    "layers.*.self_attn.k_proj": "colwise_gather_output",
    "layers.*.self_attn.v_proj": "colwise_gather_output",
    "layers.*.self_attn.o_proj": "rowwise_split_input",
}


def _check_old_rope(config: Config) -> None:
    """For 4.57: it takes ``type`` linear or dynamic with a ``factor`` above 1, and nothing else."""
    rope = config.values.get("rope_scaling")
    if rope is None:
        return
    factor = rope.get("factor") if isinstance(rope, dict) and len(rope) == 2 else None
    if not isinstance(factor, float) or factor <= 1.0 or rope.get("type") not in ("linear", "dynamic"):
        raise config.refuse("rope_scaling must have type linear or dynamic and a factor above 1.0, and nothing else.")


def build(config: Config, implementation: str) -> Model:
    """Olmo2ForCausalLM."""
    sizes = read_sizes(
        config,
        implementation,
        vocab=50304,
        hidden=4096,
        intermediate=11008,
        layers=32,
        heads=32,
        kv_heads=None,
        head_dim_nullable=False,
        padding=1,
    )
    check_layer_types(config, sizes.layers, implementation, declared=False)
    if not is_current(implementation):
        _check_old_rope(config)
    bias = config.flag("attention_bias", False, nullable=False)
    layer = Builder()
    attention(layer, sizes, bias, bias)
    layer.norm("self_attn.q_norm", sizes.heads * sizes.head_dim)
    layer.norm("self_attn.k_norm", sizes.kv_heads * sizes.head_dim)
    gated_mlp(layer, sizes)
    layer.norm("post_attention_layernorm", sizes.hidden)
    layer.norm("post_feedforward_layernorm", sizes.hidden)
    return decoder(
        layer,
        sizes,
        implementation,
        family="olmo2",
        name="Olmo2",
        frequencies=plain_rope(config, implementation, sizes.head_dim, head_dim_stated=sizes.head_dim_stated),
        plan=_PLAN,
    )
