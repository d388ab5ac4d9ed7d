"""From what was said, handed over and remembered to answers with their provenance, and to the questions that remain.

Precedence: what the user says now, then the files handed over now, then the notebook. A file that contradicts what the
user says is never silently preferred: it becomes a question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.named import NamedTuple
from shardguide.guidance.record import Answer, Question

from .fields import Field


class Gathered(NamedTuple):
    """Everything known, by field name, and what has to be asked because two sources disagree."""

    answers: dict[str, Answer]
    conflicts: tuple[Question, ...]

    def value(self, name: str, default: Any = None) -> Any:
        """The value of an answer, or ``default``."""
        found = self.answers.get(name)
        return default if found is None else found.value


class FileFact(NamedTuple):
    """A value that a file states."""

    value: Any  # parsed, as the field would parse it
    where: str  # "file:nvidia-smi.txt:12"


def gather(
    fields: Iterable[Field],
    given: Mapping[str, Any],
    files: Mapping[str, FileFact],
    remembered: Mapping[str, Any],
) -> Gathered:
    """Answers by precedence. ``given`` values are texts or already values; ``remembered`` ones were parsed when kept."""
    answers: dict[str, Answer] = {}
    conflicts: list[Question] = []
    for field in fields:
        name = field.name
        stated = given.get(name)
        if stated is not None:
            value = field.parse(stated) if isinstance(stated, str) else field.parse(str(stated))
            answers[name] = Answer(value, "user")
            if name in files and not _agree(name, files[name].value, value):
                conflicts.append(_conflict(field, value, files[name]))
        elif name in files:
            answers[name] = Answer(files[name].value, files[name].where)
        elif name in remembered:
            answers[name] = Answer(_kept(field, remembered[name]), "notebook")
    return Gathered(answers, tuple(conflicts))


def _kept(field: Field, value: Any) -> Any:
    try:
        return field.parse(str(value))
    except UnusableInput as error:
        raise UnusableInput(
            f"the notebook's answer for {field.name} cannot be used ({error}); shardguide answers forget {field.name} drops it."
        ) from None


def _agree(name: str, from_file: Any, stated: Any) -> bool:
    if name == "gpu":
        from shardguide.knowledge.hardware.table import find

        one, other = find(str(from_file), every=True), find(str(stated), every=True)
        return not one or not other or bool({gpu.id for gpu in one} & {gpu.id for gpu in other})
    if name == "gpu_memory":
        from shardguide.knowledge.hardware.memory import parse_memory

        read, said = parse_memory(from_file), parse_memory(stated)
        # Drivers report a little less than the vendor's figure, in either reading.
        return any(0.94 * b <= a <= 1.01 * b for a in (read.decimal, read.binary) for b in (said.decimal, said.binary))
    return bool(from_file == stated)


def _conflict(field: Field, stated: Any, fact: FileFact) -> Question:
    where = fact.where.removeprefix("file:")
    return Question(
        field.name,
        f"You say {field.name.replace('_', ' ')} is {stated}, {where} says {fact.value}: which holds?",
        "The plan would be made for one of them; correct the option or leave the file out.",
        (str(stated), str(fact.value)),
    )


def ask(field: Field) -> Question:
    """The field's question, for what is neither known nor given."""
    return Question(field.name, field.ask, field.why, field.choices)
