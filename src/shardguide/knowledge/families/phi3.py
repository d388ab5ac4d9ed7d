"""Phi-3, Phi-3.5, Phi-4 and Phi-4-mini (text): fused qkv_proj and gate_up_proj.

Source: transformers/models/phi3, Phi3ForCausalLM; the same parameters in 4.57, 5 and published checkpoints. The output
projection of attention is registered before the fused input projection.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config
from .decoder import check_layer_types, decoder, read_sizes
from .rotary import check_even, frequencies, is_current, partial_factor, rope_fields, rope_kind

TP_PLAN = {
    "layers.*.self_attn.qkv_proj": "colwise_gather_output",
    "layers.*.self_attn.o_proj": "rowwise_split_input",
    "layers.*.mlp.gate_up_proj": "colwise_gather_output",
    "layers.*.mlp.down_proj": "rowwise_split_input",
}


def _frequencies(config: Config, implementation: str, head_dim: int, head_dim_stated: bool) -> int:
    """Phi-3 takes plain rope or longrope only; its first files call the latter "su" or "yarn"."""
    rope = dict(rope_fields(config, implementation))
    stated = rope.get("rope_type", rope.get("type"))
    if is_current(implementation) and stated == "su" and "original_max_position_embeddings" not in rope:
        raise config.refuse('transformers 5 does not take the rope type "su" any more; its name is "longrope".')
    old_name = "type" if "rope_type" not in rope or not is_current(implementation) else "rope_type"
    if rope.get(old_name) in ("su", "yarn"):
        rope[old_name] = "longrope"
    kind = rope_kind(config, rope, implementation)
    if is_current(implementation):
        if kind not in ("default", "longrope"):
            raise config.refuse(f"Phi-3 has plain rope or longrope, not {kind}.")
    elif config.values.get("rope_scaling") is not None and (rope.get("type") != "longrope" or len(rope) != 3):
        raise config.refuse("rope_scaling must have type longrope, short_factor and long_factor, and nothing else.")
    rotated = int(head_dim * partial_factor(config, rope, "partial_rotary_factor", 1.0, implementation))
    if head_dim_stated:
        check_even(config, head_dim, rotated, implementation)
    if kind == "longrope" and rotated % 2:
        raise config.refuse(f"the longrope of Phi-3 needs an even number of rotated dimensions, not {rotated}.")
    return frequencies(config, rope, kind, head_dim, rotated)


def build(config: Config, implementation: str) -> Model:
    """Phi3ForCausalLM."""
    sizes = read_sizes(
        config,
        implementation,
        vocab=32064,
        hidden=3072,
        intermediate=8192,
        layers=32,
        heads=32,
        kv_heads=None,
        head_dim_nullable=False,
        padding=32000,
    )
    check_layer_types(config, sizes.layers, implementation, declared=False)
    width = sizes.heads * sizes.head_dim
    layer = Builder()
    layer.linear("self_attn.o_proj", width, sizes.hidden)
    layer.linear("self_attn.qkv_proj", sizes.hidden, width + 2 * sizes.kv_heads * sizes.head_dim)
    layer.linear("mlp.gate_up_proj", sizes.hidden, 2 * sizes.intermediate)
    layer.linear("mlp.down_proj", sizes.intermediate, sizes.hidden)
    layer.norm("input_layernorm", sizes.hidden)
    layer.norm("post_attention_layernorm", sizes.hidden)
    return decoder(
        layer,
        sizes,
        implementation,
        family="phi3",
        name="Phi3",
        frequencies=_frequencies(config, implementation, sizes.head_dim, sizes.head_dim_stated),
        plan=TP_PLAN,
    )
