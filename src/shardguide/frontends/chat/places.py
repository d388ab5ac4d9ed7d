# ruff: noqa: PTH123
# (os.path as in the rest of the product)
"""Where a conversation is kept: each process has a place of its own in its project, so that two at once keep both."""

from __future__ import annotations

import os
import time

from shardguide.guidance.hints import Any
from shardguide.notebook import Notebook, talks


def _started(process: int) -> str:
    """When a process was started, in the kernel's clock; "" where that cannot be read (no /proc) or there is none."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
            return file.read(4096).rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


class Place:
    """The place of this process in a project's conversations."""

    def __init__(self, notebook: Notebook, project: str) -> None:
        self.notebook, self.project = notebook, project
        self.name = f"{project}//{int(time.time() * 1000)}-{os.getpid()}"
        self.mine = {"process": os.getpid(), "started": _started(os.getpid())}

    def keep(self, state: dict[str, Any] | None) -> None:
        """Keep where the conversation stands; None ends it."""
        self.notebook.keep_conversation(self.name, None if state is None else {**state, "by": self.mine})

    def drop(self, name: str) -> None:
        """Let another place go."""
        self.notebook.keep_conversation(name, None)

    def open(self) -> list[tuple[str, Any]]:
        """What was left open by processes that are no more, the latest first."""
        return [(name, state) for name, state in talks.conversations(self.notebook, self.project) if not _alive(state)]


def _alive(state: Any) -> bool:
    by = state.get("by") if isinstance(state, dict) else None
    if not isinstance(by, dict) or not by.get("started") or by.get("process") == os.getpid():
        return False
    return bool(_started(int(by.get("process") or 0)) == by["started"])
