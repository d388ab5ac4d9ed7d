"""What a tool call does, without any protocol: arguments in, record out."""

from __future__ import annotations

import re
from difflib import get_close_matches

from shardguide.frontends import conduct
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any, NamedTuple
from shardguide.notebook import Notebook, find_place
from shardguide.workflows import catalogue

from .bounded import cut, part, quoted
from .folders import Folders
from .schemas import refusal
from .steps import named, shortened, with_steps
from .summary import summary
from .tools import Tool, tools

if TYPE_CHECKING:
    from shardguide.frontends.applying import Change
    from shardguide.guidance.record import Guidance

    from .kept import Seen


class Reading:
    """What is being read, and whether to stop: shared with the thread that reads."""

    def __init__(self, seen: Seen | None = None) -> None:
        self.seen = seen
        self.bytes = 0  # of logs
        self.stopped = False

    def take(self, count: int) -> None:
        """Called for each piece that was read. Raises UnusableInput where the client has cancelled."""
        self.bytes += count
        if self.stopped:
            raise UnusableInput("the call was cancelled.")


class Desk(NamedTuple):
    """What a server works with."""

    folders: Folders
    notebook: str | None = None  # path of the notebook's file; None: the usual one
    site_packages: str | None = None

    def open(self) -> Notebook:
        """The notebook, opened for one call: calls run in several threads."""
        return Notebook(find_place(self.notebook))


def call(desk: Desk, tool: Tool, arguments: dict[str, Any], reading: Reading | None = None) -> dict[str, Any]:
    """The whole record of a call. Raises UnusableInput as the workflows do, and for arguments that do not fit."""
    from shardguide.readers.logs.source import WATCH

    WATCH.set(reading.take if reading is not None else None)
    given = desk.folders.check(fitting(tool, arguments))
    seen = reading.seen if reading is not None else None
    with desk.folders.fence(seen.note if seen is not None else None):
        return _answered(desk, tool, given)


def fitting(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that were given. Raises UnusableInput where they are not those of the tool."""
    given = {name: value for name, value in arguments.items() if value is not None and name != "page"}
    unknown = [name for name in given if name not in tool.properties]
    if unknown:
        near = get_close_matches(unknown[0], tool.properties, 1)
        hint = f"did you mean {near[0]}? It" if near else "it"
        raise UnusableInput(f"{tool.name} takes no {unknown[0][:40]!r}; {hint} takes {', '.join(tool.properties)}.")
    for name, value in given.items():
        if tool.properties[name]["type"] == "array" and isinstance(value, str):
            given[name] = [value]  # one file, said without its list
    missing = [name for name in tool.required if name not in given]
    if missing:
        raise UnusableInput(f"{tool.name} needs {missing[0]}.")
    for name, value in given.items():
        wrong = refusal(tool.properties, name, value)
        if wrong:
            raise UnusableInput(wrong)
    return given


def _answered(desk: Desk, tool: Tool, given: dict[str, Any]) -> dict[str, Any]:
    if tool.name == "start":
        return _start(desk, given)
    if tool.name == "docs":
        return _docs(desk, given)
    task = tool.task
    if given.get("migrate") is True and given.get("text"):
        raise UnusableInput("migrate=true takes files (paths), no pasted text: the diff is of files.")
    if given.pop("migrate", False) is True:
        task = "migrate"
        given.pop("select", None)
        given.pop("ignore", None)
    if task == "explain" and not given.get("topic") and not given.get("full_script"):
        return _topics(given)
    return _run(desk, task, given)


_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")
_COMMAND = re.compile(
    r"\bshardguide (plan|tune|backend|init|join|fsdp2|explain|diagnose|review|migrate|ask|docs)\b( FILE\b| \w+\.py\b)?"
)
_TOOLS = {"ask": "start", "migrate": "review with migrate=true"}


def for_tools(sentence: str, known: dict[str, Tool]) -> str:
    """A refusal of the command line in the words of the tools: --gpu-memory is the argument gpu_memory here."""
    names = {name for tool in known.values() for name in tool.properties}

    def argument(found: re.Match[str]) -> str:
        name = found[1].replace("-", "_")
        return name if name in names else found[0]

    sentence = _OPTION.sub(argument, sentence)

    def tool(found: re.Match[str]) -> str:
        paths = " (argument paths)" if found[2] else ""
        return f"the tool {_TOOLS.get(found[1], found[1])}{paths}"

    return _COMMAND.sub(tool, sentence)


def proposed(desk: Desk, identity: str) -> Change:
    """What an earlier answer would write. Raises UnusableInput where it is nothing, or may not be."""
    from shardguide.frontends import offering

    with desk.open() as notebook:
        return offering.proposal(notebook, identity)


def carried_out(desk: Desk, change: Change) -> list[str]:
    """Write what the user has seen and confirmed."""
    from shardguide.frontends import offering

    with desk.open() as notebook:
        return offering.carried_out(notebook, change)


def shown(record: dict[str, Any], number: int) -> dict[str, Any]:
    """One part of a record as it goes to the client."""
    return part(cut(as_shown(record)), number)


def as_shown(record: dict[str, Any]) -> dict[str, Any]:
    """The whole record as it goes to the client."""
    clean = quoted(record)
    return {"summary": summary(clean), **clean}


def _run(desk: Desk, task: str, arguments: dict[str, Any], unread: tuple[str, ...] = ()) -> dict[str, Any]:
    """``unread``: answers that are not taken from the notebook, since the words speak of others."""

    def make(remembered: dict[str, Any]) -> Guidance:
        known = {name: value for name, value in remembered.items() if name not in unread}
        return catalogue.run(task, arguments, known, desk.site_packages)

    with desk.open() as notebook:
        record = conduct.conduct(make, notebook)
    return with_steps(record, task, arguments, tools())


def _start(desk: Desk, given: dict[str, Any]) -> dict[str, Any]:
    from shardguide.workflows.intake import understand

    files = given.get("files") or []
    words = str(given.get("words") or "")
    if not words.strip() and not files:
        return _first_contact(given)
    found = understand(words, tuple(files), given.get("torch"))
    arguments = desk.folders.check(found.arguments)  # words may name files as well
    record = _run(desk, found.tool, arguments, found.unread)
    tool, taken = named(found.tool, arguments, tools())
    others = dict.fromkeys(named(one, {}, tools())[0] for one in found.others)
    chosen = {
        "tool": tool,
        "arguments": shortened(taken),
        "why": list(found.why),
        "others": [one for one in others if one != tool],
        "notes": list(found.notes),
    }
    if found.tool == "ask" and not found.why and record.get("outcome") == "not_known" and len(words.split()) <= _BRIEF:
        record = {**record, "questions": [*record["questions"], _WHAT]}  # nothing was recognised in the words
    return record | {"understood": chosen}


_BRIEF = 3  # words: a greeting, not a question that has no answer here
_WHAT = {
    "id": "words",
    "ask": "What is it about, in your own words, and is there a model, hardware or an error in hand?",
    "why": "It decides which workflow answers; what is said already is not asked again.",
    "choices": [one.what for one in catalogue.TASKS.values()],
}


def _first_contact(given: dict[str, Any]) -> dict[str, Any]:
    """What is asked of somebody who has said nothing yet (G9)."""
    step = {"tool": "start", "arguments": given, "why": "say it in words, and name the files that go with it"}
    return {"workflow": "start", "status": "needs_answers", "questions": [_WHAT], "next": [step]}


def _docs(desk: Desk, given: dict[str, Any]) -> dict[str, Any]:
    names = given["names"]
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise UnusableInput("names is a list of names.")
    if given.get("action", "api") == "api":
        from shardguide.workflows.reference import name

        if len(names) != 1:
            raise UnusableInput("docs looks up one name at a time.")
        return {"workflow": "docs", **name(names[0], given.get("torch"), desk.site_packages)}
    from shardguide.workflows.changes import changes

    if given["action"] != "changes" or len(names) != 2:
        raise UnusableInput("docs takes action api with one name, or changes with two releases.")
    return {"workflow": "docs", **changes(names[0], names[1])}


def _topics(given: dict[str, Any]) -> dict[str, Any]:
    from shardguide.workflows.explain import listing

    return {"workflow": "explain", **listing(str(given.get("form") or ""))}
