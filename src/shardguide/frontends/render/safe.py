"""Text from the user's files, made safe to print: it is data and must not steer a terminal or a reader."""

from __future__ import annotations

# Everything below space, DEL, C1 controls, and the characters that reorder or hide text (Unicode bidi controls, zero
# width, line and paragraph separators).
_HIDDEN = [*range(0x20), 0x7F, *range(0x80, 0xA0), 0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F),
           *range(0x2060, 0x2070), 0xFEFF]  # fmt: skip
_TABLE = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _HIDDEN}
KEEP_LINES = {code: text for code, text in _TABLE.items() if code not in (0x0A, 0x09)}


def one_line(text: str, limit: int = 600) -> str:
    """``text`` on one line with control and bidi characters shown as escapes, cut at ``limit`` characters."""
    clean = text.replace("\n", " ").translate(_TABLE)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def lines(text: str) -> str:
    """Like one_line, for text whose line breaks and tabs are meant."""
    return text.translate(KEEP_LINES)


def json_text(text: str) -> str:
    """JSON whose hidden characters are escapes of JSON, which every reader takes for the same text."""
    return text.translate({code: f"\\u{code:04x}" for code in _HIDDEN if code > 0x1F})
