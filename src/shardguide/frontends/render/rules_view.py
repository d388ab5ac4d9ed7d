"""The rules of ``review`` as pages: the list, and one rule."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .blocks import Block, Code, Heading, Items, Pairs, Text, Title


def listing(record: dict[str, Any]) -> list[Block]:
    """All rules, by area."""
    count = sum(len(area["rules"]) for area in record["areas"])
    out: list[Block] = [Title(f"{count} rules; shardguide explain CODE opens one")]
    for area in record["areas"]:
        rows = tuple(
            (one["code"], one["title"] + ("" if one["certain"] else " (suspicion)"), "") for one in area["rules"]
        )
        out.extend([Heading(area["title"]), Pairs(rows)])
    return out


def rule(record: dict[str, Any]) -> list[Block]:
    """One rule."""
    sure = "certain where reading proves it" if record["certain"] else "always a suspicion"
    rows = (
        ("says", record["message"], ""),
        ("why", record["why"], ""),
        ("fix", record["fix"], ""),
        ("area", record["area"], ""),
        ("releases", record["releases"] or "all", ""),
        ("it is", sure, ""),
    )
    language = "python" if record["file"].endswith(".py") else ""
    out: list[Block] = [Title(f"{record['rule']}: {record['title']}"), Pairs(rows)]
    out.extend([Heading(f"Wrong ({record['file']})"), Code(language, record["wrong"])])
    out.extend([Heading("Right"), Code(language, record["right"])])
    for name, text in record["beside"].items():
        out.extend([Heading(f"Beside it ({name})"), Code("python" if name.endswith(".py") else "", text.strip("\n"))])
    claims = tuple(
        f"{claim['text']} [{', '.join(dict.fromkeys(source['title'] for source in claim['sources']))}"
        + (f", {claim['releases']}]" if claim["releases"] else "]")
        for claim in record["claims"]
    )
    pages = dict.fromkeys([source["url"] for claim in record["claims"] for source in claim["sources"]] + record["see"])
    if claims:
        out.extend([Heading("What it rests on"), Items(claims)])
    if pages:
        out.extend([Heading("Pages"), Items(tuple(pages))])
    out.append(Text(f"Switch it off on a line with # shardguide: ignore[{record['rule']}]."))
    return out
