"""DeepSeek V3, R1 and their kin: latent attention, routed experts chosen with a score bias that is a buffer.

Source: transformers/models/deepseek_v3, DeepseekV3ForCausalLM. The published files are fp8 with block scales and hold a
multi-token-prediction layer that this class does not have, so their layout is not worked out here.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from . import mla
from .base import Config
from .decoder import model_dtype
from .rotary import is_current
from .tasks import architecture, ask_for_files

_PLAN_4 = {
    "layers.*.mlp.experts.*.gate_proj": "local_colwise",
    "layers.*.mlp.experts.*.up_proj": "local_colwise",
    "layers.*.mlp.experts.*.down_proj": "local_rowwise",
    "layers.*.mlp.experts.*": "local",
    "layers.*.mlp.shared_experts.gate_proj": "local_colwise",
    "layers.*.mlp.shared_experts.up_proj": "local_colwise",
    "layers.*.mlp.shared_experts.down_proj": "local_rowwise",
    "layers.*.mlp.shared_experts": "local",
    "layers.*.mlp.gate_proj": "local_colwise",
    "layers.*.mlp.up_proj": "local_colwise",
    "layers.*.mlp.down_proj": "local_rowwise",
    "layers.*.mlp": "gather",
}
_DEFAULTS = mla.Defaults(
    vocab=129280,
    hidden=7168,
    intermediate=18432,
    layers=61,
    heads=128,
    kv_heads=128,
    routed=256,
    routed_alias="num_local_experts",
    shared=1,
    moe_intermediate=2048,
    first_dense=3,
)


def build(config: Config, implementation: str) -> Model:
    """DeepseekV3ForCausalLM."""
    name = architecture(config, "DeepseekV3ForCausalLM")
    if implementation == "checkpoint":
        ask_for_files(config, "fp8 blocks with scales, and a multi-token-prediction layer")
    current = is_current(implementation)
    notes = []
    if config.values.get("quantization_config") is not None:
        notes.append("The published files are quantised; the shapes here are those of the model as it is trained.")
    if config.values.get("num_nextn_predict_layers"):
        notes.append("The multi-token-prediction layer of the published files is not part of this class.")
    return mla.build(
        config,
        implementation,
        name,
        _DEFAULTS,
        plan=mla.EXPERTS_5 | mla.DENSE if current else _PLAN_4,
        mlp_bias=False,
        score_bias="float32" if current else model_dtype(config),
        shared_nullable=False,
        rotated=config.integer("head_dim", default=config.integer("qk_rope_head_dim", default=64), nullable=False),
        notes=tuple(notes),
    )
