"""What the mixture-of-experts decoders share: strict fields, expert stacks, and layers that differ from one another.

Sources: transformers 5.24 and 4.57 (models/*/configuration_*.py and modeling_*.py). Every family that uses these
helpers is compared with the real class in tests/knowledge/test_families_moe.py.
"""

from __future__ import annotations

from collections.abc import Callable

from shardguide.guidance.model import Buffer, Parameter

from .base import Builder, Config
from .decoder import Sizes
from .rotary import add_frequencies

MOST_EXPERTS = 100_000  # over all layers; listed one by one they are still a few hundred thousand tensors

STACKED = (
    "Transformers 5 keeps a layer's experts in one tensor with the experts on dim 0; transformers 4 and the published "
    "files keep one tensor per expert (--implementation transformers4 or checkpoint)."
)


def stacked_experts(name: str) -> bool:
    """Whether a parameter of this name stacks a layer's experts on dim 0.

    True for ``…experts.gate_up_proj`` and for its bias ``…experts.gate_up_proj_bias``; False for one expert's own
    ``…experts.7.gate_proj.weight`` and for shared experts.
    """
    _, found, rest = name.partition(".experts.")
    return bool(found) and not rest[:1].isdigit()


def extent(config: Config, name: str, default: int, least: int) -> int:
    """A count that may be below 1: ``default`` when the field is absent; null is refused."""
    value = config.values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= config.LIMIT:
        raise config.refuse(f"{name} must be a whole number of at least {least}, not {str(value)[:40]!r}.")
    return value


def either(config: Config, name: str, alias: str, default: int, least: int = 1) -> int:
    """A count that is also taken under another name (the class's ``attribute_map``), which then wins; "" for none."""
    value = extent(config, name, default, least)
    return extent(config, alias, value, least) if alias else value


def indices(config: Config, name: str) -> frozenset[int] | None:
    """A list of layer numbers, or None when it is absent or null."""
    value = config.values.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise config.refuse(f"{name} must be a list of layer numbers, not {str(value)[:40]!r}.")
    return frozenset(value)


def check_number(config: Config, layers: int, experts: int) -> None:
    """Refuse a number of experts that no real model has, before they are listed one by one."""
    if layers * experts > MOST_EXPERTS:
        raise config.refuse(f"{layers} layers of {experts} experts are not a plausible model.")


def gated(layer: Builder, name: str, hidden: int, intermediate: int, bias: bool = False) -> None:
    """A gated MLP: gate_proj, up_proj, down_proj."""
    layer.linear(f"{name}.gate_proj", hidden, intermediate, bias)
    layer.linear(f"{name}.up_proj", hidden, intermediate, bias)
    layer.linear(f"{name}.down_proj", intermediate, hidden, bias)


def experts(
    layer: Builder, name: str, stacked: bool, count: int, hidden: int, intermediate: int, bias: bool = False
) -> None:
    """A layer's routed experts: two 3-D tensors when stacked (never a bias), or one gated MLP per expert."""
    if stacked:
        layer.add(f"{name}.gate_up_proj", count, 2 * intermediate, hidden)
        layer.add(f"{name}.down_proj", count, hidden, intermediate)
        return
    for i in range(count):
        gated(layer, f"{name}.{i}", hidden, intermediate, bias)


def norms(layer: Builder, hidden: int) -> None:
    """The two norms that every one of these decoder layers registers last."""
    layer.norm("input_layernorm", hidden)
    layer.norm("post_attention_layernorm", hidden)


def place(b: Builder, module: str, module_class: str, layer: Builder) -> None:
    """Add what ``layer`` holds under the name ``module``, as a unit of its own."""
    prefix = f"{module}."
    b.parameters += [Parameter(prefix + parameter.name, *parameter[1:]) for parameter in layer.parameters]
    b.buffers += [Buffer(prefix + buffer.name, *buffer[1:]) for buffer in layer.buffers]
    b.unit("block", module_class, module)


def decoder(
    b: Builder,
    sizes: Sizes,
    implementation: str,
    *,
    name: str,
    layer: Callable[[int], Builder],
    frequencies: int,
    root: str = "",
) -> None:
    """Embedding, layers, final norm, rotary embedding and output projection of ``{name}ForCausalLM``.

    ``layer(i)`` is what layer i holds: one of a few builders, worked out once each. ``root`` is the prefix with its
    dot. ``name`` is also the first part of the classes ``{name}DecoderLayer`` and ``{name}RMSNorm``.
    """
    model, head = f"{root}model", f"{root}lm_head"
    b.add(f"{model}.embed_tokens.weight", sizes.vocab, sizes.hidden, aliases=(f"{head}.weight",) if sizes.tied else ())
    for i in range(sizes.layers):
        place(b, f"{model}.layers.{i}", f"{name}DecoderLayer", layer(i))
    b.norm(f"{model}.norm", sizes.hidden)
    add_frequencies(b, f"{model}.rotary_emb", frequencies, implementation)
    if not sizes.tied:
        b.linear(head, sizes.hidden, sizes.vocab)
        b.unit("embedding", "Embedding", f"{model}.embed_tokens")
        b.unit("head", f"{name}RMSNorm+Linear", f"{model}.norm", head)
