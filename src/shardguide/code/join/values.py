"""What expressions stand for while a Joinable and its hook are followed: values compared by their text, tensors by shape and dtype.

A text is written in terms of the objects that both sides share. So ``self.total`` in the Joinable and ``self.counter.total``
in its hook have one text, and two sides that read the same thing compare equal without anything being run.
"""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..review.project import File
    from .classes import Class


class Value(NamedTuple):
    """What an expression stands for."""

    kind: str  # "text", "constant", "tensor", "object", "class", "function", "sequence", "work", "kwargs", "name"
    text: str
    shape: str = ""  # of a tensor: "(1,)" where it is known, "like X" for that of something else
    dtype: str = ""
    fill: str = ""  # of a tensor: the number that it was filled with
    ref: Any = None  # the constant, Instance, Function, elements or collectives behind it
    flags: frozenset[str] = frozenset()  # "argument", "state", "told", "keyword", "data"
    make: str = ""  # how a hook can make a tensor like it, in terms of shared objects; "" for not at all


class Function(NamedTuple):
    """Something that can be called, with the object and the names around it."""

    file: File
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    owner: Class | None = None  # the class that it is defined in, for super()
    bound: Value | None = None  # self
    around: dict[str, Value] | None = None  # names of the enclosing function


class Instance:
    """An object of a class of the project, or of one of PyTorch's that is known."""

    __slots__ = ("attrs", "cls", "file", "given", "kind", "name", "node", "waits")

    def __init__(self, name: str, kind: str, cls: Class | None = None, node: ast.AST | None = None) -> None:
        self.name = name
        self.kind = kind  # "own", "ddp", "zero", "fsdp", "optimizer", "module", "group", "join"
        self.cls = cls
        self.node = node
        self.file: File | None = None
        self.attrs: dict[str, Value] = {}
        self.given: dict[str, Value] = {}
        self.waits: list[tuple[Function, str, Value, ast.AST, File]] = []  # what autograd calls in the backward pass


def text(words: str, *parts: Value, kind: str = "text") -> Value:
    """A value known by its words only; it has the flags of its parts."""
    return Value(kind, words, flags=flags(*parts))


def constant(value: Any) -> Value:
    """A literal."""
    return Value("constant", repr(value), ref=value)


def flags(*parts: Value) -> frozenset[str]:
    """The flags of all parts together."""
    out: frozenset[str] = frozenset()
    for part in parts:
        if part.flags:
            out |= part.flags
    return out


def shape_of(value: Value) -> str:
    """The shape of a value as a tensor."""
    return value.shape or f"like {value.text}"


def dtype_of(value: Value) -> str:
    """Its dtype."""
    return value.dtype or f"like {value.text}"


def like(value: Value, fill: str = "", dtype: str = "") -> Value:
    """A tensor of another's shape and dtype."""
    return Value(
        "tensor", f"like({value.text})", shape_of(value), dtype or dtype_of(value), fill, None, value.flags, value.make
    )


def literal(words: str) -> bool:
    """Whether a shape or dtype is known by itself."""
    return bool(words) and not words.startswith("like ") and "{" not in words


_FLOATS = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16"}
CASTS = {**_FLOATS, "int": "int32", "long": "int64", "short": "int16", "bool": "bool"}
_BY_PYTHON = {float: "float32", int: "int64", bool: "bool", complex: "complex64"}
_NAMES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64"}


def dtype_name(value: Value | None) -> str:
    """The dtype that an argument names; "" for none."""
    if value is None or value.text == "None":
        return ""
    if value.kind == "name" and value.text.startswith("torch."):
        last = value.text[6:]
        return _NAMES.get(last, last)
    if value.kind == "name" and value.text in ("float", "int", "bool"):
        return {"float": "float64", "int": "int64", "bool": "bool"}[value.text]
    if value.text.startswith("dtype("):
        return f"like {value.text[6:-1]}"
    return f"like {value.text}"


def made_from_data(value: Value) -> tuple[str, str, str]:
    """Shape, dtype and fill of ``torch.tensor(value)``."""
    if value.kind == "sequence" and isinstance(value.ref, tuple):
        inner = [made_from_data(one) for one in value.ref]
        shapes, dtypes = {one[0] for one in inner}, {one[1] for one in inner}
        fills = {one[2] for one in inner}
        shape = f"({len(inner)},)"
        if len(shapes) == 1 and shapes != {"()"}:
            rest = shapes.pop()
            shape = f"({len(inner)}, {rest[1:-1].rstrip(',')})" if literal(rest) else f"like {value.text}"
        elif len(shapes) > 1:
            shape = f"like {value.text}"
        known = [one for one in dtypes if one in _BY_PYTHON.values()]
        dtype = dtypes.pop() if len(dtypes) == 1 else "float32" if "float32" in known else f"like {value.text}"
        return shape, dtype, fills.pop() if len(fills) == 1 else ""
    if value.kind == "constant" and type(value.ref) in _BY_PYTHON:
        return "()", _BY_PYTHON[type(value.ref)], _number(value.ref)
    if value.text.startswith(("float(", "cast float")):
        return "()", "float32", ""
    if value.text.startswith(("int(", "len(", "torch.distributed.get_rank(", "torch.distributed.get_world_size(")):
        return "()", "int64", ""
    if value.kind == "tensor":
        return shape_of(value), dtype_of(value), ""
    if "|int" in value.flags:
        return "()", "int64", ""
    return "()", f"like {value.text}", ""


def _number(value: Any) -> str:
    return repr(float(value)) if isinstance(value, (int, float)) else ""


def filled(value: Value | None) -> str:
    """The number of a constant argument."""
    if value is not None and value.kind == "constant" and isinstance(value.ref, (int, float)):
        return _number(value.ref)
    return ""


def size(parts: list[Value]) -> str:
    """The shape that the arguments of ``torch.zeros`` and its like give; "" where it cannot be told."""
    if len(parts) == 1 and parts[0].kind == "sequence" and isinstance(parts[0].ref, tuple):
        parts = list(parts[0].ref)
    elif len(parts) == 1 and parts[0].text.startswith("shape("):
        return f"like {parts[0].text[6:-1]}"
    elif len(parts) == 1 and parts[0].kind == "text":
        return f"of size {parts[0].text}" if "|int" not in parts[0].flags else f"({parts[0].text},)"
    words = [part.text for part in parts]
    if not words:
        return "()"
    inner = ", ".join(words) + ("," if len(words) == 1 else "")
    if all(part.kind == "constant" and isinstance(part.ref, int) for part in parts):
        return f"({inner})"
    return f"of size ({inner})"
