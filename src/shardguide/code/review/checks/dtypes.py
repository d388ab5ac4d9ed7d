"""Dtypes and shapes of parameters, and the number that clipping returns (FSD430, 434, 436, 441)."""

from __future__ import annotations

import ast

from shardguide.knowledge import releases

from ..project import Definition, File, dotted_text
from ..records import Call, Thing, Things, marked
from ..walk import Walker
from .common import kind_of, last, models
from .parts import all_parts, assignments, classes, in_root

_CASTS = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64"}
_DTYPES = frozenset({"float16", "half", "bfloat16", "float32", "float", "float64", "double"})


def cast(walker: Walker, call: Call) -> None:
    """model.head.half(), model.head.to(torch.bfloat16)."""
    dtype = _CASTS.get(call.method, "")
    if call.method == "to":
        for given in (*call.node.args, *(keyword.value for keyword in call.node.keywords)):
            name = last(walker, given)
            dtype = name if name in _DTYPES else dtype
    if dtype:
        for owner in call.owner:
            if owner.kind in ("unknown", "module", "submodule"):
                walker.mark((owner,), f"cast {dtype}", call.node)


def grouped(walker: Walker, call: Call) -> None:
    """What becomes one group has parts of another dtype; or a scalar parameter."""
    if "_composable.fully_shard" in call.full or walker.inside("FSDP1"):
        return
    things = call.things("module", 0)
    if call.name == "FSDP1" and call.spread():
        things = ()
    policy = call.argument("auto_wrap_policy", 4) if call.name == "FSDP1" else None
    for whole in things if len(things) == 1 else ():
        _scalars(walker, call, whole)
        if any(mark.what.startswith("cast ") for mark in whole.marks):
            continue
        for part in all_parts(whole, "fully_shard"):
            casts = [mark for mark in part.marks if mark.what.startswith("cast ")]
            if not casts or marked(part, "frozen", walker.path) != "no":
                continue
            apart = part.kind in ("fsdp1", "ddp") or any(mark.what in ("fully_shard", "wrapped") for mark in part.marks)
            if not apart and part.kind != "submodule" and in_root(walker, part, policy):
                at = casts[-1].node
                walker.report_at("FSD430", walker.file_of(at), at, False, part=part.name, dtype=casts[-1].what[5:])
                return


def _scalars(walker: Walker, call: Call, whole: Thing) -> None:
    if any(mark.what == "scalar" for mark in whole.marks):
        walker.report("FSD436", call.node, True, name=next(m.what for m in whole.marks if m.what == "scalar"))
        return
    if any(name in call.named for name in ("ignored_params", "ignored_states", "ignored_modules")):
        return
    known = all(thing.kind == "dict" for thing in call.named.get("**", ()))
    for file, node, depth in _classes(walker, whole):
        for name, assign in assignments(node):
            if scalar(assign.value):
                walker.report_at("FSD436", file, assign.value, known and not depth, name=name)


def _classes(walker: Walker, whole: Thing) -> list[tuple[File, ast.ClassDef, int]]:
    """The classes of a thing, and those of its parts that are the project's."""
    out = [(file, node, 0) for file, node in classes(walker, whole)]
    for file, node, depth in out:
        for _, assign in assignments(node) if depth < 2 and len(out) < 40 else ():
            for call in ast.walk(assign.value):
                text = dotted_text(call.func) if isinstance(call, ast.Call) else ""
                found = walker.project.resolve(file, text) if text and text[:1] != "s" else ""
                known = isinstance(found, Definition) and any(found.node is have for _, have, _ in out)
                if isinstance(found, Definition) and isinstance(found.node, ast.ClassDef) and not known:
                    out.append((found.file, found.node, depth + 1))
    return out


def scalar(node: ast.expr) -> bool:
    """Whether an expression is a parameter without dimensions: ``nn.Parameter(torch.tensor(1.0))``."""
    if not isinstance(node, ast.Call) or _name(node.func) != "Parameter" or not node.args:
        return False
    made = node.args[0]
    while isinstance(made, ast.BinOp):  # torch.ones([]) * 2.6
        made = made.left if isinstance(made.left, ast.Call) else made.right
    if not isinstance(made, ast.Call) or not made.args:
        return False
    name, first = _name(made.func), made.args[0]
    if name in ("tensor", "as_tensor"):
        number = first.operand if isinstance(first, ast.UnaryOp) else first
        return isinstance(number, ast.Constant) and isinstance(number.value, (int, float))
    empty = isinstance(first, (ast.Tuple, ast.List)) and not first.elts
    return name in ("ones", "zeros", "empty", "rand", "randn") and empty and len(made.args) == 1


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def assigned(walker: Walker, node: ast.Assign) -> None:
    """``model.scale = nn.Parameter(torch.tensor(1.0))``; ``norm = clip_grad_norm_(…)``."""
    target = node.targets[0]
    if isinstance(target, ast.Attribute) and scalar(node.value):
        walker.mark(walker.value(target.value), "scalar", node)
    if not isinstance(node.value, ast.Call) or not isinstance(target, ast.Name) or not walker.stack:
        return
    if not walker.full(node.value.func).endswith("torch.nn.utils.clip_grad_norm_") or not node.value.args:
        return
    things: Things = walker.cache.get(id(node.value.args[0]), ())
    release = walker.project.release
    if kind_of(models(things), "fsdp2", walker) != "yes" or not release or not releases.within(release, "2.3-2.9"):
        return
    used = None
    for inner in ast.walk(walker.stack[-1]):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == target.id:
            if inner.attr in ("full_tensor", "to_local", "redistribute"):
                return
            if inner.attr == "item" and used is None:
                used = inner
    if used is not None:
        walker.report("FSD434", used, False)


def precision(walker: Walker, call: Call) -> None:
    """MixedPrecision and MixedPrecisionPolicy in float16."""
    if last(walker, call.argument("param_dtype", 0)) in ("float16", "half"):
        walker.fact("float16", call.node)


def scaled(walker: Walker, call: Call) -> None:
    """A gradient scaler, whosever."""
    walker.fact("scales", call.node)


def project(walker: Walker) -> None:
    """float16 without a scaler in the whole program."""
    facts = walker.facts
    trains_so = facts.get("float16") and facts.get("backward")
    if not trains_so or facts.get("scales") or facts.get("trainer"):
        return
    if not any("caler" in file.text for file in walker.project.files):
        for file, node in facts["float16"]:
            walker.report_at("FSD441", file, node, False)


def trains(walker: Walker, call: Call) -> None:
    """The program trains."""
    if not walker.facts.get("backward"):
        walker.fact("backward", call.node)


CALLS = {
    "fully_shard": [grouped],
    "FSDP1": [grouped],
    "MixedPrecision": [precision],
    "MixedPrecisionPolicy": [precision],
    "GradScaler": [scaled],
    "ShardedGradScaler": [scaled],
}
METHODS = {name: [cast] for name in (*_CASTS, "to")}
METHODS["backward"] = [trains]
ASSIGNED = [assigned]
PROJECT = [project]
