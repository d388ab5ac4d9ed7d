"""Safe fixes as one unified diff, worked out on the text itself, so that comments and formatting stay."""

from __future__ import annotations

import ast

from shardguide.code.review.project import LIMIT
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.readers.files import read_text


def unified(findings: list[dict[str, Any]]) -> str:
    """The diff of every fix that goes with a finding, file by file; "" where there is none."""
    import difflib

    out: list[str] = []
    for path in dict.fromkeys(one["path"] for one in findings if one["edits"]):
        before = read_text(path, LIMIT)
        after = applied(before, [edit for one in findings if one["path"] == path for edit in one["edits"]], path)
        lines = difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
        )
        out.extend(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join(out)


def applied(text: str, edits: list[dict[str, Any]], where: str) -> str:
    """``text`` with edits made; of two that overlap the first in the file is. Raises UnusableInput if the result is no Python."""
    lines = text.encode("utf-8").split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    spans = sorted(
        (starts[edit["line"] - 1] + edit["column"], starts[edit["end_line"] - 1] + edit["end_column"], edit["text"])
        for edit in edits
    )
    data, out, at = b"\n".join(lines), [], 0
    for start, end, new in dict.fromkeys(spans):
        if start < at:
            continue
        out.extend([data[at:start], new.encode("utf-8")])
        at = end
    result = b"".join([*out, data[at:]]).decode("utf-8")
    try:
        ast.parse(result)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnusableInput(f"{where}: the fixes together would not give valid Python; take them one by one.") from None
    return result
