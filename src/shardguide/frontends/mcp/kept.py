# ruff: noqa: PTH116
# (os.path as in the rest of the product)
"""The last long results of a server: their later parts are handed out as they are, without working them out again."""

from __future__ import annotations

import json
import os

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.sha import sha256

from .bounded import Cut, part

_MOST = 8  # results
_BYTES = 8 << 20  # of all of them together, as JSON
_FILES = 5_000  # files and folders that one result may rest on


class Seen:
    """The files and folders of the user's that a result was read from, as they were when each was opened."""

    def __init__(self, notebook: str = "") -> None:
        self.notebook = notebook  # which is written all the time
        self.state: dict[str, tuple[int, ...] | None] = {}

    def note(self, path: str) -> None:
        """Called before a path is opened or listed."""
        if path not in self.state and path != self.notebook and len(self.state) <= _FILES:
            self.state[path] = _state(path)

    def unchanged(self) -> bool:
        """Whether all of it is as it was."""
        return len(self.state) <= _FILES and all(_state(path) == state for path, state in self.state.items())


def _state(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)


class _Result(NamedTuple):
    """A result as JSON texts, whose size is known."""

    head: str
    bodies: list[str]
    seen: Seen

    @property
    def size(self) -> int:
        return len(self.head) + sum(map(len, self.bodies))


class Results:
    """What was answered last, by what was asked."""

    def __init__(self) -> None:
        self._kept: dict[str, _Result] = {}  # the oldest first

    def keep(self, key: str, whole: Cut, seen: Seen) -> None:
        """Keep a result of several parts; the oldest go where there is no more room."""
        self._kept.pop(key, None)
        if len(whole.bodies) < 2 or not seen.unchanged():
            return
        made = _Result(json.dumps(whole.head), [json.dumps(one) for one in whole.bodies], seen)
        if made.size > _BYTES:
            return
        self._kept[key] = made
        while len(self._kept) > _MOST or sum(one.size for one in self._kept.values()) > _BYTES:
            del self._kept[next(iter(self._kept))]

    def part(self, key: str, number: int) -> dict[str, Any] | None:
        """One part of a result. None where it is not kept, or rests on files that have changed since."""
        found = self._kept.get(key)
        if found is None:
            return None
        if not found.seen.unchanged():
            del self._kept[key]
            return None
        bodies: list[dict[str, Any]] = [{} for _ in found.bodies]
        if number <= len(bodies):
            bodies[number - 1] = json.loads(found.bodies[number - 1])
        return part(Cut(json.loads(found.head), bodies), number)


def key_of(session: str, tool: str, arguments: dict[str, Any]) -> str:
    """What a result is kept by."""
    given = {name: value for name, value in arguments.items() if value is not None}
    return sha256(json.dumps([session, tool, given], sort_keys=True).encode()).hexdigest()
