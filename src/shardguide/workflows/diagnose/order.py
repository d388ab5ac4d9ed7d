"""First failure against cascade: which rank failed by itself, and which ones only noticed."""

from __future__ import annotations

from collections.abc import Sequence

from shardguide.guidance.hints import NamedTuple
from shardguide.readers.logs.records import Evidence, Failed, Raised

from .match import LEVELS, Candidate

# Raised by the launcher about its children, and by Python when it is told to stop.
_ABOUT_OTHERS = ("ChildFailedError", "SignalException", "KeyboardInterrupt", "SystemExit", "ProcessExitedException")


class First(NamedTuple):
    """What the logs say about who failed first."""

    root: tuple[int, ...]  # ranks that failed by themselves, as far as torchrun or the exit codes say
    failed: tuple[Failed, ...]
    raised: tuple[Raised, ...]  # exceptions of the training itself


def first(logs: Sequence[Evidence]) -> First:
    """Ranks under torchrun's root cause; where there is no table, those that were killed or raised."""
    failed = tuple(row for log in logs for row in log.failed)
    raised = tuple(one for log in logs for one in log.raised if one.kind.rpartition(".")[2] not in _ABOUT_OTHERS)
    own = sorted({row.rank for row in failed if row.exitcode != -15})
    # The table's root is the first that the agent saw. Whoever was killed cannot have been told to stop by another's error.
    killed = sorted({row.rank for row in failed if row.exitcode < 0 and row.exitcode != -15})
    root = killed or sorted({row.rank for row in failed if row.root}) or own
    return First(tuple(root), failed, raised)


def ranked(found: list[Candidate], start: First) -> list[Candidate]:
    """The candidates, the first cause first; cascades only where nothing else was found."""
    kinds = {"cause": 0, "symptom": 1, "cascade": 2}

    def key(one: Candidate) -> tuple[object, ...]:
        at_root = bool(set(one.ranks) & set(start.root)) if start.root and one.ranks else None
        return (
            kinds[one.diagnosis.kind],
            at_root is False,
            LEVELS.index(one.confidence),
            -one.weight,
            one.order,
            one.diagnosis.id,
        )

    return sorted(found, key=key)
