"""What a Joinable must be before any collective is compared: its constructor, its members, its hook, its announcement."""

from __future__ import annotations

import ast

from ..review.project import dotted_text
from .classes import HOOK, JOINABLE, Class, Classes, initialised
from .results import Issue, Unknowns
from .steps import Choice, Notify, Op, Path, Step, flat
from .values import Instance

MEMBERS = ("join_hook", "join_device", "join_process_group")
_FORMER = {
    "_join_hook": "join_hook",
    "_join_device": "join_device",
    "_join_process_group": "join_process_group",
}  # before 1.11


def members(cls: Class, classes: Classes, unknown: Unknowns) -> list[Issue]:
    """Constructor and abstract members."""
    out: list[Issue] = []
    answer, why = initialised(cls, classes)
    node = cls.find("__init__")
    at = node[1] if node is not None and node[0] is cls else cls.node
    if answer in ("no", "abstract"):
        out.append(Issue("FSD607", cls.file, at, why))
    elif answer == "unknown":
        unknown.add(f"whether Joinable.__init__ is reached: {why or 'not known'}")
    foreign = cls.foreign()
    lacks = []
    for name in MEMBERS:
        found = cls.find(name) or cls.find(f"_{name}")
        if found is not None:
            out.extend(_member(found[0], found[1], name))
        elif cls.value(name) is None:
            lacks.append(name)
    if lacks and foreign:
        unknown.add(f"{', '.join(lacks)}: perhaps in {foreign[0].lstrip('? ')}, which was not read")
    elif lacks:
        out.append(Issue("FSD605", cls.file, cls.node, ", ".join(lacks)))
    return out


def _member(owner: Class, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> list[Issue]:
    kinds = {dotted_text(one).rpartition(".")[2] for one in node.decorator_list}
    is_property = bool(kinds & {"property", "cached_property", "abstractproperty"})
    if name == "join_hook":
        if is_property:
            return [Issue("FSD622", owner.file, node, "join_hook is a property; Join calls it")]
        args = node.args
        needed = len(args.posonlyargs) + len(args.args) - len(args.defaults) - (0 if "staticmethod" in kinds else 1)
        if needed > 0:
            return [Issue("FSD622", owner.file, node, "join_hook takes an argument that Join does not give")]
        return []
    if not is_property and not kinds - {"property"}:
        return [Issue("FSD621", owner.file, node, name)]
    if not any(isinstance(inner, ast.Return) and inner.value is not None for inner in ast.walk(node)) and not any(
        isinstance(inner, ast.Raise) for inner in ast.walk(node)
    ):
        return [Issue("FSD621", owner.file, node, f"{name} returns nothing")]
    return []


def hook_methods(hook: Class) -> list[Issue]:
    """Signatures of main_hook and post_hook, and names that come near them."""
    out = []
    for name, count in (("main_hook", 0), ("post_hook", 1)):
        found = hook.find(name)
        if found is None:
            continue
        owner, node = found
        args = node.args
        kinds = {dotted_text(one).rpartition(".")[2] for one in node.decorator_list}
        have = len(args.posonlyargs) + len(args.args) - (0 if "staticmethod" in kinds else 1)
        if have - len(args.defaults) > count or (have < count and args.vararg is None):
            want = "main_hook(self)" if not count else "post_hook(self, is_last_joiner)"
            out.append(Issue("FSD624", owner.file, node, f"Join calls {want}"))
        if kinds & {"property", "cached_property"}:
            out.append(Issue("FSD624", owner.file, node, f"{name} is a property; Join calls it"))
    return out


def announced(name: str, paths: list[Path], unknown: Unknowns, file_node: tuple[object, ast.AST]) -> list[Issue]:
    """``notify_join_context(self)`` before the first collective, on every way and once."""
    out: list[Issue] = []
    seen_good = any(_first(path.steps, name)[0] == "good" for path in paths)
    for path in paths:
        how, step = _first(path.steps, name)
        if how == "late" and step is not None:
            out.append(Issue("FSD609", step.file, step.node, ""))
        elif how == "other" and step is not None:
            out.append(Issue("FSD638", step.file, step.node, ""))
        elif how == "none" and step is not None:
            where = _where(path.choices, step) if seen_good else ""
            out.append(Issue("FSD608", step.file, step.node, where, True, not seen_good))
        twice = [one for one in path.steps if isinstance(one, Notify) and _is(one, name)]
        if how == "good" and len(twice) > 1:
            out.append(Issue("FSD639", twice[1].file, twice[1].node, ""))
    unique: list[Issue] = []
    for one in out:
        if not any((one.code, one.line) == (other.code, other.line) for other in unique):
            unique.append(one)
    return unique


def _where(choices: tuple[Choice, ...], step: Step) -> str:
    return "; ".join(f"{one.words} is {one.arm}" for one in choices)


def _is(step: Notify, name: str) -> bool:
    return step.target is not None and step.target.kind == "object" and step.target.ref.name == name


def _first(steps: tuple[Step, ...], name: str) -> tuple[str, Step | None]:
    """How a way announces itself: "good", "late", "other" (another object is named), "none", "" (no collective)."""
    op: Step | None = None
    wrong: Notify | None = None
    for step in flat(steps):
        if isinstance(step, Notify):
            if _is(step, name):
                return ("late", step) if op is not None else ("good", step)
            if (step.target is not None and step.target.kind != "object") or (
                step.owner is not None and step.owner.name == name
            ):
                wrong = step
        elif isinstance(step, Op) and op is None:
            op = step
    if op is None:
        return "", None
    return ("other", wrong) if wrong is not None else ("none", op)


def is_hook(instance: Instance) -> bool:
    """Whether an object has hooks."""
    return instance.cls is not None and instance.cls.is_a(HOOK)


def is_joinable(instance: Instance) -> bool:
    """Whether an object is a Joinable of the project."""
    return instance.cls is not None and instance.cls.is_a(JOINABLE)
