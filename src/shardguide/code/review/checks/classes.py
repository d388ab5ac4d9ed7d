"""What the classes and functions of a project say by themselves (FSD429, 432, 446): looked at only where their subject occurs."""

from __future__ import annotations

import ast

from ..project import Definition, File, dotted_text
from ..records import Call
from ..walk import Walker
from .common import is_false
from .parts import in_tests

# Methods that give a view of what they are called on.
_VIEWS = frozenset(
    ["view", "transpose", "permute", "squeeze", "unsqueeze", "narrow", "expand", "view_as", "t", "select", "unflatten"]
)


def emptied(walker: Walker, call: Call) -> None:
    """model.to_empty(…)."""
    walker.fact("to_empty", call.node)


def made(walker: Walker, call: Call) -> None:
    """An optimizer with weight decay over all parameters alike."""
    first = call.node.args[0] if call.node.args else None
    plain = isinstance(first, ast.Call) and isinstance(first.func, ast.Attribute) and first.func.attr == "parameters"
    decays = any(keyword.arg == "weight_decay" for keyword in call.node.keywords)
    if plain and decays:
        walker.fact("decays all", call.node)


def project(walker: Walker) -> None:
    """Once everything was followed."""
    facts, files = walker.facts, walker.project.files
    if facts.get("to_empty"):
        for file in files:
            if "persistent=False" in file.text:
                _buffers(walker, file, files)
    if facts.get("fsdp2"):
        _views(walker, files)
    if facts.get("decays all"):
        for file in files:
            if '"weight_decay"' in file.text or "'weight_decay'" in file.text:
                _groups(walker, file, files)


def _buffers(walker: Walker, file: File, files: list[File]) -> None:
    """Buffers that no state dict has, in classes that give them their values in __init__ alone."""
    for owner in file.classes.values():
        for item in owner.body:
            if not isinstance(item, ast.FunctionDef) or item.name != "__init__":
                continue
            for call in _registered(item):
                name = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else ""
                if name and not _given(str(name), item, files):
                    walker.report_at("FSD429", file, call, False, name=str(name))


def _registered(node: ast.AST) -> list[ast.Call]:
    return [
        inner
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and inner.func.attr == "register_buffer"
        and any(keyword.arg == "persistent" and is_false(keyword.value) for keyword in inner.keywords)
        and not (len(inner.args) > 1 and isinstance(inner.args[1], ast.Constant) and inner.args[1].value is None)
    ]


def _given(name: str, init: ast.FunctionDef, files: list[File]) -> bool:
    """Whether anything outside the constructor sets the buffer, or goes over all buffers."""
    inside = {id(inner) for inner in ast.walk(init)}
    for file in files:
        if "named_buffers" in file.text or ".buffers()" in file.text:
            return True
        if name not in file.text:
            continue
        for inner in ast.walk(file.tree):
            if id(inner) in inside:
                continue
            if isinstance(inner, ast.Attribute) and inner.attr == name and isinstance(inner.ctx, ast.Store):
                return True
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                of = inner.func.value
                changed = inner.func.attr.endswith("_") and isinstance(of, ast.Attribute) and of.attr == name
                again = inner.func.attr == "register_buffer" and any(
                    isinstance(argument, ast.Constant) and argument.value == name for argument in inner.args
                )
                if changed or again:
                    return True
    return False


def _views(walker: Walker, files: list[File]) -> None:
    """Blocks whose forward returns a view, and callers that change it in place."""
    giving: set[str] = set()
    for file in files:
        if "return" in file.text and any(f".{name}(" in file.text for name in _VIEWS):
            giving.update(owner.name for owner in file.classes.values() if _returns_view(owner))
    if not giving:
        return
    for file in files:
        if not any(name in file.text for name in giving):
            continue
        for owner in file.classes.values():
            held = _held(owner, giving)
            forward = next((i for i in owner.body if isinstance(i, ast.FunctionDef) and i.name == "forward"), None)
            if held and forward is not None:
                _changed(walker, file, forward, held)


def _returns_view(owner: ast.ClassDef) -> bool:
    for item in owner.body:
        if isinstance(item, ast.FunctionDef) and item.name == "forward":
            for inner in ast.walk(item):
                value = inner.value if isinstance(inner, ast.Return) else None
                if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _VIEWS:
                    return True
    return False


def _held(owner: ast.ClassDef, giving: set[str]) -> set[str]:
    """The attributes of a class that are such blocks, or lists of them."""
    out: set[str] = set()
    for inner in ast.walk(owner):
        if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Attribute):
            calls = {dotted_text(one.func) for one in ast.walk(inner.value) if isinstance(one, ast.Call)}
            if calls & giving:
                out.add(inner.targets[0].attr)
    return out


def _changed(walker: Walker, file: File, forward: ast.FunctionDef, held: set[str]) -> None:
    blocks = {f"self.{name}" for name in held}
    for inner in ast.walk(forward):
        if isinstance(inner, ast.For) and isinstance(inner.target, ast.Name) and dotted_text(inner.iter) in blocks:
            blocks.add(inner.target.id)
    for body in [
        forward.body,
        *(inner.body for inner in ast.walk(forward) if isinstance(inner, (ast.For, ast.With, ast.If))),
    ]:
        views: set[str] = set()
        for item in body:
            if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                gives = isinstance(item.value, ast.Call) and dotted_text(item.value.func) in blocks
                (views.add if gives else views.discard)(item.targets[0].id)
            elif isinstance(item, ast.AugAssign) and isinstance(item.target, ast.Name) and item.target.id in views:
                walker.report_at("FSD432", file, item, False)
            elif isinstance(item, ast.Expr) and isinstance(item.value, ast.Call):
                function = item.value.func
                if (
                    isinstance(function, ast.Attribute)
                    and function.attr.endswith("_")
                    and dotted_text(function.value) in views
                ):
                    walker.report_at("FSD432", file, item, False)


def _imports(walker: Walker, user: File, file: File) -> bool:
    """Whether a file imports another, or something of it."""
    modules = {part for full in user.imports.values() for part in (full, full.rpartition(".")[0]) if part.strip(".")}
    return any(walker.project.module(part, user) is file for part in modules)


def _named(walker: Walker, name: str, node: ast.AST, home: File, files: list[File]) -> bool:
    """Whether anybody names a function: its own file again, or one that imports it or its module."""
    if home.text.count(name) > 1:
        return True
    for file in files:
        if file is home or name not in file.text:
            continue
        for text in (name, *(f"{alias}.{name}" for alias in file.imports)):
            found = walker.project.resolve(file, text)
            if isinstance(found, Definition) and found.node is node:
                return True
    return False


def _groups(walker: Walker, file: File, files: list[File]) -> None:
    """A function that makes groups with and without weight decay, and that nobody calls."""
    for name, node in file.functions.items():
        makes = [
            inner
            for inner in ast.walk(node)
            if isinstance(inner, ast.Dict)
            and {"params", "weight_decay"} <= {key.value for key in inner.keys if isinstance(key, ast.Constant)}
        ]
        if makes and not in_tests(file) and not _named(walker, name, node, file, files):
            for home, optimizer in walker.facts["decays all"]:
                if home is not file and not _imports(walker, home, file):
                    continue
                walker.report_at("FSD446", home, optimizer, False, name=name, where=f"{file.path}:{node.lineno}")


CALLS = {"optimizer": [made]}
METHODS = {"to_empty": [emptied]}
PROJECT = [project]
