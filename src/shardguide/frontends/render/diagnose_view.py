"""What ``diagnose`` found, for people: the rank and the cause first, then the lines that show it and what to change."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .backend_view import listed
from .blocks import Block, Heading, Items, Pairs, Text, Title
from .plan_view import checks, end, sources

OUTCOMES = {
    "consequence": "Only a consequence was found; its cause stands with the rank that ended first",
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


def _one(one: dict[str, Any], verbose: bool, named: dict[str, str], titled: bool) -> list[Block]:
    """One diagnosis: cause and fix, then the lines that show it. ``titled``: its title stands above already."""
    lines = one["evidence"] if verbose else one["evidence"][:3]
    rows = [("at", one["place"], "")] if one["place"] else []
    rows += [("cause", one["cause"], ""), ("fix", one["fix"], "")]
    for label, name in (("check", "check"), ("next", "next_evidence")):
        if one[name]:
            rows.append((label, one[name], ""))
    if (verbose or one["confidence"] == "possible") and one["tell"]:
        rows.append(("tell", one["tell"], ""))
    where = f", {_ranks(one['ranks'])}" if one["ranks"] else ""
    head = (
        f"{one['confidence'].capitalize()}: {one['id']}"
        if titled
        else f"{one['title']} ({one['confidence']}{where}; {one['id']})"
    )
    return [
        Heading(head),
        Pairs(tuple(rows)),
        Items(tuple(f"{_where(line)}: {line['text']}" for line in lines)),
        Text(f"Sources: {', '.join(dict.fromkeys(named.get(source, source) for source in one['sources']))}"),
    ]


def _named(record: dict[str, Any]) -> dict[str, str]:
    """What each source is called where it is only named: the object of PyTorch, with its line where it was opened again."""
    out = {}
    for one in record["sources"]:
        again = one["reopened"]
        out[one["id"]] = (one["object"] or one["url"]) + (f" ({again['where']}:{again['line']})" if again else "")
    return out


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


def consequence(record: dict[str, Any]) -> list[Block]:
    """What only notices the failure of another rank, with its lines, and how to find that rank."""
    if record["outcome"] != "consequence":
        return []
    out: list[Block] = []
    for one in record["consequences"][:2]:
        where = f" ({_ranks(one['ranks'])})" if one["ranks"] else ""
        out.append(Text(f"{one['title']}{where}. {one['cause']}"))
        out.append(Items(tuple(f"{_where(line)}: {line['text']}" for line in one["evidence"][:2])))
    return [*out, Items(tuple(record["notes"]))]


def _wanted(record: dict[str, Any]) -> list[Block]:
    """What would lead to a diagnosis, where there is none."""
    rows = tuple(f"{one['ask']} {one['why']}" for one in record["questions"])
    return [Heading("What would tell more"), Items(rows)] if rows else []


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for a diagnosis."""
    found = record["diagnoses"]
    if found:
        first = found[0]
        out: list[Block] = [Title(" · ".join(part for part in (first["title"], _ranks(first["ranks"])) if part))]
    else:
        out = [Title(OUTCOMES[record["outcome"]]), *consequence(record)]
    named = _named(record)
    for one in found if verbose else found[:2]:
        out.extend(_one(one, verbose, named, titled=one is found[0]))
    rest = found[2:] if not verbose else []
    if rest:
        rows = tuple((one["id"], f"{one['title']} ({one['confidence']})", "") for one in rest)
        out.extend([Heading("Also possible (--verbose)"), Pairs(rows)])
    if found and found[0]["snippet"] and not record["snippets"] and not record["torch"]["version"]:
        out.append(Text(f"Code: {found[0]['snippet']}, once the release is known (--torch 2.13)"))
    shown = {(line["file"], line["line"]) for one in record["consequences"][:2] for line in one["evidence"][:2]}
    raised = [one for one in record["raised"] if (one["file"], one["line"]) not in shown]
    if raised and not found:
        rows_ = tuple(f"{one['file']}:{one['line']}: {one['kind']}: {one['message']}" for one in raised[:3])
        out.extend([Heading("What was raised"), Items(rows_)])
    if record["outcome"] != "consequence":  # which says it above
        out.extend(_wanted(record))
    out.extend(_numbers(record, verbose))
    out.extend(checks(record, verbose))
    out.extend(listed(record, verbose))
    if verbose:
        out.extend(sources(record))
    out.extend(end(record | {"notes": []} if record["outcome"] == "consequence" else record))
    return out
