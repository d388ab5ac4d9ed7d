"""Blocks on a terminal, by rich: colour, tables that fit the window, highlighted code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text as Styled

from shardguide.guidance.hints import Any, TextIO

from .blocks import MARKS, Block, Code, Heading, Items, Pairs, Table, Text, Title
from .plain import wrap
from .safe import lines, one_line

_STYLES = {"passed": "green", "failed": "bold red", "unknown": "yellow", "open": "yellow", "": ""}


def _pairs(block: Pairs) -> Grid:
    grid = _indented()
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column()
    for label, text, mark in block.rows:
        grid.add_row(Styled(MARKS[mark], _STYLES[mark]), Styled(f"{label}  "), Styled(one_line(text, 4000)))
    return grid


def _indented() -> Grid:
    """A borderless grid whose first column is the indentation, or what stands in it.

    No grid here has padding, for rich would wrap every cell in an object for it: a tenth of a page's time.
    """
    grid = Grid(box=None, padding=0, show_header=False, pad_edge=False)
    grid.add_column(no_wrap=True, width=3)
    return grid


def _items(block: Items, console: Console) -> None:
    """A list; it has no style, so what takes one column a character is wrapped here: long lists cost rich too much."""
    room = console.width - 4
    items = [one_line(item, 4000) for item in block.rows]
    if all(cell_len(item) == len(item) and max(map(len, item.split()), default=0) <= room for item in items):
        for item in items:
            console.file.write("\n    ".join(wrap(item, room)).join(("  - ", "\n")))
        return
    grid = Grid(box=None, padding=0, show_header=False, pad_edge=False)
    grid.add_column(no_wrap=True, width=4)
    grid.add_column()
    for item in items:
        grid.add_row(Styled("  -"), Styled(item))
    console.print(grid)


def _table(block: Table) -> Grid:
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    grid.add_column(width=0)
    for i, column in enumerate(block.columns):
        grid.add_column(
            column, justify="left" if i == 0 else "right", no_wrap=i == 0
        )  # a narrow window takes from the others
    for row in block.rows:
        grid.add_row("", *(Styled(one_line(cell)) for cell in row))
    return grid


class _Trimmed:
    """A stream whose lines end where their words end: rich fills the last column of a grid up to the window's edge."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(_BLANKS.sub(r"\1", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


_BLANKS = re.compile(r" +((?:\x1b\[[\d;]*m)*)(?=\n)")  # before the end of a line, colours set back or not


def _columns(stream: TextIO) -> int:
    """Of the window, by COLUMNS or by the terminal itself; 0 where neither says it."""
    said = os.environ.get("COLUMNS", "")
    if said.isdigit() and int(said):
        return int(said)
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def show(blocks: Iterable[Block], stream: TextIO) -> None:
    """Print the page on ``stream``; rich itself respects NO_COLOR and the width of the window."""
    trimmed = _Trimmed(stream)
    console = Console(file=trimmed, highlight=False, emoji=False, markup=False, soft_wrap=False)  # type: ignore[arg-type]
    if console.is_dumb_terminal:  # of such a one rich asks no size
        console.width, console.height = (
            _columns(stream) or console.width,
            25,
        )  # without a height it would ask again, in vain
    if console.width < 20:  # COLUMNS=0, or a window too narrow for a label and a word: rich would print nothing
        console.width = 80
    console.size = console.size  # else rich asks the terminal again for every line
    for block in blocks:
        if isinstance(block, Title):
            console.print(Styled(one_line(block.text, 2000), "bold"))
        elif isinstance(block, Heading):
            console.print()
            console.print(Styled(one_line(block.text), "bold cyan"))
        elif isinstance(block, Text):
            grid = _indented()
            grid.add_row("", Styled(one_line(block.text, 4000)))
            console.print(grid)
        elif isinstance(block, Items):
            _items(block, console)
        elif isinstance(block, Pairs):
            console.print(_pairs(block))
        elif isinstance(block, Table):
            console.print(_table(block))
        elif isinstance(block, Code):
            # Unwrapped and unboxed: it is there to be pasted. Highlighting (pygments) would cost more than the plan.
            console.print()
            for line in lines(block.text).rstrip("\n").split("\n"):
                console.print(Styled("    " + line, "green"), soft_wrap=True)
