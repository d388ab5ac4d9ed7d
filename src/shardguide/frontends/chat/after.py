"""What can be asked of an answer that is shown: reasons, sources, code, another question; and writing what it proposes."""

from __future__ import annotations

import re

from shardguide.frontends import conduct
from shardguide.frontends.render.blocks import Block, Code, Heading, Pairs, Text
from shardguide.frontends.render.views import view_of
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.notebook import commands
from shardguide.workflows import catalogue
from shardguide.workflows.intake import understand

from . import reasons, replies, spoken
from .paths import with_files
from .words import HELP, Meaning, instead

if TYPE_CHECKING:
    from .talk import Talk


def follow(talk: Talk, said: Meaning, line: str) -> None:
    """Answer a line that neither confirms nor changes the answer; the answer under way stays."""
    record = talk.state.record
    try:
        blocks: list[Block] = _rule(line)
    except UnusableInput as error:
        blocks = [Text(str(error))]
    if blocks:
        talk.show(blocks)
        return
    if said.kind in ("help", "unknown", "skip"):
        blocks = [Text(one) for one in HELP]
    elif said.kind == "known":
        blocks = talk.known()
    elif said.kind == "more":
        blocks = spoken.page(view_of(record["workflow"])(record, True))
    elif said.kind == "snippets":
        rows = tuple((one["id"], one["title"], "") for one in record["snippets"])
        blocks = [Heading("Code; show ID prints one"), Pairs(rows)] if rows else [Text("This answer has no code.")]
    elif said.kind == "sources":
        blocks = reasons.sources(record)
    elif said.kind == "apply":
        _apply(talk)
        return
    elif said.kind == "why_not":
        blocks = reasons.why_not(record, said.value)
    elif said.kind in ("why", "reasons"):
        blocks = reasons.why(record, said.value)
    elif said.kind == "show":
        blocks = [Code(one["language"], one["code"]) for one in record["snippets"] if one["id"] == said.value]
        if not blocks:
            have = ", ".join(one["id"] for one in record["snippets"]) or "none"
            blocks = [Text(f"There is no snippet {said.value}; there are: {have}.")]
    talk.show(blocks or asked(talk, line))


def _rule(line: str) -> list[Block]:
    """The rule of ``review`` that a line names."""
    named = re.search(r"\bFSD\d{3}\b", line, re.IGNORECASE)
    if named is None or len(line) > 200:
        return []
    from shardguide.frontends.render.rules_view import rule
    from shardguide.workflows.review.rules import is_code, one

    code = named[0].upper()
    return spoken.page(rule(one(code))) if is_code(code) else []


def ending(record: dict[str, Any]) -> str:
    """What is put to the user below an answer."""
    asked, writes = record["approval"]["asked"], _writes(record)
    if asked and record["approval"]["state"] == "draft":
        return f"{asked} yes, no or draft;{' apply writes it;' if writes else ''} NAME = VALUE; or ask on."
    state = record["approval"]["state"]
    if asked and state != "draft":
        other = "no turns it down" if state == "approved" else "yes approves it"
        return f"This is {state}. Anything else on it? {other}; draft leaves it; or ask on."
    if writes:
        return "Anything else on this? apply shows the change and writes it after a yes; draft ends it; or ask on."
    return "Anything else on this? draft ends it; or ask on."


def _writes(record: dict[str, Any]) -> bool:
    """Whether the answer is a change of the user's own files, or the files of a plan."""
    if record["workflow"] in ("review", "migrate"):
        return bool(record.get("diff")) or any(one.get("edits") for one in record.get("findings", ()))
    return bool(record["workflow"] == "plan" and record["snippets"] and record["approval"]["asked"])


def answer(talk: Talk) -> list[Block]:
    """The page of an answer; of one that a follow-up asked for, what is other than before, since the rest was just read."""
    record, shown, form = talk.state.record, talk.shown, talk.form
    talk.shown, talk.form = record, ""
    page = spoken.page(view_of(record["workflow"])(record, False))
    code = [one for one in record["snippets"] if form and form in one["id"]]
    if code:
        return [
            block
            for one in code
            for block in (Heading(f"{one['title']} ({one['id']})"), Code(one["language"], one["code"]))
        ]
    if (
        not shown
        or shown["workflow"] != record["workflow"]
        or not shown.get("decisions")
        or not record.get("decisions")
    ):
        return page
    return [*page[:1], *reasons.changes(shown, record), Text("more shows all of it.")]


def completions(record: dict[str, Any]) -> tuple[str, ...]:
    """What can be typed at an answer: its own snippets and alternatives among it."""
    others = [
        f"why not {one['choice'].partition(':')[0]}" for it in record.get("decisions", ()) for one in it["instead_of"]
    ]
    shows = [f"show {one['id']}" for one in record.get("snippets", ())]
    rest = (
        "yes",
        "no",
        "draft",
        "apply",
        "why",
        "why not",
        "what if",
        "for 2.13",
        "show the FSDP1 form",
        "more",
        "sources",
        "known",
    )
    corrected = [f"{name} = " for name in record.get("answers", ())]
    return (*rest, *shows, *dict.fromkeys(others), *corrected)


def other_facts(talk: Talk, line: str) -> dict[str, Any]:
    """What a line states otherwise than the answer under way, where it asks for the same with that."""
    if not instead(line) or "\n" in line or len(line) > 300:
        return {}
    found = replies.facts(talk.state.task, line)
    answers = talk.state.record["answers"]
    return {
        name: value
        for name, value in found.items()
        if name not in ("now", "question", "text", "paths")
        and str(answers.get(name, {}).get("value", talk.state.arguments.get(name))) != str(value)
    }


def evidence(talk: Talk, line: str) -> dict[str, Any]:
    """A log that was pasted or a file that was named below an answer, for the same workflow to read as well."""
    text, files = with_files(line)
    if not files and "\n" not in line:
        return {}
    have = talk.state.arguments
    if talk.state.task == "diagnose":
        found = understand(text or "error", files).arguments
        more = {name: [*have.get(name, []), *found[name]] for name in ("paths", "code") if found.get(name)}
        return {**more, "text": found["text"]} if found.get("text") else more
    if "from" not in catalogue.TASKS[talk.state.task].more:
        return {}
    taken = [replies.reply(talk.state.task, {"id": "gpu", "choices": ()}, one).output for one in files or (line,)]
    sources = [talk.handed(one) for one in taken if one]
    return {"from": [*have.get("from", []), *sources]} if sources else {}


def asked(talk: Talk, line: str) -> list[Block]:
    """Any other question goes to ``ask``; the answer under way stays."""
    release = talk.state.record["torch"]["version"]
    try:
        given = {"question": line.strip(), **({"torch": release} if release else {})}
        record = conduct.conduct(
            lambda remembered: catalogue.run("ask", given, remembered, talk.site_packages), talk.notebook
        )
    except UnusableInput:
        if "\n" in line:
            return [
                Text(
                    "That is nothing that this task reads. For a log or code that was pasted: new, and paste it there."
                )
            ]
        return [Text("That is neither an answer nor a question that is understood here."), *(Text(one) for one in HELP)]
    return spoken.page(view_of("ask")(record, False))


def _apply(talk: Talk) -> None:
    """Write what the answer proposes, after showing it and a yes (G2)."""
    from shardguide.frontends import applying

    try:
        change = conduct.proposal(talk.notebook, talk.state.record["id"])
        talk.show([Code("diff", applying.shown(change))])
        many = "file" if len(change.files) == 1 else "files"
        answer = talk.read(f"Write {len(change.files)} {many}? Type yes to confirm: ", ("yes", "no"))
        if answer.strip().lower() != "yes":
            talk.show([Text("Nothing was written.")])
            return
        written = applying.write(change)
        commands.approve(talk.notebook, change.id, "applied", anyway=True)
        talk.state.written = [*talk.state.written, f"written: {', '.join(written)}"]
        talk.show([Text(f"Wrote {', '.join(written)}; what was there is beside it as .bak.")])
    except UnusableInput as error:
        talk.show([Text(str(error))])
