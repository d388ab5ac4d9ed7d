"""A model size in words: ``7b``, ``70 billion``, ``405e9``, ``7241732096``."""

from __future__ import annotations

import re

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple

from .files import shown

# A thousand times the largest published model; a bare number below a thousand is a forgotten suffix ("7" for "7b").
LARGEST = 10**16
SMALLEST = 1000

_SIZE = re.compile(
    r"(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?:_[0-9]{3})+|[0-9]{1,24})(?:\.(?P<part>[0-9]{1,24}))?"
    r"(?:e\+?(?P<exponent>[0-9]{1,2}))?\s*(?P<unit>(?!param)[a-z]*)\s*(?:params?|parameters?)?",
    re.IGNORECASE | re.ASCII,
)
_POWERS = {
    "": 0,
    "k": 3, "thousand": 3,
    "m": 6, "mio": 6, "million": 6, "millions": 6,
    "b": 9, "bn": 9, "billion": 9, "billions": 9,
    "t": 12, "tn": 12, "trillion": 12, "trillions": 12,
}  # fmt: skip


class StatedSize(NamedTuple):
    """A number of parameters as the user put it; nothing else is known of the model."""

    text: str  # exactly as given, e.g. "7b"
    parameters: int
    rounded: bool  # True: a short form such as "7b", which no model has to the unit; False: every digit was given


def looks_stated(text: str) -> bool:
    """Whether ``text`` begins like a size, so that a mistake in it deserves the sentence about sizes."""
    return bool(re.match(r"\s*[-+]?(?:[0-9]|inf|nan)", text, re.IGNORECASE | re.ASCII)) and "/" not in text


def read_stated(text: str) -> StatedSize:
    """The number of parameters that ``text`` states.

    Worked out in whole numbers, so ``1.5b`` is exactly 1500000000. Raises UnusableInput for anything else, and for
    numbers that no model has.
    """
    text = text.strip()
    found = _SIZE.fullmatch(text) if len(text) <= 80 else None
    if found is None or found["unit"].lower() not in _POWERS:
        raise UnusableInput(f"{shown(text)!r} is not a model size; write for example 7b, 350m, 1.5b or 7241732096.")
    whole, part = found["whole"].replace(",", "").replace("_", ""), (found["part"] or "").rstrip("0")
    power = _POWERS[found["unit"].lower()] + int(found["exponent"] or 0) - len(part)
    if power < 0:
        raise UnusableInput(f"{shown(text)!r} is not a whole number of parameters; write for example 1500000000.")
    parameters = int(whole + part) * 10**power
    if parameters > LARGEST:
        raise UnusableInput(f"{shown(text)!r} would be more than {LARGEST} parameters, which no model has.")
    if parameters < SMALLEST:
        hint = f"; write {parameters}b for billions" if parameters else ""
        raise UnusableInput(f"{shown(text)!r} would be a model of {parameters} parameters{hint}.")
    return StatedSize(text, parameters, bool(found["unit"] or found["exponent"] or found["part"]))
