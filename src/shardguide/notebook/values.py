"""What may be remembered: plain JSON of bounded size."""

from __future__ import annotations

import json
import time

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any

MAX_NAME = 100  # characters
MAX_VALUE = 64 * 1024  # bytes of JSON
MAX_RESULT = 16 * 1024 * 1024  # bytes of JSON
MAX_ANSWERS = 1000  # per project
MAX_TEXT = 8192  # characters of a note, a source or a project's path
SHORTEST_ID = 4  # digits of an id that a person types
LONGEST_ID = 64
ID_DIGITS = frozenset("0123456789abcdef")
_DEPTH = 4  # lists in lists


def now(fine: bool = False) -> str:
    """The time in UTC, to the second; or to the microsecond, where what came last is found by it."""
    seconds, rest = divmod(time.time_ns() // 1000, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + (f".{rest:06}Z" if fine else "Z")


def checked_name(name: object) -> str:
    """An answer's name; any printable text will do."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise UnusableInput(f"{str(name)[:40]!r} cannot name an answer: 1 to {MAX_NAME} printable characters.")
    return name


def checked_id(identity: object) -> str:
    """An id as Guidance makes them."""
    if (
        not isinstance(identity, str)
        or not SHORTEST_ID <= len(identity) <= LONGEST_ID
        or not ID_DIGITS.issuperset(identity)
    ):
        raise UnusableInput(f"{str(identity)[:80]!r} is no id of a guidance.")
    return identity


def checked_text(text: object, what: str) -> str:
    """A note, a source or a unit."""
    if not isinstance(text, str) or len(text) > MAX_TEXT or not _encodable(text):
        raise UnusableInput(f"{what} must be text of at most {MAX_TEXT} characters.")
    return text


def encode(name: str, value: Any) -> str:
    """JSON of a scalar or a list of such; anything else is refused."""
    _check(name, value, _DEPTH)
    text = dump(value)
    if len(text) > MAX_VALUE:
        raise UnusableInput(f"The answer for {name} is too long to be remembered: at most {MAX_VALUE} bytes.")
    return text


def _check(name: str, value: Any, depth: int) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        if not _encodable(value):
            raise UnusableInput(f"The answer for {name} holds bytes that are no text.")
    elif isinstance(value, int):
        if value.bit_length() > 256:
            raise UnusableInput(f"The answer for {name} is not a plausible number.")
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise UnusableInput(f"The answer for {name} must be a finite number.")
    elif isinstance(value, (list, tuple)) and depth > 0:
        for item in value:
            _check(name, item, depth - 1)
    else:
        raise UnusableInput(f"The answer for {name} must be a number, text, true or false, or a list of these.")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def dump(value: Any) -> str:
    """Compact JSON in ASCII, which no encoding can break."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def same_answer(one: str, other: str) -> bool:
    """Whether two records, as JSON, answer the same thing alike: where an input was known from, and what leads on, is no part of that."""
    return bool(_answer(json.loads(one)) == _answer(json.loads(other)))


def _answer(record: Any) -> Any:
    if not isinstance(record, dict):
        return record
    kept = {name: value for name, value in record.items() if name not in ("next", "approval", "understood")}
    answers = kept.get("answers")
    if isinstance(answers, dict):
        kept["answers"] = {name: one.get("value") if isinstance(one, dict) else one for name, one in answers.items()}
    release = kept.get("torch")
    if isinstance(release, dict):
        kept["torch"] = {name: value for name, value in release.items() if name != "known_from"}
    return kept
