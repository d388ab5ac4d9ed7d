"""Blocks as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from .blocks import Block, Code, Heading, Items, Pairs, Table, Text, Title
from .safe import lines, one_line

# Characters that would start Markdown or HTML of their own in text that comes from the user's files.
_ESCAPE = {ord(char): "\\" + char for char in "\\`*[]<>|"}


def _text(text: str) -> str:
    return one_line(text, 4000).translate(_ESCAPE)


def _code(block: Code) -> list[str]:
    # A fence longer than any run of backticks in the text, so that the text cannot end it.
    fence = "```"
    while fence in block.text:
        fence += "`"
    return ["", fence + block.language, *lines(block.text).rstrip("\n").split("\n"), fence]


def render(blocks: Iterable[Block]) -> str:
    """The page as Markdown, ending with a newline."""
    out: list[str] = []
    for block in blocks:
        if isinstance(block, Title):
            out.append(f"# {_text(block.text)}")
        elif isinstance(block, Heading):
            out.extend(["", f"## {_text(block.text)}", ""])
        elif isinstance(block, Text):
            out.extend([_text(block.text), ""])
        elif isinstance(block, Items):
            out.extend(f"- {_text(item)}" for item in block.rows)
        elif isinstance(block, Pairs):
            for label, text, mark in block.rows:
                state = f" ({mark})" if mark else ""
                out.append(f"- **{_text(label)}**{state}: {_text(text)}")
        elif isinstance(block, Table):
            out.append("| " + " | ".join(_text(cell) for cell in block.columns) + " |")
            out.append("|" + "|".join([" --- ", *[" ---: "] * (len(block.columns) - 1)]) + "|")
            out.extend("| " + " | ".join(_text(cell) for cell in row) + " |" for row in block.rows)
            out.append("")  # or the next line would be a row
        elif isinstance(block, Code):
            out.extend(_code(block))
    return "\n".join(out) + "\n"
