"""What ``tune`` found, for people: the table first."""

from __future__ import annotations

from typing import Any

from .blocks import Block, Heading, Items, Pairs, Table, Title
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


def _cell(value: Any, unit: str) -> str:
    if value is None:
        return "not known"
    return size(value) if unit == "bytes" else str(value)


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
        out.append(Heading("Before and after (bytes of the rank that holds most; exact)"))
        table = tuple(
            (row["name"], _cell(row["before"], row["unit"]), _cell(row["after"], row["unit"])) for row in rows
        )
        out.append(Table(("", "now", "recommended"), table))
    if record.get("benefit"):
        out.extend([Heading("What changes"), Items(tuple(record["benefit"]))])
    if record["decisions"]:
        marks = {True: "open", False: ""}
        pairs = tuple((LABELS.get(d["id"], d["id"]), d["choice"], marks[d["open"]]) for d in record["decisions"])
        out.extend([Heading("Decisions"), Pairs(pairs)])
        for decision in record["decisions"] if verbose else record["decisions"][:1]:
            out.extend(reasons(decision, LABELS, verbose))
    out.extend(checks(record))
    out.extend(snippets(record, verbose))
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out
