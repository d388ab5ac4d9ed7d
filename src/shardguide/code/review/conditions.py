"""What a test says: whether its answer differs over the ranks, asks what an object is, or is any other."""

from __future__ import annotations

import ast
import re

from shardguide.guidance.hints import TYPE_CHECKING, NamedTuple

from .project import dotted_text
from .records import Condition

if TYPE_CHECKING:
    from .walk import Walker

# Called so by everybody; that it is the rank is still not certain.
_MAIN = frozenset(
    [
        "is_main_process",
        "is_local_main_process",
        "is_rank_zero",
        "is_rank_0",
        "is_rank0",
        "is_master",
        "is_master_process",
        "is_global_zero",
        "is_world_process_zero",
        "is_local_process_zero",
        "is_main",
        "is_primary",
        "is_chief",
        "master_process",
        "main_process",
        "is_leader",
    ]
)
_GUARDS = frozenset({"isinstance", "issubclass", "hasattr", "callable", "getattr", "type"})


_LOCAL = frozenset({"isnan", "isinf", "isfinite", "item"})


class Test(NamedTuple):
    """The conditions of both branches."""

    holds: tuple[Condition, ...]
    fails: tuple[Condition, ...]
    never: bool = False  # if False, if TYPE_CHECKING, a flag that the caller left off
    always: bool = False  # a flag that the caller set


def of_test(walker: Walker, node: ast.expr) -> Test:
    """What an if says about where its branches are reached."""
    if (isinstance(node, ast.Constant) and not node.value) or dotted_text(node).endswith("TYPE_CHECKING"):
        return Test((), (), True, False)
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "__name__":
        return Test((), (), False, True)
    known = _fixed(walker, node)
    if known is not None:
        return Test((), (), not known, known)
    rank = rank_test(walker, node)
    if rank is not None:
        return Test((rank,), (_turned(rank),), False, False)
    own = f"{walker.frame.number}:{id(node)}"
    if isinstance(node, ast.BoolOp):
        decides = isinstance(node.op, ast.Or)
        fixed = [_fixed(walker, part) for part in node.values]
        if decides in fixed:  # False and …, True or …
            return Test((), (), not decides, decides)
        parts = [part for part, known in zip(node.values, fixed, strict=True) if known is None]
        if len(parts) == 1:
            return of_test(walker, parts[0])
        inner = [found for part in parts if (found := rank_test(walker, part)) is not None]
        kind = about(walker, node)
        other = _plain(walker, parts, kind) if len(inner) == 1 and len(parts) == 2 else None
        if other is not None:  # what the other part says elsewhere can be held against it
            whole = Condition(own, decides, "", True)
            if decides:
                return Test((whole,), (_turned(inner[0]), _turned(other)), False, False)
            return Test((inner[0], other), (whole,), False, False)
        kind = "" if kind == "local" and inner else kind
        yes, no = Condition(own, True, kind, True), Condition(own, False, kind, True)
        if not decides:
            return Test((*inner, yes), (no,), False, False)
        return Test((yes,), (*(_turned(one) for one in inner), no), False, False)
    kind = about(walker, node)
    if kind:
        return Test((Condition(own, True, kind, True),), (Condition(own, False, kind, True),), False, False)
    named = _named(walker, node) or Condition(own, True, "", True)
    return Test((named,), (_turned(named),), False, False)


def _fixed(walker: Walker, node: ast.expr) -> bool | None:
    """Whether a flag surely holds or fails; None if it is not known."""
    node, arm = _bare(node)
    if isinstance(node, ast.Constant):
        return bool(node.value) is arm
    if isinstance(node, ast.Name):
        flags = walker.peek(node)
        if len(flags) == 1 and flags[0].kind == "constant":
            return (flags[0].name not in ("False", "None")) is arm
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _no_rank(walker, node)
    return None


def _no_rank(walker: Walker, node: ast.Compare) -> bool | None:
    """How a comparison comes out of what was handed over as a negative number; None for any other."""
    flags = walker.peek(node.left)
    text = flags[0].name if len(flags) == 1 and flags[0].kind == "constant" else ""
    try:
        with_ = ast.literal_eval(node.comparators[0])
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    if text[:1] != "-" or not text[1:].isdigit():
        return None
    number = int(text)
    op = node.ops[0]
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(with_, (list, tuple, set)):
        return (number in with_) is isinstance(op, ast.In)
    if not isinstance(with_, int):
        return None
    answers = {ast.Eq: number == with_, ast.NotEq: number != with_, ast.Lt: number < with_, ast.LtE: number <= with_,
               ast.Gt: number > with_, ast.GtE: number >= with_}  # fmt: skip
    return answers.get(type(op))


def _bare(node: ast.expr) -> tuple[ast.expr, bool]:
    """An expression without the ``not`` before it, and whether there was none, or an even number."""
    arm = True
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node, arm = node.operand, not arm
    return node, arm


def _named(walker: Walker, node: ast.expr) -> Condition | None:
    """The condition of a name or an attribute, equal in every function that asks the same object; None for anything else."""
    node, arm = _bare(node)
    text = dotted_text(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
    if not text:
        return None
    head, dot, rest = text.partition(".")
    things = walker.frame.env.get(head, ()) if dot else ()
    key = f"{id(things[0])}:{rest}" if len(things) == 1 else f"{walker.frame.number}:{text}"
    return Condition(key, arm, "", True)


def _plain(walker: Walker, parts: list[ast.expr], kind: str) -> Condition | None:
    """Of a test of the rank and another one: the other, if it is a name or an attribute."""
    other = next((part for part in parts if rank_test(walker, part) is None), None)
    return _named(walker, other) if other is not None and not kind else None


def _turned(one: Condition) -> Condition:
    return Condition(one.key, not one.arm, one.kind, one.sure)


# Versions of other things than of what is installed.
_OWN = re.compile(
    r"(?:model|data|dataset|ckpt|checkpoint|config|format|schema|file|vocab|tokenizer|arch|net)_?version|conversion|inversion"
)
_SETTINGS = frozenset({"args", "cfg", "config", "opt", "opts", "hparams", "flags", "params"})


def _of_release(node: ast.Name | ast.Attribute) -> bool:
    """Whether a name is of a release: torch_version, torch.version.cuda; not args.version, not model_version."""
    name = node.id if isinstance(node, ast.Name) else node.attr
    if "version" not in name.lower() or _OWN.fullmatch(name.lower()):
        return False
    return not (
        isinstance(node, ast.Attribute)
        and name == "version"
        and dotted_text(node.value).rpartition(".")[2] in _SETTINGS
    )


def about(walker: Walker, node: ast.expr) -> str:
    """What a test asks: "guard" (the type of an object, the release, what is installed), "local" (this rank's data) or "".

    This rank's data are numbers that each rank works out on its own: torch.isnan(loss), loss.item() > 10.
    """
    if isinstance(node, ast.Name) and "version" not in node.id.lower():
        return "guard" if node.id in _GUARDS else ""
    known = walker.tests.get(node)
    if known is None:
        known = walker.tests[node] = _about(walker, node)
    return known


def _about(walker: Walker, node: ast.expr) -> str:
    losses = local = False
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            if inner.id in _GUARDS or _of_release(inner):
                return "guard"
            losses = losses or "loss" in inner.id
        elif isinstance(inner, ast.Attribute):
            if inner.attr == "is_fsdp" or _of_release(inner):
                return "guard"
        elif isinstance(inner, ast.Call):
            function = inner.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            local = local or (name in _LOCAL and (name != "item" or "loss" in ast.dump(function)))
    left = node.left if isinstance(node, ast.Compare) else None
    if losses and not local and isinstance(left, (ast.Name, ast.NamedExpr)):
        # value = loss.item(); if value > worst
        written = left.value if isinstance(left, ast.NamedExpr) else walker.frame.written.get(left.id)
        local = (
            isinstance(written, ast.Call) and isinstance(written.func, ast.Attribute) and written.func.attr == "item"
        )
    return "local" if local else ""


def rank_test(walker: Walker, node: ast.expr) -> Condition | None:
    """The condition of a test whose answer differs over the ranks; None for any other."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        found = rank_test(walker, node.operand)
        return _turned(found) if found is not None else None
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compared(walker, node)
    if isinstance(node, ast.NamedExpr):
        return rank_test(walker, node.value)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
        for thing in walker.peek(node):
            if thing.kind == "rank_test":
                return Condition(thing.name, thing.attrs.get("fails") is None, "rank", thing.sure)
            if thing.kind in ("rank", "local_rank"):
                return Condition(f"{thing.kind} == 0", False, "rank", thing.sure)
        text = dotted_text(node.func if isinstance(node, ast.Call) else node)
        if text.rpartition(".")[2].lstrip("_") in _MAIN:
            local = "local_" if "local" in text else ""
            return Condition(f"{local}rank == 0", True, "rank", False)
    return None


def _compared(walker: Walker, node: ast.Compare) -> Condition | None:
    left, right, op = node.left, node.comparators[0], node.ops[0]
    if isinstance(left, ast.Constant):
        left, right = right, left
        op = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}.get(type(op), type(op))()
    things = [thing for thing in walker.peek(left) if thing.kind in ("rank", "local_rank")]
    if not things:
        return _reckoned(walker, node, left) if isinstance(left, ast.BinOp) else None
    kind, sure = things[0].kind, things[0].sure
    number = right.value if isinstance(right, ast.Constant) and isinstance(right.value, int) else None
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (ast.List, ast.Tuple, ast.Set)):
        # rank not in (-1, 0): as rank != 0, since below 0 there are no ranks
        ranks = [one.value for one in right.elts if isinstance(one, ast.Constant) and isinstance(one.value, int)]
        signed = [one for one in right.elts if isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.USub)]
        if len(ranks) == 1 and len(ranks) + len(signed) == len(right.elts):
            return Condition(f"{kind} == {ranks[0]}", isinstance(op, ast.In), "rank", sure)
    if isinstance(right, ast.UnaryOp) and isinstance(right.op, ast.USub):
        return None  # rank == -1: not distributed at all
    if isinstance(op, (ast.Eq, ast.NotEq)) and number is not None and number >= 0:
        return Condition(f"{kind} == {number}", isinstance(op, ast.Eq), "rank", sure)
    if isinstance(op, ast.Gt) and number == 0:
        return Condition(f"{kind} == 0", False, "rank", sure)
    if isinstance(op, (ast.Lt, ast.GtE)) and number == 1:
        return Condition(f"{kind} == 0", isinstance(op, ast.Lt), "rank", sure)
    if isinstance(op, ast.Lt) and number == 0:
        return None  # not distributed at all
    if isinstance(op, (ast.Is, ast.IsNot, ast.Gt, ast.GtE)):
        return None  # rank is None, rank >= 0, rank > -1: whether there are ranks at all
    return Condition(f"{kind} {walker.source(node)}", True, "rank", sure)


def _reckoned(walker: Walker, node: ast.Compare, left: ast.BinOp) -> Condition | None:
    """``rank % 2 == 0``: which ranks these are is not worked out."""
    if not isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
        return None
    for part in (left.left, left.right):
        for thing in walker.peek(part) if not isinstance(part, ast.Constant) else ():
            if thing.kind in ("rank", "local_rank") and thing.sure:
                source = walker.source(node).replace("!=", "==")
                return Condition(f"{thing.kind} {source}", isinstance(node.ops[0], ast.Eq), "rank", True)
    return None
