"""Findings of a review for people: place, code and message first, then why, the fix and where that stands."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .blocks import Block, Heading, Items, Pairs, Text, Title
from .plan_view import end, sources

SHOWN = 200  # findings on one page; all are in --json


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for a review."""
    found = record["findings"]
    certain = sum(one["certain"] for one in found)
    words = f"{certain} certain, {len(found) - certain} to look at" if found else "nothing found"
    out: list[Block] = [Title(f"Review: {words} ({record['done'][0]})")]
    for one in found[: len(found) if verbose else SHOWN]:
        sure = "" if one["certain"] else " (suspicion)"
        rows = [("why", one["why"], ""), ("fix", one["fix"] + (" [--diff]" if one["edits"] else ""), "")]
        if verbose and one["sources"]:
            rows.append(("sources", ", ".join(one["sources"]), ""))
        place = f"{one['path']}:{one['line']}:{one['column']}"
        out.extend([Heading(f"{place} {one['rule']}{sure}"), Text(one["message"]), Pairs(tuple(rows))])
    if len(found) > SHOWN and not verbose:
        out.append(Text(f"{len(found) - SHOWN} more (--verbose, --json)."))
    if record["problems"]:
        rows_ = tuple(
            f"{one['path']}{':' + str(one['line']) if one['line'] else ''}: {one['why']}" for one in record["problems"]
        )
        out.extend([Heading("Not read"), Items(rows_)])
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out
