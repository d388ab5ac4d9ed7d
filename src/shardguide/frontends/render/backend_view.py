"""What ``backend`` found, for people: the choice, what it rests on, and with ``verbose`` the whole table."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .blocks import Block, Heading, Pairs, Table, Text, Title
from .plan_view import checks, decided, end, known, questions, snippets, sources

LABELS = {"backend": "Backend", "network": "Network"}
_SIGNS = {"yes": "yes", "no": "no", "?": "?", "not read": "~"}


def _operations(record: dict[str, Any]) -> list[Block]:
    rows = record.get("operations") or []
    if not rows:
        return []
    cells = tuple(
        (row["asked_as"], f"{row['backend']}, {row['tensors'].upper()} tensors: {row['why']}", row["result"])
        for row in rows
    )
    return [Heading("Operations that are needed"), Pairs(cells)]


def _table(record: dict[str, Any]) -> list[Block]:
    table = record["capabilities"]
    rows = tuple((row["operation"], *(_SIGNS[mark] for mark in row["marks"])) for row in table["rows"])
    out: list[Block] = [
        Heading(f"The official table, PyTorch {table['releases']}"),
        Table(("", *table["columns"]), rows),
    ]
    out.append(Text(f"Read: {table['read']}."))
    if any("~" in row for row in rows):
        out.append(Text("~ is not known for these releases."))
    ran = [one["operation"] for one in table["ran"]]
    if ran:
        out.append(Text(f"Run over Gloo ({table['ran'][0]['how']}): {', '.join(ran)}."))
    return out


def listed(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The snippets: their texts with ``verbose``, else their names."""
    if verbose or not record["snippets"]:
        return snippets(record, verbose)
    rows = tuple((one["id"], f"{one['title']} ({verified(one['verified'])})", "") for one in record["snippets"])
    return [Heading("Code (--show ID prints one)"), Pairs(rows)]


def verified(checks_passed: dict[str, Any]) -> str:
    """Which checks a snippet passed."""
    words = [word for word, name in (("parses", "parses"), ("API checked", "api")) if checks_passed[name]]
    return ", ".join([*words, f"run: {checks_passed['executed']}" if checks_passed["executed"] else "not run"])


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for a backend record."""
    torch = record["torch"]["version"] or "release not known"
    choice = next((one["choice"] for one in record["decisions"] if one["id"] == "backend"), "")
    out: list[Block] = [Title(f"Backend: {choice or 'not chosen yet'} · PyTorch {torch}"), known(record)]
    out.extend(questions(record))
    out.extend(decided(record, LABELS, verbose, LABELS))
    if verbose:
        out.extend(_operations(record))
    out.extend(checks(record))
    if verbose:
        out.extend(_table(record))
    out.extend(listed(record, verbose))
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out
