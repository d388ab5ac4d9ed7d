"""Falcon 7B (multi-query, parallel attention), 40B and 180B (new decoder architecture), RW (ALiBi, sequential).

Source: transformers/models/falcon, FalconForCausalLM; the same parameters in 4.57, 5 and published checkpoints (which
may store the tied lm_head.weight a second time). The rotary embedding is there with ALiBi too. No tensor-parallel plan.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config
from .decoder import check_layer_types, read_tied
from .rotary import add_frequencies, is_current, plain_rope


def _flag(config: Config, name: str, default: bool) -> bool:
    """A true/false field whose null means false, as Python reads it in FalconDecoderLayer."""
    return config.flag(name, False if config.is_null(name) else default)


def _norms(config: Config, hidden: int, new: bool, layer: Builder) -> None:
    """One norm, or two with other names: that depends on three fields."""
    count = config.values.get("num_ln_in_parallel_attn")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
        raise config.refuse(f"num_ln_in_parallel_attn must be 1 or 2, not {str(count)[:40]!r}.")
    if not _flag(config, "parallel_attn", True):
        names: tuple[str, ...] = ("post_attention_layernorm", "input_layernorm")
    elif count == 2 or (count is None and new):
        names = ("ln_attn", "ln_mlp")
    else:
        names = ("input_layernorm",)
    for name in names:
        layer.norm(name, hidden, bias=True)


def build(config: Config, implementation: str) -> Model:
    """FalconForCausalLM."""
    for name in ("head_dim", "rotary"):  # read-only properties of the configuration class
        if name in config.values:
            raise config.refuse(f"transformers' Falcon does not let {name} be set; leave it out.")
    vocab = config.integer("vocab_size", default=65024, nullable=False)
    stated = config.integer("hidden_size", default=4544, nullable=False)
    hidden = config.integer("n_embed", default=stated)
    layers = config.count("num_hidden_layers", default=32, nullable=False)
    heads = config.integer("num_attention_heads", default=71, nullable=False)
    kv_heads = config.integer("num_kv_heads", default=heads)
    # 4.57 works the default out before it reads n_embed
    inner = config.integer("ffn_hidden_size", default=4 * (hidden if is_current(implementation) else stated))
    bias = _flag(config, "bias", False)
    new = _flag(config, "new_decoder_architecture", False)
    tied = read_tied(config, implementation, True)
    check_layer_types(config, layers, implementation, declared=False)
    if hidden % heads:
        raise config.refuse(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}.")
    head_dim = hidden // heads
    if new:
        qkv = (2 * kv_heads + heads) * head_dim
    elif _flag(config, "multi_query", True):
        qkv = hidden + 2 * head_dim
    else:
        qkv = 3 * hidden

    layer = Builder()
    layer.linear("self_attention.query_key_value", hidden, qkv, bias)
    layer.linear("self_attention.dense", hidden, hidden, bias)
    layer.linear("mlp.dense_h_to_4h", hidden, inner, bias)
    layer.linear("mlp.dense_4h_to_h", inner, hidden, bias)
    _norms(config, hidden, new, layer)

    b = Builder()
    b.add("transformer.word_embeddings.weight", vocab, hidden, aliases=("lm_head.weight",) if tied else ())
    b.repeat("transformer.h", layers, "FalconDecoderLayer", layer)
    b.norm("transformer.ln_f", hidden, bias=True)
    frequencies = plain_rope(config, implementation, head_dim, head_dim_stated=True, type_first=False)
    add_frequencies(b, "transformer.rotary_emb", frequencies, implementation)
    if not tied:
        b.linear("lm_head", hidden, vocab)
        b.unit("embedding", "Embedding", "transformer.word_embeddings")
        b.unit("head", "LayerNorm+Linear", "transformer.ln_f", "lm_head")
    return b.model(family="falcon", implementation=implementation, architecture="FalconForCausalLM")
