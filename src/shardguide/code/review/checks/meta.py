"""Models on the meta device, and what fills them (FSD412, 413, 415)."""

from __future__ import annotations

import ast

from ..records import Call, Thing, implied
from ..walk import Walker
from .common import constant, kind_of

_FILLED = frozenset(
    {
        "method init_weights", "method reset_parameters", "method load_state_dict", "method apply", "method initialize_weights",
        "method init_parameters", "method post_init", "method _init_weights", "method load_weights", "method weights_init",
    }
)  # fmt: skip


def emptied(walker: Walker, call: Call) -> None:
    """model.to_empty(device=…)."""
    walker.mark(call.owner, "to_empty", call.node)
    given = call.argument("device")
    if isinstance(given, ast.Call) and walker.full(given.func) == "torch.device" and given.args:
        given = given.args[0]
    device = constant(given)
    for thing in call.owner:
        walker.tracked.append(thing)
        offloaded = [mark for mark in thing.marks if mark.what == "cpu offload" and implied(mark.path, walker.path)]
        if offloaded and isinstance(device, str) and not device.startswith("cpu"):
            walker.report("FSD415", call.node, True)


def called(walker: Walker, call: Call) -> None:
    """The model is run."""
    if kind_of(call.owner, "fsdp2", walker) != "yes" or len(call.owner) != 1:
        return
    thing = call.owner[0]
    meta = [mark for mark in thing.marks if mark.what == "meta"]
    if (
        meta
        and implied(meta[0].path, walker.path)
        and not _filled(thing, ("to_empty", "escaped", "method to", "method cuda"))
    ):
        if not any(mark.what == "meta told" for mark in thing.marks):
            walker.report("FSD412", call.node, True)
        walker.mark((thing,), "meta told", call.node)


def _filled(thing: Thing, more: tuple[str, ...]) -> bool:
    return any(mark.what in _FILLED or mark.what in more for mark in thing.marks)


def end(walker: Walker) -> None:
    """to_empty without anything that gives values."""
    for thing in dict.fromkeys(walker.tracked):
        marks = [mark for mark in thing.marks if mark.what == "to_empty"]
        used = any(mark.what in ("called", "method train") for mark in thing.marks)
        initialises = any(
            isinstance(mark.node, ast.Call) and ("init" in mark.what or "load" in mark.what or "reset" in mark.what)
            for mark in thing.marks
        )
        if marks and used and not initialises and not _filled(thing, ("escaped",)) and not _parts_filled(thing):
            walker.report_at("FSD413", walker.file_of(marks[0].node), marks[0].node, False)


def _parts_filled(thing: Thing, depth: int = 4) -> bool:
    """Whether its parts or its parameters were given to something."""
    if depth < 0:
        return True
    for held in thing.attrs.values():
        for part in held:
            if part is not thing and (_handled(part) or _parts_filled(part, depth - 1)):
                return True
    return any(mark.what in ("method parameters", "method named_parameters", "method modules") for mark in thing.marks)


def _handled(part: Thing) -> bool:
    return any(mark.what in ("called", "escaped") or mark.what.startswith("method ") for mark in part.marks)


METHODS = {"to_empty": [emptied], "()": [called]}
ENDS = [end]
