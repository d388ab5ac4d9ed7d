"""All changes as one unified diff, with each file's own line endings."""

from __future__ import annotations

import os

from shardguide.code.migrate.records import Change
from shardguide.code.review.project import LIMIT
from shardguide.readers.files import decode, lines_of, read_bytes


def unified(changes: tuple[Change, ...]) -> tuple[str, dict[str, str], list[tuple[str, int, str]]]:
    """The diff, what identifies each file that it changes, and the files that are left out of it with the reason."""
    import difflib

    from shardguide.guidance.sha import sha256

    out: list[str] = []
    digests: dict[str, str] = {}
    odd: list[tuple[str, int, str]] = []
    for change in changes:
        data = read_bytes(change.path, LIMIT)
        before, after = decode(data, change.path), change.after
        if before != change.before:
            after = after.replace("\n", "\r\n")
            if before != change.before.replace("\n", "\r\n"):
                odd.append((change.path, 0, "it mixes line endings, so no diff can be given for it."))
                continue
        absolute = os.path.isabs(change.path)  # noqa: PTH117
        name = os.path.relpath(change.path) if absolute else os.path.normpath(change.path)
        digests[name] = sha256(data).hexdigest()
        lines = difflib.unified_diff(lines_of(before), lines_of(after), f"a/{name}", f"b/{name}")
        out.extend(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join(out), digests, odd
