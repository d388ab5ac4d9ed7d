"""A migration for people: what was dealt with, what is to be decided, what was left and why, then the diff."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .blocks import Block, Code, Heading, Items, Pairs, Text, Title
from .plan_view import end, sources


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for a migration."""
    counts = record["counts"]
    total = {name: sum(one.values()) for name, one in counts.items()}
    if not record["uses"]:
        out: list[Block] = [Title(f"Migration to FSDP2: nothing of FSDP1 was found ({record['done'][0]})")]
        return [*out, *_problems(record), *end(record)]
    words = ", ".join(
        f"{total[name] - one['left']} of {total[name]} {label}"
        for name, label, one in (
            ("constructors", "FSDP(...) calls", counts["constructors"]),
            ("others", "other uses", counts["others"]),
        )
        if total[name]
    )
    out = [Title(f"Migration to FSDP2: {words} dealt with ({record['done'][0]})")]
    if record["todo"]:
        out.append(Heading("To decide"))
        for one in record["todo"]:
            rows = [("why", one["why"], "")]
            if verbose and one["sources"]:
                rows.append(("sources", ", ".join(one["sources"]), ""))
            out.extend([Text(f"{one['place']} [{one['code']}] {one['what']}"), Pairs(tuple(rows))])
    for status, title in (("left", "Left as it is"), ("kept", "Kept: valid as it is"), ("converted", "Converted")):
        uses = [use for use in record["uses"] if use["status"] == status]
        if uses and (verbose or status == "left"):
            rows_ = tuple(
                f"{use['path']}:{use['line']}:{use['column']} {use['what']}"
                + (f" [{use['reason']}]" if use["reason"] else "")
                for use in uses
            )
            out.extend([Heading(title), Items(rows_)])
    out.extend(_problems(record))
    if record["diff"]:
        title = f"Diff (--diff prints it alone; shardguide apply {record['id']} writes it, after a yes)"
        out.extend([Heading(title), Code("diff", record["diff"])])
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out


def _problems(record: dict[str, Any]) -> list[Block]:
    if not record["problems"]:
        return []
    rows = tuple(
        f"{one['path']}{':' + str(one['line']) if one['line'] else ''}: {one['why']}" for one in record["problems"]
    )
    return [Heading("Not read"), Items(rows)]
