"""Findings of a review for people: place, code and message, the line itself, why, the fix and where that stands."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .blocks import Block, Code, Heading, Items, Pairs, Text, Title
from .plan_view import end, sources

SHOWN = 200  # findings on one page; all are in --json
_WIDE = 110  # characters of a line that are shown


def place(one: dict[str, Any]) -> str:
    """Where a finding is, as editors understand it; in a notebook by cell."""
    cell = f"cell {one['cell']}:" if "cell" in one else ""
    return f"{one['path']}:{cell}{one['line']}:{one['column']}"


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for a review."""
    found = record["findings"]
    certain = sum(one["certain"] for one in found)
    words = f"{certain} certain, {len(found) - certain} to look at" if found else "nothing found"
    out: list[Block] = [Title(f"Review: {words} ({record['done'][0]})")]
    urls = {source["id"]: source["url"] for source in record["sources"]}
    for one in found[: len(found) if verbose else SHOWN]:
        sure = "" if one["certain"] else " (suspicion)"
        rows = [("why", one["why"], ""), ("fix", one["fix"] + (" [--diff]" if one["edits"] else ""), "")]
        cited = list(dict.fromkeys(urls[name] for name in one["sources"] if name in urls))
        if cited:
            rows.append(("source", ", ".join(cited if verbose else cited[:1]), ""))
        out.append(Heading(f"{place(one)}: {one['rule']}{sure} {one['message']}"))
        if one["source"].strip():
            out.append(Code("", frame(one)))
        out.append(Pairs(tuple(rows)))
    if len(found) > SHOWN and not verbose:
        out.append(Text(f"{len(found) - SHOWN} more (--verbose, --json)."))
    if found:
        fixes = sum(bool(one["edits"]) for one in found)
        if fixes:
            made = "the fix" if fixes == 1 else f"the {fixes} fixes"
            out.extend([Text(""), Text(f"shardguide apply {record['id']} writes {made} marked [--diff], after a yes.")])
        out.append(Text(f"shardguide explain {found[0]['rule']} shows a rule with examples."))
    if record["problems"]:
        rows_ = tuple(
            f"{one['path']}{':' + str(one['line']) if one['line'] else ''}: {one['why']}" for one in record["problems"]
        )
        out.extend([Heading("Not read"), Items(rows_)])
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out


def frame(one: dict[str, Any]) -> str:
    """The line of a finding with a mark below the place."""
    line, at = one["source"].rstrip().replace("\t", " "), one["column"] - 1
    start = max(0, at - _WIDE // 2) if len(line) > _WIDE else 0
    part = line[start : start + _WIDE]
    if start:
        part = "…" + part[1:]
    if len(line) > start + _WIDE:
        part += "…"
    number = str(one["line"])
    mark = " " * min(at - start, len(part)) + "^"
    return f"{number} | {part}\n{' ' * len(number)} | {mark}"
