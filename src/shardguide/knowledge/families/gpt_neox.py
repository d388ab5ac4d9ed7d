"""GPT-NeoX 20B and Pythia: fused query_key_value, partial rotary embedding, LayerNorm.

Source: transformers/models/gpt_neox, GPTNeoXForCausalLM. transformers 5 calls the output projection ``lm_head``, 4.57
and the published checkpoints ``embed_out``; those may also hold masks and ``inv_freq`` per layer, no parameters.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config
from .decoder import check_layer_types, prefixed, read_tied
from .rotary import add_frequencies, is_current, plain_rope

TP_PLAN = {
    "layers.*.attention.query_key_value": "colwise",
    "layers.*.attention.dense": "rowwise",
    "layers.*.mlp.dense_h_to_4h": "colwise",
    "layers.*.mlp.dense_4h_to_h": "rowwise",
}


def build(config: Config, implementation: str) -> Model:
    """GPTNeoXForCausalLM."""
    vocab = config.integer("vocab_size", default=50432, nullable=False)
    hidden = config.integer("hidden_size", default=6144, nullable=False)
    layers = config.count("num_hidden_layers", default=44, nullable=False)
    heads = config.integer("num_attention_heads", default=64, nullable=False)
    intermediate = config.integer("intermediate_size", default=24576, nullable=False)
    bias = config.flag("attention_bias", True, nullable=False)
    tied = read_tied(config, implementation, False)
    check_layer_types(config, layers, implementation, declared=False)
    if hidden % heads:
        raise config.refuse(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}.")
    frequencies = plain_rope(
        config,
        implementation,
        config.integer("head_dim", default=hidden // heads),
        head_dim_stated=config.values.get("head_dim") is not None,
        head_dim_null=config.is_null("head_dim"),
        partial=True,
        partial_name="rotary_pct",
        partial_default=0.25,
    )

    layer = Builder()
    layer.norm("input_layernorm", hidden, bias=True)
    layer.norm("post_attention_layernorm", hidden, bias=True)
    layer.linear("attention.query_key_value", hidden, 3 * hidden, bias)
    layer.linear("attention.dense", hidden, hidden, bias)
    layer.linear("mlp.dense_h_to_4h", hidden, intermediate, bias=True)
    layer.linear("mlp.dense_4h_to_h", intermediate, hidden, bias=True)

    head = "lm_head" if is_current(implementation) else "embed_out"
    b = Builder()
    b.add("gpt_neox.embed_in.weight", vocab, hidden, aliases=(f"{head}.weight",) if tied else ())
    b.repeat("gpt_neox.layers", layers, "GPTNeoXLayer", layer)
    b.norm("gpt_neox.final_layer_norm", hidden, bias=True)
    add_frequencies(b, "gpt_neox.rotary_emb", frequencies, implementation)
    if not tied:
        b.linear(head, hidden, vocab)
        b.unit("embedding", "Embedding", "gpt_neox.embed_in")
        b.unit("head", "LayerNorm+Linear", "gpt_neox.final_layer_norm", head)
    plan = {"embed_in": "embedding_rowwise"} | TP_PLAN if is_current(implementation) else TP_PLAN
    return b.model(
        family="gpt_neox",
        implementation=implementation,
        architecture="GPTNeoXForCausalLM",
        tp_plan=prefixed(plan, "gpt_neox", implementation),
    )
