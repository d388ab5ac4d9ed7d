"""Bounded reading, shared by every reader: a wrong, huge or hostile file is one sentence, never a traceback.

Nothing here follows what a file says; only what the user named is opened, and it is opened for reading.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import ContextVar

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any

MIB = 1 << 20
STDIN = "-"
# Files that exist in a conversation only: what somebody pasted, by the name that it was given there.
HANDED: ContextVar[Mapping[str, bytes]] = ContextVar("HANDED", default={})  # noqa: B039 - never changed in place
# Path and digest of what is read, in its order, while somebody keeps them.
_READ: ContextVar[list[tuple[str, str]] | None] = ContextVar("_READ", default=None)


class noted:
    """``with noted() as read``: every file that is read meanwhile, with what identifies its content, for the id of an answer."""

    def __enter__(self) -> list[tuple[str, str]]:
        read: list[tuple[str, str]] = []
        self._before = _READ.set(read)
        return read

    def __exit__(self, *error: object) -> None:
        _READ.reset(self._before)


# What the first bytes say a file is, and what to hand over instead. None of these is ever unpacked or unpickled.
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive, as torch.save writes it: a pickle, which is never opened here"),
    (b"GGUF", "a GGUF file, made for inference"),
    (b"lmgg", "a GGML file, made for inference"),
    (b"tjgg", "a GGML file, made for inference"),
    (b"\x1f\x8b", "compressed with gzip; unpack it first"),
    (b"\xfd7zXZ\x00", "compressed with xz; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a picture"),
    (b"\x7fELF", "a program"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself; run `git lfs pull` in that folder"),
)


def shown(path: str) -> str:
    """``path`` as it may stand in a sentence: standard input named, control characters escaped, the length bounded."""
    if path == STDIN:
        return "standard input"
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path[:400])
    return text if len(text) <= 200 else f"{text[:90]}…{text[-90:]}"


def quoted(value: object, limit: int = 60) -> str:
    """A value out of a file as it may stand in a sentence: ``repr``, shortened; of a list or object only the kind."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    return text if len(text) <= limit + 2 else f"{text[:limit]}…"


def foreign(head: bytes) -> str:
    """What a binary file is, from its first bytes (64 suffice): "" for text and for what is not known."""
    if head[4:9] == b"\0\0\0\0{":
        return ""  # safetensors: its first bytes are a length, and 640 looks like a pickle's beginning
    for magic, what in _MAGIC:
        if head.startswith(magic):
            return what
    if len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= 5:
        return "a Python pickle, which is never opened here"
    if len(head) > 3 and head[0] == 0x08 and head[1] < 0x20 and head[2] == 0x12:  # ir_version, then producer_name
        return "an ONNX model, made for inference"
    start = head.lstrip()[:15].lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "a web page; download the file itself (its “raw” link)"
    return ""


# pathlib takes longer to import than a config.json takes to read, so paths are handled here, with os.path.


def exists(path: str) -> bool:
    """Whether ``path`` leads to a file or folder; symbolic links are followed."""
    try:
        return "\x00" not in path and os.path.exists(path)  # noqa: PTH110
    except ValueError:
        return False


def lexists(path: str) -> bool:
    """Whether there is anything at ``path``, be it a symbolic link that leads nowhere."""
    try:
        return "\x00" not in path and os.path.lexists(path)
    except ValueError:
        return False


def is_folder(path: str) -> bool:
    """Whether ``path`` leads to a folder."""
    return exists(path) and os.path.isdir(path)  # noqa: PTH112


def inside(folder: str, name: str) -> str:
    """The path of ``name`` in ``folder``."""
    return os.path.join(folder, name)  # noqa: PTH118


def split(path: str) -> tuple[str, str]:
    """The folder and the name in ``path``."""
    return os.path.split(path)


def listing(folder: str) -> list[str]:
    """The names in ``folder``, sorted; raises UnusableInput when it cannot be listed."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError as error:
        raise failure(folder, error) from None


def failure(path: str, error: OSError) -> UnusableInput:
    """The sentence for an operating-system error on ``path``."""
    import errno

    reasons = {
        errno.ENOENT: "there is no such file",
        errno.ENOTDIR: "there is no such file",
        errno.EACCES: "it may not be read with your permissions",
        errno.EPERM: "it may not be read with your permissions",
        errno.EISDIR: "it is a folder, and a file is needed",
        errno.ELOOP: "its symbolic links lead in a circle",
        errno.ENAMETOOLONG: "the name is too long for a file",
    }
    reason = reasons.get(error.errno or 0) or (error.strerror or "it cannot be read").lower()
    return UnusableInput(f"{shown(path)}: {reason}.")


def size_text(count: int) -> str:
    """A number of bytes for a sentence, e.g. ``"4 MiB"``; exact below one MiB."""
    return f"{count} bytes" if count < MIB else f"{count / MIB:.0f} MiB"


def open_binary(path: str) -> tuple[int, int]:
    """A read-only descriptor of a regular file (or a pipe the shell opened) and its size in bytes, -1 for a pipe.

    Raises UnusableInput for anything else: folders, devices, named pipes (which could wait for ever).
    """
    import stat

    if "\x00" in path:
        raise UnusableInput(f"{shown(path)}: a file name cannot hold a zero byte.")
    try:
        # O_NONBLOCK: opening a named pipe that nobody writes to would otherwise never return.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise failure(path, error) from None
    except ValueError:  # surrogates that the file system encoding cannot express
        raise UnusableInput(f"{shown(path)}: that is not a file name this system can express.") from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor, status.st_size
    if stat.S_ISFIFO(status.st_mode) and path.startswith(("/dev/fd/", "/proc/self/fd/", "/dev/stdin")):
        os.set_blocking(descriptor, True)
        return descriptor, -1
    os.close(descriptor)
    what = "a folder" if stat.S_ISDIR(status.st_mode) else "a device, socket or named pipe"
    raise UnusableInput(f"{shown(path)}: this is {what}; hand over a regular file, or - for standard input.")


def read_bytes(path: str, limit: int) -> bytes:
    """The whole file at ``path`` (``-``: standard input), at most ``limit`` bytes.

    Raises UnusableInput when it cannot be read or is larger.
    """
    if path == STDIN:
        import sys

        try:
            data = sys.stdin.buffer.read(limit + 1)
        except (OSError, ValueError, AttributeError):
            raise UnusableInput("standard input cannot be read.") from None
    elif path in HANDED.get():
        data = HANDED.get()[path]
    else:
        descriptor, size = open_binary(path)
        with os.fdopen(descriptor, "rb") as file:
            try:
                data = file.read(limit + 1) if size <= limit else b""
            except OSError as error:
                raise failure(path, error) from None
        if size > limit:
            raise UnusableInput(f"{shown(path)}: {size_text(size)}, but at most {size_text(limit)} are read.")
    if len(data) > limit:
        raise UnusableInput(f"{shown(path)}: larger than {size_text(limit)}, which is the most that is read.")
    read = _READ.get()
    if read is not None:
        from shardguide.guidance.sha import sha256

        read.append((path, sha256(data).hexdigest()))
    return data


def decode(data: bytes, where: str, lossy: bool = False) -> str:
    """``data`` as text: UTF-8 with or without byte order mark, or UTF-16 with one (Windows PowerShell writes that).

    ``where`` is the name in the sentence. ``lossy`` (for logs) replaces what is not UTF-8. Raises UnusableInput for
    binary data, and for other encodings unless ``lossy``.
    """
    what = foreign(data[:64])
    if what:
        raise UnusableInput(f"{where}: this is {what}.")
    try:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            text = data.decode("utf-16", "replace" if lossy else "strict")
        else:
            # "utf-8-sig" would be imported just for this.
            text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace" if lossy else "strict")
    except UnicodeDecodeError as error:
        hint = " (UTF-16 without a byte order mark?)" if b"\x00" in data[:64] else ""
        raise UnusableInput(f"{where}: not UTF-8 text from byte {error.start} on{hint}; save it as UTF-8.") from None
    if "\x00" in text:
        raise UnusableInput(f"{where}: binary data, not text; save it as UTF-8 text.")
    return text


def read_text(path: str, limit: int, lossy: bool = False) -> str:
    """The text of a file: ``read_bytes`` and ``decode``."""
    return decode(read_bytes(path, limit), shown(path), lossy)


def lines(text: str, where: str, limit: int = 1_000_000) -> list[str]:
    """The lines of ``text``, numbered as an editor numbers them; raises UnusableInput above ``limit``."""
    if text.count("\n") > limit:
        raise UnusableInput(f"{where}: more than {limit} lines.")
    return [line.rstrip("\r") for line in text.split("\n")]


class _Refused(ValueError):
    """Raised inside the JSON hooks; its text is the reason."""


def parse_json(text: str, where: str, *, values: int, repeated: list[str] | None = None) -> Any:
    """``text`` as JSON, bounded: at most ``values`` values, no NaN or Infinity, no number of absurd length.

    A key given twice in one object is refused; with ``repeated`` the last one counts, as Python's own parser has it,
    and the keys whose values differ are appended there. Depth is bounded by the parser's recursion limit
    (``check_depth`` bounds it further). Raises UnusableInput.
    """
    import json

    if not text.strip():
        raise UnusableInput(f"{where}: the file is empty.")
    # Every value but the first is announced by one of these, so memory is bounded before anything is built.
    if text.count(",") + text.count("[") + text.count("{") > values:
        raise UnusableInput(f"{where}: more than {values} JSON values, which is more than any such file needs.")

    def integer(digits: str) -> int:
        if len(digits) > 40:
            raise _Refused(f"a number of {len(digits)} digits")
        return int(digits)

    def real(digits: str) -> float:
        value = float(digits) if len(digits) <= 400 else float("inf")
        if value in (float("inf"), float("-inf")):
            raise _Refused("a number too large for a float")
        return value

    def constant(name: str) -> None:
        raise _Refused(f"{name}, which JSON does not have")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            seen: dict[str, Any] = {}
            for key, value in items:
                if key in seen and repeated is None:
                    raise _Refused(f"the key {quoted(key)} twice in one object")
                if repeated is not None and key in seen and seen[key] != value and len(repeated) < 100:
                    repeated.append(key)
                seen[key] = value
        return found

    try:
        return json.loads(text, parse_int=integer, parse_float=real, parse_constant=constant, object_pairs_hook=pairs)
    except _Refused as reason:
        raise UnusableInput(f"{where}: it holds {reason}.") from None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        ended = " (the file seems cut off)" if cut else ""
        raise UnusableInput(f"{where}: not valid JSON, line {error.lineno} column {error.colno}{ended}.") from None
    except RecursionError:
        raise UnusableInput(f"{where}: nested too deeply to be read.") from None


def check_depth(value: Any, where: str, limit: int = 64) -> None:
    """Refuses (UnusableInput) a parsed JSON value that is nested deeper than ``limit`` levels."""
    level = [value]
    for _ in range(limit):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(v for v in item.values() if isinstance(v, (dict, list)))
            elif isinstance(item, list):
                below.extend(v for v in item if isinstance(v, (dict, list)))
        if not below:
            return
        level = below
    raise UnusableInput(f"{where}: nested deeper than {limit} levels.")


def lines_of(text: str) -> list[str]:
    """The lines of a text with their ends, as diff and patch count them: form feeds and Unicode's separators end none."""
    from io import StringIO

    return StringIO(text, newline="\n").readlines()
