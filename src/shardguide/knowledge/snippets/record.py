"""Which of the three checks a snippet passed, looked up without doing them again.

A snippet is put together from parts, each in one of a few forms ("mesh=shard", "mesh=replicate+shard", …). The tests parse every
form, compare the names and keywords it uses with the API of every release, and execute combinations over Gloo. What they found is
``data/record.json``; tests/snippets/test_record.py fails when the file says more, or less, than is true. At run time the
answer is a few set operations (no parsing, no API index):

- ``api``: the release lies in the range of every form that the snippet has;
- ``executed``: one bit per run and form. The bits that all forms of the snippet share are the runs of exactly this combination.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from shardguide.guidance.hints import Any
from shardguide.guidance.record import Verified

from .spec import version

_FILE = os.path.join(os.path.dirname(__file__), "data", "record.json")  # noqa: PTH118, PTH120 (pathlib costs 4 ms)
_cache: dict[str, Any] = {}


def table() -> dict[str, Any]:
    """The record: ``runs`` (what each run was), ``forms`` (kind -> form -> [first release, last release, bits of runs])."""
    if not _cache:
        with open(_FILE, encoding="utf-8") as file:  # noqa: PTH123
            _cache.update(json.load(file))
    return _cache


def verified(kind: str, forms: Iterable[str], release: str) -> Verified:
    """The checks that a snippet of these forms passed for a release.

    ``executed`` says how: for exactly this combination, or part by part when every pair of its forms ran together.
    """
    record = table()
    known = record["forms"].get(kind, {})
    entries = [known.get(form) for form in forms]
    if not entries or any(entry is None for entry in entries):
        return Verified(parses=True, api=False, executed="")
    wanted = version(release)
    api = all(_pair(first) <= wanted <= _pair(last) for first, last, _ in entries)
    masks = [int(bits, 16) for _, _, bits in entries]
    together = masks[0]
    for mask in masks:
        together &= mask
    if together:
        run = record["runs"][together.bit_length() - 1]
        return Verified(True, api, f"{run['torch']}, {_processes(run['world'])}, Gloo, CPU")
    if all(masks) and all(a & b for i, a in enumerate(masks) for b in masks[i + 1 :]):
        run = record["runs"][masks[0].bit_length() - 1]
        return Verified(
            True, api, f"{run['torch']}, Gloo, CPU: each of its parts with each other one, not all of them in one run"
        )
    return Verified(True, api, "")


def _pair(release: str) -> tuple[int, int]:
    first, _, second = release.partition(".")
    return int(first), int(second)


def _processes(world: int) -> str:
    return f"{world} processes" if world > 1 else "1 process"
