"""Jupyter notebooks: the code cells as one module whose lines and columns are those of the cells.

Magics and shell lines are blanked out, so that the rest parses. Each string of the JSON keeps its place in the file, so
that a fix can be made there and nowhere else.
"""

from __future__ import annotations

import ast
import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.readers.files import read_text, shown

from ..syntax import parse
from .project import _MARKS as MARKS
from .project import File, Project
from .records import Problem
from .splice import spliced

LIMIT = 32 << 20  # bytes; pictures in the outputs make them large
_TIMERS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%debug")  # the rest of such a cell is Python
_SHELLS = ("%%bash", "%%sh", "%%script bash", "%%script sh")
_STARTS = ("%", "!", "?")


class Piece(NamedTuple):
    """One string of a cell's source: its place in the JSON text and what it says."""

    start: int
    end: int
    text: str


class Cell(NamedTuple):
    """A code cell."""

    number: int  # from 1, all cells counted
    first: int  # its first line in the joined code, from 1
    size: int  # lines
    pieces: tuple[Piece, ...]


class Notebook(NamedTuple):
    """A notebook as read."""

    path: str
    json: str
    cells: tuple[Cell, ...]

    def place(self, line: int) -> tuple[int, int]:
        """The number of the cell and the line in it of a line of the joined code."""
        for cell in self.cells:
            if cell.first <= line < cell.first + cell.size:
                return cell.number, line - cell.first + 1
        return 0, line

    def file_line(self, line: int) -> int:
        """The line of the notebook's own text in which a line of the joined code begins."""
        for cell in self.cells:
            if cell.first <= line < cell.first + cell.size:
                left = line - cell.first
                for piece in cell.pieces:
                    if left <= 0:
                        return self.json.count("\n", 0, piece.start) + 1
                    left -= piece.text.count("\n")
                return self.json.count("\n", 0, cell.pieces[-1].start) + 1
        return 1


def add(project: Project, path: str) -> tuple[Notebook, str] | None:
    """Read a notebook into the project; also what its cells give to a shell, line by line. None for what is not read."""
    where = shown(path)
    try:
        text = read_text(path, LIMIT)
        cells = _cells(text, where)
    except UnusableInput as error:
        project.problems.append(Problem(path, 0, str(error).removeprefix(where).lstrip(":, ")))
        return None
    if not any(mark in piece.text for mark in (*MARKS, "NCCL_") for _, pieces in cells for piece in pieces):
        project.skipped += 1
        return None
    found: list[Cell] = []
    code: list[str] = []
    commands: list[str] = []
    for number, pieces in cells:
        source = "".join(piece.text for piece in pieces).replace("\r\n", "\n").replace("\r", "\n")
        lines = source.split("\n")
        found.append(Cell(number, len(code) + 1, len(lines), tuple(pieces)))
        plain, shell = _plain(lines)
        problem = _problem(plain)
        if problem is not None:
            project.problems.append(Problem(path, 0, f"cell {number}, line {problem[0]}: {problem[1]}"))
            plain = [""] * len(lines)
        code.extend(plain)
        commands.extend(shell)
    joined = "\n".join(code) + "\n"
    project.read += len(code)
    notebook = Notebook(path, text, tuple(found))
    try:
        tree = parse(joined, where)
        file = File(path, os.path.abspath(path).removesuffix(".ipynb"), joined, tree)  # noqa: PTH100
    except (UnusableInput, RecursionError) as error:
        words = str(error) if isinstance(error, UnusableInput) else "nested too deeply to be read."
        project.problems.append(Problem(path, 0, words.removeprefix(where).lstrip(":, ")))
        return None
    file.book = notebook
    project.files.append(file)
    return notebook, "\n".join(commands) if any(commands) else ""


def _cells(text: str, where: str) -> list[tuple[int, list[Piece]]]:
    """The code cells with the places of their strings. Raises UnusableInput for what is no notebook."""
    reader = _Reader(text)
    try:
        cells, language, old = reader.notebook()
    except (ValueError, IndexError, RecursionError):
        raise UnusableInput(f"{where}: this is not a Jupyter notebook that can be read (its JSON is broken).") from None
    if old:
        raise UnusableInput(f"{where}: a notebook of format 3; save it with a current Jupyter.")
    return cells if language in ("", "python", "Python", "ipython") else []


class _Reader:
    """JSON, read as far as the places of strings are needed; the rest goes through the standard library's decoder."""

    def __init__(self, text: str) -> None:
        import json
        from json.decoder import scanstring  # type: ignore[attr-defined]  # the only reader that says where a string ends

        self.text = text
        self.at = 0
        self.string = scanstring
        self.decode = json.JSONDecoder().raw_decode

    def blank(self) -> str:
        """The next character that is no white space."""
        while self.text[self.at] in " \t\r\n":
            self.at += 1
        return self.text[self.at]

    def keys(self) -> Any:
        """The keys of the object here, each with the reader at its value; the caller moves on behind it."""
        if self.blank() != "{":
            raise ValueError("an object is needed")
        self.at += 1
        while self.blank() != "}":
            if self.text[self.at] == ",":
                self.at += 1
                self.blank()
            key, self.at = self.string(self.text, self.at + 1)
            if self.blank() != ":":
                raise ValueError("a colon is needed")
            self.at += 1
            self.blank()
            yield key
        self.at += 1

    def value(self) -> Any:
        """The value here."""
        found, self.at = self.decode(self.text, self.at)
        return found

    def notebook(self) -> tuple[list[tuple[int, list[Piece]]], str, bool]:
        """The code cells, the language, and whether it is of the old format."""
        cells: list[tuple[int, list[Piece]]] = []
        language, old = "", False
        for key in self.keys():
            if key == "cells":
                self._array(lambda number: self._cell(number, cells))
            else:
                value = self.value()
                if key == "metadata" and isinstance(value, dict):
                    for name, field in (("language_info", "name"), ("kernelspec", "language")):
                        inner = value.get(name)
                        if isinstance(inner, dict) and isinstance(inner.get(field), str):
                            language = language or inner[field]
                old = old or key == "worksheets"
        return cells, language, old

    def _array(self, item: Any) -> None:
        if self.blank() != "[":
            raise ValueError("a list is needed")
        self.at += 1
        number = 0
        while self.blank() != "]":
            if self.text[self.at] == ",":
                self.at += 1
                self.blank()
            number += 1
            item(number)
        self.at += 1

    def _cell(self, number: int, cells: list[tuple[int, list[Piece]]]) -> None:
        kind, pieces = "", []
        for key in self.keys():
            if key == "source" and self.text[self.at] in '["':
                if self.text[self.at] == '"':
                    pieces.append(self._piece())
                else:
                    self._array(lambda _: pieces.append(self._piece()))
            else:
                value = self.value()
                kind = value if key == "cell_type" and isinstance(value, str) else kind
        if kind == "code" and pieces:
            cells.append((number, pieces))

    def _piece(self) -> Piece:
        start = self.at
        if self.text[start] != '"':
            raise ValueError("a string is needed")
        text, self.at = self.string(self.text, start + 1)
        return Piece(start, self.at, text)


def _plain(lines: list[str]) -> tuple[list[str], list[str]]:
    """A cell's lines with what is not Python blanked out, and the lines that a shell gets."""
    none = [""] * len(lines)
    if not any(
        line.lstrip()[:1] in _STARTS or line.rstrip()[-1:] == "?" or "= !" in line or "= %" in line for line in lines
    ):
        return lines, none
    if _parses(lines):
        return lines, none  # the marks stand in strings
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    head = lines[first].strip()
    if head.startswith("%%") and not head.startswith(_TIMERS):
        shell = head.startswith(_SHELLS)
        return none, [*none[: first + 1], *(lines[first + 1 :])] if shell else none
    plain: list[str] = []
    commands: list[str] = []
    goes_on = False
    for line in lines:
        bare = line.lstrip()
        command = ""
        if goes_on or bare[:1] in _STARTS or (bare.rstrip()[-1:] == "?" and "#" not in bare):
            if bare[:1] == "!" or goes_on:
                command = line.replace("!", " ", 1) if not goes_on else line
            plain.append("" if goes_on or bare.startswith("%%") else line[: len(line) - len(bare)] + "pass")
            goes_on = line.rstrip().endswith("\\")
        elif "=" in line and line.partition("=")[2].lstrip()[:1] in ("!", "%"):
            plain.append(line.partition("=")[0] + "= None")
            goes_on = line.rstrip().endswith("\\")
        else:
            plain.append(line)
        commands.append(_filled(command))
    return plain, commands


def _filled(command: str) -> str:
    """A command with what Python fills in marked as a variable."""
    while "{" in command and "}" in command[command.index("{") :]:
        start = command.index("{")
        end = command.index("}", start)
        command = command[:start].removesuffix("$") + "$_" + command[end + 1 :]
    return command


def _parses(lines: list[str]) -> bool:
    try:
        ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _problem(lines: list[str]) -> tuple[int, str] | None:
    """What keeps a cell from being read: the line and why."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse("\n".join(lines) + "\n")
    except SyntaxError as error:
        return error.lineno or 1, f"not valid Python 3 ({(error.msg or 'syntax error')[:80]})."
    except (ValueError, RecursionError, MemoryError):
        return 1, "not valid Python 3, or nested too deeply."
    return None


def reread(path: str) -> Notebook:
    """The notebook as it is now, for fixes. Raises UnusableInput where it cannot be read."""
    text = read_text(path, LIMIT)
    return Notebook(
        path, text, tuple(Cell(number, 0, 0, tuple(pieces)) for number, pieces in _cells(text, shown(path)))
    )


def edited(notebook: Notebook, edits: list[tuple[int, dict[str, Any]]]) -> str | None:
    """The notebook's JSON with edits made, each with the number of its cell; None where that cannot be done exactly."""
    import json

    changes: list[tuple[int, int, str]] = []
    for cell in notebook.cells:
        mine = [edit for number, edit in edits if number == cell.number]
        if not mine:
            continue
        source = "".join(piece.text for piece in cell.pieces)
        if "\r" in source:
            return None
        change = _change(notebook.json, cell, spliced(source, mine), json.dumps)
        if change is None:
            return None
        changes.append(change)
    text = notebook.json
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _change(text: str, cell: Cell, after: str, dumps: Any) -> tuple[int, int, str] | None:
    """The JSON of a cell's new source, written as the old one was."""
    for ascii_ in (False, True):
        if all(dumps(piece.text, ensure_ascii=ascii_) == text[piece.start : piece.end] for piece in cell.pieces):
            break
    else:
        return None
    start, end = cell.pieces[0].start, cell.pieces[-1].end
    between = text[cell.pieces[0].end : cell.pieces[1].start] if len(cell.pieces) > 1 else ""
    if len(cell.pieces) == 1 and text[:start].rstrip()[-1:] != "[":
        return start, end, dumps(after, ensure_ascii=ascii_)
    if not between:
        before = text[:start]
        between = "," + before[len(before.rstrip()) :]
    return start, end, between.join(dumps(line, ensure_ascii=ascii_) for line in after.splitlines(keepends=True))
