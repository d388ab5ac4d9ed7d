"""What ``diagnose`` found, for people: the rank and the cause first, then the lines that show it and what to change."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .backend_view import listed
from .blocks import Block, Heading, Items, Pairs, Text, Title
from .plan_view import checks, end, sources

OUTCOMES = {
    "no_failure": "No failure in what was read",
    "unrecognised": "Something failed, and no diagnosis is known for it",
}


def _ranks(ranks: list[int]) -> str:
    if not ranks:
        return ""
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{'…' if len(ranks) > 8 else ''}"


def _where(line: dict[str, Any]) -> str:
    return f"{line['file']}:{line['line']}" if line["line"] else str(line["file"])


def _one(one: dict[str, Any], verbose: bool) -> list[Block]:
    lines = one["evidence"] if verbose else one["evidence"][:3]
    rows = [("at", one["place"], "")] if one["place"] else []
    rows += [("cause", one["cause"], ""), ("fix", one["fix"], "")]
    for label, name in (("check", "check"), ("next", "next_evidence")):
        if one[name]:
            rows.append((label, one[name], ""))
    if verbose and one["tell"]:
        rows.append(("tell", one["tell"], ""))
    where = f", {_ranks(one['ranks'])}" if one["ranks"] else ""
    return [
        Heading(f"{one['title']} ({one['confidence']}{where}; {one['id']})"),
        Items(tuple(f"{_where(line)}: {line['text']}" for line in lines)),
        Pairs(tuple(rows)),
        Text(f"Sources: {', '.join(one['sources'])}"),
    ]


def _numbers(record: dict[str, Any], verbose: bool) -> list[Block]:
    """What was read off exactly, with how it was worked out."""
    facts = record["facts"]
    shown = facts if verbose else facts[:12]
    if not shown:
        return []
    rows = [(one["id"], f"{one['value']:,} {one['unit']} ({one['formula']})" if isinstance(one["value"], int)
             else f"{one['value']} {one['unit']} ({one['formula']})", "") for one in shown]  # fmt: skip
    if len(facts) > len(shown):
        rows.append(("and", f"{len(facts) - len(shown)} more (--verbose)", ""))
    return [Heading("Numbers, as read"), Pairs(tuple(rows))]


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for a diagnosis."""
    found = record["diagnoses"]
    if found:
        first = found[0]
        out: list[Block] = [Title(" · ".join(part for part in (first["title"], _ranks(first["ranks"])) if part))]
    else:
        out = [Title(OUTCOMES[record["outcome"]])]
    for one in found if verbose else found[:2]:
        out.extend(_one(one, verbose))
    rest = found[2:] if not verbose else []
    if rest:
        rows = tuple((one["id"], f"{one['title']} ({one['confidence']})", "") for one in rest)
        out.extend([Heading("Also possible (--verbose)"), Pairs(rows)])
    if found and found[0]["snippet"] and not record["snippets"] and not record["torch"]["version"]:
        out.append(Text(f"Code: {found[0]['snippet']}, once the release is known (--torch 2.13)"))
    if record["raised"] and not found:
        rows_ = tuple(f"{one['file']}:{one['line']}: {one['kind']}: {one['message']}" for one in record["raised"][:3])
        out.extend([Heading("What was raised"), Items(rows_)])
    out.extend(_numbers(record, verbose))
    out.extend(checks(record, verbose))
    out.extend(listed(record, verbose))
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out
