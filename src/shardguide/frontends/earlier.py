# ruff: noqa: PTH110, PTH113, PTH123, PTH202
# (os.path as in the rest of the product)
"""Whether the same was asked before, and what has changed since: the release, the PyTorch at hand, the knowledge, the answer.

Every answer is worked out and checked anew; the record is what it is held against, so that a stale one is never shown.
"""

from __future__ import annotations

import os

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.serialise import digest
from shardguide.guidance.sha import sha256
from shardguide.notebook import Notebook
from shardguide.workflows import catalogue
from shardguide.workflows.sources import knowledge_version

_MOST = 64 << 20  # bytes of files that are read to tell two requests apart
_SAME = ("decisions", "diagnoses", "findings", "diff", "snippets", "checks")


class Earlier(NamedTuple):
    """The answer that the same request had before."""

    id: str
    torch: str
    at: str  # UTC, ISO 8601
    state: str  # "draft", "approved", "rejected"
    knowledge: str
    record: dict[str, Any]


def request(task: str, arguments: dict[str, Any], remembered: dict[str, Any], project: str) -> str:
    """What identifies a request: the workflow, what was stated and known, and what the files that it names hold.

    The release is no part of it: the same question for another one is to be recognised. "" where it cannot be told.
    """
    left = _MOST
    files = {}
    for value in arguments.values():
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(one, str) or len(one) > 4096 or "\x00" in one or not os.path.exists(one):
                continue
            if not os.path.isfile(one) or os.path.getsize(one) > left:
                return ""
            with open(one, "rb") as file:
                content = file.read(left)
            left -= len(content)
            files[one] = sha256(content).hexdigest()
    takes = catalogue.arguments_of(catalogue.TASKS[task])
    known = {name: value for name, value in {**remembered, **arguments}.items() if name in takes and name != "torch"}
    return digest(
        "request", project, task, sorted((name, str(value)) for name, value in known.items()), sorted(files.items())
    )


def find(notebook: Notebook, key: str) -> Earlier | None:
    """What the request was answered last time, before it is answered now."""
    kept = notebook.find(key) if key else None
    if kept is None:
        return None
    return Earlier(kept.id, kept.torch, kept.created, kept.mark.state, kept.knowledge, kept.guidance)


def compared(before: Earlier, record: dict[str, Any]) -> str:
    """One or two sentences: that it was asked before, and whether the answer still is what it was."""
    state = "" if before.state == "draft" else f" and {before.state}"
    out = f"Asked before ({before.at[:10]}, {before.id}){state}; checked again now: "
    why = []
    now = record["torch"]["version"]
    if before.torch != now:
        why.append(f"it was for PyTorch {before.torch or 'unknown'}, this is for {now or 'an unknown release'}")
    elif before.record.get("torch", {}).get("path") != record["torch"]["path"]:
        why.append("the PyTorch at hand is another one than then")
    if before.knowledge != knowledge_version():
        why.append("Shardguide knows more than then")
    was = {one["id"]: one["choice"] for one in before.record.get("decisions", ())}
    now_ = {one["id"]: one["choice"] for one in record.get("decisions", ())}
    other = [name for name in dict.fromkeys((*was, *now_)) if was.get(name) != now_.get(name)]
    whole = all(before.record.get(name) == record.get(name) for name in _SAME)
    if other:
        found = f"other now: {', '.join(name.replace('_', ' ') for name in other)}"
    elif whole:
        found = "the answer is the same"
    else:
        found = "the same decisions; the code, checks or sources differ" if was else "the answer differs"
    out += f"{'; '.join(why)}; {found}." if why else f"{found}."
    if before.state == "approved" and before.id != record["id"]:
        out += " The approval was given to the earlier one."
    return out
