# ruff: noqa: PTH103, PTH110, PTH112, PTH118, PTH123
# (os.path as in the rest of the product: pathlib costs start-up time)
"""``plan --write DIR``: shows what would be written, asks, and writes only that, atomically (G2)."""

from __future__ import annotations

import difflib
import os
import sys

from shardguide import guard
from shardguide.frontends.applying import files_of, whole
from shardguide.frontends.render.safe import lines, one_line
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any

from . import asking


def write_plan(record: dict[str, Any], folder: str, may_ask: bool) -> None:
    """Show the files or their differences, ask, write.

    Without a terminal to ask on, the plan must have been approved by its id before. Raises UnusableInput where the
    folder cannot be used or nobody has said yes.
    """
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise UnusableInput(f"--write {folder} is not a folder.")
    wanted = {name: text for name, text in files_of(record).items() if _old(folder, name) != text}
    if not wanted:
        print(f"\nNothing to write: {one_line(folder)} holds these files already.", file=sys.stderr)
        return
    for name, text in wanted.items():
        _show(folder, name, text)
    if record["approval"]["state"] == "approved":
        print(f"\nApproved before as {record['id']}.", file=sys.stderr)
    elif not may_ask and record["status"] == "needs_answers":
        open_ = ", ".join(question["id"] for question in record["questions"])
        raise UnusableInput(
            f"nothing was written, since answers are missing ({open_}): give them and repeat the command."
        )
    elif not may_ask:
        raise UnusableInput(
            f"nothing was written, since nobody is here to say yes: approve the plan first (shardguide approve {record['id']}) "
            "and repeat the command."
        )
    elif not asking.confirm(f"\n{_despite(record)}Write {_files(len(wanted))} to {one_line(folder)}?"):
        print("Nothing was written.", file=sys.stderr)
        return
    with guard.allow_write(folder):
        os.makedirs(folder, exist_ok=True)
        for name, text in wanted.items():
            whole(os.path.join(folder, name), text.encode("utf-8"))
    print(f"Wrote {', '.join(wanted)} to {one_line(folder)}.", file=sys.stderr)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _despite(record: dict[str, Any]) -> str:
    """What speaks against writing, before the question is put."""
    from shardguide.notebook.commands import failed

    wrong = ", ".join(check["id"] for check in failed(record))
    return f"A check failed ({wrong}). " if wrong else ""


def _old(folder: str, name: str) -> str | None:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return ""


def _show(folder: str, name: str, text: str) -> None:
    old = _old(folder, name)
    path = one_line(os.path.join(folder, name))
    if old is None:
        print(f"\nnew file {path} ({len(text.encode())} bytes)", file=sys.stderr)
        return
    diff = difflib.unified_diff(old.splitlines(True), text.splitlines(True), f"{path} (now)", f"{path} (then)")
    print(lines("".join(diff)), file=sys.stderr)
