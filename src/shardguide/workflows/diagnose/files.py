"""Which files belong to a request, and what kind each is, by its first bytes."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from itertools import islice

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.readers.files import shown
from shardguide.readers.heads import is_report, is_snapshot, is_stacks, is_stats, is_trace
from shardguide.readers.remote import scheme

MOST_FILES = 200_000  # of one request: 10,240 ranks with several files each
MOST_DEEP = 12
# What is no log, whatever stands in it: code, weights, pictures.
_ENDINGS = ".py .pyc .so .o .a .safetensors .bin .pth .ckpt .gguf .onnx .npy .npz .parquet .arrow .png .jpg .pdf .mp4 .whl .tar"
_SKIPPED = frozenset(_ENDINGS.split())


class Input(NamedTuple):
    """One file of the request."""

    path: str
    kind: str  # "log", "flight recorder", "memory snapshot", "memory stats", "trace", "stacks" or "report"
    named: bool  # named by the user, not found in a folder


def collect(paths: Iterable[str]) -> tuple[list[Input], list[str]]:
    """The files of the request and what was left aside, each with the reason. Folders are walked, globs expanded.

    Raises UnusableInput for a path that leads nowhere, and where nothing that can be read is left.
    """
    found: list[Input] = []
    left: list[str] = []
    for path in paths:
        if path == "-":
            found.append(Input("-", "log", named=True))
            continue
        if "\x00" in path:
            raise UnusableInput(f"{shown(path)} is not a path.")
        if "://" in path and scheme(path):
            _fetched(path, found, left)
        elif os.path.isdir(path):  # noqa: PTH112
            _walk(path, found, left)
        elif os.path.exists(path):  # noqa: PTH110
            _take(path, found, left, named=True)
        else:
            matches = sorted(islice(_matching(path), MOST_FILES)) if glob.has_magic(path) else []
            if not matches:
                raise UnusableInput(f"{shown(path)} does not exist.")
            for match in matches:
                if os.path.isdir(match):  # noqa: PTH112
                    _walk(match, found, left)
                else:
                    _take(match, found, left, named=False)
        if len(found) > MOST_FILES or len(left) > MOST_FILES:
            raise UnusableInput(f"more than {MOST_FILES:,} files; name a smaller folder.")
    if not found:
        why = f": {left[0]}" if left else ""
        raise UnusableInput(f"there is no log or dump among what was named{why}.")
    return found, left


def _matching(pattern: str) -> Iterator[str]:
    """The paths that match. ``**`` stands for any folders below, but follows no links, which may lead in circles."""
    head, deep, tail = pattern.partition("**" + os.sep)
    if not deep:
        yield from glob.iglob(pattern)  # noqa: PTH207
        return
    wanted = tail.split(os.sep)  # noqa: PTH206
    for root in glob.iglob(head) if head else [""]:  # noqa: PTH207
        for folder, _, names in os.walk(root or os.curdir):
            for name in names:
                path = os.path.join(folder, name)  # noqa: PTH118
                parts = path.split(os.sep)[-len(wanted) :]  # noqa: PTH206
                if len(parts) == len(wanted) and all(map(fnmatch, parts, wanted)):
                    yield path if root else os.path.normpath(path)


def _walk(folder: str, found: list[Input], left: list[str]) -> None:
    base = folder.rstrip(os.sep).count(os.sep)
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        if root.count(os.sep) - base >= MOST_DEEP:
            folders[:] = []
        for name in sorted(names):
            if not name.startswith("."):
                _take(os.path.join(root, name), found, left, named=False)  # noqa: PTH118
            if len(found) > MOST_FILES or len(left) > MOST_FILES:
                return


def _take(path: str, found: list[Input], left: list[str], named: bool) -> None:
    ending = os.path.splitext(path)[1].lower()  # noqa: PTH122
    if ending in _SKIPPED and not named:
        left.append(f"{shown(path)}: no log by its name")
        return
    try:
        if not os.path.isfile(path):  # noqa: PTH113
            left.append(f"{shown(path)}: not a plain file")
            return
        with open(path, "rb") as file:  # noqa: PTH123
            head = file.read(4096)
    except OSError as error:
        if named:
            raise UnusableInput(f"{shown(path)} cannot be read: {(error.strerror or str(error)).lower()}.") from None
        left.append(f"{shown(path)}: {(error.strerror or str(error)).lower()}")
        return
    _sort(path, head, found, left, named)


def _fetched(url: str, found: list[Input], left: list[str]) -> None:
    """What a URL stands for."""
    from shardguide.readers import remote

    urls = remote.listed(url, MOST_FILES)
    if not urls:
        raise UnusableInput(f"{shown(url)} has no files.")
    for one in urls:
        if os.path.splitext(one)[1].lower() in _SKIPPED and one != url:  # noqa: PTH122
            left.append(f"{shown(one)}: no log by its name")
            continue
        with remote.opened(one) as file:
            head = file.read(4096)
        _sort(one, head, found, left, named=one == url)


def _sort(path: str, head: bytes, found: list[Input], left: list[str], named: bool) -> None:
    if not head:
        left.append(f"{shown(path)}: empty")
        return
    kind = kind_of(head)
    if not kind:
        if named:
            raise UnusableInput(f"{shown(path)} is binary, and no dump that Shardguide knows.")
        left.append(f"{shown(path)}: binary")
        return
    found.append(Input(path, kind, named))


def kind_of(head: bytes) -> str:
    """What the first bytes say: the kind of an Input, "" for what is not read. Text that is nothing else is a log."""
    from shardguide.readers.flight_recorder import is_dump

    if head.startswith(b"\x1f\x8b"):
        inside = _unpacked(head)
        kind = "log" if inside.startswith(b"\x1f\x8b") else kind_of(inside)  # an archive can unpack to itself
        return kind if kind in ("memory snapshot", "trace", "stacks", "report") else "log"
    packed = (b"\xff\xfe", b"\xfe\xff", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")
    if head.startswith(packed):
        return "log"
    if is_snapshot(head):
        return "memory snapshot"
    if is_trace(head):
        return "trace"
    if is_dump(head):
        return "flight recorder"
    if is_stats(head):
        return "memory stats"
    if is_stacks(head):
        return "stacks"
    if is_report(head):
        return "report"
    if head[:1] == b"\x80":
        return ""
    # NULs are what a crash or a network file system leaves in a log that was being written.
    written = len(head) - head.count(0)
    text = sum(byte >= 32 or byte in (9, 10, 13, 27, 8, 7, 12) for byte in head)
    return "log" if written and text >= 0.95 * written else ""  # of random bytes 90 % pass


def _unpacked(head: bytes) -> bytes:
    """The first bytes of what is compressed with gzip."""
    import zlib

    try:
        return zlib.decompressobj(31).decompress(head, 4096)
    except zlib.error:
        return b""
