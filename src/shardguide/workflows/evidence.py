"""Files handed over with a request, read once: hardware reports, measurements, the current settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardguide.guidance.named import NamedTuple
from shardguide.guidance.record import Question

from .gather import FileFact


class Handed(NamedTuple):
    """What the files say."""

    facts: dict[str, FileFact] = {}  # noqa: RUF012 - by field name, never changed in place
    questions: tuple[Question, ...] = ()  # where files contradict each other
    notes: tuple[str, ...] = ()
    measured: tuple[Any, ...] = ()  # readers.measured.Measured, one a file
    current: Any = None  # code.current.Current
    digest: Any = None  # what identifies the contents, for the id of the answer


def read_files(
    files: tuple[str, ...],
    measured: tuple[str, ...],
    current: str,
    given: Mapping[str, Any] = {},
    remembered: Mapping[str, Any] = {},
) -> Handed:
    """Everything in the files; what was given or remembered settles where files contradict each other.

    Raises UnusableInput, with the file's name, for one that cannot be used.
    """
    if not (files or measured or current):
        return Handed()
    facts: dict[str, FileFact] = {}
    questions: tuple[Question, ...] = ()
    notes: tuple[str, ...] = ()
    if files:
        from .reports import hardware_facts

        facts, questions, notes = hardware_facts(files, given, remembered)
    read: list[Any] = []
    for path in measured:
        from shardguide.readers.measured import read_measured

        read.append(read_measured(path))
        notes = (*notes, *read[-1].notes)
    now = None
    if current:
        from shardguide.code.current import read_current

        now = read_current(current)
    identity = [{name: fact.value for name, fact in facts.items()}, read, now]
    return Handed(facts, questions, notes, tuple(read), now, identity)
