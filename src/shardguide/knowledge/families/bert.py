"""BERT: the encoder with any of its heads.

Source: transformers/models/bert. The masked-language heads tie their output projection to the word embedding, and its
bias to ``cls.predictions.bias``; transformers 4 ties that bias even when ``tie_word_embeddings`` is false.
"""

from __future__ import annotations

from shardguide.guidance.model import Model, Parameter

from .base import Builder, Config
from .decoder import check_padding
from .rotary import is_current
from .tasks import architecture, ask_for_files, labels, refuse_pruned

# class -> (has the pooler, what comes after the encoder)
_CLASSES: dict[str, tuple[bool, str]] = {
    "BertForMaskedLM": (False, "BertOnlyMLMHead"),
    "BertModel": (True, ""),
    "BertForPreTraining": (True, "BertPreTrainingHeads"),
    "BertLMHeadModel": (False, "BertOnlyMLMHead"),
    "BertForNextSentencePrediction": (True, "next sentence"),
    "BertForSequenceClassification": (True, "classifier"),
    "BertForMultipleChoice": (True, "choice"),
    "BertForTokenClassification": (False, "classifier"),
    "BertForQuestionAnswering": (False, "qa_outputs"),
}


def _layer(config: Config, implementation: str, hidden: int, heads: int, positions: int) -> Builder:
    """One BertLayer, with cross attention in a decoder that asks for it."""
    intermediate = config.integer("intermediate_size", default=3072, nullable=False)
    crosses = config.flag("add_cross_attention", False, nullable=False)
    if crosses and not config.flag("is_decoder", False, nullable=False):
        raise config.refuse("add_cross_attention needs is_decoder: true.")
    relative = config.text("position_embedding_type", "absolute") in ("relative_key", "relative_key_query")
    layer = Builder()
    for module in ("attention", "crossattention") if crosses else ("attention",):
        for part in ("query", "key", "value"):
            layer.linear(f"{module}.self.{part}", hidden, hidden, bias=True)
        if relative and module == "attention" and not is_current(implementation):
            layer.add(f"{module}.self.distance_embedding.weight", 2 * positions - 1, hidden // heads)
        layer.linear(f"{module}.output.dense", hidden, hidden, bias=True)
        layer.norm(f"{module}.output.LayerNorm", hidden, bias=True)
    layer.linear("intermediate.dense", hidden, intermediate, bias=True)
    layer.linear("output.dense", intermediate, hidden, bias=True)
    layer.norm("output.LayerNorm", hidden, bias=True)
    return layer


def _language_head(b: Builder, hidden: int, vocab: int, tied: bool, current: bool) -> None:
    """BertLMPredictionHead: the bias comes first, since a module's own parameters precede its children's."""
    apart = current and not tied
    b.parameters.append(
        Parameter("cls.predictions.bias", (vocab,), aliases=() if apart else ("cls.predictions.decoder.bias",))
    )
    b.linear("cls.predictions.transform.dense", hidden, hidden, bias=True)
    b.norm("cls.predictions.transform.LayerNorm", hidden, bias=True)
    if not tied:
        b.linear("cls.predictions.decoder", hidden, vocab, bias=apart)


def build(config: Config, implementation: str) -> Model:
    """BertForMaskedLM, or the class that the file names."""
    name = architecture(config, *_CLASSES)
    if implementation == "checkpoint":
        ask_for_files(config, "BERT files differ in the heads they hold and in the names of their norms")
    refuse_pruned(config, implementation)
    pooled, head = _CLASSES[name]
    current = is_current(implementation)
    vocab = config.integer("vocab_size", default=30522, nullable=False)
    hidden = config.integer("hidden_size", default=768, nullable=False)
    heads = config.integer("num_attention_heads", default=12, nullable=False)
    positions = config.integer("max_position_embeddings", default=512, nullable=False)
    types = config.integer("type_vocab_size", default=2, nullable=False)
    if hidden % heads:
        raise config.refuse(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}.")
    check_padding(config, vocab, 0)
    predicts = head in ("BertOnlyMLMHead", "BertPreTrainingHeads")
    tied = predicts and config.flag("tie_word_embeddings", True, nullable=False)

    b = Builder()
    root = "" if name == "BertModel" else "bert."
    embeddings = f"{root}embeddings"
    b.add(
        f"{embeddings}.word_embeddings.weight",
        vocab,
        hidden,
        aliases=("cls.predictions.decoder.weight",) if tied else (),
    )
    b.add(f"{embeddings}.position_embeddings.weight", positions, hidden)
    b.add(f"{embeddings}.token_type_embeddings.weight", types, hidden)
    b.norm(f"{embeddings}.LayerNorm", hidden, bias=True)
    b.buffer(f"{embeddings}.position_ids", 1, positions, dtype="int64", persistent=False)
    b.buffer(f"{embeddings}.token_type_ids", 1, positions, dtype="int64", persistent=False)
    count = config.count("num_hidden_layers", default=12, nullable=False)
    b.repeat(f"{root}encoder.layer", count, "BertLayer", _layer(config, implementation, hidden, heads, positions))
    if not tied:
        b.unit("embedding", "BertEmbeddings", embeddings)
    if pooled:
        b.linear(f"{root}pooler.dense", hidden, hidden, bias=True)
    if predicts:
        _language_head(b, hidden, vocab, tied, current)
        if not tied:
            b.unit("head", head, "cls")
    if head in ("BertPreTrainingHeads", "next sentence"):
        b.linear("cls.seq_relationship", hidden, 2, bias=True)
    elif head == "choice":
        b.linear("classifier", hidden, 1, bias=True)
    elif head in ("classifier", "qa_outputs"):
        b.linear(head, hidden, labels(config, implementation, least=1), bias=True)
    return b.model(family="bert", implementation=implementation, architecture=name)
