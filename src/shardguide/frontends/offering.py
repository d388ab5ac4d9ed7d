# ruff: noqa: PTH110, PTH112, PTH118
# (os.path as in the rest of the product: pathlib costs start-up time)
"""From an answer to files (G2), for every front end: what it proposes is shown, asked for, written, and kept as approved."""

from __future__ import annotations

import os
from collections.abc import Callable

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.notebook import Mark, Notebook, commands

from . import applying, conduct
from .applying import Change
from .render.safe import one_line

WRITTEN = "applied"  # the note of an approval that was a yes to writing


def proposal(notebook: Notebook, identity: str) -> Change:
    """What an earlier answer of this project would write.

    Raises UnusableInput for one that is not known, is another project's, was turned down, waits for answers or proposes nothing.
    """
    whole = notebook.resolve(identity)
    if all(entry.id != whole for entry in notebook.history(conduct.project(), 1_000_000)):
        raise UnusableInput(f"{whole} was asked for in another folder; apply it there.")
    kept = notebook.load(whole)
    _ready(kept.guidance, kept.mark)
    try:
        change = applying.proposed(kept.guidance, os.curdir)
    except UnusableInput as error:
        if kept.mark.note == WRITTEN:
            raise UnusableInput(f"{whole} was written on {kept.mark.at[:10]}, and now: {error}") from None
        raise
    if not change.files:
        raise UnusableInput(f"{whole} is written already.")
    return change


def into(notebook: Notebook, record: dict[str, Any], folder: str) -> Change:
    """What a plan that was just made would write to a folder of the user's choice; its ``files`` are empty where all is there."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise UnusableInput(f"--write {folder} is not a folder.")
    _ready(record, notebook.approval(record["id"]))
    change = applying.proposed(record, folder, below="")
    return change._replace(files=tuple(one._replace(name=os.path.join(folder, one.name)) for one in change.files))


def _ready(record: dict[str, Any], mark: Mark) -> None:
    if mark.state == "rejected":
        raise UnusableInput(f"{record['id']} was turned down; shardguide approve {record['id']} takes that back.")
    if record.get("status") == "needs_answers":
        open_ = ", ".join(question["id"] for question in record["questions"])
        raise UnusableInput(f"{record['id']} waits for answers ({open_}), so nothing of it is written yet.")


def offered(
    notebook: Notebook, change: Change, show: Callable[[str], object], ask: Callable[[str], bool], brief: bool = False
) -> list[str]:
    """The whole dialogue; the names of what was written, nothing where the answer was no. ``brief``: new files by name and size."""
    show(applying.shown(change, brief))
    return carried_out(notebook, change) if ask(applying.question(change)) else []


def carried_out(notebook: Notebook, change: Change) -> list[str]:
    """Write what was shown and confirmed, and keep that yes; the names of what was written."""
    written = applying.write(change)
    try:
        if not notebook.unavailable:
            commands.approve(notebook, change.id, WRITTEN, anyway=True)
    except UnusableInput as error:
        names = ", ".join(map(one_line, written))
        raise UnusableInput(f"{names} written, but that it was approved is not kept: {error}") from None
    return written
