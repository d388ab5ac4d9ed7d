"""What ``init`` found, for people: the call checked, the code, and the conditions of the method."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .backend_view import verified
from .blocks import Block, Code, Heading, Pairs, Title
from .plan_view import checks, decided, end, known, questions, sources

LABELS = {"method": "Method", "ranks": "Ranks", "device": "Device", "timeout": "Timeout", "shutdown": "Shutdown"}
# Shown with their reasons on the first screen; the others with --verbose.
FIRST = ("method", "ranks")


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for an init record."""
    torch = record["torch"]["version"] or "release not known"
    method = next((one["choice"] for one in record["decisions"] if one["id"] == "method"), "not chosen yet")
    out: list[Block] = [Title(f"Process group: {method} · PyTorch {torch}"), known(record)]
    wrong = [check for check in record["checks"] if check["id"] == "call" and check["result"] == "failed"]
    if wrong:  # what was asked about comes first
        out.extend([Heading("Your call"), Pairs(tuple(("wrong", one["evidence"], "failed") for one in wrong))])
    out.extend(questions(record))
    out.extend(decided(record, LABELS, verbose, FIRST))
    out.extend(checks(record))
    for snippet in record["snippets"]:
        out.append(Heading(f"{snippet['title']} ({snippet['id']}; {verified(snippet['verified'])})"))
        out.append(Code(snippet["language"], snippet["code"]))
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out
