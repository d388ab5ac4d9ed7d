"""BLOOM: ALiBi (no position parameters), fused query_key_value, a norm after the embedding, tied.

Source: transformers/models/bloom, BloomForCausalLM; the same parameters in 4.57 and 5. How published checkpoints name
them is read from the file, not guessed. No tensor-parallel plan.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config, refuse_checkpoint
from .decoder import check_layer_types, read_tied


def build(config: Config, implementation: str) -> Model:
    """BloomForCausalLM. ``n_embed``, ``num_hidden_layers`` and ``num_attention_heads`` win over their other names."""
    refuse_checkpoint(config, implementation, "BLOOM")
    vocab = config.integer("vocab_size", default=250880, nullable=False)
    hidden = config.integer("n_embed", default=config.integer("hidden_size", default=64, nullable=False))
    layers = config.count("num_hidden_layers", "n_layer", default=2, nullable=False)
    heads = config.integer("num_attention_heads", "n_head", default=8, nullable=False)
    tied = read_tied(config, implementation, True)
    check_layer_types(config, layers, implementation, declared=False)
    if hidden % heads:
        raise config.refuse(f"hidden_size {hidden} is not a multiple of n_head {heads}.")

    layer = Builder()
    layer.norm("input_layernorm", hidden, bias=True)
    layer.linear("self_attention.query_key_value", hidden, 3 * hidden, bias=True)
    layer.linear("self_attention.dense", hidden, hidden, bias=True)
    layer.norm("post_attention_layernorm", hidden, bias=True)
    layer.linear("mlp.dense_h_to_4h", hidden, 4 * hidden, bias=True)
    layer.linear("mlp.dense_4h_to_h", 4 * hidden, hidden, bias=True)

    b = Builder()
    b.add("transformer.word_embeddings.weight", vocab, hidden, aliases=("lm_head.weight",) if tied else ())
    b.norm("transformer.word_embeddings_layernorm", hidden, bias=True)
    b.repeat("transformer.h", layers, "BloomBlock", layer)
    b.norm("transformer.ln_f", hidden, bias=True)
    if not tied:
        b.linear("lm_head", hidden, vocab)
        b.unit(
            "embedding", "Embedding+LayerNorm", "transformer.word_embeddings", "transformer.word_embeddings_layernorm"
        )
        b.unit("head", "LayerNorm+Linear", "transformer.ln_f", "lm_head")
    return b.model(family="bloom", implementation=implementation, architecture="BloomForCausalLM")
