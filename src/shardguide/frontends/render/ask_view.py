"""What a question was led to, for people: the statements with where they stand, then the commands that lead on."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .blocks import Block, Code, Heading, Items, Pairs, Text, Title
from .explain_view import statements
from .plan_view import checks, end, questions, sources
from .safe import one_line


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The answer first; then where there is more."""
    release = f"PyTorch {record['torch']['version'] or '(release not known)'}"
    out: list[Block] = [Title(f"{one_line(record['question'], 100)} · {release}")]
    if record["outcome"] == "not_known":
        out.append(Text("Not known here. What would be needed:"))
        out.append(Items(tuple(one_line(text) for text in record["needed"])))
        return [*out, *_notes(record)]
    out.extend(questions(record))
    known = {source["id"]: source for source in record["sources"]}
    if record["statements"]:
        out.append(statements(record["statements"], known))
    for one in record["snippets"]:
        out.extend([Heading(f"{one['title']} ({one['id']})"), Code(one["language"], one["code"])])
    rows = tuple(
        (hit["command"] or "(no command yet)", one_line(hit["title"] + _why(hit, verbose)), "")
        for hit in record["hits"]
    )
    out.extend([Heading("More" if record["statements"] else "What answers this"), Pairs(rows)])
    out.extend(checks(record, verbose))
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out


def _why(hit: dict[str, Any], verbose: bool) -> str:
    return f" (found by: {', '.join(hit['why'])})" if verbose and hit["why"] else ""


def _notes(record: dict[str, Any]) -> list[Block]:
    return [Text(one_line(note)) for note in record["notes"]]


def found(record: dict[str, Any]) -> list[Block]:
    """What ``docs search`` found."""
    out: list[Block] = [Title(f"Where {one_line(record['query'], 80)!r} stands")]
    if not record["found"]:
        return [*out, Text("Nowhere in the reference documents; shardguide docs list shows them.")]
    rows = []
    for one in record["found"]:
        text = one["text"] or one["title"]
        rows.append(
            (f"docs view {one['topic']}", f"{one['kind']} {one['id']}: {text}" if one["kind"] != "topic" else text, "")
        )
    return [*out, Pairs(tuple(rows))]
