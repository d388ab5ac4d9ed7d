"""Data and precision (FSD8xx)."""

from __future__ import annotations

import ast
import re

from ..project import dotted_text
from ..records import Call
from ..walk import Walker
from .common import around, drop_argument, is_false, is_true, last, place
from .parts import Programs


def sampler(walker: Walker, call: Call) -> None:
    """DistributedSampler(dataset, …)."""
    shuffle = call.argument("shuffle", 3)
    if not is_false(shuffle) and not call.spread() and not _evaluates(walker, call):
        # shuffle=mode == "train" does so in one of its cases
        some = shuffle is None or is_true(shuffle) or isinstance(shuffle, (ast.Compare, ast.BoolOp))
        walker.fact("shuffles" if some else "may shuffle", call.node)
    for thing in call.named.get("seed", ()):
        if thing.kind in ("rank", "local_rank"):
            walker.report("FSD803", call.node, thing.sure, *drop_argument(call, "seed"))


_EVALUATION = re.compile(
    r"(?:^|[_.])(?:val|valid|validation|test|eval|evaluation|dev|extract|predict|infer)(?:$|[_.\d])"
)


def _evaluates(walker: Walker, call: Call) -> bool:
    """Whether the data is for evaluation, by the names around: its order is of no matter."""
    given = call.argument("dataset", 0)
    names = [
        dotted_text(given) if given is not None else "",
        *(getattr(node, "name", "") for node in walker.stack[-1:]),
    ]
    for _, block, at in place(around(walker), call.node)[-1:]:
        statement = block[at]
        if isinstance(statement, ast.Assign):
            names += [dotted_text(target) for target in statement.targets]
    return any(_EVALUATION.search(name.lower()) for name in names)


def loader(walker: Walker, call: Call) -> None:
    """DataLoader(dataset, …)."""
    if is_true(call.argument("shuffle", 2)):
        given = call.things("sampler", 3)
        if given and all(thing.kind == "sampler" for thing in given):
            walker.report("FSD802", call.node, True, *drop_argument(call, "shuffle"))


def epoch(walker: Walker, call: Call) -> None:
    """set_epoch, of whatever it is."""
    walker.fact("set_epoch", call.node)


def scaler(walker: Walker, call: Call) -> None:
    """GradScaler(…)."""
    if not any(keyword.arg in ("enabled", None) for keyword in call.node.keywords):
        walker.fact("scaler", call.node)


def precision(walker: Walker, call: Call) -> None:
    """MixedPrecision and MixedPrecisionPolicy."""
    dtype = last(walker, call.argument("param_dtype", 0))
    walker.fact("bf16" if dtype == "bfloat16" else "other dtype", call.node)


def project(walker: Walker) -> None:
    """What a whole program lacks."""
    facts = walker.facts
    # What a configuration decides shuffles in the loop over epochs beside it, if anywhere.
    may = [(file, node) for file, node in facts.get("may shuffle", ()) if "for epoch in" in file.text]
    shuffles = [*facts.get("shuffles", ()), *may]
    everywhere = {file for fact in ("set_epoch", "epochs") for file, _ in facts.get(fact, ())}
    programs = Programs(walker.project) if shuffles and everywhere else None
    for file, node in shuffles:
        if programs is None or not programs.around(file) & everywhere:
            walker.report_at("FSD801", file, node, False)
    if facts.get("bf16") and not facts.get("other dtype"):
        for file, node in facts.get("scaler", ()):
            walker.report_at("FSD804", file, node, False)


CALLS = {
    "DistributedSampler": [sampler],
    "DataLoader": [loader],
    "GradScaler": [scaler],
    "ShardedGradScaler": [scaler],
    "MixedPrecision": [precision],
    "MixedPrecisionPolicy": [precision],
}
METHODS = {"set_epoch": [epoch]}
PROJECT = [project]
