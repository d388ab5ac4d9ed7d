"""What can be asked of an answer that is shown: reasons, sources, code, another question; and writing what it proposes."""

from __future__ import annotations

from shardguide.frontends import conduct
from shardguide.frontends.render.blocks import Block, Code, Text
from shardguide.frontends.render.views import view_of
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING
from shardguide.notebook import commands
from shardguide.workflows import catalogue

from . import reasons
from .words import HELP, Meaning

if TYPE_CHECKING:
    from .talk import Talk


def follow(talk: Talk, said: Meaning, line: str) -> None:
    """Answer a line that neither confirms nor changes the answer; the answer under way stays."""
    record = talk.state.record
    blocks: list[Block] = []
    if said.kind == "help":
        blocks = [Text(one) for one in HELP]
    elif said.kind == "known":
        blocks = talk.known()
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
    talk.show(blocks or _asked(talk, line))


def _asked(talk: Talk, line: str) -> list[Block]:
    """Any other question goes to ``ask``; the answer under way stays."""
    release = talk.state.record["torch"]["version"]
    try:
        given = {"question": line.strip(), **({"torch": release} if release else {})}
        record = conduct.conduct(
            lambda remembered: catalogue.run("ask", given, remembered, talk.site_packages), talk.notebook
        )
    except UnusableInput as error:
        return [Text(str(error))]
    return view_of("ask")(record, False)


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
        talk.show([Text(f"Wrote {', '.join(written)}; what was there is beside it as .bak.")])
    except UnusableInput as error:
        talk.show([Text(str(error))])
