"""Replacements made in a text, by lines and by columns in UTF-8 bytes, as ``ast`` counts."""

from __future__ import annotations

from shardguide.guidance.hints import Any


def spliced(text: str, edits: list[dict[str, Any]]) -> str:
    """``text`` with edits made; of two that overlap the first in the file is."""
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
    return b"".join([*out, data[at:]]).decode("utf-8")
