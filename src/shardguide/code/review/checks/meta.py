"""Models on the meta device, and what fills them (FSD412, 413, 415)."""

from __future__ import annotations

import ast

from ..records import Call, Mark, Path, Thing, implied
from ..walk import Walker
from .common import constant, kind_of
from .parts import all_parts

_FILLED = frozenset(
    {
        "method init_weights", "method reset_parameters", "method load_state_dict", "method apply", "method initialize_weights",
        "method init_parameters", "method post_init", "method _init_weights", "method load_weights", "method weights_init",
    }
)  # fmt: skip

_OVER = ("parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers")


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
        and not _gone_over(thing)
    ):
        if not any(mark.what == "meta told" for mark in thing.marks):
            walker.report("FSD412", call.node, True)
        walker.mark((thing,), "meta told", call.node)


def _gone_over(thing: Thing) -> bool:
    """Whether somebody goes over its modules once it is sharded, to fill them perhaps."""
    last = max((mark.at for mark in thing.marks if mark.what == "fully_shard"), default=0)
    ways = ("method modules", "method named_modules", "method children", "method named_parameters", "looped over")
    return any(mark.what in ways and mark.at > last for mark in thing.marks)


def _filled(thing: Thing, more: tuple[str, ...]) -> bool:
    return any(mark.what in _FILLED or mark.what in more for mark in thing.marks)


def set_whole(walker: Walker, call: Call) -> None:
    """set_model_state_dict(model, …) and the like."""
    walker.mark(call.things("model", 0), "filled", call.node)


def loop(walker: Walker, node: ast.For | ast.AsyncFor) -> None:
    """A loop over the parameters or parts of a model, which may give each its values."""
    function = node.iter.func if isinstance(node.iter, ast.Call) else None
    if isinstance(function, ast.Attribute) and function.attr in _OVER:
        walker.mark(walker.value(function.value), "looped over", node)


def end(walker: Walker) -> None:
    """to_empty, and not on every way to the first use anything that gives values."""
    for thing in dict.fromkeys(walker.tracked):
        emptied_ = next((mark for mark in reversed(thing.marks) if mark.what == "to_empty"), None)
        if emptied_ is None:
            continue
        after = [mark for mark in thing.marks if mark.at > emptied_.at]
        used = [mark for mark in after if mark.what in ("called", "method train")]
        fills = [mark for mark in after if _fills(mark.what)] + _parts_fill(thing, emptied_.at)
        if used and not _on_every_way(fills, (*emptied_.path, *used[0].path)):
            walker.report_at("FSD413", walker.file_of(emptied_.node), emptied_.node, False)


def _fills(what: str) -> bool:
    method = what.startswith("method ") and any(word in what for word in ("init", "load", "reset"))
    return method or what in _FILLED or what in ("escaped", "filled", "looped over")


def _on_every_way(fills: list[Mark], path: Path) -> bool:
    """Whether values came for sure, or on both sides of some test."""
    arms = {(one.key, one.arm) for mark in fills for one in mark.path if one.kind != "guard"}
    here = {one.key for one in path}
    return any(
        implied(mark.path, path) or all(one.key in here or (one.key, not one.arm) in arms for one in mark.path)
        for mark in fills
    )


def _parts_fill(thing: Thing, at: int) -> list[Mark]:
    """What was done to its parts since."""
    return [
        mark
        for part in all_parts(thing)
        for mark in part.marks
        if mark.at > at and (mark.what in ("called", "escaped") or "method" in mark.what)
    ]


CALLS = {f"dcp.{name}": [set_whole] for name in ("set_model_state_dict", "set_state_dict")}
METHODS = {"to_empty": [emptied], "()": [called]}
LOOPS = [loop]
ENDS = [end]
