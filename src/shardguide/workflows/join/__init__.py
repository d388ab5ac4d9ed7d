"""Workflow W2, Join: whether it fits a training loop, with which flags, in which order, and what shadows each collective."""

from __future__ import annotations

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Check, Decision, Guidance, Next, Question, Snippet
from shardguide.guidance.serialise import plain
from shardguide.knowledge import claims_store, pattern_store
from shardguide.readers.files import noted, split

from ..fields import TORCH
from ..finish import finish
from ..gather import Gathered, ask, gather
from ..release import resolve
from . import code, decisions, fsdp, hooks
from .fields import COLLECTIVES, FIELDS, ON_EXHAUSTED, UNEVEN, WITH
from .loop import Loop

APPROVE = "Is this how uneven inputs are to be handled? The code is a draft until you confirm it."
# What Join consists of, in the words of claims; W2.1.
PARTS = (
    ("Join", "join.what"),
    ("Joinable", "join.joinable.members"),
    ("JoinHook", "join.parts"),
    ("JoinHook.main_hook", "join.hook.main"),
    ("JoinHook.post_hook", "join.hook.post"),
    ("Join.notify_join_context", "join.notify.what"),
)


class JoinRequest(NamedTuple):
    """Everything a front end hands over; absent is None or empty."""

    given: dict[str, Any]  # by field name, as text or value
    remembered: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    site_packages: str | None = None
    paths: tuple[str, ...] = ()  # code whose Joinables and Joins are checked


class Part(NamedTuple):
    """A part of Join's machinery, explained."""

    name: str
    text: str
    claim: str


def _questions(loop: Loop, gathered: Gathered, open_: tuple[Question, ...]) -> list[Question]:
    asked = [*open_, *gathered.conflicts]
    if not loop.parts:
        asked.append(ask(WITH))
    if not loop.uneven:
        asked.append(ask(UNEVEN))
    if not loop.even and not loop.on_exhausted:
        asked.append(ask(ON_EXHAUSTED))
    if loop.parts and not loop.fsdp and not loop.even and not loop.collectives:
        asked.append(ask(COLLECTIVES))
    return asked


def _decisions(loop: Loop) -> list[Decision]:
    if loop.fsdp:
        return [fsdp.use(loop), fsdp.instead(loop)]
    made = [decisions.use(loop), decisions.enable(loop), decisions.throw(loop)]
    if "ddp" in loop.parts:
        made.append(decisions.divide(loop))
    return [*made, decisions.order(loop), decisions.notify(loop), decisions.process_group(loop)]


def _patterns(loop: Loop) -> list[str]:
    """Which patterns go with the answer, the most fitting first."""
    if loop.fsdp:
        both = ["fsdp2-uneven-inputs-agree", "fsdp2-uneven-inputs-pad"]
        return [] if loop.even else both[::-1] if loop.on_exhausted == "drain" else both
    wanted = ["join-throw-early"] if loop.throws else []
    if loop.even:
        wanted.append("join-enable-off")
    if "ddp" in loop.parts:
        wanted.append("join-ddp-zero" if "zero" in loop.parts else "join-ddp")
    if "own" in loop.parts:
        wanted.append("join-own-joinable")
    if loop.uneven == "unknown":
        wanted.append("join-enable-off")
    return wanted or ["join-ddp-zero"]


def _snippets(loop: Loop) -> list[Snippet]:
    known = set(pattern_store.ids())
    found = [pattern_store.snippet(one, loop.release) for one in _patterns(loop) if one in known]
    return [one for one in found if one is not None]


def _notes(loop: Loop) -> list[str]:
    notes = []
    if "zero" in loop.parts and not loop.fsdp:
        notes.append(
            "ZeroRedundancyOptimizer with overlap_with_ddp=True was not looked into: its step() does nothing then."
        )
    if "zero" in loop.parts and "ddp" not in loop.parts and not loop.fsdp:
        notes.append(
            "ZeroRedundancyOptimizer needs gradients that something reduced; DistributedDataParallel was not named."
        )
    if loop.collectives == "yes" and loop.on_exhausted == "drain" and not loop.fsdp and not loop.even:
        notes.append("Training on (drain) was asked for, but is not possible with collectives that nothing shadows.")
    return notes


def join(request: JoinRequest) -> Guidance:
    """Join for a training loop, or what to do in its place where FSDP is in it.

    Raises UnusableInput for answers that cannot be read.
    """
    stated = {name: value for name, value in request.given.items() if value is not None}
    with noted() as read:
        found = code.read(request.paths)
    contents = sorted({(split(path)[1], content) for path, content in read})
    gathered = gather(FIELDS, stated, code.facts(found), request.remembered)
    resolved = resolve(stated.get(TORCH.name), request.site_packages, request.remembered.get(TORCH.name))
    value = gathered.value
    loop = Loop(
        tuple(part for part in value("with", "").split(",") if part),
        value("uneven", ""),
        value("on_exhausted", ""),
        value("collectives", ""),
        value("skew", "small"),
        value("groups", "one") == "several",
        f"{resolved.minor[0]}.{resolved.minor[1]}" if resolved.minor != (0, 0) else "",
    )
    questions = _questions(loop, gathered, resolved.questions)
    explained = tuple(Part(name, claims_store.get(claim).text, claim) for name, claim in PARTS)
    checked = code.plain(found)
    inputs = [*checked, contents] if contents else checked
    extra: dict[str, Any] = {"parts": plain(explained), "shadowed": [], "join_check": checked}
    seen = [code.hooks(found)] if found is not None else []
    if not loop.parts or not loop.release:
        return finish("join", resolved, gathered, questions, [], seen, code.snippets(found), approve=APPROVE, inputs=inputs, beside={},
                      extra=extra, notes=[], next_=())  # fmt: skip
    made = _decisions(loop)
    if not loop.fsdp:
        made[0] = made[0]._replace(sources=tuple(dict.fromkeys((*made[0].sources, *(claim for _, claim in PARTS)))))
    rows = hooks.iteration(loop, resolved.release)
    extra["shadowed"] = plain(tuple(rows))
    checks: list[Check] = [*(seen or [hooks.hooks(loop, rows)]), code.joinable(found, hooks.joinable(loop))]
    several = hooks.group(loop)
    if several is not None:
        checks.append(several)
    return finish(
        "join", resolved, gathered, questions, made, checks, [*code.snippets(found), *_snippets(loop)], approve=APPROVE, inputs=inputs,
        beside={}, extra=extra, notes=_notes(loop), next_=_next(loop),
    )  # fmt: skip


def _next(loop: Loop) -> tuple[Next, ...]:
    if loop.fsdp:
        return (Next("explain", {"topic": "uneven-inputs-fsdp"}, "read on about uneven inputs under FSDP"),)
    return (Next("explain", {"topic": "join"}, "read on about Join and its hooks"),)
