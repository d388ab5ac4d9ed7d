"""T5, T5 v1.1, Flan-T5: encoder and decoder share one embedding; the first layer of each holds the position bias.

Source: transformers/models/t5, T5ForConditionalGeneration, T5Model, T5EncoderModel. transformers 5 ties the output
projection to the embedding whatever the file says; 4.57 follows ``tie_word_embeddings``.
"""

from __future__ import annotations

from shardguide.guidance.model import Model

from .base import Builder, Config
from .moe import place
from .rotary import is_current
from .tasks import architecture, ask_for_files, refuse_pruned

_ALWAYS_TIED = (
    "The file says tie_word_embeddings: false, but transformers 5 ties lm_head to the embedding for every T5 "
    "(transformers 4 does not: --implementation transformers4)."
)
_WO_IN_FP32 = (
    "transformers keeps the wo projections in float32 when it loads a T5 in float16, and fully_shard refuses mixed "
    "dtypes in one group; bfloat16 has no such exception."
)


def _extent(config: Config, name: str, alias: str, default: int) -> int:
    """A size; the general name of the field (the class's ``attribute_map``) wins over T5's own."""
    value = config.integer(name, default=default, nullable=False)
    return config.integer(alias, default=value, nullable=False)


def _gated(config: Config) -> bool:
    """Whether ``feed_forward_proj`` names a gated activation ("gated-gelu")."""
    if config.is_null("feed_forward_proj"):
        raise config.refuse("feed_forward_proj is null; give it a value or leave it out.")
    parts = config.text("feed_forward_proj", "relu").split("-")
    gated = parts[0] == "gated"
    if len(parts) > 2 or (len(parts) == 2) is not gated:
        raise config.refuse("feed_forward_proj must be an activation, or 'gated-' and an activation.")
    return gated


def build(config: Config, implementation: str) -> Model:
    """T5ForConditionalGeneration, T5Model or T5EncoderModel."""
    name = architecture(config, "T5ForConditionalGeneration", "T5Model", "T5EncoderModel", "T5WithLMHeadModel")
    if name == "T5WithLMHeadModel":  # named by old files; transformers' auto class builds the class below for them
        name = "T5ForConditionalGeneration"
    if implementation == "checkpoint":
        ask_for_files(config, "which copies of the tied embedding a T5 file holds differs")
    current = is_current(implementation)
    refuse_pruned(config, implementation)
    if not current and config.values.get("tie_encoder_decoder"):
        raise config.refuse(
            "tie_encoder_decoder shares single weights of both halves; hand over a shape manifest instead."
        )
    vocab = config.integer("vocab_size", default=32128, nullable=False)
    hidden = _extent(config, "d_model", "hidden_size", 512)
    heads = _extent(config, "num_heads", "num_attention_heads", 8)
    inner = heads * _extent(config, "d_kv", "head_dim", 64)
    intermediate = config.integer("d_ff", default=2048, nullable=False)
    buckets = config.integer("relative_attention_num_buckets", default=32, nullable=False)
    own = config.count("num_layers", default=6, nullable=False)
    layers = config.count("num_hidden_layers", default=own, nullable=False)
    decoder_layers = config.count("num_decoder_layers", default=own)
    gated = _gated(config)
    stated_tie = config.flag("tie_word_embeddings", True, nullable=False)
    tied = stated_tie or current

    def attention(layer: Builder, module: str, bias: bool) -> None:
        for part in "qkv":
            layer.linear(f"{module}.{part}", hidden, inner)
        layer.linear(f"{module}.o", inner, hidden)
        if bias:
            layer.add(f"{module}.relative_attention_bias.weight", buckets, heads)

    def block(decodes: bool, first: bool) -> Builder:
        layer = Builder()
        attention(layer, "layer.0.SelfAttention", first)
        layer.norm("layer.0.layer_norm", hidden)
        if decodes:
            attention(layer, "layer.1.EncDecAttention", False)
            layer.norm("layer.1.layer_norm", hidden)
        last = f"layer.{1 + decodes}"
        for part in ("wi_0", "wi_1") if gated else ("wi",):
            layer.linear(f"{last}.DenseReluDense.{part}", hidden, intermediate)
        layer.linear(f"{last}.DenseReluDense.wo", intermediate, hidden)
        layer.norm(f"{last}.layer_norm", hidden)
        return layer

    def stack(b: Builder, module: str, count: int, decodes: bool) -> None:
        first, other = block(decodes, True), block(decodes, False)
        for i in range(count):
            place(b, f"{module}.block.{i}", "T5Block", other if i else first)
        b.norm(f"{module}.final_layer_norm", hidden)

    b = Builder()
    aliases = ["encoder.embed_tokens.weight"]
    if name != "T5EncoderModel":
        aliases.append("decoder.embed_tokens.weight")
    elif config.flag("is_decoder", False):
        raise config.refuse("an encoder with is_decoder: true has cross attention; hand over a shape manifest instead.")
    generates = name == "T5ForConditionalGeneration"
    if generates and tied:
        aliases.append("lm_head.weight")
    b.add("shared.weight", vocab, hidden, aliases=tuple(aliases))
    stack(b, "encoder", layers, False)
    if name != "T5EncoderModel":
        stack(b, "decoder", decoder_layers, True)
    if generates and not tied:
        b.linear("lm_head", hidden, vocab)
        b.unit("head", "Linear", "lm_head")
    notes = [_WO_IN_FP32]
    if generates and current and not stated_tie:
        notes.insert(0, _ALWAYS_TIED)
    return b.model(family="t5", implementation=implementation, architecture=name, notes=tuple(notes))
