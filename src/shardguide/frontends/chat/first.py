"""First words (G9): a task by its name or number, or anything that the intake understands."""

from __future__ import annotations

from shardguide.frontends.render.blocks import Pairs, Text
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING
from shardguide.workflows import catalogue
from shardguide.workflows.intake import as_task, understand

from . import after, replies
from .paths import not_there, with_files
from .words import HELP, meaning

if TYPE_CHECKING:
    from .talk import Talk

TASKS = tuple((name, catalogue.TASKS[name].what) for name in ("plan", "tune", "diagnose", "review", "migrate", "join", "backend", "init",
              "fsdp2", "explain"))  # fmt: skip


def tasks() -> Pairs:
    """The tasks, numbered."""
    return Pairs(tuple((f"{number})", f"{name}: {what}", "") for number, (name, what) in enumerate(TASKS, 1)))


def line(talk: Talk, said_: str) -> None:
    """First words: a task of the list, or anything that the intake understands."""
    text = said_.strip()
    said = meaning(text, frozenset())
    if said.kind == "quit":
        raise EOFError
    if said.kind == "apply":
        after.write(talk)
        return
    if said.kind in ("help", "skip", "unknown", "back", "new", "known", "yes", "no", "draft"):
        talk.show([Text(one) for one in HELP])
        return
    if text.isdigit() and 1 <= int(text) <= len(TASKS):
        _named(talk, TASKS[int(text) - 1][0])
    elif text.lower() in catalogue.TASKS:
        _named(talk, text.lower())
    else:
        words, files = with_files(text)
        try:
            found = understand(words, files, talk.state.torch or None)
        except UnusableInput as error:
            talk.show([Text(str(error))])
            return
        missing = not_there(words)
        if missing:
            talk.show([Text(f"Not there, and so not read: {', '.join(missing[:5])}.")])
        first, _, rest = words.partition(" ")
        if not found.why and rest and first.lower() in catalogue.TASKS:  # as on the command line
            talk.unclear = (" ".join(one for one in rest.split() if one not in missing), files)
            _named(talk, first.lower())
            return
        if found.tool == "ask" and not found.why and _unclear(talk, words, files):
            return
        stated = {name: one for name, one in found.arguments.items() if name not in ("question", "text")}
        known = f", {replies.stating(stated)}" if stated else ""
        others = f" (or is it {' or '.join(found.others)}? Say new.)" if found.others else ""
        talk.show(
            [
                Text(f"I take this as: {found.tool} ({catalogue.TASKS[found.tool].what}){known}.{others}"),
                *map(Text, found.notes),
            ]
        )
        talk.begin(found.tool, found.arguments, words)
        talk.state.unread = list(found.unread)
        talk.keep()


def _named(talk: Talk, task: str) -> None:
    """A task by its name or number: with the words that were not clear before, where there are any."""
    words, files = talk.unclear
    talk.unclear = ("", ())
    talk.begin(task, as_task(task, words, files, talk.state.torch or None) if words or files else {}, words)


def _unclear(talk: Talk, words: str, files: tuple[str, ...]) -> bool:
    """Words that speak for no task and are no question with an answer: the user names the task, and they are kept for it."""
    given = {"question": words, **({"torch": talk.state.torch} if talk.state.torch else {})}
    try:
        if len(words) > 2000 or catalogue.run("ask", given, {}, talk.site_packages).extra.get("hits"):
            return False
    except UnusableInput:
        pass  # not in English, say: whoever names the task is still understood
    talk.unclear = (words, files)
    talk.show(
        [
            Text("Which of these is it? Its number, or the same in other words; what you said is kept for it."),
            tasks(),
        ]
    )
    return True
