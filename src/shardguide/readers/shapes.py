"""A list of tensors as evidence: what safetensors headers and shape manifests have in common."""

from __future__ import annotations

from collections.abc import Iterable

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.model import Buffer, Parameter, Unit

from .files import quoted

# Five times the tensors of the largest published checkpoints (about 92,000 in DeepSeek-V3).
MAX_TENSORS = 500_000
MAX_RANK = 32
MAX_NUMEL = 1 << 53  # elements in one model; the largest published have 2e12


class Shapes(NamedTuple):
    """The tensors of a model, from a file that lists them."""

    where: str  # the file or folder as it may be shown
    kind: str  # "safetensors" or "manifest"
    parameters: tuple[Parameter, ...]
    buffers: tuple[Buffer, ...]
    units: tuple[Unit, ...]  # as the file states them, else as the names show them (module classes unknown: "")
    architecture: str  # class name where the file states it, else ""
    files: tuple[str, ...]  # the files whose headers were read
    notes: tuple[str, ...] = ()


def check_name(name: Any, where: str) -> str:
    """A tensor or module name that can be printed and put into generated code; raises UnusableInput otherwise."""
    if not isinstance(name, str) or not name or len(name) > 1000 or not name.isprintable():
        raise UnusableInput(f"{where}: {quoted(name)} is not the name of a tensor or module.")
    return name


def check_shape(shape: Any, name: str, where: str) -> tuple[int, ...]:
    """A shape in elements: at most 32 extents of at least 0, at most 2**53 elements; raises UnusableInput otherwise."""
    if not isinstance(shape, list) or len(shape) > MAX_RANK:
        raise UnusableInput(f"{where}: the shape of {quoted(name)} must be a list of whole numbers.")
    count = 1
    for extent in shape:
        if isinstance(extent, bool) or not isinstance(extent, int) or not 0 <= extent <= MAX_NUMEL:
            raise UnusableInput(f"{where}: the shape of {quoted(name)} holds {quoted(extent)}, not a possible extent.")
        count *= extent
    if count > MAX_NUMEL:
        raise UnusableInput(f"{where}: {quoted(name)} would have {count} elements, more than any model holds.")
    return tuple(shape)


def check_total(parameters: Iterable[Parameter], where: str) -> None:
    """Refuses (UnusableInput) a list whose elements together are more than any model has."""
    if sum(parameter.numel for parameter in parameters) > MAX_NUMEL:
        raise UnusableInput(f"{where}: the tensors together have more than {MAX_NUMEL} elements.")


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts ``layers.2`` before ``layers.10``."""
    return tuple(
        (0, int(part), part) if part.isdecimal() and part.isascii() and len(part) < 10 else (1, 0, part)
        for part in name.split(".")
    )


def units_from_names(names: Iterable[str]) -> tuple[Unit, ...]:
    """The repeated layers that parameter names show: ``model.layers.0``, ``model.layers.1`` … as one unit each.

    A layer is a child with a number for a name (``nn.ModuleList``, ``nn.Sequential``) that has a numbered sibling and
    holds modules of its own. Only the outermost such list counts, so the experts inside a layer belong to the layer.
    The module class is not in the names: "".
    """
    # prefix -> {number: whether the child holds modules of its own}, for every numbered position of every name
    lists: dict[str, dict[int, bool]] = {}
    for name in names:
        parts = name.split(".")
        for i, part in enumerate(parts[:-1]):
            if part.isdecimal() and part.isascii() and len(part) < 10:
                children = lists.setdefault(".".join(parts[:i]), {})
                index = int(part)
                children[index] = children.get(index, False) or i < len(parts) - 2
    layered = {prefix for prefix, children in lists.items() if len(children) > 1 and any(children.values())}

    def inside_another(prefix: str) -> bool:
        parts = prefix.split(".") if prefix else []
        return any(".".join(parts[:i]) in layered for i in range(len(parts)))

    return tuple(
        Unit((f"{prefix}.{index}" if prefix else str(index),), "", "block")
        for prefix in lists
        if prefix in layered and not inside_another(prefix)
        for index in sorted(lists[prefix])
        if lists[prefix][index]
    )
