# ruff: noqa: PTH118, PTH120
# (pathlib costs more at start-up than the whole guard)
"""Which files may be written: the notebook, and what the user approved."""

from __future__ import annotations

import os

# SQLite's own files beside the notebook.
DATABASE = ("-journal", "-wal", "-shm")
# Beside a file that is written: its new content before it is moved into place, and the copy kept of the old one.
REWRITE = (".shardguide-tmp", ".bak")

# Writing to these changes nothing on disk.
_DEVICES = frozenset({os.devnull, "/dev/tty", "/dev/stdout", "/dev/stderr"})


def real(path: str, follow: bool) -> str:
    """The path with every symbolic link resolved; the last component's own link only where the call follows it."""
    head, tail = os.path.split(path.rstrip(os.sep) or os.sep)
    if follow or tail in ("", os.curdir, os.pardir):
        return os.path.realpath(path)
    return os.path.join(os.path.realpath(head or os.curdir), tail)


class Approved:
    """Real paths that may be written. A folder stands for everything below it."""

    def __init__(self) -> None:
        # Replaced, never changed in place: the hook reads it from any thread.
        self.roots: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def add(self, path: str, companions: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]]:
        """Approve a file or folder, existing or not, with the files beside it that end like this; returns the entry."""
        root = os.path.realpath(path)
        if root == os.path.dirname(root):
            raise ValueError("The root of the file system cannot be approved as a whole.")
        entry = (root, companions)
        self.roots = (*self.roots, entry)
        return entry

    def remove(self, entry: tuple[str, tuple[str, ...]]) -> None:
        """Take back one approval."""
        roots = list(self.roots)
        roots.remove(entry)
        self.roots = tuple(roots)

    def covers(self, path: str, follow: bool = True) -> bool:
        """Whether writing to the path is approved, with its links resolved now."""
        if path in _DEVICES:
            return True
        if not self.roots:
            return False
        target = real(path, follow)
        for root, companions in self.roots:
            if target == root or target.startswith(root + os.sep):
                return True
            if target.startswith(root) and target[len(root) :] in companions:
                return True
        return False

    def leads_to(self, path: str) -> bool:
        """Whether the folder lies above an approved path, so that making it is part of the approval."""
        target = real(path, follow=False) + os.sep
        return any(root.startswith(target) for root, _ in self.roots)
