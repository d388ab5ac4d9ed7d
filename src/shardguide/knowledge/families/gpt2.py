"""GPT-2: fused attention with transposed weights (Conv1D), learned positions, tied.

Source: transformers/models/gpt2, GPT2LMHeadModel; the same parameters in 4.57 and 5. transformers 4 keeps the causal
mask of every layer as a buffer. Published checkpoints differ among themselves (with and without the ``transformer.``
prefix, with and without the masks), so their layout is read from the file, not guessed.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config, refuse_checkpoint
from .decoder import check_layer_types, model_dtype, read_tied
from .rotary import is_current


def _conv1d(layer: Builder, name: str, inputs: int, outputs: int) -> None:
    """A Conv1D of transformers: weight (inputs, outputs), the transpose of a Linear, and a bias."""
    layer.add(f"{name}.weight", inputs, outputs)
    layer.add(f"{name}.bias", outputs)


def _masks(layer: Builder, name: str, positions: int, dtype: str) -> None:
    """The causal mask and its fill value that transformers 4 keeps per attention."""
    layer.buffer(f"{name}.bias", 1, 1, positions, positions, dtype="bool", persistent=False)
    layer.buffer(f"{name}.masked_bias", dtype=dtype, persistent=False)


def build(config: Config, implementation: str) -> Model:
    """GPT2LMHeadModel. Where a file has both names of a size (n_embd, hidden_size), the newer one wins."""
    refuse_checkpoint(config, implementation, "GPT-2")
    vocab = config.integer("vocab_size", default=50257, nullable=False)
    positions = config.integer("max_position_embeddings", "n_positions", default=1024, nullable=False)
    hidden = config.integer("hidden_size", "n_embd", default=768, nullable=False)
    layers = config.count("num_hidden_layers", "n_layer", default=12, nullable=False)
    heads = config.integer("num_attention_heads", "n_head", default=12, nullable=False)
    inner = config.integer("n_inner", default=4 * hidden)
    cross = config.flag("add_cross_attention", False, nullable=False)
    tied = read_tied(config, implementation, True)
    check_layer_types(config, layers, implementation, declared=False)
    if hidden % heads:
        raise config.refuse(f"n_embd {hidden} is not a multiple of n_head {heads}.")

    masks = "" if is_current(implementation) else model_dtype(config)
    layer = Builder()
    layer.norm("ln_1", hidden, bias=True)
    _conv1d(layer, "attn.c_attn", hidden, 3 * hidden)
    _conv1d(layer, "attn.c_proj", hidden, hidden)
    if masks:
        _masks(layer, "attn", positions, masks)
    layer.norm("ln_2", hidden, bias=True)
    if cross:
        _conv1d(layer, "crossattention.c_attn", hidden, 2 * hidden)
        _conv1d(layer, "crossattention.q_attn", hidden, hidden)
        _conv1d(layer, "crossattention.c_proj", hidden, hidden)
        if masks:
            _masks(layer, "crossattention", positions, masks)
        layer.norm("ln_cross_attn", hidden, bias=True)
    _conv1d(layer, "mlp.c_fc", hidden, inner)
    _conv1d(layer, "mlp.c_proj", inner, hidden)

    b = Builder()
    b.add("transformer.wte.weight", vocab, hidden, aliases=("lm_head.weight",) if tied else ())
    b.add("transformer.wpe.weight", positions, hidden)
    b.repeat("transformer.h", layers, "GPT2Block", layer)
    b.norm("transformer.ln_f", hidden, bias=True)
    if not tied:
        b.linear("lm_head", hidden, vocab)
        b.unit("embedding", "Embedding+Embedding", "transformer.wte", "transformer.wpe")
        b.unit("head", "LayerNorm+Linear", "transformer.ln_f", "lm_head")
    return b.model(family="gpt2", implementation=implementation, architecture="GPT2LMHeadModel")
