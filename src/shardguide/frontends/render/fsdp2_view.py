"""What ``fsdp2`` found, for people: adopt it or not and from where, the goals, and with ``verbose`` both tables."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .backend_view import listed
from .blocks import Block, Heading, Items, Table, Text, Title
from .plan_view import checks, decided, end, known, questions, sources

LABELS = {
    "adopt": "Adopt FSDP2",
    "import": "Import",
    "differences": "Design",
    "sharding": "Per-parameter sharding",
    "memory": "Memory",
    "hybrid": "Hybrid sharding",
    "compile": "torch.compile",
    "checkpoint": "Checkpoints",
    "tensor_parallel": "Tensor parallelism",
    "pipeline": "Pipeline parallelism",
    "low_precision": "Low-precision all-gather",
    "frozen": "Frozen parameters",
    "meta_init": "Meta-device initialisation",
    "migrate": "Migration",
}
# Shown with their reasons on the first screen; the other two with --verbose.
FIRST = LABELS.keys() - {"import", "differences"}
_WORDS = {"same": "", "other": "done differently", "unneeded": "not needed", "none": "no counterpart"}


def _comparison(record: dict[str, Any]) -> list[Block]:
    rows = tuple(
        f"{one['feature']}. FSDP1: {_side(one['fsdp1'], one['fsdp1_releases'])} FSDP2: {_side(one['fsdp2'], one['fsdp2_releases'])}"
        for one in record["comparison"]
    )
    return [Heading("FSDP1 and FSDP2, feature by feature (releases from the API of each)"), Items(rows)]


def _side(text: str, releases: str) -> str:
    return f"{text} [{releases}]" if text else "no such thing."


def _lacking(record: dict[str, Any]) -> list[Block]:
    """On the first screen only what this release's FSDP2 does not have yet, beside what every release with FSDP2 has."""
    if not record["torch"]["version"]:
        return []
    rows = [one for one in record["comparison"] if not one["in_release"] and one["fsdp2"]]
    if not rows or len(rows) == len(record["comparison"]):
        return []
    return [
        Heading("FSDP2 features that this release does not have"),
        Table(("", "FSDP2 has it in"), tuple((one["feature"], one["fsdp2_releases"]) for one in rows)),
    ]


def _mapping(record: dict[str, Any], verbose: bool) -> list[Block]:
    rows = record["mapping"]
    if not rows:
        return []
    if not verbose and "migrate" not in record["answers"].get("goal", {}).get("value", ""):
        counts = {word: sum(one["counterpart"] == word for one in rows) for word in _WORDS}
        text = (
            f"{len(rows)} arguments, methods and classes of FSDP1: {counts['same']} have a counterpart, {counts['other']} are done "
            f"differently, {counts['unneeded']} are not needed, {counts['none']} have none (--goal migrate lists them all)."
        )
        return [Heading("From FSDP1 to FSDP2"), Text(text)]
    return [Heading("From FSDP1 to FSDP2"), Items(tuple(_row(one) for one in rows))]


def _row(one: dict[str, Any]) -> str:
    """One line: FSDP1's form, an arrow, FSDP2's form, and what to watch."""
    words = _WORDS[one["counterpart"]]
    form = one["fsdp2"]
    if one["counterpart"] in ("none", "unneeded"):  # which is said already
        form = form.removeprefix("none").removeprefix("nothing").removeprefix(": ")
    late = "" if one["in_release"] else f" [only in {one['fsdp2_releases']}]"
    return f"{one['fsdp1']}  →  {f'{words}: ' if words and form else words}{form}{late}. {one['note']}"


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for an fsdp2 record."""
    torch = record["torch"]["version"]
    choice = next((one["choice"] for one in record["decisions"] if one["id"] == "adopt"), "release not known")
    out: list[Block] = [Title(f"FSDP2: {choice} · PyTorch {torch or '?'}"), known(record)]
    out.extend(questions(record))
    out.extend(decided(record, LABELS, verbose, FIRST))
    out.extend(_comparison(record) if verbose else _lacking(record))
    out.extend(_mapping(record, verbose))
    out.extend(checks(record))
    out.extend(listed(record, verbose))
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out
