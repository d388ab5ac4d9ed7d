"""Rotary position embeddings: how many frequencies (``inv_freq``) a model keeps, and when transformers refuses them.

The width depends on ``rope_scaling``/``rope_parameters``, on ``partial_rotary_factor`` and on the release:
transformers 5 keeps a second copy (``original_inv_freq``) as a buffer, and its plain rope ignores the partial factor
for most families; transformers 4.57 applies it always.
Source: transformers/modeling_rope_utils.py (5.24.0 and 4.57.6) and the families' ``...RotaryEmbedding``.
"""

from __future__ import annotations

from collections.abc import Mapping

from shardguide.guidance.hints import Any

from .base import Builder, Config

# What each kind of scaling must have; numbers, except the two lists of longrope.
_NUMBERS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "longrope": (),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "proportional": (),  # transformers 5 only
}


def is_current(implementation: str) -> bool:
    """Whether transformers 5 is meant; checkpoints and everything older follow transformers 4."""
    return implementation == "transformers5"


def rope_fields(config: Config, implementation: str) -> Mapping[str, Any]:
    """The rope settings as the release reads them: {} when there are none."""
    names = ("rope_scaling", "rope_parameters") if is_current(implementation) else ("rope_scaling",)
    for name in names:
        value = config.values.get(name)
        if value is None or (value == {} and is_current(implementation)):
            continue
        if not isinstance(value, Mapping):
            raise config.refuse(f"{name} must be an object, not {str(value)[:40]!r}.")
        return value
    return {}


def rope_kind(config: Config, rope: Mapping[str, Any], implementation: str, type_first: bool = False) -> str:
    """``rope_type``, or its old name ``type``; ``type_first`` where transformers 4 lets the old name win."""
    order = ("type", "rope_type") if type_first and not is_current(implementation) else ("rope_type", "type")
    for name in order:
        if name in rope:
            kind = rope[name]
            break
    else:
        if rope and not is_current(implementation):
            raise config.refuse("rope_scaling has no rope_type.")
        return "default"
    if not isinstance(kind, str) or kind not in _NUMBERS or (kind == "proportional" and not is_current(implementation)):
        raise config.refuse(f"the rope type {str(kind)[:40]!r} is not one that transformers knows.")
    return kind


def partial_factor(config: Config, rope: Mapping[str, Any], name: str, default: float, implementation: str) -> float:
    """The share of a head that is rotated, above 0 and at most 1."""
    value: Any = rope.get("partial_rotary_factor") if is_current(implementation) else None
    if value is None:
        value = config.values.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise config.refuse(f"{name} must be a number above 0 and at most 1, not {str(value)[:40]!r}.")
    return float(value)


def frequencies(config: Config, rope: Mapping[str, Any], kind: str, head_dim: int, rotated: int) -> int:
    """Entries of ``inv_freq`` for one kind of rope: half of the rotated part of a head, rounded up.

    ``rotated`` is ``int(head_dim * partial_rotary_factor)``. Raises UnusableInput where transformers raises.
    """
    for name in _NUMBERS[kind]:
        value = rope.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise config.refuse(f"the {kind} rope needs a number for {name}.")
    if rotated < 1:
        raise config.refuse("no part of a head is rotated.")
    if kind == "proportional":
        angles = rotated // 2
        return max(angles, head_dim // 2)
    count = (rotated + 1) // 2
    if (kind == "yarn" and rotated % 2) or (kind == "dynamic" and rotated == 2):
        raise config.refuse(f"the {kind} rope cannot have {rotated} rotated dimensions.")
    if kind == "longrope":
        for name in ("short_factor", "long_factor"):
            factors = rope.get(name)
            if not isinstance(factors, list) or not all(
                isinstance(factor, int | float) and not isinstance(factor, bool) for factor in factors
            ):
                raise config.refuse(f"the longrope needs a list of numbers for {name}.")
            if len(factors) != count:
                raise config.refuse(f"{name} must have {count} numbers, it has {len(factors)}.")
    return count


def check_even(config: Config, head_dim: int, rotated: int, implementation: str) -> None:
    """Refuse, as transformers 5 does, an odd head that is rotated whole (up to 4 it lets pass)."""
    if is_current(implementation) and head_dim > 4 and head_dim % 2 and rotated == head_dim:
        raise config.refuse(f"rotary embeddings need an even head_dim, not {head_dim}.")


def plain_rope(
    config: Config,
    implementation: str,
    head_dim: int,
    *,
    head_dim_stated: bool,
    partial: bool = False,
    partial_name: str = "partial_rotary_factor",
    partial_default: float = 1.0,
    type_first: bool = True,
    per_layer_type: bool = False,
    head_dim_null: bool = False,
) -> int:
    """Entries of ``inv_freq`` of a model with one rope for all its layers.

    ``head_dim_stated``: the configuration object has a head_dim, so that transformers 5 checks it. ``partial``: the
    family's plain rope honours the partial factor in transformers 5 too. ``per_layer_type``: the configuration class
    has ``layer_types``, so that settings nested by layer type are not the flat ones the model reads. ``head_dim_null``:
    the configuration object's head_dim is null, which some ropes don't bear.
    """
    rope = rope_fields(config, implementation)
    if per_layer_type and is_current(implementation) and {"full_attention", "sliding_attention"} & set(rope):
        raise config.refuse("the rope settings are nested by layer type, which this model does not read.")
    kind = rope_kind(config, rope, implementation, type_first)
    if head_dim_null and kind in ("dynamic", "yarn", "longrope"):
        raise config.refuse(f"the {kind} rope needs head_dim here; transformers does not work it out.")
    if kind == "longrope" and not is_current(implementation):
        known = (
            rope.get("factor"),
            rope.get("attention_factor"),
            config.values.get("original_max_position_embeddings"),
        )
        if known == (None, None, None):
            raise config.refuse("the longrope needs a factor.")
    factor = partial_factor(config, rope, partial_name, partial_default, implementation)
    rotated = int(head_dim * factor)
    if head_dim_stated:
        check_even(config, head_dim, rotated, implementation)
    if kind == "default" and is_current(implementation) and not partial:
        rotated = head_dim
    return frequencies(config, rope, kind, head_dim, rotated)


def add_frequencies(b: Builder, module: str, count: int, implementation: str) -> None:
    """The buffers of a rotary embedding at ``module``."""
    b.buffer(f"{module}.inv_freq", count, persistent=False)
    if is_current(implementation):
        b.buffer(f"{module}.original_inv_freq", count, persistent=False)
