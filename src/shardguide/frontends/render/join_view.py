"""What ``join`` found, for people: Join or not, its flags, and with ``verbose`` what shadows each collective."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .backend_view import listed
from .blocks import Block, Code, Heading, Pairs, Title
from .plan_view import checks, decided, end, known, questions, sources

LABELS = {
    "use": "Join",
    "instead": "Instead",
    "enable": "enable",
    "throw_on_early_termination": "throw_on_early_termination",
    "divide_by_initial_world_size": "divide_by_initial_world_size",
    "order": "Order of the list",
    "notify_join_context": "notify_join_context",
    "process_group": "Process group",
}
# Shown with their reasons on the first screen; the others with --verbose.
FIRST = ("use", "instead", "enable", "throw_on_early_termination")


def _shadowed(record: dict[str, Any]) -> list[Block]:
    rows = []
    for one in record["shadowed"]:
        label = " ".join(part for part in (one["joinable"].rpartition(".")[2], one["when"]) if part)
        rows.append((label, f"{one['collective']} ← {one['shadowed_by']}", one["result"]))
    heading = Heading("One iteration, collective by collective, and what a joined rank does for it")
    return [heading, Pairs(tuple(rows))] if rows else []


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for a join record."""
    torch = record["torch"]["version"] or "release not known"
    choice = next((one["choice"] for one in record["decisions"] if one["id"] == "use"), "not decided yet")
    out: list[Block] = [Title(f"Uneven inputs: {choice} · PyTorch {torch}"), known(record)]
    out.extend(questions(record))
    out.extend(decided(record, LABELS, verbose, FIRST))
    if verbose or not record["decisions"]:
        parts = tuple((one["name"], one["text"], "") for one in record["parts"])
        out.extend([Heading("The parts of Join"), Pairs(parts)])
    if verbose:
        out.extend(_shadowed(record))
    out.extend(checks(record))
    snippets = record["snippets"]
    if snippets and not verbose:  # the most fitting one at once
        out.extend(
            [
                Heading(f"{snippets[0]['title']} ({snippets[0]['id']})"),
                Code(snippets[0]["language"], snippets[0]["code"]),
            ]
        )
    out.extend(listed(record, verbose))
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out
