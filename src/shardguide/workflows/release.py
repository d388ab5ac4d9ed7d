"""Which PyTorch release an answer is for, and which PyTorch at hand is opened to check it."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Question, Release
from shardguide.installed.find import installed
from shardguide.knowledge import releases

from .fields import TORCH


class Resolved(NamedTuple):
    """The release, its minor as numbers ((0, 0) if unknown) and what has to be asked."""

    release: Release
    minor: tuple[int, int]
    build: str  # "cpu", "cuda 12.6", …; "" when no PyTorch is at hand
    questions: tuple[Question, ...] = ()


def resolve(
    stated: str | None, site_packages: str | None, remembered: str | None, handed: tuple[str, str] | None = None
) -> Resolved:
    """What was said, else what a report handed over now states, else what is found installed, else what was remembered.

    ``handed`` is the release that a report states and where. With none of them it is a question.

    Raises UnusableInput for a release that does not exist.
    """
    found = installed(site_packages)
    wanted = stated or (handed[0] if handed else None) or (remembered if not found else None)
    if wanted:
        name = releases.normalise(wanted)
        at_hand = [item for item in found if releases.minor(item.version) == name]
        known_from = "user" if stated else handed[1] if handed else "notebook"
        if at_hand:
            release = Release(at_hand[0].version.partition("+")[0], known_from, at_hand[0].path)
            return Resolved(release, _pair(name), at_hand[0].build)
        return Resolved(Release(wanted.strip().removeprefix("v").partition("+")[0], known_from), _pair(name), "")
    minors = sorted({releases.minor(item.version) for item in found})
    if len(minors) > 1:
        where = "; ".join(f"{item.version} in {item.path}" for item in found)
        ask = f"Several PyTorch releases are at hand ({where}): which one do you train with?"
        question = Question("torch", ask, TORCH.why, tuple(minors))
        return Resolved(Release("", "unknown"), (0, 0), "", (question,))
    if found:
        name = releases.nearest(found[0].version)
        if name:
            release = Release(found[0].version.partition("+")[0], f"installed:{found[0].path}", found[0].path)
            return Resolved(release, _pair(name), found[0].build)
    return Resolved(Release("", "unknown"), (0, 0), "", (Question("torch", TORCH.ask, TORCH.why, TORCH.choices),))


def _pair(name: str) -> tuple[int, int]:
    major, minor = name.split(".")
    return int(major), int(minor)
