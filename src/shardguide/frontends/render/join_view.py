"""What ``join`` found, for people: Join or not, its flags, and with ``verbose`` what shadows each collective."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .backend_view import listed
from .blocks import Block, Code, Heading, Items, Pairs, Text, Title
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


SHOWN = 8  # reasons on one page; all are in --json


def _shadowed(record: dict[str, Any]) -> list[Block]:
    rows = []
    for one in record["shadowed"]:
        label = " ".join(part for part in (one["joinable"].rpartition(".")[2], one["when"]) if part)
        rows.append((label, f"{one['collective']} ← {one['shadowed_by']}", one["result"]))
    heading = Heading("One iteration, collective by collective, and what a joined rank does for it")
    return [heading, Pairs(tuple(rows))] if rows else []


def _verdict(one: dict[str, Any], verbose: bool) -> list[Block]:
    """One Joinable or Join of the user's: the table, what is wrong, what is not known, and the corrected class."""
    out: list[Block] = [Heading(f"{one['name']} ({one['path']}:{one['line']}): {one['verdict']}")]
    if one["when"]:
        out.append(Text(f"Where {one['when']}:"))
    if one["rows"]:
        out.append(Text("one iteration, and what main_hook makes of it:"))
        out.append(Pairs(tuple(_row(row) for row in one["rows"])))
    elif one["kind"] == "Joinable" and one["verdict"] == "proven":
        out.append(Text("It makes no collective in an iteration, so there is nothing to shadow."))
    for issue in one["issues"]:
        sure = "" if issue["certain"] else " (suspicion)"
        rows = (("why", issue["why"], ""), ("fix", issue["fix"], ""))
        out.extend([Text(f"{issue['path']}:{issue['line']} {issue['rule']}{sure}: {issue['message']}"), Pairs(rows)])
    if one["unknown"]:
        left = len(one["unknown"]) - SHOWN
        more = (f"{left} more (--verbose, --json)",) if left > 0 and not verbose else ()
        shown = one["unknown"] if verbose else one["unknown"][:SHOWN]
        out.extend([Text("Not followed:"), Items((*shown, *more))])
    if one["assumes"]:
        out.extend([Text("It holds where:"), Items(tuple(one["assumes"]))])
    if one["corrected"]:
        out.extend([Text("Corrected, a draft:"), Code("python", one["corrected"])])
    return out


def _side(what: str, where: str) -> str:
    return f"{what} [{where.rpartition('/')[2]}]" if what else "-"


def _row(row: dict[str, Any]) -> tuple[str, str, str]:
    """One step: what the iteration does there, what the hook does, and whether that is enough."""
    iteration, hook = _side(row["iteration"], row["at"]), _side(row["hook"], row["hook_at"])
    if row["hook"] == row["iteration"]:
        hook = _side("the same", row["hook_at"])
    mark = "passed" if row["result"] == "matched" else "unknown" if row["result"] == "unknown" else "failed"
    why = f": {row['why']}" if row["why"] else ""
    return str(row["step"]), f"{iteration} | {hook} | {row['result']}{why}", mark


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for a join record."""
    torch = record["torch"]["version"] or "release not known"
    choice = next((one["choice"] for one in record["decisions"] if one["id"] == "use"), "not decided yet")
    out: list[Block] = [Title(f"Uneven inputs: {choice} · PyTorch {torch}"), known(record)]
    for one in record["join_check"]:
        out.extend(_verdict(one, verbose))
    out.extend(questions(record))
    out.extend(decided(record, LABELS, verbose, FIRST))
    if verbose or not record["decisions"]:
        parts = tuple((one["name"], one["text"], "") for one in record["parts"])
        out.extend([Heading("The parts of Join"), Pairs(parts)])
    if verbose:
        out.extend(_shadowed(record))
    out.extend(checks(record))
    snippets = [one for one in record["snippets"] if not one["id"].startswith("corrected-")]
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
