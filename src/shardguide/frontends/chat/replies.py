"""What the answer to a question says: a choice by its number, a value, the output of a command, or words that hold the value."""

from __future__ import annotations

import os
import re

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.workflows import catalogue, outputs
from shardguide.workflows.fields import Field
from shardguide.workflows.intake import cues
from shardguide.workflows.intake.said import said as read_said

from .words import NO, YES, asks

# Answers that may be a name or a path of any kind: the workflow itself says whether it can use it.
_FREE = frozenset({"model", "current", "path", "tp_plan"})
_SEVERAL = frozenset({"goal", "with", "needs"})
LONGEST = 4096  # characters of an answer that is no output


class Reply(NamedTuple):
    """What a line says; all of it empty for a question in its place."""

    arguments: dict[str, Any] = {}  # noqa: RUF012 - by argument, never changed in place
    output: str = ""  # what was pasted, or the path of a file, for the workflow to read
    note: str = ""  # what was understood, where that is not the line itself
    wrong: str = ""  # one sentence: why it is no answer


def reply(task: str, question: dict[str, Any], line: str) -> Reply:
    """The answer to ``question`` that a line gives."""
    name, text = question["id"], line.strip()
    field = next((one for one in catalogue.TASKS[task].fields() if one.name == name), None)
    picked = _picked(question, text)
    if picked:
        return Reply(
            {name: picked}, note=f"Taken: {spoken(name)} = {picked}." if text.isdigit() and picked[:1].isdigit() else ""
        )
    now = _settings(text, name == "current") if task == "tune" else []
    if now:
        return Reply({"now": now})
    if name not in _FREE:
        told = _output(task, name, text)
        if told is not None:
            return told
    if "\n" in text or len(text) > LONGEST:
        return Reply(wrong=f"That is no output in which {spoken(name)} can be read; a value will do.")
    return _value(task, name, text, field)


def _picked(question: dict[str, Any], text: str) -> str:
    """The choices that are meant by their numbers or by a yes or no; "" for none. A number that is itself a value is none."""
    choices = [str(one) for one in question["choices"]]
    low = text.lower().rstrip(".!")
    for words, choice in ((YES, "yes"), (NO, "no")):
        if low in words and choice in choices:
            return choice
    if not choices or all(one.isdigit() for one in choices):
        return ""
    named = [one for one in choices if len(low) > 1 and low in one.lower()]
    if len(named) == 1 and question["id"] not in _SEVERAL:
        return named[0]  # the part of a choice in which it differs from the others
    numbers = re.findall(r"\d+", text) if re.fullmatch(r"\d{1,2}(?:\s*(?:,|and|\s)\s*\d{1,2})*\)?", text) else []
    if not numbers or not all(1 <= int(one) <= len(choices) for one in numbers):
        return ""
    if len(numbers) > 1 and question["id"] not in _SEVERAL:
        return ""
    return ",".join(choices[int(one) - 1] for one in numbers)


_SETTINGS = ("api", "strategy", "param", "reduce", "output", "offload", "scaler")  # as ``tune`` takes them


_IN_WORDS = (
    (r"fsdp ?1|FullyShardedDataParallel", "api=fsdp1"), (r"fsdp ?2|fully_shard", "api=fsdp2"),
    (r"ddp|DistributedDataParallel", "api=ddp"), (r"fp16|float16|half", "param=fp16"), (r"bf16|bfloat16", "param=bf16"),
    (r"(?:no|without) (?:cpu )?off-?load\w*", "offload=no"), (r"(?:with|and|cpu|use|using|on) (?:cpu )?off-?load\w*", "offload=yes"),
    (r"grad ?scaler|loss scal\w+", "scaler=yes"),
)  # fmt: skip


def _settings(text: str, asked: bool) -> list[str]:
    """The settings that run now: api=fsdp1 param=fp16; and, where they are ``asked`` for, in words: FSDP1 in fp16, no offload."""
    parts = text.replace(",", " ").split()
    if parts and all(one.partition("=")[0] in _SETTINGS and "=" in one for one in parts):
        return parts
    if not asked or "\n" in text or len(text) > LONGEST:
        return []
    found = []
    for words, setting in _IN_WORDS:
        if re.search(rf"\b(?:{words})\b", text, re.IGNORECASE):
            found.append(setting)
    if "offload=no" in found and "offload=yes" in found:
        found.remove("offload=yes")  # "no CPU offload" has both in it
    keys = [one.partition("=")[0] for one in found]
    return [one for one in found if keys.count(one.partition("=")[0]) == 1]  # two of one kind: not said clearly


def _output(task: str, name: str, text: str) -> Reply | None:
    """What a pasted output, or a file with one, says; None where it is none."""
    path = os.path.expanduser(text)  # noqa: PTH111 - as in the rest of the product
    is_file = "\n" not in text and len(text) < LONGEST and "\x00" not in text and os.path.isfile(path)  # noqa: PTH113
    if is_file:
        from shardguide.readers.files import decode, read_bytes

        try:
            content = decode(read_bytes(path, outputs.LONGEST), text, lossy=True)
        except UnusableInput as error:
            return Reply(wrong=str(error))
    else:
        content = text
    if ("\n" in content or "," in content) and "from" in catalogue.TASKS[task].more and _report(content):
        return Reply(output=path if is_file else text)
    found = outputs.read(name, content) if is_file or "\n" in text or not _parses(task, name, text) else ""
    if found:
        return Reply({name: found}, note=f"{spoken(name)} is {found}, by that output.")
    return Reply(wrong=f"{text} does not say {spoken(name)}.") if is_file else None


def _report(text: str) -> bool:
    from shardguide.readers.environment import read_text

    try:
        return bool(read_text(text, "it"))
    except UnusableInput:
        return False


def _parses(task: str, name: str, text: str) -> bool:
    field = next((one for one in catalogue.TASKS[task].fields() if one.name == name), None)
    if name == "torch":
        return re.fullmatch(r"v?2\.\d{1,2}(?:\.\d+)?", text) is not None
    if field is None or name in ("gpu", "optimizer"):
        return field is None
    try:
        field.parse(text)
    except UnusableInput:
        return False
    return True


def _value(task: str, name: str, text: str, field: Field | None) -> Reply:
    """A value as the field reads it; else the words that state it, and whatever else they state."""
    said = facts(task, text)
    if name in _COUNTED and name not in said:
        said |= _counted(task, name, text)
    if name == "torch" and said and not re.fullmatch(r"v?\d+(?:\.\w+)*(?:\+\w+)?", text):
        open_ = "" if name in said else f" {spoken(name).capitalize()} is still open."
        return Reply(said, note=f"Taken: {listed(said)}.{open_}")
    if name == "model" and not asks(text):
        return _model(text, said)
    if name == "gpu" and re.fullmatch(r"\d+(?:\.\d+)?\s*[GMT]i?B", text, re.IGNORECASE):
        return Reply({"gpu_memory": text})  # the question takes either
    if name in said and len(said) > 1:
        return Reply(said, note=f"Taken: {listed(said)}.")
    wrong = ""
    if field is not None:
        try:
            field.parse(text)
        except UnusableInput as error:
            wrong = str(error).removeprefix("--")
    if not wrong and not (asks(text) and name != "model"):
        return Reply({name: said[name] if name in said and name in ("gpus", "nodes", "torch") else text})
    if name in said:
        return Reply(said, note=f"Taken: {listed(said)}.")
    if asks(text):
        return Reply()
    if said:
        return Reply(said, note=f"Taken: {listed(said)}. {spoken(name).capitalize()} is still open.")
    return Reply(wrong=wrong)


_COUNTED = ("gpus", "nodes", "world_size")


def _counted(task: str, name: str, text: str) -> dict[str, Any]:
    """A count that is said without its noun: sixteen, 2x8, two nodes of eight, 16 (2 nodes)."""
    pair = re.fullmatch(r"(\d{1,5})\s*[xX×*]\s*(\d{1,5})", text)
    if pair and name != "nodes":
        return {name: str(int(pair[1]) * int(pair[2]))}
    alone = re.match(r"(\d{1,6})\s*(?=[(,;]|on\b|over\b|in (?:all|total)\b)", text)
    if alone:
        return {name: alone[1]}
    found = facts(task, f"{text} {'nodes' if name == 'nodes' else 'gpus'}")
    wanted = "gpus" if name == "world_size" else name
    return {name: found[wanted]} if wanted in found and len(text) <= 60 else {}


def _model(text: str, said: dict[str, Any]) -> Reply:
    """A model as people call it; what its name is taken for is said."""
    from shardguide.readers.stated import looks_stated
    from shardguide.workflows.model import by_name

    others = {one: value for one, value in said.items() if one != "model"}
    if looks_stated(text) and not others:
        return Reply({"model": text})
    try:
        size, notes = by_name(text)
    except UnusableInput as error:
        return Reply(wrong=str(error))
    if size and others:
        return Reply({"model": size, **others}, note=f"Taken: {listed({'model': size, **others})}.")
    if others and not size:
        return Reply(others, note=f"Taken: {listed(others)}. Model is still open.")
    return Reply({"model": text}, note=notes[0] if notes else "")


def facts(task: str, text: str) -> dict[str, Any]:
    """What words state of a task's arguments."""
    names = catalogue.arguments_of(catalogue.TASKS[task])
    read = read_said(text)
    found: dict[str, Any] = {**(cues.states("plan", text) if task == "tune" else {}), **cues.states(task, text)}
    found.update(read.plan())
    if len(read.releases) == 1:
        found["torch"] = read.releases[0]
    return {name: value for name, value in found.items() if name in names}


def parts(value: str) -> tuple[Any, ...]:
    """The value of ``NAME = VALUE``, then the names and values that follow it in the same line: gpus = 64, nodes = 8."""
    first, *others = re.split(r"\s*(?:[,;]|\band\b)\s*(?=[a-z][a-z_ ]{1,20}?\s*=\s*\S)", value, flags=re.IGNORECASE)
    split = [one.partition("=") for one in others]
    bare = "\"'` "
    return (first.strip(bare), *((name.strip().lower().replace(" ", "_"), one.strip(bare)) for name, _, one in split))


_ALSO = re.compile(r"\b(?:too|also|as well|additionally|plus|besides|on top)\b|^(?:and|add)\b", re.IGNORECASE)


def adds(line: str) -> bool:
    """Whether a line says that something comes to what is there."""
    return bool(_ALSO.search(line))


def added(have: dict[str, Any], found: dict[str, Any], line: str) -> dict[str, Any]:
    """What a line states, beside what is there already where it says so: "and if I had zero too?"."""
    if not adds(line):
        return found
    out = dict(found)
    for name in _SEVERAL & found.keys():
        before = have.get(name) or ()
        parts = [
            *(before if isinstance(before, (list, tuple)) else str(before).split(",")),
            *str(found[name]).split(","),
        ]
        out[name] = ",".join(dict.fromkeys(one for one in parts if one))
    return out


def listed(arguments: dict[str, Any]) -> str:
    """Arguments as a sentence shows them; what was pasted, by its size."""
    out = []
    for name, value in arguments.items():
        text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        if len(text) > 100 or "\n" in text:
            text = f"{len(text):,} characters"
        out.append(f"{spoken(name)} = {text}")
    return ", ".join(out)


def stating(arguments: dict[str, Any]) -> str:
    """The same after a comma: with gpus = 8; one of the arguments is itself called with."""
    return f"{'' if 'with' in arguments else 'with '}{listed(arguments)}"


def spoken(name: str) -> str:
    """An argument's name in a sentence."""
    return name.replace("_", " ")
