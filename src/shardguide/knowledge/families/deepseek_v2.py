"""DeepSeek V2 and V2-Lite: latent attention, the first layers dense, the rest with routed and shared experts.

Source: transformers/models/deepseek_v2, DeepseekV2ForCausalLM. The published bfloat16 files have transformers 4's
layout (conversion_mapping.py of transformers 5 converts from exactly these names).
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from . import mla
from .base import Config
from .rotary import is_current
from .tasks import architecture, ask_for_files

_PLAN_5 = {
    "layers.*.self_attn.q_proj": "colwise",
    "layers.*.self_attn.q_b_proj": "colwise",
    "layers.*.self_attn.kv_a_proj_with_mqa": "mla_kv_a_proj",
    "layers.*.self_attn.kv_b_proj": "colwise",
    "layers.*.self_attn.o_proj": "rowwise",
    **mla.EXPERTS_5,
    **mla.DENSE,
}
_PLAN_4 = {
    "layers.*.self_attn.q_proj": "colwise",
    "layers.*.self_attn.q_a_proj": "colwise",
    "layers.*.self_attn.q_b_proj": "colwise",
    "layers.*.self_attn.kv_b_proj": "colwise",
    "layers.*.self_attn.o_proj": "rowwise",
    **mla.DENSE,
}


def build(config: Config, implementation: str) -> Model:
    """DeepseekV2ForCausalLM."""
    name = architecture(config, "DeepseekV2ForCausalLM")
    if implementation == "checkpoint" and config.values.get("quantization_config") is not None:
        ask_for_files(config, "it is quantised")
    current = is_current(implementation)
    defaults = mla.Defaults(
        vocab=102400 if current else 32000,
        hidden=4096,
        intermediate=11008,
        layers=32,
        heads=32,
        kv_heads=0,
        routed=64,
        routed_alias="num_experts",
        shared=2,
        moe_intermediate=1407,
        first_dense=0,
    )
    hidden = config.integer("hidden_size", default=defaults.hidden)
    heads = config.integer("num_attention_heads", default=defaults.heads)
    if current and hidden % heads:
        raise config.refuse(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}.")
    return mla.build(
        config,
        implementation,
        name,
        defaults,
        plan=_PLAN_5 if current else _PLAN_4,
        mlp_bias=config.flag("mlp_bias", False, nullable=False),
        score_bias="",
        shared_nullable=not current,
        rotated=config.integer("qk_rope_head_dim", default=64),
        notes=(),
    )
