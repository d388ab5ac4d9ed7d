"""A project with what all ways through it share, and how a way ends."""

from __future__ import annotations

import ast

from ..review.project import File, Project
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
        self._names: dict[ast.AST, frozenset[str]] = {}
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
        if names is None:
            names = self._names[node] = frozenset(_called(node))
        return not names.isdisjoint(self.leads)

    def changed(self, file: File) -> tuple[frozenset[str], frozenset[str]]:
        """Attributes that a file sets outside constructors, and those that it counts up there."""
        if file not in self.mutable:
            plain: set[str] = set()
            counted: set[str] = set()
            for node in ast.walk(file.tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name != "__init__":
                    for inner in ast.walk(node):
                        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                            plain.add(inner.attr)
                        if isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Attribute):
                            counted.add(inner.target.attr)
            counts = {one for one in counted if not _set_plainly(file, one)}
            self.mutable[file] = (frozenset(plain - counts), frozenset(counts))
        return self.mutable[file]


def _set_plainly(file: File, name: str) -> bool:
    for node in ast.walk(file.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name != "__init__":
            for inner in ast.walk(node):
                if isinstance(inner, ast.Assign) and any(
                    isinstance(t, ast.Attribute) and t.attr == name for t in inner.targets
                ):
                    return True
    return False


def _leading(project: Project) -> frozenset[str]:
    """Names of functions that call a collective, or something that does.

    A name that every container or tensor has (``get``, ``update``) counts only where a file that speaks of Join defines it.
    """
    calls: dict[str, set[str]] = {}
    plain = HARMLESS | BUILTINS
    for file in project.files:
        for node in ast.walk(file.tree):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if node.name not in plain or "Join" in file.text:
                calls.setdefault(node.name, set()).update(_called(node))
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
