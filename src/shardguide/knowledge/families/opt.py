"""OPT: learned positions (two more than stated), biases, tied; 350M projects its embedding and norms after, not before.

Source: transformers/models/opt, OPTForCausalLM; the same parameters in 4.57 and 5. How published checkpoints name them
is read from the file, not guessed. No tensor-parallel plan.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config, refuse_checkpoint
from .decoder import check_layer_types, check_padding, read_tied
from .rotary import is_current

POSITION_OFFSET = 2  # OPTLearnedPositionalEmbedding.offset


def _norm(b: Builder, name: str, width: int, affine: bool) -> None:
    """A LayerNorm, which has no parameters without elementwise_affine."""
    if affine:
        b.norm(name, width, bias=True)


def build(config: Config, implementation: str) -> Model:
    """OPTForCausalLM."""
    refuse_checkpoint(config, implementation, "OPT")
    vocab = config.integer("vocab_size", default=50272, nullable=False)
    hidden = config.integer("hidden_size", default=768, nullable=False)
    layers = config.count("num_hidden_layers", default=12, nullable=False)
    inner = config.integer("ffn_dim", default=3072, nullable=False)
    positions = config.integer("max_position_embeddings", default=2048, nullable=False)
    heads = config.integer("num_attention_heads", default=12, nullable=False)
    embedded = config.integer("word_embed_proj_dim", default=hidden)
    bias = config.flag("enable_bias", True, nullable=False)
    affine = config.flag("layer_norm_elementwise_affine", True, nullable=False)
    final_norm = config.flag("do_layer_norm_before", True, nullable=False) and not config.flag(
        "_remove_final_layer_norm", False, nullable=False
    )
    tied = read_tied(config, implementation, True)
    check_padding(config, vocab, 1)
    check_layer_types(config, layers, implementation, declared=False)
    if hidden % heads:
        raise config.refuse(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}.")
    if not affine and not is_current(implementation):
        raise config.refuse("transformers 4 cannot initialise OPT with layer_norm_elementwise_affine false.")

    layer = Builder()
    for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
        layer.linear(f"self_attn.{name}", hidden, hidden, bias)
    _norm(layer, "self_attn_layer_norm", hidden, affine)
    layer.linear("fc1", hidden, inner, bias)
    layer.linear("fc2", inner, hidden, bias)
    _norm(layer, "final_layer_norm", hidden, affine)

    b = Builder()
    b.add("model.decoder.embed_tokens.weight", vocab, embedded, aliases=("lm_head.weight",) if tied else ())
    b.add("model.decoder.embed_positions.weight", positions + POSITION_OFFSET, hidden)
    if embedded != hidden:
        b.linear("model.decoder.project_out", hidden, embedded)
        b.linear("model.decoder.project_in", embedded, hidden)
    if final_norm:
        _norm(b, "model.decoder.final_layer_norm", hidden, affine)
    b.repeat("model.decoder.layers", layers, "OPTDecoderLayer", layer)
    if not tied:
        b.linear("lm_head", embedded, vocab)
        b.unit(
            "embedding",
            "Embedding+OPTLearnedPositionalEmbedding",
            "model.decoder.embed_tokens",
            "model.decoder.embed_positions",
        )
        if final_norm and affine:
            b.unit("head", "LayerNorm+Linear", "model.decoder.final_layer_norm", "lm_head")
        else:
            b.unit("head", "Linear", "lm_head")
    return b.model(family="opt", implementation=implementation, architecture="OPTForCausalLM")
