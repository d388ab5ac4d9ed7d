"""All changes as one unified diff, with each file's own line endings."""

from __future__ import annotations

import os

from shardguide.code.migrate.records import Change
from shardguide.code.review.project import LIMIT
from shardguide.readers.files import read_text


def unified(changes: tuple[Change, ...]) -> tuple[str, list[tuple[str, int, str]]]:
    """The diff, and the files that are left out of it with the reason."""
    import difflib

    out: list[str] = []
    odd: list[tuple[str, int, str]] = []
    for change in changes:
        before, after = read_text(change.path, LIMIT), change.after
        if before != change.before:
            after = after.replace("\n", "\r\n")
            if before != change.before.replace("\n", "\r\n"):
                odd.append((change.path, 0, "it mixes line endings, so no diff can be given for it."))
                continue
        name = os.path.relpath(change.path) if os.path.isabs(change.path) else change.path  # noqa: PTH117
        lines = difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
        )
        out.extend(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join(out), odd
