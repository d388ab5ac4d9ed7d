"""The checks, one module for each area of rules; each says for which calls it wants to be asked.

A module has any of ``CALLS`` (by short name of what is called), ``METHODS`` (by name of a method; "()" for a call of the
thing itself, "*" for any name), ``DROPPED`` (a call whose result nobody takes), ``LOOPS``, ``CONTEXTS``, ``ATTRIBUTES``,
``ENDS`` (a root was followed to its end) and ``PROJECT`` (everything was).
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from ..records import Call, Thing, Things
from ..walk import Checks, Walker
from . import (
    checkpoints,
    classes,
    collectives,
    data,
    ddp,
    ddp_changes,
    devices,
    dtypes,
    fsdp1,
    fsdp1_params,
    fsdp2,
    groups,
    init_arguments,
    join,
    launch_env,
    loading,
    loops,
    meshes,
    meta,
    order,
    rpc,
    saving,
    spawned,
    steps,
    tensors,
    threads,
    tied,
    usage,
)

AREAS = (
    groups,
    collectives,
    tensors,
    steps,
    order,
    fsdp1,
    fsdp2,
    meta,
    ddp,
    join,
    checkpoints,
    data,
    fsdp1_params,
    usage,
    tied,
    meshes,
    dtypes,
    loops,
    saving,
    classes,
    ddp_changes,
    devices,
    init_arguments,
    launch_env,
    loading,
    rpc,
    spawned,
    threads,
)


# Of these an assignment to a name says nothing that a check asks for.
_PLAIN = frozenset({ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Compare, ast.UnaryOp, ast.JoinedStr})


def _by_name(attribute: str) -> dict[str, list[Callable[[Walker, Call], None]]]:
    out: dict[str, list[Callable[[Walker, Call], None]]] = {}
    for area in AREAS:
        for name, checks in getattr(area, attribute, {}).items():
            out.setdefault(name, []).extend(checks)
    return out


def _all(attribute: str) -> list[Callable[..., None]]:
    return [check for area in AREAS for check in getattr(area, attribute, ())]


class AllChecks(Checks):
    """Tells every check what it asked for."""

    def __init__(self) -> None:
        self.calls, self.methods = _by_name("CALLS"), _by_name("METHODS")
        self.drops, self.loops, self.contexts = _all("DROPPED"), _all("LOOPS"), _all("CONTEXTS")
        self.assignments = _all("ASSIGNED")
        self.attributes, self.ends, self.project = _all("ATTRIBUTES"), _all("ENDS"), _all("PROJECT")

    def call(self, walker: Walker, call: Call) -> None:
        """A call."""
        for check in self.calls.get(call.name, ()) if call.name else ():
            check(walker, call)
        for check in self.methods.get(call.method, ()) if call.method else ():
            check(walker, call)
        if call.owner and not call.method:
            for check in self.methods["()"]:
                check(walker, call)
        if call.owner and call.method:
            for check in self.methods.get("*", ()):  # of any name
                check(walker, call)

    def dropped(self, walker: Walker, node: ast.Call, things: Things) -> None:
        """A call whose result nobody takes."""
        for check in self.drops:
            check(walker, node, things)

    def loop(self, walker: Walker, node: ast.For | ast.AsyncFor) -> None:
        """A loop."""
        for check in self.loops:
            check(walker, node)

    def context(self, walker: Walker, node: ast.With | ast.AsyncWith, item: ast.withitem, name: str) -> None:
        """A with statement, about to be entered."""
        for check in self.contexts:
            check(walker, node, item, name)

    def assigned(self, walker: Walker, node: ast.Assign) -> None:
        """An assignment; that of a plain value to a plain name tells nothing."""
        if len(node.targets) == 1 and node.targets[0].__class__ is ast.Name and node.value.__class__ in _PLAIN:
            return
        for check in self.assignments:
            check(walker, node)

    def attribute_set(self, walker: Walker, owner: Thing, node: ast.Attribute, things: Things) -> None:
        """An attribute of a parameter or a thing is set or, on parameters, read."""
        for check in self.attributes:
            check(walker, owner, node, things)

    def end(self, walker: Walker) -> None:
        """A root was followed to its end."""
        for check in self.ends:
            check(walker)
