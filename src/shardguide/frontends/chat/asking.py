"""A workflow's question: shown with its reason and choices, answered, or how to find the answer out."""

from __future__ import annotations

import re

from shardguide.frontends.render.blocks import Block, Code, Heading, Pairs, Text
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.workflows import find_out

from . import after, inside, replies, spoken
from .words import HELP, Meaning, asks, meaning

if TYPE_CHECKING:
    from .talk import Talk


_ABOUT = re.compile(r"^\s*(?:please )?(?:show|explain|print|give me|list|tell me|go on|continue)\b", re.IGNORECASE)
_LATER = frozenset({"form", "apply", "more", "sources", "snippets", "show", "reasons", "draft"})  # said of an answer


def question(talk: Talk, asked: dict[str, Any]) -> None:
    """Ask until it is answered, left open or something else is wanted."""
    choices = [str(one) for one in asked["choices"]]
    numeric = bool(choices) and all(one.isdigit() for one in choices)
    out: list[Block] = [Heading(spoken.sentence(asked["ask"])), Text(f"Why: {spoken.sentence(asked['why'])}")]
    if numeric:
        out.append(Text(f"For example: {', '.join(choices)}"))
    elif choices:
        out.append(Pairs(tuple((f"{number})", one, "") for number, one in enumerate(choices, 1))))
    talk.show(out)
    unknown = missed = 0
    while True:
        line = talk.read(
            f"{asked['id']} (? if you don't know) > ",
            (*choices, *(f"{name} = " for name in talk.state.record["answers"])),
        )
        # What is among the choices is an answer, whatever else it means elsewhere: stop, no, unknown.
        said = Meaning("other") if line.strip().lower() in choices else meaning(line, talk.names())
        unknown += said.kind == "unknown"
        if unknown > 1 and said.kind == "unknown":  # the command was no help either
            talk.show([Text(f"{asked['id'].replace('_', ' ').capitalize()} is left open.")])
            said = Meaning("skip")
        try:
            if _over(talk, asked, line, said):
                return
        except UnusableInput as error:
            talk.show([Text(spoken.error(str(error)))])
        missed += said.kind not in ("unknown", "help", "known", "why")
        if missed > 1:
            talk.show([Text("? says how to find it out, Enter leaves it open, back takes back what was said before.")])


def _over(talk: Talk, asked: dict[str, Any], line: str, said: Meaning) -> bool:
    """Deal with a line; False where the question still stands."""
    state = talk.state
    if said.kind == "skip":
        state.skipped.append(asked["id"])
        talk.keep()
    elif said.kind in ("quit", "new"):
        talk.left(said)
    elif said.kind == "release" and asked["id"] != "torch":
        talk.give({"torch": said.value}, trial=line.rstrip().endswith("?") or None)
        talk.show([Text(f"For PyTorch {said.value} now; back takes that back.")])
    elif said.kind == "without" and state.arguments.get("from"):
        talk.give({"from": state.arguments["from"][:-1]})
    elif said.kind == "back":
        if talk.undo():
            return True
        talk.show([Text("This is the first question.")])
        return False
    elif said.kind == "change":
        return talk.changed(said)
    elif said.kind == "unknown":
        _how(talk, asked)
        return False
    elif said.kind in ("help", "known"):
        talk.show(talk.known() if said.kind == "known" else [Text(one) for one in HELP])
        return False
    elif said.kind == "why":
        talk.show([Text(f"Why this is asked: {asked['why']}")] if not said.value else after.asked(talk, line))
        return False
    else:
        return _given(talk, asked, line, said)
    return True


def _given(talk: Talk, asked: dict[str, Any], line: str, said: Meaning) -> bool:
    """Take the answer to a question; False where the line was none."""
    other = after.other_facts(talk, line)
    found = replies.reply(talk.state.task, asked, line)
    if other and asked["id"] not in found.arguments:
        found = replies.Reply(other, note=f"Now {replies.stating(other)}.")
    if found.output:
        talk.give({"from": [*talk.state.arguments.get("from", []), talk.handed(found.output)]})
        return True
    if "now" in found.arguments:
        talk.give({"now": [*talk.state.arguments.get("now", []), *found.arguments["now"]]})
        return True
    if found.note:
        talk.show([Text(found.note)])
    if found.arguments:
        talk.give(found.arguments, trial=(bool(other) and asks(line)) or None)  # what if: no fact yet
        return True
    if said.kind in _LATER or _ABOUT.match(line):
        talk.show([Text("That is about the answer, which comes once this is answered, or left open with Enter.")])
    else:
        talk.show(
            [Text(spoken.error(found.wrong))]
            if found.wrong
            else inside.blocks(talk.state.record, line) or after.asked(talk, line)
        )
    return False


def _how(talk: Talk, asked: dict[str, Any]) -> None:
    device = talk.state.record["answers"].get("device", {}).get("value", "")
    found = find_out.how(asked["id"], str(device))
    if found is None:
        talk.show([Text(f"{asked['why']} Enter leaves it open; the answer then says what depends on it.")])
        return
    back = " Its output can be pasted here, or given as the path of a file." if found.pasted else ""
    talk.show(
        [
            Text("To find out, run:"),
            Code("python" if found.command.startswith("print(") else "bash", found.command),
            Text(f"Then: {found.reads}.{back} Enter leaves it open."),
        ]
    )
