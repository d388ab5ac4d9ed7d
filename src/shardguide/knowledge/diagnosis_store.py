"""The diagnoses as shipped: ``data/diagnoses.json``, generated from ``diagnoses/*.toml`` by ``scripts/build_diagnoses.py``.

A diagnosis says by which words it is known, what must or must not stand beside them, what the cause is, how to tell it from what
looks alike, and what to change. Words that only say that something else went wrong are diagnoses too, of the kind
``cascade``: they are never shown as a cause.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.knowledge.lines import Lines

_lines = Lines("diagnoses.json")

# Words that no diagnosis rests on but the reasoning needs: progress, set-up, settings and what the analysers parse.
PROBES = (
    "NCCL_DEBUG",
    "NCCL INFO",
    "NCCL WARN",
    "PG status: last enqueued work",
    "last enqueued NCCL work",
    "Received a dump signal due to a collective timeout from",
    "[Rank ",
    "collective operation timeout: WorkNCCL(",
    "Error: ",
    "ERROR",
    "FATAL",
    "Segmentation fault",
    "core dumped",
    "Signal 9 (SIGKILL)",
    "network addresses of (",
    "examples/s",
    " - Init ",
    "Device: cuda:",
    "Local process index:",
    " via P2P",
    "PyTorch CUDA memory summary, device ID",
    "| Allocated memory ",
    "| GPU reserved memory ",
    "| Non-releasable memory ",
    "PyTorch version: ",
    "CUDA used to build PyTorch: ",
    "CUDA runtime version: ",
    "ROCM used to build PyTorch: ",
    "Nvidia driver version: ",
    "Python version: ",
    "NCCL version ",
    '"MainThread"',
    " (most recent call first):",
    "NVIDIA-SMI ",
    "NVSMI LOG",
    "CPU Affinity",
    "algbw",
    "memory.total [",
    "nvidia-nccl-cu",
)


class Sign(NamedTuple):
    """One wording by which a diagnosis is known."""

    at: int  # index in words()
    text: str
    where: str  # regular expression that the line must match as well; "" for none
    origin: str  # file of PyTorch that holds the words, or where else they come from
    releases: str  # in which PyTorch's own files hold them; "" where no wheel does


class Diagnosis(NamedTuple):
    """One diagnosis."""

    id: str
    family: str
    kind: str  # "cause", "symptom" or "cascade"
    confidence: str  # the highest that the signs alone allow: "certain", "likely" or "possible"
    title: str
    cause: str
    tell: str  # how to tell it from its look-alikes
    fix: str
    check: str  # how to see that the fix worked
    next: str  # what to set or collect where the evidence can't decide
    signs: tuple[Sign, ...]
    all: tuple[int, ...]  # words that must stand somewhere as well
    unless: tuple[int, ...]  # words that must not
    symptoms: tuple[str, ...]  # how people describe it
    patterns: tuple[str, ...]
    claims: tuple[str, ...]
    sources: tuple[tuple[str, str], ...]  # (title, URL)


def ids() -> list[str]:
    """The ids of all diagnoses, sorted."""
    return _lines.ids()


def words() -> list[str]:
    """All words that are looked for in logs; a sign's ``at`` counts in this list."""
    return list(_lines.get("@words"))


def of_words(places: Iterable[int]) -> list[str]:
    """The ids of the diagnoses that have one of these words, by their places in ``words()``, as a sign; sorted."""
    table = _lines.get("@of")
    return sorted({name for place in places if place < len(table) for name in table[place]})


def terms() -> dict[str, Any]:
    """The index of the words by which people describe what happens; see ``symptom_index``."""
    return dict(_lines.get("@terms") or {})


def entry(name: str) -> dict[str, Any]:
    """The plain entry of one diagnosis.

    Raises:
        KeyError: there is no diagnosis of that id.
    """
    return dict(_lines.entry(name))


def get(name: str) -> Diagnosis:
    """One diagnosis.

    Raises:
        KeyError: there is no diagnosis of that id.
    """
    found = entry(name)
    return Diagnosis(
        name,
        found["family"],
        found["kind"],
        found["confidence"],
        found["title"],
        found["cause"],
        found["tell"],
        found["fix"],
        found["check"],
        found["next"],
        tuple(Sign(one["at"], one["text"], one["where"], one["origin"], one["releases"]) for one in found["signs"]),
        tuple(found["all"]),
        tuple(found["unless"]),
        tuple(found["symptoms"]),
        tuple(found["patterns"]),
        tuple(found["claims"]),
        tuple((one["title"], one["url"]) for one in found["sources"]),
    )
