"""What can be told of a value by itself: whether it counts as true, how two compare, how a hook writes it."""

from __future__ import annotations

import operator

from shardguide.guidance.hints import TYPE_CHECKING

from .calls import ASSUMED
from .classes import JOINABLE, Class
from .values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .steps import Op

_RUN = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def of_torch(cls: Class) -> bool:
    """Whether it is one of PyTorch's own Joinables."""
    return cls.is_a(JOINABLE) and cls.name in ASSUMED


def works(value: Value) -> Iterable[Op]:
    """The collectives behind handles, also those in lists."""
    if value.kind == "work":
        yield from value.ref
    elif value.kind == "sequence" and isinstance(value.ref, tuple):
        for one in value.ref:
            yield from works(one)


def whole(value: Value) -> bool:
    """Whether it is a whole number."""
    if value.kind == "constant":
        return isinstance(value.ref, int)
    return "|int" in value.flags or value.text.startswith(("int(", "len(", "torch.distributed.get_rank("))


def code(value: Value) -> str:
    """An expression that gives the value, in terms of shared objects; "" for none."""
    if value.make:
        return value.make
    return value.text if value.kind in ("constant", "name") and value.kind != "argument" else ""


def certain(value: Value) -> bool | None:
    """Whether a value counts as true, where that is known."""
    if value.kind == "constant":
        return bool(value.ref)
    if value.kind in ("object", "function", "class", "work"):
        return True
    if value.kind == "sequence" and isinstance(value.ref, tuple):
        return bool(value.ref)
    words = value.text
    if words in (
        "torch.distributed.is_initialized()",
        "torch.distributed.is_available()",
        "torch.is_grad_enabled()",
        "join config.enable",
    ):
        return True
    if words in ("torch.compiler.is_compiling()", "torch.jit.is_scripting()"):
        return False
    return None


def compared(a: Value, sign: str, b: Value) -> bool | None:
    """The answer of a comparison, where that is known."""
    if a.kind == b.kind == "constant":
        if sign in ("is", "is not"):
            return (a.ref is b.ref) is (sign == "is") if a.ref is None or b.ref is None else None
        if sign in _RUN:
            try:
                return bool(_RUN[sign](a.ref, b.ref))
            except TypeError:
                return None
    none = b.kind == "constant" and b.ref is None
    if none and a.text.endswith(".grad"):
        return None  # a parameter that took no part has none
    if (
        none
        and sign in ("is", "is not", "==", "!=")
        and a.kind in ("object", "function", "class", "tensor", "work", "name")
    ):
        return sign in ("is not", "!=")
    if a.text.startswith("torch.distributed.get_world_size(") and b.kind == "constant" and isinstance(b.ref, int):
        if b.ref == 1 and sign in (">", "!=", "==", "<="):
            return sign in (">", "!=")
        if b.ref == 2 and sign in ("<", ">="):
            return sign == ">="
    if a.text == b.text and a.kind == "name" and sign in ("is", "is not", "==", "!="):
        return sign in ("is", "==")
    return None
