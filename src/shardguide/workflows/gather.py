"""From what was said, handed over and remembered to answers with their provenance, and to the questions that remain.

Precedence: what the user says now, then the files handed over now, then the notebook. A file that contradicts what the
user says is never silently preferred: it becomes a question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Answer, Question
from shardguide.knowledge.hardware.links import check_counts

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
            if name in files and not agree(name, files[name].value, value):
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


def agree(name: str, from_file: Any, stated: Any) -> bool:
    """Whether a file's value of a field and a stated one can be the same thing."""
    if name == "gpu":
        from shardguide.knowledge.hardware.table import find

        one, other = find(str(from_file), every=True), find(str(stated), every=True)
        return not one or not other or bool({gpu.id for gpu in one} & {gpu.id for gpu in other})
    if name == "gpu_memory":
        from shardguide.knowledge.hardware.memory import parse_memory

        read, said = parse_memory(from_file), parse_memory(stated)
        # Drivers report a little less than the vendor's figure, in either reading.
        return any(0.94 * b <= a <= 1.01 * b for a in (read.decimal, read.binary) for b in (said.decimal, said.binary))
    if name == "torch":  # "2.5" and "2.5.1+cu124" are no contradiction: the plan is for a minor release
        return _minor(from_file) == _minor(stated)
    return bool(from_file == stated)


def _minor(release: Any) -> list[str]:
    return str(release).strip().removeprefix("v").partition("+")[0].split(".")[:2]


def _conflict(field: Field, stated: Any, fact: FileFact) -> Question:
    where = fact.where.removeprefix("file:")
    return Question(
        field.name,
        f"You say {field.name.replace('_', ' ')} is {stated}, {where} says {fact.value}: which holds?",
        "The plan would be made for one of them; correct the option or leave the file out.",
        (str(stated), str(fact.value)),
    )


def _checks(a: Mapping[str, Answer]) -> list[tuple[tuple[str, ...], str]]:
    """Counts that do not go together: their names and what is wrong."""
    gpus, nodes, tp, size = (a[name].value if name in a else 0 for name in ("gpus", "nodes", "tp", "shard_size"))
    wrong: list[tuple[tuple[str, ...], str]] = []
    if gpus and nodes:
        try:
            check_counts(gpus, nodes)
        except UnusableInput as error:
            return [(("gpus", "nodes"), str(error))]
    if gpus and tp and gpus % tp:
        text = f"--tp {tp} does not divide --gpus {gpus}; tensor parallelism needs equal groups."
        wrong.append((("gpus", "tp"), text))
    elif gpus and nodes and tp and (gpus // nodes) % tp:
        count = "one GPU" if gpus == nodes else f"{gpus // nodes} GPUs"
        each = f"--tp {tp} does not divide the {count} of a node; tensor-parallel groups must stay within one."
        wrong.append((("gpus", "nodes", "tp"), each))
    elif size and gpus and (gpus // (tp or 1)) % size:
        ranks = gpus // (tp or 1)
        text = f"--shard-size {size} does not divide the {'one data-parallel rank' if ranks == 1 else f'{ranks} data-parallel ranks'}."
        wrong.append((("gpus", "tp", "shard_size"), text))
    return wrong


def counts(gathered: Gathered, per_node: FileFact | None) -> Gathered:
    """The answers with counts that divide. ``per_node``: how many GPUs a report shows on one host.

    Raises UnusableInput for counts that contradict each other when the user said them all. Where a file or the notebook
    has a part in it, that answer is left out and asked for, with where it came from.
    """
    answers, conflicts = dict(gathered.answers), list(gathered.conflicts)
    wrong = _checks(answers)
    while wrong:
        names, text = wrong[0]
        said = [name for name in names if name in answers]
        doubtful = [name for name in said if answers[name].source == "notebook"] or [
            name for name in said if answers[name].source != "user"
        ]
        if not doubtful:
            raise UnusableInput(text)
        name = doubtful[-1]
        origin = answers[name].source.removeprefix("file:")
        where = "was remembered" if origin == "notebook" else f"is from {origin}"
        ask = f"{text} {name} {answers[name].value} {where}: what is it?"
        why = "The counts must go together; state it, or leave the file out."
        conflicts.append(Question(name, ask, why))
        del answers[name]
        wrong = _checks(answers)
    shown = _shown(answers, per_node)
    return Gathered(answers, (*conflicts, *shown))


def _shown(answers: Mapping[str, Answer], per_node: FileFact | None) -> tuple[Question, ...]:
    """More GPUs of a node as stated than a report shows on one host; fewer are only noted (``partly``)."""
    if per_node is None or "gpus" not in answers or "nodes" not in answers:
        return ()
    gpus, nodes = answers["gpus"].value, answers["nodes"].value
    if gpus <= nodes * per_node.value:
        return ()
    where = per_node.where.removeprefix("file:")
    shows = f"{where} shows {per_node.value} on one host"
    ask = f"{gpus} GPUs on {nodes} node{'s' if nodes > 1 else ''} are {gpus // nodes} a node, {shows}: which holds?"
    why = (
        "A host has no more GPUs than its report shows: correct the number of GPUs or of nodes, or leave the file out."
    )
    choices = (str(gpus // per_node.value),) if gpus % per_node.value == 0 else ()
    return (Question("nodes", ask, why, choices),)


def partly(gathered: Gathered, per_node: FileFact | None) -> tuple[str, ...]:
    """A note where fewer GPUs of a host are used than a report shows, which is as legitimate as it is easily a slip."""
    gpus, nodes = gathered.value("gpus"), gathered.value("nodes")
    if per_node is None or not gpus or not nodes or gpus >= nodes * per_node.value:
        return ()
    where = per_node.where.removeprefix("file:")
    used = f"{gpus // nodes} of the {per_node.value} GPUs that {where} shows on one host"
    on = "one node" if nodes == 1 else f"each of {nodes} nodes"
    return (f"The plan uses {used}, on {on}; its launch command names that many, and the others stay free.",)


def ask(field: Field) -> Question:
    """The field's question, for what is neither known nor given."""
    return Question(field.name, field.ask, field.why, field.choices)
