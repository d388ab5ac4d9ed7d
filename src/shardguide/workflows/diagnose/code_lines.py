"""From a diagnosis to the line of the user's script: which call it is, and under which condition it stands.

The files are read as text and parsed with ``ast``; nothing of them is imported or run.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.readers.files import shown

from .match import Candidate, Shown

LARGEST = 4 << 20
MOST = 4  # lines that are shown of one file
# What differs between ranks: a call under such a condition is not made by all of them.
_BY_RANK = re.compile(
    r"\b(?:\w*rank\w*|is_main\w*|is_local_main\w*|is_master\w*|process_index|is_world_process_zero)\b"
)
_PLACE = re.compile(r"(?P<file>.+):(?P<line>\d{1,7}) in (?P<function>.*)$")
# The calls in a script behind what NCCL, Gloo and the Flight Recorder call an operation.
_CALLS = {
    "all_reduce": ("all_reduce", "reduce_mean", "clip_grad_norm_", "reduce"),
    "allreduce": ("all_reduce", "clip_grad_norm_", "barrier", "backward", "reduce"),
    "barrier": ("barrier", "wait_for_everyone", "monitored_barrier"),
    "broadcast": ("broadcast", "broadcast_object_list"),
    "all_gather": ("all_gather", "all_gather_into_tensor", "all_gather_object", "gather_for_metrics", "full_tensor"),
    "allgather": ("all_gather", "all_gather_object", "gather_for_metrics"),
    "allgather_base": ("all_gather_into_tensor", "all_gather_single", "get_model_state_dict", "get_state_dict", "state_dict",
                       "full_tensor", "generate", "save_pretrained", "summon_full_params"),
    "reduce_scatter": ("reduce_scatter", "reduce_scatter_tensor", "backward"),
    "reduce_scatter_base": ("reduce_scatter_tensor", "backward"),
    "gather": ("gather", "gather_object"),
    "scatter": ("scatter", "scatter_object_list"),
    "reduce": ("reduce",),
    "send": ("send", "isend"),
    "recv": ("recv", "irecv"),
    "alltoall": ("all_to_all", "all_to_all_single"),
}  # fmt: skip
_OPERATION = re.compile(
    r"OpType=_?(?P<nccl>\w+)|collective \d+ \((?:nccl:|gloo:)?_?(?P<recorded>\w+)\)|\((?:nccl|gloo):_?(?P<other>\w+)\)"
)


class Call(NamedTuple):
    """A call in a script."""

    file: str
    line: int
    text: str  # the source line
    name: str  # "all_reduce"
    conditions: tuple[str, ...]  # headers of the statements around it, innermost first: "if rank == 0 (line 12)"
    by_rank: bool  # one of them depends on the rank


def locate(found: Sequence[Candidate], code: Sequence[str]) -> list[Candidate]:
    """The diagnoses with the lines of the scripts that they are about.

    Raises UnusableInput for a script that cannot be read.
    """
    scripts = {path: _read(path) for path in code}
    calls = {path: calls_of(path, text) for path, text in scripts.items()}
    return [_located(one, scripts, calls) for one in found]


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise UnusableInput(f"{shown(path)} cannot be read: {(error.strerror or str(error)).lower()}.") from None
    if len(data) > LARGEST:
        raise UnusableInput(f"{shown(path)} is larger than {LARGEST >> 20} MiB.")
    return data.decode("utf-8", "replace")


def calls_of(path: str, text: str) -> list[Call]:
    """All calls in a script, in the order of their lines; none where it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    lines = text.splitlines()
    out: list[Call] = []
    todo: list[tuple[ast.AST, tuple[str, ...], bool]] = [(tree, (), False)]
    while todo:  # not recursive: a script may nest deeper than Python's stack
        node, around, by_rank = todo.pop()
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name and node.lineno <= len(lines):
                # A chained call ends on the line where its own name stands.
                at = node.func.end_lineno or node.lineno
                out.append(Call(path, at, lines[at - 1].strip()[:200], name, around, by_rank))
        for part, header, rank_bound in _parts(node):
            inner = (header, *around) if header else around
            todo.append((part, inner, by_rank or rank_bound))
    return sorted(out, key=lambda one: one.line)


def _parts(node: ast.AST) -> list[tuple[ast.AST, str, bool]]:
    """The children of a node, each with the header that it stands under, and whether that depends on the rank."""
    if isinstance(node, (ast.If, ast.While)):
        word = "if" if isinstance(node, ast.If) else "while"
        test = _source(node.test)
        bound = bool(_BY_RANK.search(test))
        header = f"{word} {test} (line {node.lineno})"
        parts: list[tuple[ast.AST, str, bool]] = [(node.test, "", False)]
        parts += [(one, header, bound) for one in node.body]
        other = f"else of {word} {test} (line {node.lineno})"
        return parts + [(one, other, bound) for one in node.orelse]
    if isinstance(node, ast.IfExp):
        test = _source(node.test)
        bound = bool(_BY_RANK.search(test))
        header = f"if {test} (line {node.lineno})"
        return [(node.test, "", False), (node.body, header, bound), (node.orelse, f"else of {header}", bound)]
    if isinstance(node, (ast.For, ast.AsyncFor)):
        header = f"for {_source(node.target)} in {_source(node.iter)} (line {node.lineno})"
        return [
            (one, "" if one is node.iter or one is node.target else header, False) for one in ast.iter_child_nodes(node)
        ]
    if isinstance(node, (ast.ExceptHandler, ast.FunctionDef, ast.AsyncFunctionDef)):
        name = "except" if isinstance(node, ast.ExceptHandler) else f"def {node.name}"
        return [(one, f"{name} (line {node.lineno})", False) for one in ast.iter_child_nodes(node)]
    return [(one, "", False) for one in ast.iter_child_nodes(node)]


def _source(node: ast.AST) -> str:
    try:
        return ast.unparse(node)[:120]
    except (RecursionError, ValueError):
        return "..."


def _located(one: Candidate, scripts: dict[str, str], calls: dict[str, list[Call]]) -> Candidate:
    place = _PLACE.match(one.place)
    if place:
        for path, text in scripts.items():
            lines = text.splitlines()
            if _same(path, place["file"]) and 0 < int(place["line"]) <= len(lines):
                number = int(place["line"])
                here = [call for call in calls[path] if call.line == number]
                around = here[0].conditions if here else ()
                line = Shown(path, number, _said(lines[number - 1].strip(), around))
                return one._replace(evidence=_second(one, [line]), place=f"{path}:{number} in {place['function']}")
    named = _operations(one)
    fitting = [call for of in calls.values() for call in of if call.name in named]
    fitting.sort(key=lambda call: (not call.by_rank, call.file, call.line))
    if not fitting:
        return one
    extra = [Shown(call.file, call.line, _said(call.text, call.conditions)) for call in fitting[:MOST]]
    # Only one such call, or only one under a condition on the rank: that is the line. Else they are only shown.
    sure = len(fitting) == 1 or (fitting[0].by_rank and not fitting[1].by_rank)
    place_ = f"{fitting[0].file}:{fitting[0].line}" if sure and not one.place else one.place
    return one._replace(evidence=_second(one, extra), place=place_)


def _second(one: Candidate, lines: Sequence[Shown]) -> tuple[Shown, ...]:
    """The evidence with the script's lines right behind the first line of the log."""
    return (*one.evidence[:1], *lines, *one.evidence[1:])


def _said(text: str, around: Sequence[str]) -> str:
    return f"{text}  ({'; '.join(f'under {one}' for one in around[:3])})" if around else text


def _same(path: str, logged: str) -> bool:
    """The same file, as far as names tell: a log holds the path on the cluster."""
    return os.path.basename(path) == logged.replace("\\", "/").rpartition("/")[2]  # noqa: PTH119


def _operations(one: Candidate) -> set[str]:
    """The calls that a script may make for the operations that the evidence names."""
    out: set[str] = set()
    for line in one.evidence:
        for found in _OPERATION.finditer(line.text):
            name = (found["nccl"] or found["recorded"] or found["other"] or "").lower()
            out.update(_CALLS.get(name, (name,)))
    return out
