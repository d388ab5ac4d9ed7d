"""Parameters that two modules share, and the groups that fully_shard puts them into (FSD424)."""

from __future__ import annotations

import ast

from ..records import Call, Thing, Things, implied
from ..walk import Walker
from .common import within
from .parts import classes

# What language models call the two ends that share a weight.
_ENDS = frozenset(
    [
        "lm_head",
        "embed_tokens",
        "wte",
        "tok_embeddings",
        "token_embedding",
        "embed",
        "embedding",
        "embeddings",
        "head",
        "output",
    ]
)


def assigned(walker: Walker, owner: Thing, node: ast.Attribute, things: Things) -> None:
    """``model.head.weight = model.embed.weight``."""
    if node.attr != "weight" or not isinstance(node.ctx, ast.Store):
        return
    for shared in things:
        if shared.kind == "unknown" and shared.name.endswith(".weight") and shared.of and shared.of[0] is not owner:
            for one, other in ((owner, shared.of[0]), (shared.of[0], owner)):
                walker.mark((one,), "tied", node)
                one.attrs.setdefault("tied with", ())
                one.attrs["tied with"] = (*one.attrs["tied with"], other)


def sharded(walker: Walker, call: Call) -> None:
    """fully_shard of one of two that share a weight, without the other."""
    things = call.things("module", 0)
    if "_composable.fully_shard" in call.full or not things:
        return
    first = call.node.args[0] if call.node.args else None
    if isinstance(first, ast.Name):
        first = walker.written(first) or first
    listed = isinstance(first, (ast.List, ast.Tuple, ast.ListComp))  # otherwise what a loop takes one by one
    for thing in things:
        group = things if listed else (thing,)
        if any(mark.what == "fully_shard" for mark in thing.marks):
            continue
        others = thing.attrs.get("tied with", ())
        if others:
            apart = [other for other in others if not any(within(other, one) for one in group)]
            sure = any(mark.what == "tied" and implied(mark.path, walker.path) for mark in thing.marks)
            if apart:
                _report(walker, call, thing, sure)
            continue
        whole = thing.of[0] if thing.of and thing.kind == "unknown" else None
        name = thing.name.rpartition(".")[2]
        if whole is None:
            continue
        other = _tie(walker, whole, name)
        if other:
            there = any(one.of[:1] == (whole,) and one.name.rpartition(".")[2] == other for one in group)
            if not there:
                _report(walker, call, thing, True)
        elif name in _ENDS and len(group) == 1 and _said(walker, whole):
            _report(walker, call, thing, False)


def _said(walker: Walker, whole: Thing) -> bool:
    """Whether a library ties a model's ends, by its method or its configuration."""
    tied = any(mark.what == "method tie_weights" for mark in whole.marks)
    return tied or "tie_word_embeddings=True" in walker.frame.file.text


def _report(walker: Walker, call: Call, thing: Thing, sure: bool) -> None:
    text = walker.frame.file.text
    if ".tie_word_embeddings" in text and ".tie_word_embeddings =" not in text:
        return  # the program asks, and does another thing for each answer
    walker.report("FSD424", call.node, sure, part=thing.name)


def _tie(walker: Walker, whole: Thing, name: str) -> str:
    """The attribute that a class ties to another in its own code: ``self.head.weight = self.embed.weight``."""
    for _, owner in classes(walker, whole):
        for node in ast.walk(owner):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                one, other = _weight(node.targets[0]), _weight(node.value)
                if one and other and name in (one, other):
                    return other if name == one else one
    return ""


def _weight(node: ast.expr) -> str:
    """Give embed for ``self.embed.weight``."""
    if isinstance(node, ast.Attribute) and node.attr == "weight" and isinstance(node.value, ast.Attribute):
        of = node.value
        if isinstance(of.value, ast.Name) and of.value.id == "self":
            return of.attr
    return ""


CALLS = {"fully_shard": [sharded]}
ATTRIBUTES = [assigned]
