"""The training loop: order of clipping and unscaling, accumulation, what lies between forward and backward (FSD313-316, 440, 442, 443)."""

from __future__ import annotations

import ast

from ..project import File, dotted_text
from ..records import Call, Thing, compatible, implied
from ..walk import Walker
from .common import is_true, kind_of, models

# Clipping and the gradient scaler


def scale(walker: Walker, call: Call) -> None:
    """scaler.scale(loss)."""
    if call.node.args and (call.owner and _scaler(call.owner[0])):
        walker.note("scale", call.node, call.owner)


def _scaler(thing: Thing) -> bool:
    return thing.kind in ("scaler", "sharded_scaler") or (thing.kind == "unknown" and "scaler" in thing.name.lower())


def unscale(walker: Walker, call: Call) -> None:
    """scaler.unscale_(optimizer)."""
    walker.note("unscale", call.node, call.owner)


def clip(walker: Walker, call: Call) -> None:
    """Any clipping of gradients."""
    if call.name or not call.owner or call.owner[0].kind != "optimizer":
        walker.note("clip", call.node)


def step(walker: Walker, call: Call) -> None:
    """scaler.step(optimizer) after gradients were clipped that are still scaled; optimizer.step() between forward and backward."""
    owner = call.owner[0] if call.owner else None
    if owner is None:
        return
    if _scaler(owner) and call.node.args:
        _clipped(walker, owner)
    elif owner.kind == "optimizer" and not call.node.args:
        _early(walker, owner, call)


def _clipped(walker: Walker, scaler: Thing) -> None:
    scales = [note for note in walker.marks if note.what == "scale" and compatible(note.path, walker.path)]
    if not scales:
        return
    since = scales[-1].at
    clips = [
        note for note in walker.marks if note.what == "clip" and note.at > since and compatible(note.path, walker.path)
    ]
    if not clips:
        return
    first = clips[0]
    for note in walker.marks:
        if note.what in ("unscale", "clip told") and note.at < first.at and note.at > since:
            return
    if any(note.what == "clip told" and note.node is first.node for note in walker.marks):
        return
    plain = scaler.kind != "unknown" and not _may_be_off(scaler)
    sure = plain and (implied(first.path, walker.path) or implied(walker.path, first.path))
    walker.note("clip told", first.node)
    walker.report_at("FSD440", first.file, first.node, sure)


def _may_be_off(scaler: Thing) -> bool:
    node = scaler.node
    return not isinstance(node, ast.Call) or any(keyword.arg in ("enabled", None) for keyword in node.keywords)


# Between forward and backward


def _early(walker: Walker, optimizer: Thing, call: Call) -> None:
    for model in dict.fromkeys(models(optimizer.of)):
        runs = [mark for mark in model.marks if mark.what == "called" and implied(mark.path, walker.path)]
        if not runs or not (model.kind == "fsdp1" or kind_of((model,), "fsdp2", walker) == "yes"):
            continue
        if not any(note.what == "backward" and note.at > runs[-1].at for note in walker.marks):
            walker.note("early step", call.node, (model,))


def backward(walker: Walker, call: Call) -> None:
    """loss.backward()."""
    for note in walker.marks:
        if note.what == "early step" and implied(note.path, walker.path):
            again = any(mark.what == "called" and mark.at > note.at for thing in note.things for mark in thing.marks)
            if not again and not walker.without_gradients():
                walker.report_at("FSD316", note.file, note.node, False)
    if is_true(call.argument("create_graph")) or is_true(call.argument("create_graph", 2)):
        walker.fact("double backward", call.node)


def gradient(walker: Walker, call: Call) -> None:
    """torch.autograd.grad with parameters of a wrapped model."""
    held = models(call.things("inputs", 1))
    for kind, form in (("fsdp1", "FSDP1"), ("ddp", "DistributedDataParallel"), ("fsdp2", "FSDP2")):
        if kind_of(held, kind, walker) == "yes":
            walker.report("FSD313", call.node, True, form=form)
            return


# Accumulation


def loop(walker: Walker, node: ast.For | ast.AsyncFor) -> None:
    """A loop that steps at every n-th batch only."""
    file = walker.frame.file
    if "backward(" not in file.text or not all(_said(file, node, word) for word in (b"backward", b"step")):
        return
    steps: ast.stmt | None = None
    runs = several = False
    for item in node.body:
        if isinstance(item, ast.If) and _every(walker, item.test) and _calls(item.body, "step"):
            steps = item if not _calls(item.body, "backward") else None
        elif isinstance(item, (ast.For, ast.While)) and _calls([item], "backward") and not _calls([item], "step"):
            several = True
        else:
            runs = runs or _calls([item], "backward")
            if several and _calls([item], "step"):
                steps, runs = item, True
    if steps is not None and runs:
        walker.fact("accumulates", steps)


def _said(file: File, node: ast.stmt, word: bytes) -> bool:
    """Whether the lines of a statement have a word."""
    return any(word in line for line in file.lines[node.lineno - 1 : node.end_lineno])


def _every(walker: Walker, test: ast.expr) -> bool:
    """Whether a test asks for every n-th step, or its name says so."""
    if isinstance(test, ast.Name):
        written = walker.written(test)
        return "accum" in test.id.lower() or (written is not None and _every(walker, written))
    return any(isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mod) for inner in ast.walk(test))


def _calls(body: list[ast.stmt], method: str) -> bool:
    return any(
        isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == method
        for item in body
        for inner in ast.walk(item)
    )


def wrapped(walker: Walker, call: Call) -> None:
    """FSDP1 that offloads."""
    given = call.argument("cpu_offload", 3)
    if isinstance(given, ast.Name):
        given = walker.written(given) or given
    if isinstance(given, ast.IfExp):
        given = given.body
    if isinstance(given, ast.Call) and (
        is_true(next((k.value for k in given.keywords if k.arg == "offload_params"), None))
        or (given.args and is_true(given.args[0]))
    ):
        walker.fact("fsdp1 offload", call.node)


def inner_unit(walker: Walker, call: Call) -> None:
    """no_sync() and clip_grad_norm_() of a part of an FSDP1 model."""
    for owner in call.owner:
        whole = owner
        for _ in range(8):
            if whole.kind != "unknown" or not whole.of:
                break
            whole = whole.of[0]
        if whole is not owner and whole.kind == "fsdp1" and len(call.owner) == 1:
            walker.report("FSD315", call.node, True, method=call.method)


def fetched(walker: Walker, node: ast.Assign) -> None:
    """``sync = getattr(model, "no_sync", nullcontext)``."""
    _getattr(walker, node.value)


def entered(walker: Walker, node: ast.With | ast.AsyncWith, item: ast.withitem, name: str) -> None:
    """With getattr(model, "no_sync", nullcontext)()."""
    given = item.context_expr
    for part in (given.body, given.orelse) if isinstance(given, ast.IfExp) else (given,):
        if isinstance(part, ast.Call):
            _getattr(walker, part.func)


def _getattr(walker: Walker, node: ast.expr) -> None:
    if isinstance(node, ast.IfExp):
        node = node.body
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Call):
        node = node.func
    if not (isinstance(node, ast.Call) and dotted_text(node.func) == "getattr" and len(node.args) == 3):
        return
    name, of = node.args[1], node.args[0]
    if isinstance(name, ast.Constant) and name.value == "no_sync" and isinstance(of, (ast.Name, ast.Attribute)):
        things = walker.value(of)
        if kind_of(things, "fsdp2", walker) == "yes" and all(thing.kind not in ("ddp", "fsdp1") for thing in things):
            walker.report("FSD442", node, True, guarded=True)


def project(walker: Walker) -> None:
    """Accumulation in a program that never holds the communication back."""
    facts = walker.facts
    held = ("no_sync", "set_requires_gradient_sync", "require_backward_grad_sync", "accumulate(")
    if any(word in file.text for file in walker.project.files for word in held):
        return
    for fact, code in (("fsdp1 offload", "FSD314"), ("ddp", "FSD443")):
        if facts.get(fact) and not facts.get("trainer") and (fact != "ddp" or not facts.get("fsdp1")):
            homes = _homes(facts[fact])
            for file, node in facts.get("accumulates", ()):
                if id(file) in homes or len(walker.project.files) < 12:
                    walker.report_at(code, file, node, False)
    if facts.get("fsdp1") or facts.get("ddp"):
        for file, node in facts.get("double backward", ()):
            if id(file) in _homes([*facts.get("fsdp1", ()), *facts.get("ddp", ())]):
                walker.report_at("FSD313", file, node, False, form="FSDP1" if facts.get("fsdp1") else "DDP")


def _homes(places: list[tuple[File, ast.AST]]) -> set[int]:
    return {id(file) for file, _ in places}


CALLS = {
    "clip_grad_norm_": [clip],
    "clip_grad_value_": [clip],
    "FSDP1": [wrapped],
    "autograd.grad": [gradient],
}
METHODS = {
    "scale": [scale],
    "unscale_": [unscale],
    "clip_grad_norm_": [clip, inner_unit],
    "no_sync": [inner_unit],
    "step": [step],
    "backward": [backward],
}
LOOPS = [loop]
ASSIGNED = [fetched]
CONTEXTS = [entered]
PROJECT = [project]
