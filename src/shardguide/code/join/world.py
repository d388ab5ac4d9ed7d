"""A project with what all ways through it share, and how a way ends."""

from __future__ import annotations

import ast

from ..review.project import File, Project
from ..review.survey import statements
from .calls import BUILTINS, COLLECTIVES, GROUP_METHODS, HARMLESS, REDUCER
from .classes import Classes
from .values import Value

STATEMENTS = 12_000  # for one class, and for all loops of a project together


class Return(Exception):
    """A function returned."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class Stop(Exception):
    """The way that is followed ends in an exception of the program: it is no iteration."""


class World(Classes):
    """A project with what all ways through it share: which names lead to a collective, what objects are made with."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self._leads: frozenset[str] | None = None
        self._names: dict[ast.AST, set[str]] = {}
        self.left = STATEMENTS
        self.written: dict[ast.AST, str] = {}
        self.short: dict[ast.AST, bool] = {}
        self.mutable: dict[File, tuple[frozenset[str], frozenset[str]]] = {}
        self.inits: dict[tuple[ast.ClassDef, str], dict[str, Value]] = {}

    @property
    def leads(self) -> frozenset[str]:
        """Names of functions that may come to a collective."""
        if self._leads is None:
            self._leads = _leading(self.project)
        return self._leads

    def leads_on(self, node: ast.AST) -> bool:
        """Whether a piece of code calls one of them."""
        names = self._names.get(node)
        if names is None and not self._names:
            self._names = {one: names for file in self.project.files for one, names in file.survey.used.items()}
            names = self._names.get(node)
        if names is None:
            names = self._names[node] = _called(node)
        return not names.isdisjoint(self.leads)

    def changed(self, file: File) -> tuple[frozenset[str], frozenset[str]]:
        """Attributes that a file sets outside constructors, and those that it only counts up there."""
        if file not in self.mutable:
            plain: set[str] = set()
            counted: set[str] = set()
            assigned: set[str] = set()
            for function in file.survey.calls:
                if function.name == "__init__":
                    continue
                for inner in statements(function):
                    plain.update(_written(inner))
                    if isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Attribute):
                        counted.add(inner.target.attr)
                    elif isinstance(inner, ast.Assign):
                        assigned.update(t.attr for t in inner.targets if isinstance(t, ast.Attribute))
            counts = counted - assigned
            self.mutable[file] = (frozenset(plain - counts), frozenset(counts))
        return self.mutable[file]


def _written(node: ast.AST) -> list[str]:
    """The attributes that a statement sets."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For, ast.AsyncFor)):
        targets = [node.target]
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
    else:
        return []
    out = []
    for target in targets:
        if isinstance(target, ast.Attribute):
            out.append(target.attr)
        elif isinstance(target, (ast.Tuple, ast.List, ast.Starred)):
            out += [
                one.attr
                for one in ast.walk(target)
                if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)
            ]
    return out


def _leading(project: Project) -> frozenset[str]:
    """Names of functions that call a collective, or something that does.

    A name that every container or tensor has (``get``, ``update``) counts only where a file that speaks of Join defines it.
    """
    calls: dict[str, set[str]] = {}
    plain = HARMLESS | BUILTINS
    for file in project.files:
        for node, names in file.survey.used.items():
            if node.name not in plain or "Join" in file.text:
                calls.setdefault(node.name, set()).update(names)
    out = {*COLLECTIVES, *GROUP_METHODS, *REDUCER, "notify_join_context", "prepare_for_backward", "backward"}
    again = True
    while again:
        again = False
        for name, names in calls.items():
            if name not in out and not names.isdisjoint(out):
                out.add(name)
                again = True
    return frozenset(out)


def _called(node: ast.AST) -> set[str]:
    out = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute):
            out.add(inner.attr)
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
            out.add(inner.func.id)
    return out
