"""What init_process_group and new_group are given (FSD112, 119, 122 to 124, 133 to 135, 138)."""

from __future__ import annotations

import ast

from ..records import Call, Things
from ..walk import Walker
from .common import all_within, constant, replace
from .literals import bound, literal, number, span, text

_DAY = 86400.0
_SHORT = 5.0
_BACKENDS = frozenset({"gloo", "nccl", "mpi", "ucc", "xccl", "fake"})
_DEVICES = frozenset({"cpu", "cuda", "gpu", "xpu", "mps"})
# What makes a name that no other process can know.
_OWN = ("tempfile.", "uuid.", "os.getpid", "time.time", "datetime.datetime.now", "random.")


def initialised(walker: Walker, call: Call) -> None:
    """init_process_group."""
    timeout(walker, call.argument("timeout", 2))
    backend(walker, call.argument("backend", 0))
    url(walker, call)
    _together(walker, call)
    device_id(walker, call)
    ranks = call.things("rank", 4)
    if any(thing.kind == "local_rank" and thing.sure and thing.name == "LOCAL_RANK" for thing in ranks):
        walker.report("FSD135", call.node, False)


def made(walker: Walker, call: Call) -> None:
    """new_group."""
    timeout(walker, call.argument("timeout", 1))
    backend(walker, call.argument("backend", 2))


def timeout(walker: Walker, node: ast.expr | None) -> None:
    """A timedelta that is none, negative, very short or very long."""
    found = span(walker, node)
    if found is None or node is None:
        return
    seconds, unnamed = found
    if seconds <= 0:
        walker.report("FSD119", node, True, what="zero" if seconds == 0 else "negative", does="the first wait fails")
    elif seconds < _SHORT:
        walker.report(
            "FSD119", node, False, what=f"{seconds:g} seconds", does="a rank that comes that much later ends the job"
        )
    elif seconds >= _DAY:
        days = f"{seconds / _DAY:g} days" if seconds < 1e15 else "beyond what fits its milliseconds"
        walker.report("FSD112", node, unnamed and seconds >= 30 * _DAY, days=days)


def backend(walker: Walker, node: ast.expr | None) -> None:
    """The name of a backend that PyTorch refuses."""
    name = literal(walker, node)
    if not isinstance(name, str) or node is None:
        return
    name = name.lower()
    known = _BACKENDS
    if any("register_backend" in file.text for file in walker.project.files):
        return
    if ":" in name:
        pairs = [pair.split(":") for pair in name.split(",")]
        devices = [pair[0] for pair in pairs]
        if any(len(pair) != 2 for pair in pairs):
            walker.report("FSD134", node, True, name=name, why="each part is a device type, a colon and a backend")
        elif len(set(devices)) < len(devices):
            walker.report("FSD134", node, True, name=name, why="a device type stands in it twice")
        elif " " in name:
            walker.report("FSD134", node, True, *_plain(node, name.replace(" ", "")), name=name, why="it has a space")
        elif any(pair[0] in known and pair[1] in _DEVICES for pair in pairs):
            walker.report("FSD134", node, True, name=name, why="the device type comes first")
    elif "," in name:
        walker.report("FSD134", node, True, name=name, why="several backends each need their device type")
    elif name in _DEVICES:
        walker.report("FSD134", node, True, name=name, why="it is a device type")
    elif name not in known and name.strip() in known:
        walker.report("FSD134", node, True, *_plain(node, name.strip()), name=name, why="it has a space")
    elif name == "rccl":
        walker.report("FSD134", node, False, *_plain(node, "nccl"), name=name, why="RCCL goes by the name of nccl")
    elif name not in known and sorted(name) in [sorted(one) for one in known]:
        walker.report("FSD134", node, True, name=name, why="no backend is called so")


def _plain(node: ast.expr, value: str) -> tuple:  # type: ignore[type-arg]
    return replace(node, f'"{value}"') if isinstance(node, ast.Constant) else ()


def url(walker: Walker, call: Call) -> None:
    """The URL of init_method."""
    node = call.argument("init_method", 1)
    expression = bound(walker, node)
    if node is None or expression is None:
        return
    start = text(walker, node)
    whole = literal(walker, node)
    if isinstance(whole, str):
        if whole.startswith("tcp://"):
            walker.fact("fixed port", node)
        _whole(walker, node, whole, call.things("rank", 4))
    elif start.startswith("file://") and start[7:8] not in ("", "/") and start[8:9] != ":":
        walker.report("FSD123", node, True, url=start, path="/" + start[7:].partition("/")[2])
    if start.startswith("file:") and not isinstance(whole, str) and constant(call.argument("world_size", 3)) != 1:
        _own_file(walker, call, node, expression)


def _whole(walker: Walker, node: ast.expr, url_: str, ranks: Things) -> None:
    from urllib.parse import urlsplit

    if any("register_rendezvous_handler" in one.text or "torch_xla" in one.text for one in walker.project.files):
        return
    try:
        parts = urlsplit(url_)
    except ValueError:
        return
    if parts.scheme not in ("tcp", "env", "file"):
        walker.report("FSD122", node, True, url=url_, why=f"there is no method {parts.scheme}://")
    elif parts.scheme == "tcp":
        _tcp(walker, node, url_, ranks)
    elif parts.scheme == "file":
        if not parts.path:
            walker.report("FSD122", node, True, url=url_, why="it has no path")
        elif parts.netloc and not parts.netloc.endswith(":"):
            edits = _plain(node, "file:///" + url_[7:])
            walker.report("FSD123", node, True, *edits, url=url_, path=parts.path)


def _tcp(walker: Walker, node: ast.expr, url_: str, ranks: Things) -> None:
    from urllib.parse import urlsplit

    parts = urlsplit(url_)
    try:
        port = parts.port
    except ValueError:
        walker.report("FSD122", node, True, url=url_, why="its port is none from 0 to 65535")
        return
    first = (parts.hostname or "").split(".")
    if port and any(thing.kind == "rank" and thing.name == "RANK" for thing in ranks):
        walker.report("FSD139", node, False, url=url_)
    if not port:
        walker.report("FSD122", node, True, url=url_, why="it has no port")
    elif len(first) == 4 and first[0].isdigit() and 224 <= int(first[0]) <= 239:
        walker.report("FSD122", node, True, url=url_, why="multicast addresses are no longer supported")


def _own_file(walker: Walker, call: Call, node: ast.expr, expression: ast.AST) -> None:
    """A file whose name each process makes up for itself."""
    for inner in ast.walk(expression):
        if not isinstance(inner, (ast.Name, ast.Call)):
            continue
        for thing in walker.peek(inner):
            if thing.kind in ("rank", "local_rank") and constant(call.argument("rank", 4)) is None:
                walker.report("FSD124", node, thing.sure, what=f"the rank ({thing.name})")
                return
        for source in all_within(walker, inner):
            full = walker.full(source.func) if isinstance(source, ast.Call) else ""
            if full.startswith(_OWN):
                walker.report("FSD124", node, False, what=full)
                return


def _given(walker: Walker, call: Call, name: str, at: int) -> bool:
    node = call.argument(name, at)
    return node is not None and not (isinstance(node, ast.Constant) and node.value in (None, -1))


def _together(walker: Walker, call: Call) -> None:
    """Arguments that exclude or need each other."""
    if call.spread():
        return
    store = call.argument("store", 5)
    has_store = store is not None and not isinstance(store, ast.Constant) and _surely(walker, store)
    method = text(walker, call.argument("init_method", 1))
    ranks = [name for at, name in ((3, "world_size"), (4, "rank")) if call.argument(name, at) is not None]
    if has_store and method:
        walker.report("FSD133", call.node, True, why="store and init_method exclude each other")
    elif has_store and len(ranks) < 2:
        walker.report("FSD133", call.node, True, why="a store of one's own needs world_size and rank beside it")
    elif "?" in method and any(
        f"{name}=" in method and _given(walker, call, name, at) for at, name in ((3, "world_size"), (4, "rank"))
    ):
        walker.report("FSD133", call.node, True, why="the URL says rank or world size already")
    rank, world = number(walker, call.argument("rank", 4)), number(walker, call.argument("world_size", 3))
    if rank is not None and world is not None:
        if 0 < world <= rank:
            walker.report("FSD133", call.node, True, why=f"ranks of a world of {world:g} end at {world - 1:g}")
        elif world > 1 and not any(condition.kind for condition in walker.path) and not walker.path:
            walker.report("FSD128", call.node, False, rank=f"{rank:g}")


def _surely(walker: Walker, node: ast.expr) -> bool:
    """Whether a store is made here, so that it is not None."""
    return isinstance(bound(walker, node), ast.Call)


def device_id(walker: Walker, call: Call) -> None:
    """A device_id without an index, or that is a text."""
    node = bound(walker, call.argument("device_id", 8))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        walker.report("FSD138", node, True, why="a text is no device: AttributeError")
    elif isinstance(node, ast.Call) and walker.full(node.func) == "torch.device" and not node.keywords:
        name = constant(node.args[0]) if len(node.args) == 1 else None
        if isinstance(name, str) and ":" not in name and name in ("cuda", "xpu"):
            walker.report("FSD138", node, True, why=f"{name} without an index: ValueError")


def rank_of(things: Things) -> bool:
    """Whether a thing is the global rank for sure."""
    return any(thing.kind == "rank" and thing.sure and thing.name in ("get_rank()", "RANK") for thing in things)


CALLS = {"init_process_group": [initialised], "new_group": [made]}
