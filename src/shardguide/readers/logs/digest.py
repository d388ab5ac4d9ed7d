"""What identifies the bytes of a file: two that differ in a single one never have the same."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput

from .source import CHUNK, opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import blake2b
else:
    try:  # without OpenSSL, which hashlib loads; BLAKE2 reads four times as fast as SHA-256 where the processor has no help for that
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b


def hasher() -> blake2b:
    """A digest of 16 bytes, to be fed."""
    return blake2b(digest_size=16)


def of_file(path: str) -> str:
    """The digest of a whole file as it lies there. Raises UnusableInput where it cannot be read."""
    content = hasher()
    try:
        with opened(path) as file:
            while piece := file.read(CHUNK):
                content.update(piece)
    except OSError as error:
        raise UnusableInput(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from None
    return content.hexdigest()
