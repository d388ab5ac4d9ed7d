"""Blocks as plain text, for pipes and files: no colour, no terminal library to load."""

from __future__ import annotations

import os
from collections.abc import Iterable

from .blocks import MARKS, Block, Code, Heading, Items, Pairs, Table, Text, Title
from .safe import lines, one_line

WIDTH = 100


def wrap(text: str, width: int) -> list[str]:
    """Words of ``text`` on lines of at most ``width`` columns (textwrap costs a regex compilation at import)."""
    out: list[str] = []
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            out.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*out, line] if line or not out else out


def _pairs(block: Pairs, width: int) -> list[str]:
    marked = any(mark for _, _, mark in block.rows)
    label_width = max(len(label) for label, _, _ in block.rows)
    out = []
    for label, text, mark in block.rows:
        lead = f"  {MARKS[mark] + ' ' if marked else ''}{label:<{label_width}}  "
        wrapped = wrap(one_line(text, 4000), max(20, width - len(lead)))
        out.append(lead + wrapped[0])
        out.extend(" " * len(lead) + more for more in wrapped[1:])
    return out


def _table(block: Table, width: int) -> list[str]:
    """Columns side by side; where the page is too narrow for them, the widest are wrapped between words, if that helps."""
    rows = [[one_line(cell) for cell in row] for row in (block.columns, *block.rows)]
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    fits = sum(least) + 2 * len(least) <= width  # else wrapping would help nobody
    while fits and sum(widths) + 2 * len(widths) > width:
        widest = max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))
        widths[widest] -= 1
    out = []
    for row in rows:
        cells = [wrap(cell, size) for cell, size in zip(row, widths, strict=True)]
        for at in range(max(map(len, cells))):
            line = [cell[at] if at < len(cell) else "" for cell in cells]
            parts = [
                one.rjust(size) if i else one.ljust(size)
                for i, (one, size) in enumerate(zip(line, widths, strict=True))
            ]
            out.append(("  " + "  ".join(parts)).rstrip())
    return out


def render(blocks: Iterable[Block], width: int = 0) -> str:
    """The page as text, ending with a newline."""
    width = width or min(
        WIDTH,
        max(40, int(os.environ.get("COLUMNS", "") or WIDTH) if os.environ.get("COLUMNS", "").isdigit() else WIDTH),
    )
    out: list[str] = []
    for block in blocks:
        if isinstance(block, Title):
            out.extend(wrap(one_line(block.text, 2000), width))
        elif isinstance(block, Heading):
            out.extend(["", one_line(block.text)])
        elif isinstance(block, Text):
            out.extend(f"  {line}".rstrip() for line in wrap(one_line(block.text, 4000), width - 2))
        elif isinstance(block, Items):
            for item in block.rows:
                wrapped = wrap(one_line(item, 4000), width - 4)
                out.extend([f"  - {wrapped[0]}", *(f"    {more}" for more in wrapped[1:])])
        elif isinstance(block, Pairs):
            out.extend(_pairs(block, width))
        elif isinstance(block, Table):
            out.extend(_table(block, width))
        elif isinstance(block, Code):
            out.extend(["", *(f"    {line}" if line else "" for line in lines(block.text).rstrip("\n").split("\n"))])
    return "\n".join(out) + "\n"
