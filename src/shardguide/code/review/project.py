"""The files under review as one project: who imports what from whom, re-exports and aliases included."""

from __future__ import annotations

import ast
import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, NamedTuple
from shardguide.readers.files import read_text, shown

from ..syntax import parse
from .records import Problem
from .survey import Function, Survey

if TYPE_CHECKING:
    from .notebook import Notebook

LIMIT = 4 << 20  # bytes of one file
_DEPTH = 6  # re-exports followed
_MARKS = ("torch", "accelerate", "RANK")  # a file without any of them has nothing to look at


class Definition(NamedTuple):
    """A function or class of the project."""

    file: File
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    owner: ast.ClassDef | None = None


class File:
    """One parsed file."""

    __slots__ = (
        "_lines",
        "_nodes",
        "base",
        "book",
        "called",
        "calls",
        "classes",
        "constructors",
        "folder",
        "functions",
        "heads",
        "imports",
        "names",
        "path",
        "stars",
        "survey",
        "text",
        "tree",
        "values",
    )

    def __init__(self, path: str, base: str, text: str, tree: ast.Module) -> None:
        self.path = path  # as the user gave it
        self.book: Notebook | None = None  # where the text is that of a notebook's cells
        self.base = base  # absolute, without .py; a package's own name for its __init__
        self.text = text
        self.tree = tree
        self._lines: list[bytes] | None = None
        self._nodes: set[int] | None = None
        self.names: dict[str, str | Definition] = {}  # what dotted names mean, as far as they were asked for
        self.folder = os.path.dirname(base)  # noqa: PTH120
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.values: dict[str, ast.expr] = {}  # names of the module bound once to an expression
        self.survey = survey = Survey(tree)
        self.imports, self.stars = survey.imports, survey.stars
        self.calls, self.called, self.constructors = survey.calls, survey.called, survey.constructors
        self._define(tree.body)
        self.heads = {*self.imports, *self.functions, *self.classes, *self.values}

    def knows(self, name: str) -> bool:
        """Whether a name may be one of this file's own or imported ones; any may that a star import could have brought."""
        return name in self.heads or bool(self.stars)

    def _define(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            elif isinstance(node, (ast.If, ast.Try)):
                self._define(node.body)
                self._define(node.orelse)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.values[node.targets[0].id] = node.value

    @property
    def lines(self) -> list[bytes]:
        """The lines in UTF-8, as ``ast`` counts columns."""
        if self._lines is None:
            self._lines = [line.encode("utf-8", "replace") for line in self.text.split("\n")]
        return self._lines

    def line(self, node: ast.AST) -> int:
        """The line of a node in what lies on disk: of a notebook, that of its JSON."""
        line: int = getattr(node, "lineno", 1)
        return self.book.file_line(line) if self.book is not None else line

    def holds(self, node: ast.AST) -> bool:
        """Whether a node is one of this file's."""
        if self._nodes is None:
            self._nodes = {id(inner) for inner in ast.walk(self.tree)}
        return id(node) in self._nodes

    def source(self, node: ast.AST, limit: int = 80) -> str:
        """An expression as it is written, on one line, shortened."""
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", None) or 0
        if not 0 < first <= last <= len(self.lines):
            return ""
        lines = self.lines[first - 1 : last]
        lines[-1] = lines[-1][: getattr(node, "end_col_offset", None) or 0]
        lines[0] = lines[0][getattr(node, "col_offset", 0) :]
        words = " ".join(b" ".join(lines).decode("utf-8", "replace").split())
        return words if len(words) <= limit else f"{words[: limit - 1]}…"


class Project:
    """All files of one review."""

    def __init__(self) -> None:
        self.files: list[File] = []
        self.problems: list[Problem] = []
        self.read = 0  # lines
        self.release = ""  # for which it is read, "" if unknown
        self.skipped = 0  # files without anything to look at
        self._by_base: dict[str, File] = {}
        self._waiting: dict[str, tuple[str, str]] = {}  # files that are read once somebody imports them
        self._modules: dict[tuple[str, str], File | None] = {}
        self._methods: dict[ast.ClassDef, dict[str, Function]] = {}
        self.inherits: dict[tuple[ast.AST, str], Definition | None] = {}  # see methods.inherited

    def add(self, path: str, named: bool = False) -> None:
        """Read one file; what cannot be read becomes a problem. One without anything to look at waits for being imported."""
        try:
            text = read_text(path, LIMIT).replace("\r\n", "\n").replace("\r", "\n")
        except UnusableInput as error:
            self._problem(path, error)
            return
        self.read += text.count("\n") + (not text.endswith("\n"))
        base = os.path.abspath(path).removesuffix(".py")  # noqa: PTH100 - pathlib costs more than the whole start
        if base.endswith(os.sep + "__init__"):
            base = base[: -len(os.sep) - 8]
        passes_on = path.endswith("__init__.py") and "import" in text
        if passes_on or any(mark in text for mark in _MARKS):
            self._parse(path, base, text)
        elif not named or self._is_python(path, text):
            self.skipped += 1
            if "def " in text:
                self._waiting[base] = (path, text)

    def _is_python(self, path: str, text: str) -> bool:
        """Whether it can be parsed; that it cannot is a problem."""
        try:
            parse(text, shown(path))
        except UnusableInput as error:
            self._problem(path, error)
            return False
        except (RecursionError, MemoryError):
            self.problems.append(Problem(path, 0, "nested too deeply to be read."))
            return False
        return True

    def _parse(self, path: str, base: str, text: str) -> File | None:
        try:
            file = File(path, base, text, parse(text, shown(path)))
        except UnusableInput as error:
            self._problem(path, error)
            return None
        except (RecursionError, MemoryError):
            self.problems.append(Problem(path, 0, "nested too deeply to be read."))
            return None
        self.files.append(file)
        self._by_base[base] = file
        return file

    def _problem(self, path: str, error: UnusableInput) -> None:
        words, where = str(error), shown(path)
        place = words.partition(", line ")[2].partition(":")[0]
        why = words.removeprefix(where).lstrip(":, ")
        if words.startswith(f"{where}, line "):
            why = words.partition(": ")[2]
        self.problems.append(Problem(path, int(place) if place.isdigit() else 0, why))

    def helpers(self) -> None:
        """Read the files that others import, though nothing in them speaks of PyTorch: who is first, and what passes a model on."""
        if not self._waiting:
            return
        for file in self.files:  # it grows on the way
            for full in (*file.imports.values(), *file.stars):
                if full.startswith("torch"):
                    continue
                parts = full.split(".")
                for cut in range(len(parts), 0, -1):
                    if self.module(".".join(parts[:cut]), file) is not None:
                        break

    def methods(self, node: ast.ClassDef) -> dict[str, Function]:
        """The functions right in a class, by name; of two of a name the first."""
        known = self._methods.get(node)
        if known is None:
            known = self._methods[node] = {}
            for item in node.body:
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    known.setdefault(item.name, item)
        return known

    def _at(self, base: str) -> File | None:
        found = self._by_base.get(base)
        if found is None and base in self._waiting:
            path, text = self._waiting.pop(base)
            self.skipped -= 1
            found = self._parse(path, base, text)
        return found

    def module(self, dotted: str, user: File) -> File | None:
        """The project's file that an import of ``dotted`` in ``user`` means; None for a module from elsewhere."""
        folder = user.folder
        if dotted.startswith("."):
            level = len(dotted) - len(dotted.lstrip("."))
            if user.path.endswith("__init__.py"):
                folder = user.base
            for _ in range(level - 1):
                folder = os.path.dirname(folder)  # noqa: PTH120
            rest = dotted[level:]
            return self._at(f"{folder}{os.sep}{rest.replace('.', os.sep)}" if rest else folder)
        key = (folder, dotted)
        if key not in self._modules:
            found, tail = None, dotted.replace(".", os.sep)
            while found is None and folder and folder != os.path.dirname(folder):  # noqa: PTH120
                found = self._at(folder + os.sep + tail) or self._at(f"{folder}{os.sep}src{os.sep}{tail}")
                folder = os.path.dirname(folder)  # noqa: PTH120
            self._modules[key] = found
        return self._modules[key]

    def resolve(self, file: File, dotted: str, depth: int = _DEPTH) -> str | Definition:
        """What a dotted name of a file means: a definition of the project, or the full name of something from elsewhere ("")."""
        names = file.names
        known = names.get(dotted)
        if known is None:
            known = names[dotted] = self._resolve(file, dotted, depth)
        return known

    def _resolve(self, file: File, dotted: str, depth: int) -> str | Definition:
        if depth < 0:
            return ""
        head, _, rest = dotted.partition(".")
        if head in file.functions:
            return Definition(file, file.functions[head]) if not rest else ""
        if head in file.classes:
            return self._member(file, file.classes[head], rest)
        if head in file.imports:
            return self._imported(file, f"{file.imports[head]}.{rest}".rstrip("."), depth)
        value = file.values.get(head)
        if value is not None and isinstance(value, (ast.Name, ast.Attribute)):
            alias = dotted_text(value)
            if alias and alias.partition(".")[0] != head:
                return self.resolve(file, f"{alias}.{rest}".rstrip("."), depth - 1)
        if head not in file.values:
            for module in file.stars:
                if module.startswith("torch"):
                    return f"{module}.{dotted}"
                other = self.module(module, file)
                if other is not None:
                    found = self.resolve(other, dotted, depth - 1)
                    if found:
                        return found
        return ""

    def _member(self, file: File, owner: ast.ClassDef, rest: str) -> str | Definition:
        if not rest:
            return Definition(file, owner)
        for node in owner.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == rest:
                return Definition(file, node, owner)
        return ""

    def _imported(self, file: File, full: str, depth: int) -> str | Definition:
        if full.startswith("torch."):
            return full
        level = len(full) - len(full.lstrip("."))
        parts = full[level:].split(".")
        for cut in range(len(parts), 0, -1):
            other = self.module("." * level + ".".join(parts[:cut]), file)
            if other is not None and (other is not file or cut < len(parts)):
                tail = ".".join(parts[cut:])
                return self.resolve(other, tail, depth - 1) if tail else ""
        if level:
            other = self.module("." * level, file)
            return self.resolve(other, ".".join(parts), depth - 1) if other is not None and other is not file else ""
        return full


def dotted_text(node: ast.AST) -> str:
    """``a.b.c`` as text; "" for anything else."""
    kind = node.__class__
    if kind is ast.Name:
        return node.id  # type: ignore[attr-defined, no-any-return]
    parts: list[str] = []
    while kind is ast.Attribute:
        parts.append(node.attr)  # type: ignore[attr-defined]
        node = node.value  # type: ignore[attr-defined]
        kind = node.__class__
    if kind is not ast.Name:
        return ""
    parts.append(node.id)  # type: ignore[attr-defined]
    parts.reverse()
    return ".".join(parts)
