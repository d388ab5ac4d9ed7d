"""Results as an agent gets them: the answer first, in parts of bounded size, with what comes from files marked as quoted.

Harnesses cut results at 10,000 to 30,000 characters without a word; so a long one is cut here, between two entries, and says so.
"""

from __future__ import annotations

import json

from shardguide.frontends.render.safe import KEEP_LINES
from shardguide.guidance.hints import Any

MOST = 20_000  # characters of one part, as JSON
# On every part: what is short and needed to act.
_HEAD = ("summary", "schema", "id", "workflow", "torch", "status", "understood", "outcome", "questions", "checks", "next", "approval",
         "done", "not_done")  # fmt: skip
# Then the answer, then what it rests on; what is not named here follows in the record's own order.
_FIRST = ("decisions", "diagnoses", "findings", "todo", "diff", "statements", "topic", "snippets", "before_after", "hardware", "facts",
          "notes", "answers")  # fmt: skip
_LAST = ("sources", "accounting", "mapping", "comparison", "capabilities")
OPEN, CLOSE = "⟦quoted data⟧ ", " ⟦end of quote⟧"


def quoted(record: dict[str, Any]) -> dict[str, Any]:
    """The record with its lines of the user's files between marks, and no control or bidi character left anywhere."""
    clean: dict[str, Any] = _clean(record)
    for diagnosis in clean.get("diagnoses", ()):
        for line in diagnosis.get("evidence", ()):
            line["text"] = _quote(line["text"])
    for raised in clean.get("raised", ()):
        for name in ("message", "text"):
            if isinstance(raised, dict) and isinstance(raised.get(name), str):
                raised[name] = _quote(raised[name])
    return clean


def _quote(text: str) -> str:
    """The text between marks, with marks of its own made harmless."""
    return f"{OPEN}{text.replace('⟦', '[').replace('⟧', ']')}{CLOSE}"


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.translate(KEEP_LINES)
    if isinstance(value, dict):
        return {_clean(name): _clean(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_clean(one) for one in value]
    return value


def part(record: dict[str, Any], number: int) -> dict[str, Any]:
    """One part of a record. All parts together hold every entry once; a part beyond the last is empty but for its head."""
    head = {name: record[name] for name in _HEAD if name in record}
    rest = [name for name in record if name not in head]
    order = [
        *(name for name in _FIRST if name in rest),
        *(name for name in rest if name not in _FIRST and name not in _LAST),
        *(name for name in _LAST if name in rest),
    ]
    room = max(MOST - len(json.dumps(head, ensure_ascii=False)), MOST // 3)
    parts: list[dict[str, Any]] = [{}]
    used = 0
    for name in order:
        value = record[name]
        for entry in value if isinstance(value, list) and value else [value]:
            size = len(json.dumps(entry, ensure_ascii=False)) + (4 if name in parts[-1] else len(name) + 6)
            if used + size > room and parts[-1]:
                parts.append({})
                used = 0
            used += size
            if isinstance(value, list) and value:
                parts[-1].setdefault(name, []).append(entry)
            else:
                parts[-1][name] = entry
    body = parts[number - 1] if number <= len(parts) else {}
    where: dict[str, Any] = {"number": number, "of": len(parts)}
    if number < len(parts):
        later: dict[str, int] = {}
        for one in parts[number:]:
            for name, entries in one.items():
                later[name] = later.get(name, 0) + (len(entries) if isinstance(entries, list) else 1)
        where["later"] = later
    return {**head, "page": where, **body}
