"""Results as an agent gets them: the answer first, in parts of bounded size, with what comes from files marked as quoted.

Harnesses cut results at 10,000 to 30,000 characters without a word; so a long one is cut here, between two entries, and says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from shardguide.frontends.render.safe import KEEP_LINES
from shardguide.guidance.hints import Any, NamedTuple

MOST = 20_000  # characters of one part, as JSON
# On every part: what is short and needed to act.
_HEAD = ("summary", "schema", "id", "workflow", "torch", "status", "understood", "outcome", "questions", "checks", "next", "approval",
         "done", "not_done")  # fmt: skip
_LEAST = 12_000  # characters that a head leaves to the rest; what of it is longer moves there
# Then the answer, then what it rests on; what is not named here follows in the record's own order.
_FIRST = ("decisions", "diagnoses", "consequences", "raised", "findings", "todo", "diff", "statements", "join_check", "topic", "snippets",
          "before_after", "hardware", "facts", "notes", "answers")  # fmt: skip
_LAST = ("sources", "accounting", "mapping", "comparison", "capabilities")
OPEN, CLOSE = "⟦quoted data⟧ ", " ⟦end of quote⟧"
# List -> the fields of its entries that repeat what stands in a file of the user's.
_QUOTES = {"raised": ("message", "text"), "findings": ("source",)}
# And those that are sentences of ours with pieces of it, such as the test of an if: what stands in quotes and is several words.
_SENTENCES = {
    "findings": ("message",),
    "collectives": ("test", "one", "other", "why"),
    "todo": ("what", "why"),
    "problems": ("why",),
}
_PIECE = re.compile(r"""(?<!\w)(['"])((?:\\.|(?!\1).)*)(\1|…|$)""")


def quoted(record: dict[str, Any]) -> dict[str, Any]:
    """The record with its lines of the user's files between marks, and no control or bidi character left anywhere."""
    clean: dict[str, Any] = _clean(record)
    for diagnosis in (*clean.get("diagnoses", ()), *clean.get("consequences", ())):
        for line in diagnosis.get("evidence", ()):
            line["text"] = _quote(line["text"])
    for name, fields in _QUOTES.items():
        for entry in clean[name] if isinstance(clean.get(name), list) else ():
            for field in fields:
                if isinstance(entry, dict) and entry.get(field) and isinstance(entry[field], str):
                    entry[field] = _quote(entry[field])
    for name, fields in _SENTENCES.items():
        for entry in clean[name] if isinstance(clean.get(name), list) else ():
            for field in fields:
                if isinstance(entry, dict) and isinstance(entry.get(field), str):
                    entry[field] = _PIECE.sub(_marked, entry[field])
    return clean


def _marked(found: re.Match[str]) -> str:
    words = found[2]
    if not any(letter.isspace() for letter in words.strip()):
        return found[0]
    cut, rest, after = words.partition("…")  # what was shortened has no end of its own
    return f"{found[1]}{_quote(cut)}{rest}{after}{found[3]}"


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


class Cut(NamedTuple):
    """A record in parts: what stands on each, and what stands below that."""

    head: dict[str, Any]
    bodies: list[dict[str, Any]]


def part(whole: Cut, number: int) -> dict[str, Any]:
    """One part. All of them together hold every entry once; one beyond the last is empty but for its head.

    Over the parts, lists and texts of one name are to be appended, objects to be merged.
    """
    count = len(whole.bodies)
    return {
        **whole.head,
        **(whole.bodies[number - 1] if number <= count else {"page": {"number": number, "of": count}}),
    }


def cut(record: dict[str, Any]) -> Cut:
    """The record in parts. Where they begin depends on the answer alone, not on when it was asked for before."""
    head = _head({name: value for name, value in record.items() if name != "earlier"})
    rest = [name for name in record if name not in head and name != "earlier"]
    order = [
        *(name for name in _HEAD if name in rest),
        *(name for name in _FIRST if name in rest),
        *(name for name in rest if name not in (*_HEAD, *_FIRST, *_LAST)),
        *(name for name in _LAST if name in rest),
    ]
    room = MOST - _size(head)
    parts: list[dict[str, Any]] = [{}]
    used = 0
    for name in order:
        for piece in _pieces(record[name], room - len(name) - 8):
            size = _size(piece) + (2 if name in parts[-1] else len(name) + 6)
            if used + size > room and parts[-1]:
                parts.append({})
                used = 0
            used += size
            parts[-1][name] = _joined(parts[-1][name], piece) if name in parts[-1] else piece
    bodies: list[dict[str, Any]] = []
    later: dict[str, int] = {}  # what the parts behind hold, counted
    for number in range(len(parts), 0, -1):
        body = parts[number - 1]
        where = {"number": number, "of": len(parts), **({"later": dict(later)} if later else {})}
        bodies.insert(0, {"page": where, **body})
        here = {name: len(entries) if isinstance(entries, list) else 1 for name, entries in body.items()}
        later = {name: here.get(name, 0) + later.get(name, 0) for name in (*here, *later)}
    return Cut(head | ({"earlier": record["earlier"]} if "earlier" in record else {}), bodies)


def _head(record: dict[str, Any]) -> dict[str, Any]:
    """What stands on every part; an entry that is long itself is left to the rest, the longest first."""
    head = {name: record[name] for name in _HEAD if name in record}
    while len(head) > 1 and _size(head) > MOST - _LEAST:
        del head[max(head, key=lambda name: _size(head[name]))]
    return head


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _pieces(value: Any, most: int) -> Iterator[Any]:
    """The value in pieces: entries of a list one by one, and what is longer than a part itself cut further down."""
    if isinstance(value, list) and value:
        for entry in value:
            if _size(entry) <= most:
                yield [entry]
            else:
                yield from ([piece] for piece in _pieces(entry, most - 2))
    elif _size(value) <= most or not value:
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from ({name: piece} for piece in _pieces(one, most - len(name) - 6))
    elif isinstance(value, str):
        yield from _lines(value, most)
    else:
        yield value


def _lines(text: str, most: int) -> Iterator[str]:
    """A text in pieces, cut between lines where lines are short enough; JSON may write a character as two, or six."""
    held: list[str] = []
    used = 2
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), most // 6):
            chunk = line[start : start + most // 6]
            size = _size(chunk) - 2
            if used + size > most and held:
                yield "".join(held)
                held, used = [], 2
            held.append(chunk)
            used += size
    if held:
        yield "".join(held)


def _joined(before: Any, piece: Any) -> Any:
    """Two pieces of one value that fit one part, as the value they are pieces of."""
    if isinstance(before, dict) and isinstance(piece, dict):
        out = dict(before)
        for name, one in piece.items():
            out[name] = _joined(out[name], one) if name in out else one
        return out
    return before + piece  # texts and lists
