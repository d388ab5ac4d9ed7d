"""Parameters of FSDP1's units: initialisation, frozen ones, names, and optimizers that need their shapes (FSD310-312, 317)."""

from __future__ import annotations

import ast

from ..project import Definition, dotted_text
from ..records import Call, Thing
from ..walk import Walker
from .common import is_false, is_true, kind_of, models
from .parts import all_parts, in_root, separates

# Optimizers that work on whole matrices.
_WHOLE = frozenset(
    ["Muon", "Shampoo", "ScalableShampoo", "DistributedShampoo", "SOAP", "GaLoreAdamW", "Adafactor", "LARS", "LAMB"]
)


def wrapped(walker: Walker, call: Call) -> None:
    """FSDP(module, …)."""
    if call.spread():
        return
    _filled(walker, call)
    original, policy = call.argument("use_orig_params", 13), call.argument("auto_wrap_policy", 4)
    if not (original is None or is_false(original)):
        return
    given = call.things("module", 0)
    for thing in given if len(given) == 1 and not walker.inside("enable_wrap") else ():
        marks = {mark.what for mark in thing.marks}
        if "partly frozen" in marks:
            mixed = not separates(walker, policy)
        elif "trainable" in marks:
            mixed = False
        else:
            mixed = any(in_root(walker, part, policy) for part in _odd_parts(thing, "frozen" in marks))
        if mixed:
            walker.report("FSD311", call.node, False)


def _odd_parts(thing: Thing, frozen: bool) -> list[Thing]:
    """The parts of a thing that were frozen, or of a frozen one those that were not."""
    want = "trainable" if frozen else "frozen"
    return [part for part in all_parts(thing) if any(mark.what == want for mark in part.marks)]


def _filled(walker: Walker, call: Call) -> None:
    """param_init_fn that only allocates, and nothing that brings the values."""
    given = call.argument("param_init_fn", 8)
    if given is None or is_true(call.argument("sync_module_states", 10)):
        return
    sync = call.argument("sync_module_states", 10)
    if sync is not None and not is_false(sync):
        return
    ways = _ways(walker, given)
    parts = [part for way in ways for part in ((way.body, way.orelse) if isinstance(way, ast.IfExp) else (way,))]
    if any(_empties(walker, part) for part in parts):
        if len(parts) > 1:  # some ranks only
            walker.report("FSD310", call.node, False)
        else:
            walker.fact("only emptied", call.node)


def _ways(walker: Walker, node: ast.expr) -> list[ast.expr]:
    """What a name may stand for, by the assignments to it in this function."""
    if not isinstance(node, ast.Name) or not walker.stack:
        return [node]
    found = [
        inner.value
        for inner in ast.walk(walker.stack[-1])
        if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name) and inner.targets[0].id == node.id
    ]
    return found or [node]


def _empties(walker: Walker, node: ast.expr) -> bool:
    """Whether a function only allocates."""
    if isinstance(node, ast.Lambda):
        return _to_empty(node.body)
    found = walker.project.resolve(walker.frame.file, node.id) if isinstance(node, ast.Name) else ""
    if not isinstance(found, Definition):
        return False
    body = [
        item for item in found.node.body if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
    ]
    return len(body) == 1 and isinstance(body[0], (ast.Expr, ast.Return)) and _to_empty(body[0].value)


def _to_empty(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to_empty"


def loads(walker: Walker, call: Call) -> None:
    """A state dict is loaded somewhere."""
    if not walker.facts.get("loads"):
        walker.fact("loads", call.node)


def frozen(walker: Walker, node: ast.Assign) -> None:
    """``p.requires_grad = False``, for all parameters of a thing or for some."""
    target = node.targets[0]
    if not isinstance(target, ast.Attribute) or target.attr != "requires_grad":
        return
    some = isinstance(node.value, (ast.Compare, ast.BoolOp, ast.UnaryOp))
    if isinstance(target.value, ast.Name) and (some or is_false(node.value) or is_true(node.value)):
        _mark(walker, walker.frame.env.get(target.value.id, ()), node, some, is_true(node.value))
    elif isinstance(target.value, ast.Attribute) and is_false(node.value):  # model.embed.weight.requires_grad = False
        walker.mark(tuple(one for one in walker.value(target.value) if one.kind == "unknown"), "frozen", node)


def _mark(walker: Walker, things: tuple[Thing, ...], node: ast.AST, some: bool, on: bool) -> None:
    for thing in things:
        if thing.kind != "param":
            continue
        # Under a test inside the loop, of the name for instance: some of the parameters only.
        tested = _tested(walker, node)
        for of in thing.of:
            whole = of
            if some or tested:
                walker.mark((whole,), "partly frozen", node)
            elif not on:
                walker.mark((whole,), "frozen", node)
            else:
                walker.mark((whole,), "trainable", node)


def _tested(walker: Walker, node: ast.AST) -> bool:
    """Whether a statement stands under an if within the loop around it."""
    around = [
        inner
        for inner in (ast.walk(walker.stack[-1]) if walker.stack else ())
        if isinstance(inner, (ast.For, ast.If)) and _holds(inner, node)
    ]
    return bool(around) and isinstance(max(around, key=lambda inner: inner.lineno), ast.If) and _in_loop(around)


def _holds(outer: ast.For | ast.If, node: ast.AST) -> bool:
    line = getattr(node, "lineno", 0)
    return outer.lineno < line <= (outer.end_lineno or 0)


def _in_loop(around: list[ast.For | ast.If]) -> bool:
    return any(isinstance(inner, ast.For) for inner in around)


def requires(walker: Walker, call: Call) -> None:
    """part.requires_grad_(False); parameter.requires_grad_(False)."""
    given = call.argument("requires_grad", 0)
    off = is_false(given)
    for owner in call.owner:
        if owner.kind == "param":
            _mark(walker, (owner,), call.node, False, not off)
        elif owner.kind in ("unknown", "module") and (off or given is None or is_true(given)):
            walker.mark((owner,), "frozen" if off else "trainable", call.node)


def adapters(walker: Walker, call: Call) -> None:
    """get_peft_model freezes all but the adapters."""
    walker.mark(call.args[0] if call.args else (), "partly frozen", call.node)


def named(walker: Walker, call: Call) -> None:
    """named_parameters of flat parameters."""
    for owner in call.owner:
        if owner.kind == "fsdp1" and _flat(owner):
            walker.note("flat names", call.node)


def _flat(thing: Thing) -> bool:
    node = thing.node
    if not isinstance(node, ast.Call):
        return False
    for keyword in node.keywords:
        if keyword.arg in (None, "ignored_modules", "ignored_states", "ignored_parameters"):
            return False
        if keyword.arg == "use_orig_params" and not is_false(keyword.value):
            return False
    return len(node.args) < 13


def loop(walker: Walker, node: ast.For | ast.AsyncFor) -> None:
    """For name, p in model.named_parameters(): if "bias" in name."""
    if not walker.noted("flat names"):
        return
    notes = {id(note.node) for note in walker.marks if note.what == "flat names"}
    if id(node.iter) in notes:
        tests = [inner.test for inner in ast.walk(node) if isinstance(inner, (ast.If, ast.IfExp))]
        _names(walker, node.iter, node.target, tests)


def assigned(walker: Walker, node: ast.Assign) -> None:
    """A list of parameters by name."""
    frozen(walker, node)
    _comprehensions(walker, node.value)


def optimizer(walker: Walker, call: Call) -> None:
    """Groups that are written into the call; an optimizer that needs whole matrices."""
    for argument in (*call.node.args, *(keyword.value for keyword in call.node.keywords)):
        _comprehensions(walker, argument)
    name = call.full.rpartition(".")[2]
    if name in _WHOLE and kind_of(models(call.things("params", 0)), "fsdp1", walker) == "yes":
        walker.report("FSD317", call.node, call.full.startswith("torch.optim."), name=name)


def _comprehensions(walker: Walker, node: ast.expr) -> None:
    if not walker.noted("flat names"):
        return
    notes = {id(note.node) for note in walker.marks if note.what == "flat names"}
    for inner in ast.walk(node):
        if isinstance(inner, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            for generator in inner.generators:
                if id(generator.iter) in notes:
                    _names(walker, generator.iter, generator.target, generator.ifs)


def _names(walker: Walker, at: ast.expr, target: ast.expr, tests: list[ast.expr]) -> None:
    if not (isinstance(target, ast.Tuple) and target.elts and isinstance(target.elts[0], ast.Name)):
        return
    name = target.elts[0].id
    for test in tests:
        for inner in ast.walk(test):
            asked = isinstance(inner, ast.Compare) and any(
                isinstance(side, ast.Name) and side.id == name for side in inner.comparators
            )
            ends = isinstance(inner, ast.Call) and dotted_text(inner.func).startswith(
                (f"{name}.ends", f"{name}.starts")
            )
            if asked or ends:
                walker.report("FSD312", at, True)
                return


def project(walker: Walker) -> None:
    """Emptied on every rank, and nothing loaded in the whole program."""
    if not walker.facts.get("loads"):
        for file, node in walker.facts.get("only emptied", ()):
            walker.report_at("FSD310", file, node, False)


CALLS = {
    "FSDP1": [wrapped],
    "get_peft_model": [adapters],
    "optimizer": [optimizer],
    "dcp.load": [loads],
    "dcp.set_model_state_dict": [loads],
    "dcp.set_state_dict": [loads],
}
METHODS = {"requires_grad_": [requires], "named_parameters": [named], "load_state_dict": [loads]}
LOOPS = [loop]
ASSIGNED = [assigned]
PROJECT = [project]
