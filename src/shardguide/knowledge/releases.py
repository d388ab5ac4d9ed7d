"""The PyTorch releases that the knowledge covers.

``data/releases.json`` is written by ``scripts/build_api.py`` from the releases' own wheels: for each minor release its
patches and the import path of FSDP2's ``fully_shard``.
"""

from __future__ import annotations

import re

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge.lines import Lines

NEWEST = "2.15"
OLDEST = "2.0"

_lines = Lines("releases.json")


def known() -> tuple[str, ...]:
    """Every minor release covered, oldest first: ``("2.0", ..., "2.15")``."""
    return tuple(_lines.keys())


def minor(version: str) -> str:
    """``"2.13.0+cu126"`` -> ``"2.13"``; "" where it is no version. Says nothing about whether it exists."""
    parts = version.strip().removeprefix("v").split("+")[0].split(".")
    if not version.isascii() or len(parts) < 2 or not parts[0].isdigit() or not parts[1].isdigit():
        return ""
    return f"{int(parts[0])}.{int(parts[1])}"


def normalise(version: str) -> str:
    """The minor release that a version belongs to, for a version that exists.

    ``"2.13"``, ``"2.13.0"``, ``"v2.13.0"``, ``"2.13.0+cu126"`` -> ``"2.13"``. Builds made between releases
    (``2.14.0.dev20260801``, ``2.14.0a0+git1f2e3d4``, ``2.14.0rc1``) count as the release that they lead to.

    Raises:
        UnusableInput: not a version, before 2.0, or a release or patch that does not exist.
    """
    name = minor(version)
    if not name:
        raise UnusableInput(f"{version[:40]!r} is not a PyTorch release; write it like 2.13 or 2.13.0.")
    entry = _lines.get(name)
    if entry is None:
        major = int(name.split(".")[0])
        if major < 2:
            raise UnusableInput(f"PyTorch {name} is older than 2.0, the first release that Shardguide covers.")
        raise UnusableInput(f"There is no PyTorch {name} among the releases known here ({OLDEST} to {NEWEST}).")
    form = re.fullmatch(r"v?\d+\.\d+(?:\.(\d+)((?:a|b|rc)\d+)?(\.dev\d+)?)?(?:\+[\w.]+)?", version.strip())
    if form:
        patch, before, nightly = form.groups()
        if patch is None or before or nightly or f"{name}.{int(patch)}" in entry["patches"]:
            return name
    patches = ", ".join(entry["patches"])
    raise UnusableInput(f"There is no PyTorch {version.strip()[:40]}; of {name} there are: {patches}.")


def nearest(version: str) -> str:
    """The covered release whose index answers for a version: its own, else the newest for a later one; "" before 2.0.

    For a PyTorch found installed that is newer than this knowledge; a version that a user states goes through normalise().
    """
    name = minor(version)
    if not name or _order(name) < _order(OLDEST):
        return ""
    return name if _lines.get(name) is not None else NEWEST


def fsdp2_path(version: str) -> str:
    """The module from which that release exports FSDP2's ``fully_shard``; "" where it has none (2.0 to 2.2)."""
    entry = _lines.get(nearest(version))
    return str(entry["fsdp2"]) if entry else ""


def within(version: str, ranges: str) -> bool:
    """Whether a version lies in ranges such as ``"2.3-2.5, 2.8-2.15"``; a version past NEWEST counts as NEWEST."""
    name = nearest(version)
    if not name:
        return False
    at = _order(name)
    for part in ranges.split(", ") if ranges else ():
        first, _, last = part.partition("-")
        if _order(first) <= at <= _order(last or first):
            return True
    return False


def ranges(names: list[str], all_names: tuple[str, ...] = ()) -> str:
    """Minor releases as ranges over all that there are: ``["2.3", "2.4", "2.6"]`` -> ``"2.3-2.4, 2.6"``."""
    order = list(all_names or known())
    at = sorted(order.index(name) for name in names)
    runs: list[list[int]] = []
    for index in at:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(order[a] if a == b else f"{order[a]}-{order[b]}" for a, b in runs)


def _order(name: str) -> tuple[int, int]:
    first, second = name.split(".")
    return int(first), int(second)
