"""What was given in a conversation, step by step, so that it can be taken back: an answer, or a what-if with all that it led to."""

from __future__ import annotations

from shardguide.frontends import conduct
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any, NamedTuple
from shardguide.workflows.remembered import superseded

from . import replies

if TYPE_CHECKING:
    from .talk import Talk


class Step(NamedTuple):
    """How it was before something was given."""

    turn: int  # answers that had been shown until then: 0 is the first interview
    arguments: dict[str, Any]  # None for what was not there
    known: dict[str, Any]  # of the notebook; None for what was not there
    skipped: list[str]
    trial: dict[str, Any]


def give(talk: Talk, arguments: dict[str, Any], trial: bool | None) -> None:
    """Take arguments; what they make worthless (the nodes of another number of GPUs) goes.

    ``trial``: a what-if, which the notebook does not take for a fact unless it is confirmed; False: a correction, which is one;
    None: an answer, which is what it belongs to.
    """
    have, known = talk.state.arguments, conduct.remembered(talk.notebook)
    gone = [one for one in superseded(arguments, have) if one in have and one not in arguments]
    touched = dict.fromkeys((*arguments, *gone, *(one for one in _superseded(arguments, known) if one in known)))
    kept = [one for one in touched if one in conduct.REMEMBERED]
    before = {one: known.get(one) for one in kept}
    talk.steps.append(
        Step(talk.turn, {one: have.get(one) for one in touched}, before, [*talk.state.skipped], dict(talk.state.trial))
    )
    for name in gone:
        del have[name]
    for name, value in arguments.items():
        have[name] = value
        if name in talk.state.skipped:
            talk.state.skipped.remove(name)
        if trial is False:
            talk.state.trial.pop(name, None)
    if trial:
        talk.state.trial = {**before, **talk.state.trial}
    talk.state.settled = False


def _superseded(arguments: dict[str, Any], known: dict[str, Any]) -> tuple[str, ...]:
    try:
        return superseded(arguments, known)
    except UnusableInput:  # the workflow says so where it matters
        return ()


def undo(talk: Talk, whole: bool) -> str:
    """Take the last step back; ``whole``: with all that were given for the answer that is shown. What is again, in a sentence."""
    if not talk.steps:
        return ""
    turn = talk.steps[-1].turn
    again: dict[str, Any] = {}
    while talk.steps:
        step = talk.steps.pop()
        for name, was in step.arguments.items():
            if was is None:
                talk.state.arguments.pop(name, None)
            else:
                talk.state.arguments[name] = was
        again = {**again, **step.arguments}
        for name, value in step.known.items():
            _know(talk, name, value)
        talk.state.skipped, talk.state.trial = step.skipped, step.trial
        if not (whole and turn and talk.steps and talk.steps[-1].turn == turn):
            break
    talk.keep()
    said = {name: value for name, value in again.items() if value is not None}
    gone = [replies.spoken(name) for name, value in again.items() if value is None]
    parts = [*([f"{replies.listed(said)} again"] if said else []), *([f"{', '.join(gone)} open again"] if gone else [])]
    return f"Taken back: {'; '.join(parts)}."


def leave_known(talk: Talk) -> None:
    """The notebook as it was before what is only tried."""
    for name, value in talk.state.trial.items():
        _know(talk, name, value)


def confirm(talk: Talk) -> None:
    """What was tried is what is so now."""
    answers = talk.state.record["answers"]
    for name in talk.state.trial:
        _know(talk, name, answers.get(name, {}).get("value"))
    talk.state.trial = {}


def _know(talk: Talk, name: str, value: Any) -> None:
    if value is None:
        talk.notebook.forget(talk.project, name)
    else:
        talk.notebook.remember(talk.project, {name: value}, "user")
