"""Numbers for people."""

from __future__ import annotations


def size(count: int | None) -> str:
    """Bytes in the largest binary unit that keeps one whole; "?" for what is not known."""
    if count is None:
        return "?"
    for unit, step in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= step:
            return f"{count / step:.2f} {unit}"
    return f"{count} B"


def ranks(first: int, last: int) -> str:
    """``0-7``, or a single rank."""
    return str(first) if first == last else f"{first}-{last}"
