"""Which expression stands for what: the walk of the review, kept for each expression of the project."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable

from ..review.flow import Checks
from ..review.project import Definition, File, Project
from ..review.records import Thing, Things
from ..review.walk import Walker
from .aliases import Aliases
from .names import FSDP1

_MARKS = ("FSDP", "fsdp", "FullyShardedDataParallel", "fully_shard")
_CLASS = f"torch.distributed.fsdp.{FSDP1}"
_KINDS = ("fsdp1", "ddp", "optimizer", "scaler", "sharded_scaler")


class Reading(Walker):
    """Remembers what each expression was found to stand for, on every way that was followed."""

    def __init__(self, project: Project, follow: set[ast.AST], aliases: Aliases) -> None:
        super().__init__(project, Checks(), {}, follow)
        self.aliases = aliases
        self.found: dict[int, set[Thing]] = {}
        self.made_optimizers: set[Thing] = set()

    def full(self, node: ast.AST) -> str:
        """The full name of something from elsewhere, by another name of FSDP1's class too; its partial is the class itself."""
        found = super().full(node) or self.aliases.full(self.frame.file, node)
        partial = self.aliases.partial(self.frame.file, node) if not found else None
        return _CLASS if partial is not None else found

    def value(self, node: ast.expr) -> Things:
        """What an expression stands for, remembered. The review's own functions ask the walker, and so come here, for every part."""
        things = super().value(node)
        self.remember(node, things)
        return things

    def remember(self, node: ast.expr, things: Things) -> None:
        """Keep what an expression was found to stand for."""
        if things and isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            have = self.found.setdefault(id(node), set())
            if len(have) < 64:
                have.update(things)
            self.made_optimizers.update(thing for thing in things if thing.kind == "optimizer")

    def things(self, node: ast.AST) -> set[Thing]:
        """Everything that an expression may stand for; empty where nothing is known."""
        return self.found.get(id(node), set())

    def kinds(self, node: ast.AST) -> set[str]:
        """The kinds of what an expression stands for; of a thing that was wrapped in place too."""
        return {thing.kind for thing in self.things(node)}


def follow(project: Project) -> Reading:
    """Follow everything that has to do with FSDP."""
    wanted: set[ast.AST] = set()
    files = [file for file in project.files if any(mark in file.text for mark in _MARKS)]
    near = _near(project, files)
    for file in near:
        for node in ast.walk(file.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                wanted.add(node)
    flow = Reading(project, wanted, Aliases(project, near))
    for file in near:
        _try(flow.module, file)
    done: set[ast.ClassDef] = set()
    called = {name for file in near for name in _called(file)}
    for late in (False, True):
        for file in near:
            for function in file.functions.values():
                if function not in flow.seen and (late or function.name not in called):
                    _try(flow.function, Definition(file, function))
            for owner in file.classes.values():
                if owner not in done and (late or owner.name not in called):
                    _try(flow.whole_class, file, owner)
                    done.add(owner)
    return flow


def _try(root: Callable[..., None], *arguments: object) -> None:
    with contextlib.suppress(RecursionError):  # what nests too deeply stays unknown, and is left as it is
        root(*arguments)


def _near(project: Project, files: list[File]) -> list[File]:
    """Those files and the ones that import them, or that they import, once removed."""
    out = list(files)
    have = {id(file) for file in files}
    for file in project.files:
        others = [project.module(name.rpartition(".")[0] or name, file) for name in file.imports.values()]
        others += [project.module(name, file) for name in file.imports.values()]
        touches = [other for other in others if other is not None]
        if id(file) in have:
            for other in touches:
                if id(other) not in have and other not in out:
                    out.append(other)
        elif any(id(other) in have for other in touches):
            out.append(file)
    return list(dict.fromkeys(out))


def _called(file: File) -> set[str]:
    out: set[str] = set()
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name):
                out.add(function.id)
            elif isinstance(function, ast.Attribute):
                out.add(function.attr)
    return out


def components(project: Project) -> dict[int, int]:
    """Files that belong together over imports: id of a file -> number of its group."""
    above = {id(file): id(file) for file in project.files}

    def top(key: int) -> int:
        while above[key] != key:
            above[key] = above[above[key]]
            key = above[key]
        return key

    for file in list(project.files):
        dotted = [part for name in file.imports.values() for part in (name, name.rpartition(".")[0])]
        for name in (*dotted, *file.stars):
            other = project.module(name, file) if name else None
            if other is not None and id(other) in above:
                above[top(id(other))] = top(id(file))
    return {id(file): top(id(file)) for file in project.files}
