"""What DeepSeek V2 and V3 share: latent attention (MLA), dense first layers, routed and shared experts.

Sources: transformers/models/deepseek_v2 and deepseek_v3 (5.24 and 4.57).
"""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.model import Model

from . import moe
from .base import Builder, Config
from .decoder import Sizes, check_layer_types, check_padding, prefixed
from .rotary import is_current, plain_rope

EXPERTS_5 = {
    "layers.*.mlp.experts.gate_up_proj": "packed_colwise",
    "layers.*.mlp.experts.down_proj": "rowwise",
    "layers.*.mlp.experts": "moe_tp_experts",
    "layers.*.mlp.shared_experts.gate_proj": "colwise",
    "layers.*.mlp.shared_experts.up_proj": "colwise",
    "layers.*.mlp.shared_experts.down_proj": "rowwise",
}
DENSE = {
    "layers.*.mlp.gate_proj": "colwise",
    "layers.*.mlp.up_proj": "colwise",
    "layers.*.mlp.down_proj": "rowwise",
}

ROUTER_IN_FP32 = (
    "Transformers 5 keeps the router's weight (mlp.gate.weight) in float32 even when the rest is in bfloat16, and "
    "fully_shard refuses mixed dtypes in one group: convert the whole model to one dtype, or give the gates a group of "
    "their own."
)


class Defaults(NamedTuple):
    """Where the two configuration classes differ."""

    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int  # 0: as many as heads
    routed: int
    routed_alias: str  # the other name of n_routed_experts in transformers 5
    shared: int
    moe_intermediate: int
    first_dense: int


def attention(layer: Builder, config: Config, hidden: int, heads: int, rope: int, bias: bool) -> None:
    """Latent attention: queries through a low rank unless ``q_lora_rank`` is null, keys and values always."""
    nope = config.integer("qk_nope_head_dim", default=128, nullable=False)
    value = config.integer("v_head_dim", default=128, nullable=False)
    latent = config.integer("kv_lora_rank", default=512, nullable=False)
    if config.is_null("q_lora_rank"):
        layer.linear("self_attn.q_proj", hidden, heads * (nope + rope))
    else:
        rank = config.integer("q_lora_rank", default=1536)
        layer.linear("self_attn.q_a_proj", hidden, rank, bias)
        layer.norm("self_attn.q_a_layernorm", rank)
        layer.linear("self_attn.q_b_proj", rank, heads * (nope + rope))
    layer.linear("self_attn.kv_a_proj_with_mqa", hidden, latent + rope, bias)
    layer.norm("self_attn.kv_a_layernorm", latent)
    layer.linear("self_attn.kv_b_proj", latent, heads * (nope + value))
    layer.linear("self_attn.o_proj", heads * value, hidden, bias)


def build(
    config: Config,
    implementation: str,
    architecture: str,
    d: Defaults,
    *,
    plan: dict[str, str],
    mlp_bias: bool,
    score_bias: str,
    shared_nullable: bool,
    rotated: int,
    notes: tuple[str, ...],
) -> Model:
    """``{architecture}`` from a configuration with the defaults ``d``.

    ``score_bias`` is the dtype of the router's buffer ``e_score_correction_bias``, "" where there is none. ``rotated``
    is the width that the rotary embedding is made for.
    """
    current = is_current(implementation)
    hidden = config.integer("hidden_size", default=d.hidden, nullable=False)
    heads = config.integer("num_attention_heads", default=d.heads, nullable=False)
    config.integer("num_key_value_heads", default=d.kv_heads or heads)  # must make sense, decides no shape
    rope = config.integer("qk_rope_head_dim", default=64, nullable=False)
    sizes = Sizes(
        vocab=config.integer("vocab_size", default=d.vocab, nullable=False),
        hidden=hidden,
        intermediate=config.integer("intermediate_size", default=d.intermediate, nullable=False),
        layers=config.count("num_hidden_layers", default=d.layers, nullable=False),
        heads=heads,
        kv_heads=heads,
        head_dim=rope,
        head_dim_stated=True,
        tied=config.flag("tie_word_embeddings", False, nullable=False),
    )
    check_padding(config, sizes.vocab, None)
    check_layer_types(config, sizes.layers, implementation, declared=False)
    width = config.integer("moe_intermediate_size", default=d.moe_intermediate, nullable=False)
    first = moe.extent(config, "first_k_dense_replace", d.first_dense, least=0)
    alias = d.routed_alias if current else ""  # transformers 4 knows no other name
    routed = moe.either(config, "n_routed_experts", alias, d.routed)
    moe.check_number(config, sizes.layers, routed)
    bias = config.flag("attention_bias", False, nullable=False)

    dense, sparse = Builder(), Builder()
    for layer in (dense, sparse):
        attention(layer, config, hidden, heads, rope, bias)
    moe.gated(dense, "mlp", hidden, sizes.intermediate, mlp_bias)
    moe.experts(sparse, "mlp.experts", current, routed, hidden, width, mlp_bias)
    sparse.add("mlp.gate.weight", routed, hidden)
    if score_bias:
        sparse.buffer("mlp.gate.e_score_correction_bias", routed, dtype=score_bias)
    if not (shared_nullable and config.is_null("n_shared_experts")):
        shared = config.integer("n_shared_experts", default=d.shared, nullable=False)
        moe.gated(sparse, "mlp.shared_experts", hidden, shared * width, mlp_bias)
    for layer in (dense, sparse):
        moe.norms(layer, hidden)

    b = Builder()
    moe.decoder(
        b,
        sizes,
        implementation,
        name=architecture.removesuffix("ForCausalLM"),
        layer=lambda i: sparse if i >= first else dense,
        frequencies=plain_rope(config, implementation, rotated, head_dim_stated=True),
    )
    if current:
        notes = (moe.STACKED, ROUTER_IN_FP32, *notes)
    return b.model(
        family=str(config.values.get("model_type")),
        implementation=implementation,
        architecture=architecture,
        tp_plan=prefixed(plan, "model", implementation),
        notes=notes,
    )
