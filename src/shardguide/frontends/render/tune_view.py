"""What ``tune`` found, for people: the table first."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .blocks import Block, Heading, Items, Pairs, Table, Text, Title
from .numbers import size
from .plan_view import checks, end, known, questions, reasons, snippets, sources

LABELS = {
    "mixed_precision": "Mixed precision",
    "gradient_scaling": "Gradient scaling",
    "cpu_offload": "CPU offload",
    "backend": "Backend",
    "gradient_clipping": "Gradient clipping",
    "checkpoints": "Checkpoints",
}


# Shown with their reasons on the first screen: what W6 is about; the others with --verbose.
FIRST = ("mixed_precision", "cpu_offload")


def _cell(value: Any, unit: str, mark: str = "") -> str:
    if value is None:
        return ("not worked out" if unit == "bytes" else "unknown") + mark
    return (size(value) if unit == "bytes" else str(value)) + mark


def _table(rows: list[dict[str, Any]], compared: bool) -> list[Block]:
    """Now and recommended; numbers that rest on something that was not read are marked, and the mark is explained."""
    rows = [row for row in rows if row["unit"] != "bytes" or row["before"] is not None or row["after"] is not None]
    resting = list(dict.fromkeys(row["assumed"] for row in rows if row["assumed"])) if compared else []
    marks = {words: "*" * number for number, words in enumerate(resting, 1)}
    after = [(row["name"], _cell(row["after"], row["unit"])) for row in rows]
    exact = (
        " (bytes of the rank that holds most; exact but for what is marked)"
        if resting
        else " (bytes of the rank that holds most; exact)"
    )
    if not any(row["unit"] == "bytes" for row in rows):
        exact = ""  # none could be worked out; the check "memory" says why
    if not compared:
        return [
            Heading(f"Recommended{exact}"),
            Table(("", "recommended"), tuple(after)),
        ]
    cells = tuple(
        (name, _cell(row["before"], row["unit"], marks.get(row["assumed"], "")), value)
        for row, (name, value) in zip(rows, after, strict=True)
    )
    out: list[Block] = [
        Heading(f"Before and after{exact}"),
        Table(("", "now", "recommended"), cells),
    ]
    out.extend(Text(f"{mark} {words}.") for words, mark in marks.items())
    return out


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for a tune record."""
    shown = record.get("hardware")
    torch = record["torch"]["version"] or "release not known"
    title = (
        f"Mixed precision and offload for {shown['model']} · PyTorch {torch}"
        if shown
        else f"Tuning, incomplete · PyTorch {torch}"
    )
    out: list[Block] = [Title(title), known(record)]
    out.extend(questions(record))
    rows = record.get("before_after") or []
    if rows:
        current = record.get("current") or {}
        out.extend(_table(rows, bool(current.get("api") or current.get("settings"))))
    if record.get("benefit"):
        out.extend([Heading("What changes"), Items(tuple(record["benefit"]))])
    if record["decisions"]:
        marks = {True: "open", False: ""}
        pairs = tuple((LABELS.get(d["id"], d["id"]), d["choice"], marks[d["open"]]) for d in record["decisions"])
        out.extend([Heading("Decisions"), Pairs(pairs)])
        for decision in record["decisions"]:
            if verbose or decision["id"] in FIRST:
                out.extend(reasons(decision, LABELS, verbose))
    out.extend(checks(record))
    out.extend(snippets(record, verbose))
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out
