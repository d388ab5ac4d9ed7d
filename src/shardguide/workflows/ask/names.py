"""Names of the API in a question: functions and methods, options of torchrun, environment variables."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import api, releases

MOST = 12  # names that are looked up
SHOWN = 2  # of them
MANY = 12  # names with the same ending: a word as common as that means none of them


class Named(NamedTuple):
    """A name that the index of the API has."""

    asked: str  # as it stands in the question
    name: str  # "torch.distributed.fsdp.FSDPModule.reshard", "--nproc-per-node", "TORCH_NCCL_BLOCKING_WAIT"; "" where several are meant


def named(tokens: tuple[str, ...], release: str) -> list[Named]:
    """The names that exist, those with one meaning first."""
    minor = releases.nearest(release) or releases.NEWEST
    found = []
    for token in tokens[:MOST]:
        asked = token.strip(".")
        if asked.startswith("--"):
            option = asked.replace("_", "-")
            if api.option(option, minor):
                found.append(Named(asked, option))
        elif asked.isupper():
            if api.variable(asked, minor):
                found.append(Named(asked, asked))
        elif ends := api.ending(asked.rpartition(".")[2]):
            found.append(Named(asked, _one(asked, ends, minor)))
    return sorted(found, key=lambda one: not one.name)


def _one(asked: str, ends: list[str], minor: str) -> str:
    """The one object of the release that is meant, by the name that the documentation uses; "" where there are several."""
    tail = asked.removeprefix("dist.").removeprefix("dcp.")
    meant = [name for name in ends if name == tail or name.endswith(f".{tail}")]
    objects: dict[str, str] = {}
    for name in sorted(meant, key=len) if len(meant) <= MANY else ():
        entry = api.entry(name, minor)
        if entry is not None:
            objects.setdefault(entry.name, entry.name if entry.name in meant else name)
    return next(iter(objects.values())) if len(objects) == 1 else ""
