"""Findings as annotations of GitHub's workflow commands: one line each, with what the commands treat as their own escaped."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .safe import one_line


def render(record: dict[str, Any]) -> str:
    """The lines for a job's log."""
    out = []
    for one in record["findings"]:
        kind = "error" if one["certain"] else "warning"
        where = f"cell {one['cell']}, line {one['line']}: " if "cell" in one else ""
        line = one.get("file_line", one["line"])
        column = f",col={one['column']}" if "cell" not in one else ""
        text = f"{where}{one['message']}. {one['why']} Fix: {one['fix']}"
        out.append(
            f"::{kind} file={_property(one['path'])},line={line}{column},title={_property(one['rule'])}"
            f"::{_data(one_line(text, 4000))}"
        )
    for one in record["problems"]:
        line = f",line={one['line']}" if one["line"] else ""
        out.append(f"::warning file={_property(one['path'])}{line},title=not read::{_data(one_line(one['why'], 4000))}")
    return "".join(f"{line}\n" for line in out)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """A value of a property; line breaks are escaped exactly, other control characters are shown as text."""
    parts = text.replace("\r", "\n").split("\n")
    clean = "\n".join(one_line(part, 4000) for part in parts)
    return _data(clean).replace(":", "%3A").replace(",", "%2C")
