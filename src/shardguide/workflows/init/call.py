"""Check ``call``: an init_process_group call, read as text, against the release's signature and the rules of its method."""

from __future__ import annotations

import ast

from shardguide.code.syntax import parse
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.knowledge import api, releases

from .case import no_second_store
from .fields import MOST_OF_A_CALL, address, backend_text, multicast, path_text, split_address

FUNCTION = "torch.distributed.init_process_group"
UNREAD = object()  # an expression whose value is not in the text


class Found(NamedTuple):
    """What is wrong with a call, what could not be read, and what else to know."""

    wrong: tuple[str, ...]
    unread: tuple[str, ...]
    advice: tuple[str, ...]
    method: str  # "env", "tcp", "file", "store"; "" if it cannot be read
    backend: str  # "" if it is absent or cannot be read
    address: str = ""  # of a tcp:// URL that can be read
    path: str = ""  # of a file:// URL that can be read


def find(text: str, where: str = "--call") -> ast.Call:
    """The one init_process_group call in a piece of code.

    Raises UnusableInput for what is no Python and for no call, or several.
    """
    if len(text) > MOST_OF_A_CALL:
        raise UnusableInput(f"{where} takes one init_process_group(...) call, not a whole program.")
    import textwrap

    found = [node for node in ast.walk(parse(textwrap.dedent(text).strip(), where)) if isinstance(node, ast.Call)]
    calls = [node for node in found if ast.unparse(node.func).rpartition(".")[2] == "init_process_group"]
    if len(calls) != 1:
        have = "none" if not calls else str(len(calls))
        raise UnusableInput(f"{where} takes one init_process_group(...) call; there is {have} in it.")
    return calls[0]


def _value(node: ast.expr) -> Any:
    """A literal's value; Backend.NCCL counts as "nccl"; UNREAD for everything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if isinstance(node.operand.value, (int, float)) else UNREAD
    if isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] == "Backend":
        return node.attr.lower()
    return UNREAD


class _Call:
    """One call, its arguments by parameter, and what is found about it."""

    def __init__(self, node: ast.Call, release: str) -> None:
        self.release = release or releases.NEWEST
        self.wrong: list[str] = []
        self.unread: list[str] = [] if release else ["the release is not known: checked against the newest"]
        self.advice: list[str] = []
        self.nodes: dict[str, ast.expr] = {}
        self.address = self.path = ""
        self._bind(node)
        self.values = {name: _value(item) for name, item in self.nodes.items()}

    def _bind(self, node: ast.Call) -> None:
        signature = api.signature(FUNCTION, self.release) or ()
        names = [name for name, _ in signature if not name.startswith("*") and name != "/"]
        if any(isinstance(item, ast.Starred) for item in node.args) or any(word.arg is None for word in node.keywords):
            self.unread.append("what * or ** passes is not in the text")
        plain = [item for item in node.args if not isinstance(item, ast.Starred)]
        if len(plain) > len(names):
            self.wrong.append(f"{len(plain)} positional arguments, and the function takes {len(names)}")
        self.nodes.update(zip(names, plain, strict=False))
        for word in node.keywords:
            if word.arg is None:
                continue
            if word.arg not in names:
                self.wrong.append(f"no parameter {word.arg[:40]} in PyTorch {self.release}{self._elsewhere(word.arg)}")
            elif word.arg in self.nodes:
                self.wrong.append(f"{word.arg} is given twice")
            else:
                self.nodes[word.arg] = word.value

    @staticmethod
    def _elsewhere(name: str) -> str:
        have = [one for one in releases.known() if name in {item for item, _ in api.signature(FUNCTION, one) or ()}]
        return f" (it is in {releases.ranges(have)})" if have else ""

    def given(self, name: str) -> bool:
        """Whether a parameter is passed something other than its default."""
        return name in self.nodes and self.values[name] not in (None, -1, "")


def examine(
    node: ast.Call, release: str, method: str = "", backend: str = "", system: str = "", launcher: str = ""
) -> Found:
    """Everything that text alone shows about a call. ``method``, ``backend``, … are what was said beside it; "" for nothing."""
    call = _Call(node, release)
    named = _backend(call, backend)
    kind, query = _method(call, method, system, launcher)
    _ranks(call, kind, query, named)
    _rest(call)
    return Found(tuple(call.wrong), tuple(call.unread), tuple(call.advice), kind, named, call.address, call.path)


def _backend(call: _Call, said: str) -> str:
    value = call.values.get("backend")
    if value is UNREAD:
        call.unread.append(f"backend={ast.unparse(call.nodes['backend'])[:60]}")
        return ""
    if value is None:
        at = tuple(int(part) for part in call.release.split("."))
        if at >= (2, 6):
            call.advice.append("without backend only the detected accelerator's (or the CPU's) is made (backend.unset)")
        else:
            call.advice.append("without backend a group for CPU and one for CUDA tensors are made")
        return ""
    try:
        name = backend_text(str(value))
    except UnusableInput:
        call.unread.append(
            f"backend {str(value)[:40]!r} is none that Shardguide knows; a plug-in may have registered it"
        )
        return ""
    if said and name != said:
        call.wrong.append(f"the call has backend {name}, --backend says {said}")
    return name


def _method(call: _Call, said: str, system: str, launcher: str) -> tuple[str, dict[str, str]]:
    """The method, and rank and world_size as far as they stand in the URL."""
    if call.given("store"):
        if call.given("init_method"):
            call.wrong.append("store and init_method exclude each other (init.store_or_method)")
        return "store", {}
    value = call.values.get("init_method")
    if value is UNREAD or isinstance(value, bytes):
        node = call.nodes["init_method"]
        start = (
            node.values[0].value
            if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant)
            else ""
        )
        kind = str(start).partition("://")[0] if "://" in str(start) else ""
        call.unread.append(f"init_method={ast.unparse(node)[:60]}")
        return (kind if kind in ("env", "tcp", "file") else said), {}
    url = "env://" if value is None else str(value)
    kind, mark, rest = url.partition("://")
    rest, _, tail = rest.partition("?")
    query = dict(part.split("=", 1) for part in tail.split("&") if "=" in part)
    if kind not in ("env", "tcp", "file") or not mark:
        call.wrong.append(
            f"init_method {url[:60]!r} has no scheme that PyTorch knows: env://, tcp:// or file:// (init.scheme)"
        )
        return "", query
    if said and kind != said:
        call.wrong.append(f"the call has {kind}://, --method says {said}")
    if kind == "tcp":
        _tcp(call, rest, launcher)
    elif kind == "file":
        _file(call, rest, system)
    return kind, query


def _tcp(call: _Call, rest: str, launcher: str) -> None:
    host, port = split_address(rest.rstrip("/"))
    try:
        call.address = address(rest)
    except UnusableInput:
        call.address = ""  # what is wrong with it is said below
    if port < 0:
        call.wrong.append(f"tcp://{rest[:60]} needs a port from 1 to 65535 (init.tcp.port)")
    if multicast(host):
        call.wrong.append(f"{host[:60]} is a multicast address, no longer supported (init.tcp.multicast)")
    elif host in ("localhost", "::1", "[::1]") or host.startswith("127."):
        call.advice.append(f"{host} is reached by the processes of one machine only (init.tcp.reachable)")
    if launcher == "torchrun" and no_second_store(call.release):
        call.wrong.append(
            "under torchrun no process serves the store of a tcp:// URL of one's own: every rank times out; use env:// "
            "(init.tcp.under_torchrun)"
        )
    elif launcher == "torchrun":
        call.advice.append(
            "up to 2.13 every rank of torchrun times out at such a URL; env:// works everywhere (init.tcp.under_torchrun)"
        )


def _file(call: _Call, rest: str, system: str) -> None:
    host, slash, _ = rest.partition("/")
    if not rest.strip("/"):
        call.wrong.append("file:// without a path (init.file.path)")
    elif system != "windows" and host:
        what = f"only {slash}{rest.partition('/')[2]} of it counts" if slash else "it has no path at all"
        call.wrong.append(f"file://{rest[:60]} lacks the third slash: {what[:80]} (init.file.url)")
    else:
        call.path = rest
    try:
        call.path = path_text(call.path) if call.path else ""
    except UnusableInput:
        call.path = ""  # not a path to write into code; what PyTorch does with it is the user's to see
    call.advice.append("the file must not exist yet, or be empty, at every initialisation (init.file.fresh)")


def _ranks(call: _Call, kind: str, query: dict[str, str], backend: str) -> None:
    names = ("rank", "world_size")
    both = [name for name in names if call.given(name)]
    if query.keys() & set(names) and both:
        call.wrong.append("rank or world_size stands in the URL and in the call as well (init.url_twice)")
    missing = [name for name in names if name not in query and not call.given(name)]
    if backend == "mpi":
        if both:
            call.advice.append(f"MPI ignores {' and '.join(both)}: its runtime assigns them (init.mpi_ranks)")
        return
    if kind in ("tcp", "file") and missing:
        call.wrong.append(f"{kind}:// assigns no ranks: {' and '.join(missing)} must be passed (init.{kind}.rank)")
    elif kind == "store" and missing:
        call.wrong.append(f"with a store {' and '.join(missing)} must be passed (init.store_ranks)")
    elif kind == "env":
        read = [name.upper() for name in missing]
        words = ", ".join([*read, "MASTER_ADDR", "MASTER_PORT"])
        call.advice.append(f"{words} must be in the environment of every process, rank 0 too (init.env_vars)")
    numbers = {name: call.values.get(name) for name in names}
    for name in names:
        if name in query:
            digits = query[name]
            numbers[name] = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else UNREAD
    rank, world = numbers["rank"], numbers["world_size"]
    if isinstance(world, int) and world != -1 and world < 1:
        call.wrong.append(f"world_size {world} is no number of processes")
    elif isinstance(rank, int) and isinstance(world, int) and world > 0 and rank >= world:
        call.wrong.append(f"rank {rank} of {world}: ranks go from 0 to {world - 1} (init.rank_range)")
    elif isinstance(rank, int) and rank < -1:
        call.wrong.append(f"rank {rank} is negative (init.rank_range)")
    elif isinstance(rank, int) and rank >= 0 and world != 1:
        call.advice.append(f"rank={rank} is right for one process: each needs its own")


def _rest(call: _Call) -> None:
    if call.given("group_name"):
        call.advice.append("group_name is deprecated and ignored: leave it out (init.group_name)")
    timeout = call.values.get("timeout")
    if timeout is not None and timeout is not UNREAD:
        call.wrong.append(
            f"timeout={timeout!r}"[:60] + " raises TypeError: it is a datetime.timedelta (init.timeout.type)"
        )
    if call.given("device_id"):
        _device_id(call, call.nodes["device_id"], call.values["device_id"])


def _device_id(call: _Call, node: ast.expr, value: Any) -> None:
    at = tuple(int(part) for part in call.release.split("."))
    if isinstance(value, str):
        call.wrong.append(f"device_id={value!r}"[:60] + " is a text: pass torch.device(...)")
    elif isinstance(value, int) and not isinstance(value, bool):
        if at < (2, 8):
            call.wrong.append(f"device_id as a number came with 2.8, not in {call.release} (init.device_id.int)")
        else:
            call.advice.append(
                "device_id as a number is right for one process: each needs its own device (backend.nccl_exclusive)"
            )
    elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "device":
        first = _value(node.args[0]) if node.args else UNREAD
        alone = len(node.args) == 1 and not node.keywords and isinstance(first, str) and ":" not in first
        if isinstance(first, str) and first.partition(":")[0] == "cpu" and at < (2, 15):
            call.wrong.append("device_id is for an accelerator: on the CPU leave it out (init.device_id.cpu)")
        elif alone:
            call.wrong.append(
                f'torch.device("{str(first)[:20]}") has no index, which device_id needs (init.device_id.index)'
            )
