"""What is done to a model after DDP has wrapped it (FSD508, 514, 515), and models that a static graph does not fit (FSD507)."""

from __future__ import annotations

import ast

from ..project import dotted_text
from ..records import Call, Thing, Things, marked
from ..walk import Walker
from .common import is_false, is_true
from .literals import bound

_CASTS = frozenset({"half", "bfloat16", "float", "double", "cuda", "cpu", "to"})
_ADDING = frozenset({"add_module", "register_module", "register_parameter"})
_RANDOM = ("random.", "numpy.random.", "np.random.", "torch.rand", "torch.bernoulli")
_VALUES = frozenset({"item", "any", "all", "sum", "mean", "norm"})
_WRAPPED = "in DDP"


def wrapped(walker: Walker, call: Call) -> None:
    """DDP(module, …)."""
    modules = call.things("module", 0)
    tolerant = is_true(call.argument("find_unused_parameters", 8))
    walker.mark(modules, _WRAPPED + (" that searches" if tolerant else ""), call.node)
    if is_true(call.argument("static_graph")):
        for thing in modules:
            _static(walker, call, thing)


def _static(walker: Walker, call: Call, thing: Thing) -> None:
    """The forward of the project's own class goes one way or another by something that changes."""
    held = thing.attrs.get("class")
    for item in getattr(held[0].node, "body", ()) if held else ():
        if isinstance(item, ast.FunctionDef) and item.name == "forward":
            found = _ways(item)
            if found is not None:
                walker.report("FSD507", call.node, False, what=found[0], line=str(found[1]))


def _ways(forward: ast.FunctionDef) -> tuple[str, int] | None:
    """What a forward decides by, and where, where its modules run or not."""
    counters: set[str] = set()
    chosen: set[str] = set()  # names of numbers that are drawn or counted
    parts = {"self"}  # names of modules: self, and what a loop takes from it
    for inner in ast.walk(forward):
        if isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Attribute):
            counters.add(inner.target.attr)
        elif isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name) and _drawn(inner.value):
            chosen.add(inner.targets[0].id)
        elif isinstance(inner, ast.For) and "self" in _names(inner.iter):
            parts |= _names(inner.target)
    for inner in ast.walk(forward):
        test = inner.iter if isinstance(inner, ast.For) else getattr(inner, "test", None)
        if not isinstance(inner, (ast.If, ast.While, ast.IfExp, ast.For)) or test is None:
            continue
        what = _drawn(test) if not isinstance(inner, ast.For) else ""
        for one in ast.walk(test):
            if isinstance(one, ast.Attribute) and one.attr in counters and not isinstance(inner, ast.For):
                what = f"self.{one.attr}"
            elif isinstance(one, ast.Name) and one.id in chosen:
                what = one.id
        calls = (one for one in ast.walk(inner) if isinstance(one, ast.Call) and one not in ast.walk(test))
        if what and any(dotted_text(run).partition(".")[0] in parts for one in calls for run in (one.func, *one.args)):
            return what, inner.lineno
    return None


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _drawn(node: ast.expr) -> str:
    """What in an expression is drawn at random or comes out of a tensor; "" for nothing."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            name = dotted_text(inner.func)
            if name.startswith(_RANDOM):
                return name
            if isinstance(inner.func, ast.Attribute) and inner.func.attr in _VALUES and not name.startswith("self."):
                return f"{inner.func.attr}()"
    return ""


def _wrapped(walker: Walker, thing: Thing) -> tuple[str, bool]:
    """Whether a thing is a DDP model or inside one ("yes", "maybe", "no"), and whether that DDP tolerates unused parameters."""
    for _ in range(12):
        if thing.kind == "ddp":
            return "yes", any(mark.what.endswith("searches") for of in thing.of for mark in of.marks)
        for what, tolerant in ((_WRAPPED, False), (f"{_WRAPPED} that searches", True)):
            answer = marked(thing, what, walker.path)
            if answer != "no" and _here(walker, thing, what):
                return answer, tolerant
        if not thing.of or thing.kind not in ("unknown", "submodule", "module", "params", "param", "modulelist"):
            return "no", False
        thing = thing.of[0]
    return "no", False


def _here(walker: Walker, thing: Thing, what: str) -> bool:
    """Whether it happened in this file: what other files hand over may be another object."""
    return any(mark.what == what and walker.frame.file.holds(mark.node) for mark in thing.marks)


def frozen(walker: Walker, owner: Thing, node: ast.Attribute, things: Things) -> None:
    """``parameter.requires_grad = …`` after DDP."""
    if node.attr == "requires_grad" and isinstance(node.ctx, ast.Store):
        owners = walker.peek(node.value)
        _changed(walker, owners if owner in owners else (owner,), node, "requires_grad is set", False)


def frozen_call(walker: Walker, call: Call) -> None:
    """``module.requires_grad_(…)`` after DDP."""
    _changed(walker, call.owner, call.node, "requires_grad_ is called", False)


def added(walker: Walker, call: Call) -> None:
    """add_module and register_parameter after DDP."""
    _changed(walker, call.owner, call.node, f"{call.method} is called", True)


def replaced(walker: Walker, node: ast.Assign) -> None:
    """``model.head = nn.Linear(…)`` after DDP."""
    target = node.targets[0]
    if type(target) is not ast.Attribute or not isinstance(node.value, ast.Call):
        return
    things = walker.peek(node.value)
    if len(things) == 1 and things[0].kind in ("module", "modulelist"):
        owners = walker.peek(target.value)
        if all(owner.kind != "instance" for owner in owners):
            _changed(walker, owners, node, f"{target.attr} is replaced", True)


def _changed(walker: Walker, owners: Things, node: ast.AST, what: str, sure: bool) -> None:
    """Whatever a name may stand for, it is in DDP: else the change may be meant for the others."""
    if walker.facts.get("no_sync"):
        sure = False
    answers = {_wrapped(walker, owner) for owner in owners}
    if {answer for answer, _ in answers} != {"yes"}:
        return
    if sure or not any(tolerant for _, tolerant in answers):
        # After training it may be meant for what comes then.
        sure = sure and walker.loop_depth == 0 and not walker.noted("backward")
        walker.report("FSD508", node, sure, what=what)


def cast(walker: Walker, call: Call) -> None:
    """DDP(model) is moved or cast."""
    if call.method not in _CASTS or not call.owner or any(owner.kind != "ddp" for owner in call.owner):
        return
    if call.method in ("cpu",):
        return
    function = call.node.func
    made = bound(walker, function.value) if isinstance(function, ast.Attribute) else None
    given = made.args[0] if isinstance(made, ast.Call) and made.args else None
    before = given.func if isinstance(given, ast.Call) else None
    if isinstance(given, ast.Call) and isinstance(before, ast.Attribute) and before.attr == call.method:
        there = [ast.dump(one) for one in given.args] == [ast.dump(one) for one in call.node.args]
        if there:
            return  # DDP(model.cuda()).cuda()
    walker.report("FSD514", call.node, False, what=f".{call.method}()")


def reduced(walker: Walker, call: Call) -> None:
    """all_reduce of the gradients of a DDP model."""
    node = call.argument("tensor", 0)
    while isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    if not (isinstance(node, ast.Attribute) and node.attr == "grad"):
        return
    for thing in walker.peek(node.value):
        if thing.kind == "param" and any(of.kind == "ddp" for of in thing.of):
            walker.fact("by hand", call.node)


def project(walker: Walker) -> None:
    """Gradients that are reduced twice; without the first one under no_sync it is a way of one's own."""
    if not walker.facts.get("no_sync"):
        for file, node in walker.facts.get("by hand", ()):
            walker.report_at("FSD515", file, node, False)


def no_sync(walker: Walker, call: Call) -> None:
    """The program decides itself when gradients are reduced."""
    if not is_false(call.argument("enabled")):
        walker.fact("no_sync", call.node)


CALLS = {"DDP": [wrapped], "all_reduce": [reduced]}
METHODS = {
    **{name: [cast] for name in _CASTS},
    **{name: [added] for name in _ADDING},
    "requires_grad_": [frozen_call],
    "no_sync": [no_sync],
}
ATTRIBUTES = [frozen]
ASSIGNED = [replaced]
PROJECT = [project]
