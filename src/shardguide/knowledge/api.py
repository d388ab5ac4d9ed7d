"""The API of every PyTorch release: which public names exist, and how they are called.

``data/api.json`` is written by ``scripts/build_api.py`` from the releases' own wheels.
"""

from __future__ import annotations

from shardguide.guidance.hints import Any
from shardguide.knowledge import releases
from shardguide.knowledge.lines import Lines

_lines = Lines("api.json")


def names() -> list[str]:
    """Every name in the index, whatever releases it is in."""
    return _lines.keys()


def exists(name: str, release: str) -> bool:
    """Whether a public dotted name, such as ``torch.distributed.fsdp.FSDPModule.reshard``, is in a release.

    False also for a name that the index doesn't cover: it covers the distributed packages and what goes with them.
    """
    return _entry(name, release) is not None


def signature(name: str, release: str) -> tuple[tuple[str, str | None], ...] | None:
    """How a function, method or class is called in a release: ``(parameter, default)`` in order, without ``self``.

    A default is source text; None means that the parameter is required. ``("*", None)`` starts the keyword-only
    parameters, ``("/", None)`` ends the positional-only ones, ``*args`` and ``**kwargs`` keep their stars. None for a name
    that does not exist, is not called (a module, a constant, an enumeration), or whose signature is not written in Python.
    """
    entry = _entry(name, release)
    if entry is None or entry.get("call") is None:
        return None
    return tuple((item[0], item[1] if len(item) > 1 else None) for item in entry["call"])


def deprecated(name: str, release: str) -> str:
    """What the ``@deprecated`` decorator of a name says in a release; "" for none."""
    entry = _entry(name, release)
    return str(entry.get("deprecated", "")) if entry else ""


def since(name: str) -> str:
    """The releases that have a name, as ranges: ``"2.6-2.15"``; "" for a name that the index doesn't cover."""
    variants = _lines.get(name)
    if not variants:
        return ""
    found = [minor for minor in releases.known() if any(releases.within(minor, item["in"]) for item in variants)]
    return releases.ranges(found)


def _entry(name: str, release: str) -> dict[str, Any] | None:
    for variant in _lines.get(name) or ():
        if releases.within(release, variant["in"]):
            return dict(variant)
    return None
