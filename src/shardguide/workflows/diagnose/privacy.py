"""What must not leave with a report: secrets, which are always masked, and names of hosts and people, on request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardguide.guidance.hints import Any
from shardguide.guidance.record import Guidance
from shardguide.readers.logs.records import Evidence

from .secret_patterns import SECRETS, TAIL

MASK = "***"
CUT = 900  # characters from where on a line may have been cut

_compiled: list[re.Pattern[str]] = []


def mask(text: str) -> str:
    """The text with every secret in it masked, and with what could steer a terminal or hide from a reader shown as escapes."""
    if not _compiled:
        _compiled.extend(re.compile(pattern) for _, pattern in (*SECRETS, TAIL))
    if not text.isprintable():
        text = "".join(one if one.isprintable() or one in "\n\t" else _escape(one) for one in text)
    for pattern in _compiled if len(text) >= CUT else _compiled[:-1]:
        text = pattern.sub(_masked, text)
    return text


def _escape(one: str) -> str:
    code = ord(one)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _masked(found: re.Match[str]) -> str:
    kept = found.groupdict().get("keep") or ""
    return kept + MASK


def cleaned(value: Any, change: Any) -> Any:
    """The same value with every text in it changed; names of fields stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(cleaned(one, change) for one in value))
    if isinstance(value, (list, tuple)):
        return type(value)(cleaned(one, change) for one in value)
    if isinstance(value, dict):
        return {key: cleaned(one, change) for key, one in value.items()}
    return value


def guarded(guidance: Guidance, logs: Sequence[Evidence], anonymise: bool) -> Guidance:
    """The guidance without the secrets that stand in the user's files, and without names where that was asked for.

    What Shardguide itself says (code, sources) is left as it is.
    """
    parts: dict[str, Any] = {
        name: cleaned(getattr(guidance, name), mask)
        for name in ("facts", "checks", "next", "done", "not_done", "extra")
    }
    if anonymise:
        from .names import Names

        names = Names()
        parts |= {"torch": guidance.torch, "answers": guidance.answers}
        for log in logs:
            for event in log.events:
                names.collect(event.text)
            for row in log.failed:
                names.collect(f"host : {row.host}")
        cleaned(parts, names.collect)
        parts = cleaned(parts, names.replaced)
    return guidance._replace(**parts)
