"""The choices of a question, held against what is known: none is offered that the next call would refuse."""

from __future__ import annotations

from shardguide.guidance.record import Question

from .gather import Gathered
from .hardware import Hardware, kind, refused_link

_SHOWN = 4  # choices of a count


def fitting(question: Question, gathered: Gathered, found: Hardware) -> Question:
    """The question with the choices that go with the answers so far."""
    gpus, nodes, tp = (gathered.value(name, 0) for name in ("gpus", "nodes", "tp"))
    choices: tuple[str, ...] = question.choices
    if question.id == "nodes" and gpus:
        choices = _kept(choices, [n for n in _divisors(gpus) if not gpus // n % (tp or 1)])
    elif question.id == "gpus" and nodes:
        choices = tuple(str(nodes * (tp or 1) * each) for each in (1, 2, 4, 8))
    elif question.id == "shard_size" and gpus:
        ranks = gpus // (tp or 1)
        choices = _kept(choices, [n for n in _divisors(ranks) if 1 < n < ranks])
    elif question.id == "intra" and found.device:
        choices = tuple(one for one in choices if not refused_link(one, found.name, found.device, found.partition))
    elif question.id == "gpu" and found.device and not found.gpus:
        choices = _of_kind(choices, found.device)
    return question._replace(choices=choices)


def _divisors(count: int) -> list[int]:
    """Ascending; enough of them are small, so that no large number is taken apart."""
    return [n for n in range(1, min(count, 1024) + 1) if not count % n]


def _kept(choices: tuple[str, ...], possible: list[int]) -> tuple[str, ...]:
    """The usual ones where all can be, else the first that can."""
    words = tuple(str(one) for one in possible)
    return choices if set(choices) <= set(words) else words[:_SHOWN]


def _of_kind(choices: tuple[str, ...], device: str) -> tuple[str, ...]:
    """GPUs of that kind of device: the usual ones, else the first of the table."""
    usual = tuple(one for one in choices if kind(one) in ("", device))
    if usual:
        return usual
    from shardguide.knowledge.hardware.table import gpus

    return tuple(row.name for row in gpus() if row.device == device)[:_SHOWN]
