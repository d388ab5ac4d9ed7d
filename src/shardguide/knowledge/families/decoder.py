"""What the Llama-like families share: the sizes they read, attention, gated MLP, and how the model is put together."""

from __future__ import annotations

from collections.abc import Mapping

from shardguide.guidance.dtypes import dtype_name
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.model import Model

from .base import Builder, Config
from .rotary import add_frequencies, is_current

# base_model_tp_plan of most Llama-like configuration classes.
TP_PLAN: dict[str, str] = {
    "layers.*.self_attn.q_proj": "colwise",
    "layers.*.self_attn.k_proj": "colwise",
    "layers.*.self_attn.v_proj": "colwise",
    "layers.*.self_attn.o_proj": "rowwise",
    "layers.*.mlp.gate_proj": "colwise",
    "layers.*.mlp.up_proj": "colwise",
    "layers.*.mlp.down_proj": "rowwise",
}

# Styles that transformers 5 renamed; the plans are otherwise the same in 4.57.
_OLD_STYLES = {"colwise_gather_output": "colwise_rep", "rowwise_split_input": "rowwise_rep"}


class Sizes(NamedTuple):
    """The extents of a decoder, in elements."""

    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    head_dim_stated: bool  # the configuration object has a head_dim of its own
    tied: bool  # lm_head shares its weight with the embedding


def read_sizes(
    config: Config,
    implementation: str,
    *,
    vocab: int,
    hidden: int,
    intermediate: int,
    layers: int,
    heads: int,
    kv_heads: int | None,
    kv_nullable: bool = True,
    head_dim: int | None = None,
    head_dim_nullable: bool = True,
    head_dim_always: bool = False,
    divisible: bool = False,
    tied: bool = False,
    padding: int | None = None,
) -> Sizes:
    """The sizes, with the configuration class's defaults for what is absent.

    ``kv_heads=None``: as many as ``heads``. ``head_dim=None``: hidden // heads, unless the file has one.
    ``head_dim_always``: the configuration class sets its head_dim itself. ``divisible``: transformers 5 refuses a
    hidden_size that the heads don't divide. ``padding`` is the default of pad_token_id, which must lie within the
    vocabulary. Raises UnusableInput for what transformers refuses.
    """
    vocab = config.integer("vocab_size", default=vocab, nullable=False)
    hidden = config.integer("hidden_size", default=hidden, nullable=False)
    intermediate = config.integer("intermediate_size", default=intermediate, nullable=False)
    layers = config.count("num_hidden_layers", default=layers, nullable=False)
    heads = config.integer("num_attention_heads", default=heads, nullable=False)
    if config.is_null("num_key_value_heads") and kv_nullable:
        kv_heads = heads
    else:
        kv_heads = config.integer("num_key_value_heads", default=kv_heads or heads, nullable=False)
    if divisible and is_current(implementation) and hidden % heads:
        raise config.refuse(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}.")
    stated = head_dim_always or head_dim is not None or config.values.get("head_dim") is not None
    if head_dim is None:
        head_dim = hidden // heads
        if not head_dim and config.values.get("head_dim") is None:
            raise config.refuse(f"num_attention_heads {heads} is more than hidden_size {hidden}.")
    head_dim = config.integer("head_dim", default=head_dim, nullable=head_dim_nullable)
    check_padding(config, vocab, padding)
    return Sizes(
        vocab,
        hidden,
        intermediate,
        layers,
        heads,
        kv_heads,
        head_dim,
        stated,
        read_tied(config, implementation, tied),
    )


def read_tied(config: Config, implementation: str, default: bool) -> bool:
    """Whether lm_head shares the embedding's weight; null means no in transformers 4 and is refused by 5."""
    if config.is_null("tie_word_embeddings") and not is_current(implementation):
        return False
    return config.flag("tie_word_embeddings", default, nullable=False)


def check_padding(config: Config, vocab: int, default: int | None) -> None:
    """torch.nn.Embedding refuses a padding index outside the vocabulary."""
    index = config.values.get("pad_token_id", default)
    if index is None:
        return
    if isinstance(index, bool) or not isinstance(index, int) or not -vocab <= index < vocab:
        raise config.refuse(f"pad_token_id {str(index)[:40]} lies outside the vocabulary of {vocab}.")


def check_layer_types(config: Config, layers: int, implementation: str, declared: bool) -> tuple[str, ...]:
    """The stated kind of each layer, () when the file has none.

    transformers 5 checks the list of any configuration, 4.57 only where its class has the field (``declared``).
    """
    kinds = config.values.get("layer_types")
    if kinds is None or not (declared or is_current(implementation)):
        return ()
    if not isinstance(kinds, list) or not all(kind in ("full_attention", "sliding_attention") for kind in kinds):
        raise config.refuse("layer_types must be a list of full_attention and sliding_attention.")
    if len(kinds) != layers:
        raise config.refuse(f"layer_types names {len(kinds)} layers, num_hidden_layers {layers}.")
    return tuple(kinds)


def model_dtype(config: Config, default: str = "float32") -> str:
    """The dtype in which from_config builds the model: some buffers take it. float32 when the file states none."""
    name = config.text("dtype") or config.text("torch_dtype") or default
    dtype = dtype_name(name)
    if dtype not in ("float32", "bfloat16", "float16", "float64") or "." in name:
        raise UnusableInput(f"{config.where}: a model cannot be built in the dtype {name[:40]!r}.")
    return dtype


def attention(layer: Builder, sizes: Sizes, bias: bool, output_bias: bool) -> None:
    """Separate query, key, value and output projections (``self_attn``)."""
    width, kv_width = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    layer.linear("self_attn.q_proj", sizes.hidden, width, bias)
    layer.linear("self_attn.k_proj", sizes.hidden, kv_width, bias)
    layer.linear("self_attn.v_proj", sizes.hidden, kv_width, bias)
    layer.linear("self_attn.o_proj", width, sizes.hidden, output_bias)


def gated_mlp(layer: Builder, sizes: Sizes, bias: bool = False) -> None:
    """gate, up and down projections (``mlp``)."""
    layer.linear("mlp.gate_proj", sizes.hidden, sizes.intermediate, bias)
    layer.linear("mlp.up_proj", sizes.hidden, sizes.intermediate, bias)
    layer.linear("mlp.down_proj", sizes.intermediate, sizes.hidden, bias)


def prefixed(plan: Mapping[str, str], module: str, implementation: str) -> dict[str, str]:
    """A base model's tensor-parallel plan as seen from the whole model, in the release's own words."""
    if is_current(implementation):
        return {f"{module}.{pattern}": style for pattern, style in plan.items()}
    return {f"{module}.{pattern}": _OLD_STYLES.get(style, style) for pattern, style in plan.items()}


def decoder(
    layer: Builder,
    sizes: Sizes,
    implementation: str,
    *,
    family: str,
    name: str,
    frequencies: int,
    norm: str = "",
    norm_bias: bool = False,
    plan: Mapping[str, str] = TP_PLAN,
    embed_scale: str = "",
) -> Model:
    """``{name}ForCausalLM``: embedding, equal layers, final norm, rotary embedding, output projection.

    ``norm`` is the class of the final norm, ``embed_scale`` the dtype of the embedding's scale ("" when it has none).
    """
    b = Builder()
    b.add("model.embed_tokens.weight", sizes.vocab, sizes.hidden, aliases=("lm_head.weight",) if sizes.tied else ())
    if embed_scale:
        b.buffer("model.embed_tokens.embed_scale", dtype=embed_scale, persistent=False)
    b.repeat("model.layers", sizes.layers, f"{name}DecoderLayer", layer)
    b.norm("model.norm", sizes.hidden, norm_bias)
    add_frequencies(b, "model.rotary_emb", frequencies, implementation)
    if not sizes.tied:
        b.linear("lm_head", sizes.hidden, sizes.vocab)
        b.unit("embedding", f"{name}TextScaledWordEmbedding" if embed_scale else "Embedding", "model.embed_tokens")
        b.unit("head", f"{norm or name + 'RMSNorm'}+Linear", "model.norm", "lm_head")
    return b.model(
        family=family,
        implementation=implementation,
        architecture=f"{name}ForCausalLM",
        tp_plan=prefixed(plan, "model", implementation),
    )
