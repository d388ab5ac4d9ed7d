"""What ``diagnose`` found as a report for a bug tracker: what happened, what shows it, with which versions, and what is not known."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .blocks import Block, Code, Heading, Items, Pairs, Text, Title
from .diagnose_view import OUTCOMES, consequence
from .safe import one_line

EVIDENCE = 12
OTHERS = 4
LEFT = 20


def report(record: dict[str, Any]) -> list[Block]:
    """The page."""
    found = record["diagnoses"]
    if not found:
        notes = [Items(tuple(record["notes"]))] if record["notes"] and record["outcome"] != "consequence" else []
        return [
            Title(OUTCOMES[record["outcome"]]),
            *consequence(record),
            *notes,
            *_raised(record),
            *_versions(record),
            *_unknown(record),
        ]
    first = found[0]
    ranks = _ranks(first["ranks"])
    out: list[Block] = [
        Title(" · ".join(part for part in (first["title"], ranks) if part)),
        Heading("Summary"),
        Pairs(
            tuple(
                (label, text, "")
                for label, text in (
                    ("Cause", first["cause"]),
                    ("Rank", ranks or "not known"),
                    ("Place", first["place"]),
                    ("Confidence", f"{first['confidence']} ({first['id']})"),
                )
                if text
            )
        ),
        Heading("Evidence"),
        _lines(first["evidence"]),
        *_raised(record),
        *_versions(record),
        Heading("Fix"),
        Text(first["fix"]),
    ]
    if first["check"]:
        out.append(Text(f"To see that it worked: {first['check']}"))
    for snippet in record["snippets"][:1]:
        out.append(Code(snippet["language"], snippet["code"]))
    out.append(Items(tuple(one for one in first["sources"] if "://" in one)))
    return [*out, *_unknown(record)]


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:16])
    more = f" and {len(ranks) - 16} more" if len(ranks) > 16 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}" if ranks else ""


def _lines(evidence: list[dict[str, Any]]) -> Code:
    rows = []
    for one in evidence[:EVIDENCE]:
        at = f"{one['file']}:{one['line']}" if one["line"] else str(one["file"])
        rows.append(f"{one_line(at)}: {one_line(one['text'], 2000)}")
    return Code("text", "\n".join(rows) + "\n")


def _raised(record: dict[str, Any]) -> list[Block]:
    known = {(one["file"], one["line"]) for found in record["diagnoses"][:1] for one in found["evidence"]}
    rows = [
        {"file": one["file"], "line": one["line"], "text": f"{one['kind']}: {one['message']}"}
        for one in record["raised"]
        if (one["file"], one["line"]) not in known
    ]
    return [Heading("What was raised besides" if known else "What was raised"), _lines(rows)] if rows else []


def _versions(record: dict[str, Any]) -> list[Block]:
    rows = [(one["what"], one["version"], "") for one in record["versions"]]
    if not rows:
        return []
    return [Heading("Versions"), Pairs(tuple(rows))]


def _unknown(record: dict[str, Any]) -> list[Block]:
    found = record["diagnoses"]
    rows = [f"Not ruled out: {one['title']} ({one['confidence']}, {one['id']})." for one in found[1 : 1 + OTHERS]]
    rows += [f"What would decide: {one['next_evidence']}" for one in found[:2] if one["next_evidence"]]
    if not record["versions"]:
        rows.append("The versions: no output of python -m torch.utils.collect_env is among the files.")
    if found and not found[0]["ranks"]:
        rows.append("The rank: no line says it.")
    left = record["not_done"]
    rows += [f"Not read: {one}" for one in left[:LEFT]]
    if len(left) > LEFT:
        rows.append(f"Not read: {len(left) - LEFT} more.")
    return [Heading("Still unknown"), Items(tuple(rows))] if rows else []
