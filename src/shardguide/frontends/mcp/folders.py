# ruff: noqa: PTH112
# (os.path as in the rest of the product)
"""Which files a client may have read: those under the folders that were given when the server was started."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.readers.files import shown

# Arguments that name files of the user's.
PATHS = ("paths", "files", "from", "measured", "code", "current", "tp_plan")


class Outside(PermissionError):
    """A file that only a link brings into the folders."""


_FENCED: ContextVar[tuple[str, ...]] = ContextVar("_FENCED", default=())
_NOTE: ContextVar[Callable[[str], None] | None] = ContextVar("_NOTE", default=None)
_READING = frozenset({"open", "os.listdir", "os.scandir"})
# An environment's packages may be links into a cache (uv makes them so); PyTorch is read there, as text.
_PACKAGES = f"{os.sep}site-packages{os.sep}"
_TEXTS = (".py", ".pyi", ".json", ".pth", ".egg-link", "METADATA", "RECORD")
_fence: list[bool] = []


def _look(event: str, args: tuple[Any, ...]) -> None:
    """Of the audit hook: a path that by its name lies below a folder must lie below one in fact."""
    if event not in _READING:
        return
    roots = _FENCED.get()
    path = args[0]
    if not roots or not isinstance(path, (str, bytes)):
        return
    named = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
    if not _below(named, roots) or (_PACKAGES in named and named.endswith(_TEXTS)):
        return
    if not _below(os.path.realpath(named), roots):
        raise Outside(errno.EACCES, "leads out of the folders that may be read", named)
    note = _NOTE.get()
    if note is not None:
        note(named)


def _below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in roots)


class Folders:
    """Real paths of folders; links are resolved, so one that leads out is refused."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self.roots = tuple(os.path.realpath(root) for root in roots)
        for root in self.roots:
            if not os.path.isdir(root):
                raise UnusableInput(f"{shown(root)} is not a folder; --allow takes folders that may be read.")

    @contextmanager
    def fence(self, note: Callable[[str], None] | None = None) -> Iterator[None]:
        """Inside of it, links in the folders lead nowhere else; ``note`` is told each path in them before it is read.

        ``check`` sees what a client names; this sees what is found below it, in folders, by patterns, behind a model's folder.
        """
        if not _fence:
            _fence.append(True)
            sys.addaudithook(_look)
        before, noted = _FENCED.set(self.roots), _NOTE.set(note)
        try:
            yield
        finally:
            _FENCED.reset(before)
            _NOTE.reset(noted)

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments with their paths made absolute. Raises UnusableInput for one outside of the folders."""
        out = dict(arguments)
        for name in PATHS:
            value = out.get(name)
            if isinstance(value, str) and value:
                out[name] = self.inside(value)
            elif isinstance(value, list):
                out[name] = [self.inside(str(one)) for one in value]
        model = out.get("model")
        if isinstance(model, str) and self._is_path(model):
            out["model"] = self.inside(model)
        return out

    def _is_path(self, model: str) -> bool:
        """Whether a model is named by a file: it looks like one, or there is one, here or in the first folder."""
        if "\x00" in model:
            return True
        there = os.path.join(self.roots[0] if self.roots else os.curdir, model)  # noqa: PTH118
        if os.path.lexists(there) or os.path.lexists(model) or model.startswith("~"):
            return True
        from shardguide.workflows.model import is_name

        return os.sep in model and (not is_name(model) or os.path.isdir(os.path.dirname(there)))  # noqa: PTH120

    def inside(self, path: str) -> str:
        """The path, taken from the first folder where it is relative. Raises UnusableInput where it leads elsewhere."""
        if "\x00" in path:
            raise UnusableInput("a path holds no null bytes.")
        if "://" in path:
            raise UnusableInput(f"{shown(path)[:200]}: only files of this machine are read here, no URLs.")
        if path == "-":
            raise UnusableInput("there is no standard input here; pass the text itself as text.")
        if not self.roots:
            raise UnusableInput(
                "no file may be read: this server was started in the root folder; shardguide mcp --allow FOLDER names a folder."
            )
        full = os.path.join(self.roots[0], os.path.expanduser(path))  # noqa: PTH111, PTH118
        real = os.path.realpath(full)
        if not _below(real, self.roots):
            raise UnusableInput(
                f"{shown(path)[:200]} lies outside of the folders that this server may read ({', '.join(map(shown, self.roots))}); "
                "shardguide mcp --allow FOLDER adds one."
            )
        return full if os.pardir in path.split(os.sep) else os.path.normpath(full)  # noqa: PTH206 - .. behind a link
