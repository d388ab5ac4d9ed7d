"""Methods over base classes, and functions under their decorators."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from .project import Definition, Project, dotted_text
from .records import Thing

if TYPE_CHECKING:
    from .walk import Walker

_DEPTH = 5  # base classes, one above the other
# Decorators by which one rank alone runs a function; called so by several libraries.
ONE_RANK = frozenset(
    [
        "rank_zero_only",
        "rank0_only",
        "rank_0_only",
        "main_process_only",
        "master_only",
        "on_main_process",
        "only_on_main_process",
        "only_on_rank_0",
    ]
)


def inherited(project: Project, target: Definition, name: str, depth: int = _DEPTH) -> Definition | None:
    """A method of a class or of the nearest base class in the project."""
    node = target.node
    if not isinstance(node, ast.ClassDef) or depth < 0:
        return None
    item = project.methods(node).get(name)
    if item is not None:
        return Definition(target.file, item, node)
    for base in node.bases:
        text = dotted_text(base)
        found = project.resolve(target.file, text) if text else ""
        if isinstance(found, Definition):
            method = inherited(project, found, name, depth - 1)
            if method is not None:
                return method
    return None


def abstract(node: ast.AST) -> bool:
    """Whether a method says only that a derived class has it: which one runs is not known."""
    last = node.body[-1] if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and len(node.body) < 3 else None
    return isinstance(last, ast.Raise) and "NotImplementedError" in ast.dump(last)


def class_of(thing: Thing) -> Definition | None:
    """The class that a thing is made of, if the project has it."""
    held = thing.attrs.get("class", ())
    if not held or held[0].file is None or not isinstance(held[0].node, ast.ClassDef):
        return None
    return Definition(held[0].file, held[0].node)


def unwrapped(walker: Walker, target: Definition) -> tuple[Definition, Thing] | None:
    """For a function under a decorator of the project: the inner function that is called in its place, and the function itself.

    Only decorators of one function inside, which get the decorated function as their only argument.
    """
    node = target.node
    if isinstance(node, ast.ClassDef) or len(node.decorator_list) != 1:
        return None
    text = dotted_text(node.decorator_list[0])
    found = walker.project.resolve(target.file, text) if text else ""
    if not isinstance(found, Definition) or isinstance(found.node, ast.ClassDef) or len(found.node.args.args) != 1:
        return None
    inner = [item for item in found.node.body if isinstance(item, ast.FunctionDef)]
    if len(inner) != 1:
        return None
    made = Thing("function", found.node.args.args[0].arg, node)
    made.file = target.file
    return Definition(found.file, inner[0]), made


def one_rank(target: Definition) -> bool:
    """Whether a decorator says that one rank alone runs the function."""
    if isinstance(target.node, ast.ClassDef):
        return False
    return any(dotted_text(item).rpartition(".")[2] in ONE_RANK for item in target.node.decorator_list)
