"""What can be asked of an answer that is shown: reasons, sources, code, another question; and writing what it proposes."""

from __future__ import annotations

import re
from shlex import quote as quoted

from shardguide.frontends import conduct
from shardguide.frontends.render.blocks import Block, Code, Heading, Items, Pairs, Text
from shardguide.frontends.render.views import view_of
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.workflows import catalogue
from shardguide.workflows.intake import understand

from . import inside, reasons, replies, spoken, turns
from .paths import with_files
from .words import HELP, YES, Meaning, asks, instead

if TYPE_CHECKING:
    from shardguide.frontends.applying import File

    from .talk import Talk


def follow(talk: Talk, said: Meaning, line: str) -> None:
    """Answer a line that neither confirms nor changes the answer; the answer under way stays."""
    record = talk.state.record
    try:
        blocks: list[Block] = _rule(line) or _explained(talk, line)
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
        write(talk)
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
    talk.show(blocks or inside.blocks(record, line) or elsewhere(talk, line) or asked(talk, line))


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
    asked, writing = record["approval"]["asked"], writes(record)
    if asked and record["approval"]["state"] == "draft":
        return f"{asked} yes, no or draft;{' apply writes it;' if writing else ''} NAME = VALUE; or ask on."
    state = record["approval"]["state"]
    if asked and state != "draft":
        other = "no turns it down" if state == "approved" else "yes approves it"
        return f"This is {state}: {other};{' apply writes it;' if writing else ''} draft leaves it so; or ask on."
    if record["workflow"] == "diagnose" and record["questions"]:
        return "Paste more, give the path of it, or say what happens; draft ends it; or ask on."
    if writing:
        return "Anything else on this? apply shows the change and writes it after a yes; draft ends it; or ask on."
    return "Anything else on this? draft ends it; or ask on."


def again(talk: Talk) -> str:
    """What is put below a reply to a follow-up: what a yes would mean stands there, or no yes is asked for."""
    record = talk.state.record
    if talk.state.settled or not record["approval"]["asked"]:
        return "draft ends it; or ask on."
    if record["approval"]["state"] != "draft":
        return ending(record)
    return f"The {record['workflow']} above ({record['id']}): yes approves it, no turns it down, draft leaves it; or ask on."


def release(talk: Talk) -> str:
    """The release of the answer under way, as people say it: 2.13."""
    return ".".join(str(talk.state.record["torch"]["version"]).split(".")[:2])


def writes(record: dict[str, Any]) -> bool:
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
    if "\n" in line or len(line) > 300 or not (instead(line) or _bare(line) or (replies.adds(line) and not asks(line))):
        return {}
    found = replies.facts(talk.state.task, line)
    have = {**talk.state.arguments, **{name: one["value"] for name, one in talk.state.record["answers"].items()}}
    return {
        name: value
        for name, value in replies.added(have, found, line).items()
        if name not in ("now", "question", "text", "paths") and str(have.get(name)) != str(value)
    }


def _bare(line: str) -> bool:
    """Facts and no more: 32 gpus, SGD with momentum."""
    return len(line.split()) <= 4 and not asks(line) and any(letter.isdigit() for letter in line)


def evidence(talk: Talk, line: str) -> dict[str, Any]:
    """A log that was pasted or a file that was named below an answer, for the same workflow to read as well."""
    text, files = with_files(line)
    have = talk.state.arguments
    if not files and "\n" not in line:
        if (
            talk.state.record.get("questions")
            and talk.state.task == "diagnose"
            and len(line.split()) > 2
            and not asks(line)
        ):
            pasted = understand(line)
            if pasted.tool == "diagnose" and pasted.arguments.get("text"):
                return {"text": _with_more(have.get("text", ""), pasted.arguments["text"])}
            return {"question": f"{have.get('question', '')} {line}".strip()}  # what happens, in more words
        return {}
    if talk.state.task == "diagnose":
        found = understand(text or "error", files).arguments
        more = {name: [*have.get(name, []), *found[name]] for name in ("paths", "code") if found.get(name)}
        return {**more, "text": _with_more(have.get("text", ""), found["text"])} if found.get("text") else more
    if "from" not in catalogue.TASKS[talk.state.task].more:
        return {}
    taken = [replies.reply(talk.state.task, {"id": "gpu", "choices": ()}, one).output for one in files or (line,)]
    sources = [talk.handed(one) for one in taken if one]
    return {"from": [*have.get("from", []), *sources]} if sources else {}


def _with_more(before: str, pasted: str) -> str:
    """What another rank printed belongs to what was pasted before."""
    return f"{before.rstrip()}\n{pasted}" if before.strip() and pasted.strip() not in before else pasted


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
    beside: dict[str, Any] = {
        "questions": [],
        "not_done": [],
        "checks": [],
    }  # what is open and checked is the answer's under way
    return spoken.page(view_of("ask")({**record, **beside}, False))


def _explained(talk: Talk, line: str) -> list[Block]:
    """A subject that a line names as it stands in a list: explain join."""
    word, _, subject = line.strip().partition(" ")
    if word.lower() != "explain" or not subject:
        return []
    from shardguide.knowledge import topic_store

    if subject not in topic_store.titles():
        return []
    release = talk.state.record["torch"]["version"]
    given = {"topic": subject, **({"torch": release} if release else {})}
    record = conduct.conduct(
        lambda remembered: catalogue.run("explain", given, remembered, talk.site_packages), talk.notebook
    )
    return spoken.page(view_of("explain")({**record, "questions": [], "not_done": [], "checks": []}, False))


def elsewhere(talk: Talk, line: str) -> list[Block]:
    """Words below an answer that tell a case of another task: it is offered, with what they state."""
    if asks(line) or "\n" in line or not 3 < len(line.split()) <= 60:
        return []
    found = understand(line)
    stated = {name: value for name, value in found.arguments.items() if name not in ("question", "text", "topic")}
    if found.tool in (talk.state.task, "ask", "explain") or not found.why or not stated:
        return []
    talk.offered = (found.tool, found.arguments, line)
    what = f"{found.tool} ({catalogue.TASKS[found.tool].what}), {replies.stating(stated)}"
    return [Text(f"That is a case for {what}: {found.tool} goes there; draft ends this one.")]


def write(talk: Talk) -> None:
    """Write what the answer proposes, or the one before it where this proposes nothing, after showing it and a yes (G2)."""
    from shardguide.frontends import offering

    def ask(question: str) -> bool:
        while True:
            said = talk.read(f"{question} Type yes to confirm: ", ("yes", "no")).strip().lower()
            if said not in YES or said == "yes":
                return said == "yes"
            question = "Files are written after a whole yes only; no leaves them."

    record = talk.state.record
    own = bool(record) and (writes(record) or not (talk.last and writes(talk.last)))
    identity = record["id"] if own else talk.last.get("id", "") or _latest(talk)
    if not identity:
        talk.show(
            [
                Text(
                    "There is no answer here to be written yet; shardguide apply ID writes an earlier one (shardguide history)."
                )
            ]
        )
        return
    try:
        change = offering.proposal(talk.notebook, identity)
        written = offering.offered(talk.notebook, change, lambda text: talk.show([Code("diff", text)]), ask)
    except UnusableInput as error:
        talk.show([Text(str(error))])
        return
    if not written:
        talk.show([Text("Nothing was written.")])
        return
    kept = "; what was there is beside it as .bak" if any(one.before is not None for one in change.files) else ""
    talk.show([Text(f"Wrote {', '.join(written)}{kept}."), *_left(record if own else talk.last)])
    if own:
        talk.state.written = [*talk.state.written, f"written: {', '.join(written)}"]
        talk.state.changed = {one.name: _backup(one) for one in change.files}
        talk.state.settled = True
        record["approval"]["state"] = "approved"
        turns.confirm(talk)
        talk.keep()


def _latest(talk: Talk) -> str:
    """The answer of the conversation before this one, where it is of the kind that is written."""
    entries = talk.notebook.history(talk.project, 1)
    return entries[0].id if entries and entries[0].workflow in ("plan", "review", "migrate") else ""


def _left(record: dict[str, Any]) -> list[Block]:
    """What a person has to decide in what was just written."""
    todo = record.get("todo") or []
    return (
        [Heading("To decide, in these files"), Items(tuple(f"{one['place']}: {one['what']}" for one in todo))]
        if todo
        else []
    )


def _backup(one: File) -> str:
    """The file beside a changed one that holds what was there; "" for a new one."""
    if one.before is None:
        return ""
    for number in range(1000):
        name = f".bak.{number}" if number else ".bak"
        try:
            with open(one.path + name, "rb") as file:  # noqa: PTH123 - as in the rest of the product
                if file.read() == one.before:
                    return one.name + name
        except OSError:
            break
    return f"{one.name}.bak"


def taken_back(talk: Talk) -> list[Block]:
    """How what was written is taken back: it is the user's own, so that is no step of the conversation."""
    lines = [
        f"mv {quoted(kept)} {quoted(name)}" if kept else f"rm {quoted(name)}"
        for name, kept in talk.state.changed.items()
    ]
    return [
        Text("That is written; to have it as it was:"),
        Code("bash", "\n".join(lines)),
        Text("new is another task; draft ends this one."),
    ]
