"""What a workflow cannot begin without and has no question of its own for: the log, the code, the subject."""

from __future__ import annotations

from shardguide.frontends.render.blocks import Block, Heading, Items, Text
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, NamedTuple
from shardguide.workflows import catalogue
from shardguide.workflows.intake import understand

from . import spoken
from .paths import with_files
from .words import HELP, meaning

if TYPE_CHECKING:
    from .talk import Talk


class _Need(NamedTuple):
    name: str  # of the argument
    ask: str
    why: str
    how: str  # for who doesn't know


_CODE = _Need(
    "paths", "Which code? Give the path of a file or a folder.", "It is read, and never run.",
    "grep -rlE 'fully_shard|FullyShardedDataParallel|init_process_group' --include='*.py' . lists the files with such calls.",
)  # fmt: skip
NEEDS = {
    "diagnose": _Need(
        "question", "What happens? Paste the error or the log, say it in words, or give the path of the logs.",
        "The causes are told apart by what the logs say, of all ranks where there are several.",
        "The first error of any rank says most: grep -nE -m 20 'Error|NCCL WARN|Watchdog' LOG finds it. No error, only a hang: "
        "say since when, and on how many nodes; py-spy dump --pid PID shows where a rank waits, and its output can be pasted.",
    ),
    "review": _CODE._replace(ask="Which code? Give the path of a file or a folder, or paste it."),
    "migrate": _CODE,
    "explain": _Need("topic", "Which subject? Its id or a word of it; ? lists them.", "", ""),
    "ask": _Need("question", "What do you want to know?", "", "Any question about FSDP, DDP, process groups, DTensor or checkpoints."),
}  # fmt: skip
_INSTEAD = ("text", "paths", "full_script")  # what stands in for the argument


def met(talk: Talk) -> bool:
    """Ask until it is there. False where the user left the task."""
    need = NEEDS.get(talk.state.task)
    if need is None:
        return True
    have = talk.state.arguments
    first = True
    while not any(have.get(one) for one in (need.name, *_INSTEAD)):
        if first:
            talk.show([Heading(need.ask), *([Text(f"Why: {need.why}")] if need.why else [])])
            first = False
        line = talk.read(f"{need.name} (? if you don't know) > ", _completions(talk.state.task)).strip()
        said = meaning(line, frozenset())
        if said.kind in ("quit", "new"):
            talk.left(said)
            return False
        if said.kind == "back":
            talk.end()
            return False
        if said.kind == "unknown":
            talk.show(_topics() if talk.state.task == "explain" else [Text(need.how)])
        elif not line or said.kind in ("help", "known"):
            talk.show(talk.known() if said.kind == "known" else [Text(one) for one in HELP])
        else:
            try:
                _take(talk, need, line)
            except UnusableInput as error:
                talk.show([Text(spoken.error(str(error)))])
            talk.keep()
    return True


def again(talk: Talk) -> bool:
    """Drop what the workflow could not use, and ask for it again; False where there is nothing of it."""
    need = NEEDS.get(talk.state.task)
    have = talk.state.arguments
    if need is None or not any(have.pop(one, None) for one in (need.name, *_INSTEAD)):
        return False
    talk.keep()
    return met(talk)


def _take(talk: Talk, need: _Need, line: str) -> None:
    have, task = talk.state.arguments, talk.state.task
    text, files = with_files(line)
    if task == "diagnose":
        found = understand(text or "error", files).arguments
        have.update({one: found[one] for one in ("question", "text", "code") if one in found})
        have.update({"paths": found["paths"]} if found.get("paths") else {})
        if not text:
            have.pop("question", None)
            have.setdefault("paths", list(files))
        elif not any(one in have for one in ("question", "text")):
            have["question"] = text
    elif need.name != "paths":
        have[need.name] = line
    elif files:
        have["paths"] = list(files)
    elif "\n" not in line:
        have["paths"] = [line]
    elif "text" in catalogue.TASKS[task].more:
        have["text"] = line
    else:
        raise UnusableInput("pasted code has no file that a diff could be made of; give the path of its file.")


def _completions(task: str) -> tuple[str, ...]:
    if task != "explain":
        return ()
    from shardguide.workflows.explain import listing

    return tuple(one["id"] for group in listing("")["groups"] for one in group["topics"])


def _topics() -> list[Block]:
    from shardguide.workflows.explain import listing

    return [
        block
        for group in listing("")["groups"]
        for block in (Heading(group["title"]), Items(tuple(f"{one['id']}: {one['title']}" for one in group["topics"])))
    ]
