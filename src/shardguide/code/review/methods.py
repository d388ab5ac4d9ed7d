"""Methods over base classes, and functions under their decorators."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from shardguide.guidance.hints import TYPE_CHECKING

from .project import Definition, Project, dotted_text
from .records import Thing
from .survey import Function

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


def lineage(project: Project, target: Definition) -> Iterator[Definition | str]:
    """A class and what it derives from, one line of base classes after the other; those from elsewhere as their full name."""
    seen: set[ast.AST] = set()
    waiting: list[tuple[Definition | str, int]] = [(target, _DEPTH)]
    while waiting:
        one, depth = waiting.pop()
        if isinstance(one, str):
            yield one
            continue
        node = one.node
        if not isinstance(node, ast.ClassDef) or node in seen:
            continue
        seen.add(node)
        yield one
        for base in reversed(node.bases) if depth else ():
            text = dotted_text(base)
            found = project.resolve(one.file, text) if text else ""
            if found:
                waiting.append((found, depth - 1))


def inherited(project: Project, target: Definition, name: str) -> Definition | None:
    """A method of a class or of the nearest base class in the project."""
    key = (target.node, name)
    if key not in project.inherits:
        project.inherits[key] = _inherited(project, target, name)
    return project.inherits[key]


def _inherited(project: Project, target: Definition, name: str) -> Definition | None:
    for one in lineage(project, target):
        if not isinstance(one, str) and isinstance(one.node, ast.ClassDef):
            item = project.methods(one.node).get(name)
            if item is not None:
                return Definition(one.file, item, one.node)
    return None


def is_module(project: Project, target: Definition) -> bool:
    """Whether a class is one of modules, as torch.nn or transformers have them."""
    return any(
        one.startswith("torch.nn.") or one.endswith("PreTrainedModel")
        for one in lineage(project, target)
        if isinstance(one, str)
    )


def iterable(project: Project, target: Definition) -> bool:
    """Whether a class is one of data sets that are only run through."""
    return any(
        one.startswith("torch.utils.data.") and one.endswith(".IterableDataset")
        for one in lineage(project, target)
        if isinstance(one, str)
    )


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


def method_of(walker: Walker, owner: Thing, name: str) -> Definition | None:
    """A method that the class of an object has, abstract ones left out."""
    of = class_of(owner) if owner.kind in ("instance", "module") else None
    found = inherited(walker.project, of, name) if of is not None else None
    return None if found is None or abstract(found.node) else found


def is_property(node: ast.AST) -> bool:
    """Whether a method is called where its name stands."""
    return any(
        dotted_text(item).rpartition(".")[2] in ("property", "cached_property")
        for item in getattr(node, "decorator_list", ())
    )


def unwrapped(walker: Walker, target: Definition) -> tuple[Definition, Thing] | None:
    """For a function under a decorator of the project: the inner function that is called in its place, and the function itself.

    Only decorators of one function inside, which get the decorated function as their only argument, and functions that
    make such a decorator: ``@on_rank(0)``.
    """
    node = target.node
    if isinstance(node, ast.ClassDef) or len(node.decorator_list) != 1:
        return None
    given = node.decorator_list[0]
    text = dotted_text(given.func if isinstance(given, ast.Call) else given)
    found = walker.project.resolve(target.file, text) if text else ""
    if not isinstance(found, Definition) or isinstance(found.node, ast.ClassDef):
        return None
    decorator = _only(found.node) if isinstance(given, ast.Call) else found.node
    inner = _only(decorator) if decorator is not None and len(decorator.args.args) == 1 else None
    if decorator is None or inner is None:
        return None
    made = Thing("function", decorator.args.args[0].arg, node)
    made.file = target.file
    return Definition(found.file, inner), made


def _only(node: Function) -> Function | None:
    """The one function that is defined in another."""
    inner = [item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return inner[0] if len(inner) == 1 else None


def one_rank(target: Definition) -> bool:
    """Whether a decorator says that one rank alone runs the function."""
    if isinstance(target.node, ast.ClassDef):
        return False
    return any(dotted_text(item).rpartition(".")[2] in ONE_RANK for item in target.node.decorator_list)
