"""Sizes of GPU memory as people and tools write them.

"80GB" is 80 x 10^9 bytes to a vendor and 80 GiB to most who type it. Both readings are kept: a plan is refused only
when it exceeds the larger one, and both are shown.
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple

# Powers of the decimal and of the binary reading (SI and IEC 80000-13).
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SMALLEST = 64 << 20  # 64 MiB: below this nobody means a GPU
_LARGEST = 64 << 40  # 64 TiB: far above any GPU, so that a slip of the keyboard is caught


class Memory(NamedTuple):
    """A stated size with its two readings, in bytes; they are the same where the unit leaves no doubt (MiB, bytes)."""

    text: str  # as stated
    decimal: int  # read with powers of 1000
    binary: int  # read with powers of 1024: the larger reading

    @property
    def exact(self) -> bool:
        """Whether the unit leaves no doubt."""
        return self.decimal == self.binary

    @property
    def limit(self) -> int:
        """Bytes that must be exceeded before a plan is refused: the larger reading."""
        return self.binary

    def __str__(self) -> str:
        """Both readings, for people."""
        if self.exact:
            return f"{self.text} ({gib(self.binary)})"
        return f"{self.text} ({gib(self.decimal)} if GB is meant, {gib(self.binary)} if GiB is meant)"


def gib(size: int) -> str:
    """Bytes as GiB with two decimals, e.g. ``74.51 GiB``."""
    return f"{size / 2**30:.2f} GiB"


def mib(count: int) -> Memory:
    """A total as nvidia-smi and torch print it, in MiB."""
    return Memory(f"{count} MiB", count << 20, count << 20)


def parse_memory(text: str) -> Memory:
    """The size that ``text`` states: ``80GB``, ``80 GiB``, ``81559MiB``, ``80g``, ``85520809984`` (bytes).

    Raises UnusableInput for anything that is not a plausible size of one GPU's memory.
    """
    stated = text.strip()
    shown = repr(stated[:40])
    hint = "write it like 80GB, 80GiB or 81559MiB"
    if not 0 < len(stated) <= 32 or not stated.isascii():
        raise UnusableInput(f"{shown} is not a size of GPU memory; {hint}.")
    body = stated.lower().replace(" ", "").replace("_", "")
    end = next((at for at, letter in enumerate(body) if letter.isalpha()), len(body))
    digits, unit = body[:end], body[end:]
    for suffix in ("bytes", "byte", "b"):
        if unit.endswith(suffix):
            unit = unit[: -len(suffix)]
            break
    binary_only = unit.endswith("i")
    prefix = unit[:-1] if binary_only else unit
    whole, dot, fraction = digits.replace(",", "").partition(".")
    if prefix not in _POWERS or not whole.isdigit() or (dot and not fraction.isdigit()) or (binary_only and not prefix):
        raise UnusableInput(f"{shown} is not a size of GPU memory; {hint}.")
    power = _POWERS[prefix]
    scale = 10 ** len(fraction)
    number = int(whole + fraction)  # at most 32 digits, as the text is
    binary = number * 1024**power // scale
    decimal = binary if binary_only or not power else number * 1000**power // scale
    if not power and binary < _SMALLEST:
        raise UnusableInput(f"{shown} has no unit; {hint}.")
    if not _SMALLEST <= binary <= _LARGEST:
        raise UnusableInput(f"{shown} is not a plausible size of one GPU's memory; {hint}.")
    return Memory(stated, decimal, binary)
