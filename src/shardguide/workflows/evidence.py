# ruff: noqa: PTH119
# (os.path as in the rest of the product: pathlib costs start-up time)
"""Files handed over with a request, read once: hardware reports, measurements, the current settings."""

from __future__ import annotations

import os
from collections.abc import Mapping

from shardguide.guidance.hints import TYPE_CHECKING, Any, NamedTuple
from shardguide.guidance.record import Question
from shardguide.readers.files import noted, shown

from .gather import FileFact

if TYPE_CHECKING:
    from shardguide.code.current import Current


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
    with noted() as contents:
        handed = _read(files, measured, current, given, remembered)
    return handed._replace(digest=[*handed.digest, [content for _, content in contents]])


def _read(
    files: tuple[str, ...],
    measured: tuple[str, ...],
    current: str,
    given: Mapping[str, Any],
    remembered: Mapping[str, Any],
) -> Handed:
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
        facts = facts | {name: fact for name, fact in current_facts(now).items() if name not in facts}
        notes = (*notes, *(note for note in now.notes if note not in notes))
    identity = [
        {name: fact.value for name, fact in facts.items()},
        [_without_path(one, path) for one, path in zip(read, measured, strict=True)],
        _without_path(now, current),
    ]
    return Handed(facts, questions, notes, tuple(read), now, identity)


def current_facts(now: Current) -> dict[str, FileFact]:
    """What the present code or configuration states that a plan asks for: the optimizer, accelerate's counts and device."""
    facts: dict[str, FileFact] = {}
    from .tune.read_code import optimizer_of

    optimizers = {optimizer_of(call): call.where for call in now.calls if call.kind == "optimizer"}
    if len(optimizers) == 1 and "" not in optimizers:
        name, where = next(iter(optimizers.items()))
        facts["optimizer"] = FileFact(name, f"file:{where}")
    for name, setting in (("gpus", "num_processes"), ("nodes", "num_machines")):
        for found in now.settings("accelerate", setting):
            if found.known and found.value.isdigit() and int(found.value) > 0:
                facts[name] = FileFact(int(found.value), f"file:{found.where}")
    from .reports import accelerate_device

    for setting in ("distributed_type", "use_cpu"):
        for found in now.settings("accelerate", setting):
            device = (
                accelerate_device(found.value, setting == "use_cpu" and found.value == "True") if found.known else ""
            )
            if device:
                facts["device"] = FileFact(device, f"file:{found.where}")
    return facts


def _without_path(value: Any, path: str) -> Any:
    """What was read, without how the path of its file was spelled."""
    if isinstance(value, str):
        return value.replace(shown(path), os.path.basename(path))
    if isinstance(value, dict):
        return {name: _without_path(one, path) for name, one in value.items()}
    return [_without_path(one, path) for one in value] if isinstance(value, (list, tuple)) else value
