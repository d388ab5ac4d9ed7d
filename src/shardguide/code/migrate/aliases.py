"""Other names of FSDP1's class: ``FSDP = fsdp.FullyShardedDataParallel``, ``wrap = functools.partial(FSDP, …)``."""

from __future__ import annotations

import ast

from ..review.project import File, Project, dotted_text
from .names import FSDP1, canonical

_PARTIAL = "functools.partial"


class Aliases:
    """The names that files give to FSDP1's class."""

    def __init__(self, project: Project, files: list[File]) -> None:
        self.project = project
        self.classes: dict[tuple[int, str], str] = {}  # file and name -> the class's full name
        self.partials: dict[tuple[int, str], ast.Call] = {}  # file and name -> the call of functools.partial
        for file in files:
            self._file(file)
        for file in files:
            for name, full in file.imports.items():
                module, _, last = full.rpartition(".")
                other = project.module(module, file) if module else None
                if other is not None and (id(other), last) in self.partials:
                    self.partials[id(file), name] = self.partials[id(other), last]

    def _file(self, file: File) -> None:
        found: dict[str, list[ast.expr | None]] = {}
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for one in ast.walk(target):
                        if isinstance(one, ast.Name):
                            found.setdefault(one.id, []).append(node.value if one is target else None)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.id, []).append(None)
            elif isinstance(node, ast.arg):
                found.setdefault(node.arg, []).append(None)
        for name, values in found.items():
            real = [value for value in values if value is not None]
            if len(values) != 2 * len(real) or len({ast.unparse(value) for value in real}) != 1:
                continue  # each assignment counts twice: as one, and as a name that is stored
            self._name(file, name, real[0])

    def _name(self, file: File, name: str, value: ast.expr) -> None:
        if isinstance(value, (ast.Name, ast.Attribute)):
            full = self._full(file, value)
            if canonical(full) == FSDP1:
                self.classes[id(file), name] = full
        elif is_partial(self, file, value):
            assert isinstance(value, ast.Call)
            self.partials[id(file), name] = value

    def _full(self, file: File, node: ast.AST) -> str:
        text = dotted_text(node)
        found = self.project.resolve(file, text) if text else ""
        return found if isinstance(found, str) else ""

    def full(self, file: File, node: ast.AST) -> str:
        """The full name of an expression that begins with another name of the class; "" for any other."""
        head, _, rest = dotted_text(node).partition(".")
        found = self.classes.get((id(file), head), "")
        return f"{found}.{rest}".rstrip(".") if found else ""

    def partial(self, file: File, node: ast.AST) -> ast.Call | None:
        """The functools.partial(FSDP, …) that an expression names."""
        return self.partials.get((id(file), node.id)) if isinstance(node, ast.Name) else None


def is_partial(aliases: Aliases, file: File, node: ast.AST) -> bool:
    """Whether an expression is ``functools.partial(FSDP, …)``."""
    if not isinstance(node, ast.Call) or not node.args or aliases._full(file, node.func) != _PARTIAL:
        return False
    first = node.args[0]
    return canonical(aliases._full(file, first) or aliases.full(file, first)) == FSDP1
