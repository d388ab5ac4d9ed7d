"""Threads that make process groups (FSD118)."""

from __future__ import annotations

import ast

from ..project import Definition, dotted_text
from ..records import Call, Things
from ..torch_names import short
from ..walk import Walker

_KEY = "in a thread"
_MAKERS = ("init_process_group", "new_group", "init_device_mesh", "new_subgroups")


def thread(walker: Walker, call: Call) -> None:
    """threading.Thread(target=...)."""
    _given_away(walker, call)
    _follow(walker, call.argument("target", 1), call)


def submitted(walker: Walker, call: Call) -> None:
    """executor.submit(function, ...) and executor.map."""
    if any(thing.kind == "executor" for thing in call.owner) and call.node.args:
        _follow(walker, call.node.args[0], call)


def _given_away(walker: Walker, call: Call) -> None:
    walker.unknown.append(walker.path)
    walker.escape((*call.args, *call.named.values()), call.node)


def _follow(walker: Walker, target: ast.expr | None, call: Call) -> None:
    """Follow what the thread runs, as far as it is the project's, to see whether it makes groups."""
    if target is None:
        return
    for inner in ast.walk(target.body) if isinstance(target, ast.Lambda) else (target,):
        name = short(walker.full(inner.func if isinstance(inner, ast.Call) else inner))
        if name in _MAKERS:
            walker.report("FSD118", inner, walker.loop_depth > 0, what=name, line=str(call.node.lineno))
            return
    found: Things = ()
    definition: Definition | None = None
    if isinstance(target, ast.Name):
        found = walker.frame.env.get(target.id, ())
    for thing in found:
        if thing.kind == "function" and isinstance(thing.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            definition = Definition(thing.file or walker.frame.file, thing.node)
    if definition is None and dotted_text(target):
        resolved = walker.project.resolve(walker.frame.file, dotted_text(target))
        if isinstance(resolved, Definition) and not isinstance(resolved.node, ast.ClassDef) and resolved.owner is None:
            definition = resolved
    if definition is None or not walker.worth(definition.node):
        return
    # What it does runs beside the rest: its collectives have no place in the order of this program.
    events, marks, made = len(walker.events), len(walker.marks), walker.made[:]
    outside = walker.contexts
    walker.contexts = [*outside, (_KEY, call.node, ())]
    walker.enter(definition, (), {}, None, closure=bool(found))
    walker.contexts = outside
    walker.made = made
    del walker.events[events:], walker.marks[marks:]


def made(walker: Walker, call: Call) -> None:
    """A process group or a mesh is made."""
    for name, node, _ in walker.contexts:
        if name == _KEY:
            walker.report("FSD118", call.node, walker.loop_depth > 0, what=call.name, line=str(node.lineno))  # type: ignore[attr-defined]
            return


CALLS = {
    "Thread": [thread],
    **{name: [made] for name in _MAKERS},
}
METHODS = {"submit": [submitted], "map": [submitted]}
