"""Bytes of a log, chunk by chunk, whatever it is compressed with: memory stays the same however long it is."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any

CHUNK = 1 << 22  # 4 MiB: large enough that a chunk's fixed costs vanish, small enough to stay in memory many times over
LINE = 1 << 20  # a longer line is cut into pieces of this many bytes
# What a compressed file may grow to: a log compresses 10 to 30 times, a bomb a thousand times.
RATIO = 400
FREE = 1 << 28  # up to here no ratio is looked at
# Text that somebody pasted into a conversation: what "-" stands for while it is set, in the place of standard input.
PASTED: ContextVar[bytes | None] = ContextVar("PASTED", default=None)
# Told how many bytes were read, piece by piece, where somebody shows progress; it may raise to end the reading.
WATCH: ContextVar[Callable[[int], None] | None] = ContextVar("WATCH", default=None)


def chunks(path: str) -> Iterator[bytes]:
    """The file in pieces that end with a line, decompressed and without UTF-16.

    ``-`` is standard input, or text that was pasted (``PASTED``).

    Raises UnusableInput for a file that cannot be read, is cut off in compression, or is a bomb.
    """
    raw = _decoded(_expanded(path, _raw(path)))
    rest = b""
    for piece in raw:
        data = rest + piece if rest else piece
        end = data.rfind(b"\n") + 1
        if not end:
            if len(data) < LINE:
                rest = data
                continue
            end = len(data)
        rest = data[end:]
        yield data[:end]
    if rest:
        yield rest


def _raw(path: str) -> Iterator[bytes]:
    try:
        if path == "-":
            pasted = PASTED.get()
            if pasted is not None:
                yield pasted
                return
            while piece := sys.stdin.buffer.read(CHUNK):
                yield piece
            return
        watch = WATCH.get()
        with opened(path) as file:
            while piece := file.read(CHUNK):
                if watch is not None:
                    watch(len(piece))
                yield piece
    except OSError as error:
        raise UnusableInput(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from None


def opened(path: str) -> Any:
    """The file, open for reading bytes; a URL's through fsspec."""
    if "://" in path:
        from ..remote import opened as fetched
        from ..remote import scheme

        if scheme(path):
            return fetched(path)
    return open(path, "rb", buffering=0)  # noqa: PTH123 - closed by the caller; a path may be one of millions


def _expanded(path: str, raw: Iterator[bytes]) -> Iterator[bytes]:
    first = next(raw, b"")
    make = _expander(path, first[:6])
    if make is None:
        if first:
            yield first
        yield from raw
        return
    expander = make()
    taken = given = 0
    piece: bytes | None = first
    try:
        while piece is not None:
            taken += len(piece)
            while piece:
                out, piece = expander.feed(piece)
                given += len(out)
                if given > FREE and given > RATIO * taken:
                    raise UnusableInput(f"{path} expands to more than {RATIO} times its size; it is not read further.")
                if out:
                    yield out
            piece = next(raw, None)
        if not expander.whole:
            raise UnusableInput(f"{path} is cut off: its compressed data ends too early.")
    except (zlib.error, ValueError, EOFError, OSError) as error:
        raise UnusableInput(f"{path} is damaged: {error}.") from None
    except Exception as error:  # lzma's and zstandard's own errors, which are no OSErrors
        if type(error).__name__ in ("LZMAError", "ZstdError"):
            raise UnusableInput(f"{path} is damaged: {error}.") from None
        raise


def _expander(path: str, magic: bytes) -> Any:
    if magic.startswith(b"\x1f\x8b"):
        return _Gzip
    if magic.startswith(b"\xfd7zXZ\x00"):
        return _Xz
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return lambda: _Zstd(path)
    return None


class _Gzip:
    """Members one after the other, as gzip files appended to each other are."""

    def __init__(self) -> None:
        self.one = zlib.decompressobj(31)
        self.whole = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """At most a chunk of output, and the input that is left for the next call."""
        if self.one.eof:
            if not data.startswith(b"\x1f\x8b"):
                return b"", b""  # padding after the last member
            self.one = zlib.decompressobj(31)
        out = self.one.decompress(data, CHUNK)
        self.whole = self.one.eof
        return out, self.one.unused_data if self.one.eof else self.one.unconsumed_tail


class _Xz:
    """One stream, and those appended to it."""

    def __init__(self) -> None:
        import lzma

        self.make: Callable[[], Any] = lambda: lzma.LZMADecompressor(memlimit=1 << 28)
        self.one = self.make()
        self.whole = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """At most a chunk of output, and the input that is left for the next call."""
        if self.one.eof:
            self.one = self.make()
        out = self.one.decompress(data, CHUNK)
        while not self.one.eof and not self.one.needs_input and len(out) < CHUNK:
            out += self.one.decompress(b"", CHUNK)
        self.whole = self.one.eof
        return out, self.one.unused_data if self.one.eof else b""


class _Zstd:
    """Frames one after the other."""

    def __init__(self, path: str) -> None:
        try:
            import zstandard
        except ImportError:
            raise UnusableInput(
                f"{path} is compressed with zstd, which needs the zstandard package: pip install zstandard, or unpack it first."
            ) from None
        self.make: Callable[[], Any] = lambda: zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        self.one = self.make()
        self.whole = False
        self.piece = 64

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """A piece of output, and the input that is left for the next call."""
        if self.one.eof:
            self.one = self.make()
        # This decompressor gives all that its input holds at once, so the pieces grow only while little comes of them.
        piece = self.piece
        out = self.one.decompress(data[:piece])
        self.piece = max(64, piece >> 2) if len(out) > CHUNK >> 2 else min(1 << 14, piece << 1)
        self.whole = self.one.eof
        return out, self.one.unused_data + data[piece:] if self.one.eof else data[piece:]


def _decoded(raw: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-16, as some shells redirect output, becomes UTF-8; everything else stays as it is."""
    first = next(raw, b"")
    mark = first[:2]
    if mark not in (b"\xff\xfe", b"\xfe\xff"):
        if first:
            yield first
        yield from raw
        return
    import codecs

    decoder = codecs.getincrementaldecoder("utf-16-le" if mark == b"\xff\xfe" else "utf-16-be")("replace")
    yield decoder.decode(first[2:]).encode("utf-8", "replace")
    for piece in raw:
        yield decoder.decode(piece).encode("utf-8", "replace")
