"""The files under review as one project: who imports what from whom, re-exports and aliases included."""

from __future__ import annotations

import ast
import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.readers.files import read_text, shown

from ..syntax import parse
from .records import Problem

LIMIT = 4 << 20  # bytes of one file
FILES = 20_000
_SKIP = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", ".git", ".venv", "venv"})
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
        "classes",
        "functions",
        "imports",
        "path",
        "stars",
        "text",
        "tree",
        "values",
    )

    def __init__(self, path: str, base: str, text: str, tree: ast.Module) -> None:
        self.path = path  # as the user gave it
        self.base = base  # absolute, without .py; a package's own name for its __init__
        self.text = text
        self.tree = tree
        self._lines: list[bytes] | None = None
        self._nodes: set[int] | None = None
        self.imports: dict[str, str] = {}
        self.stars: list[str] = []
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.values: dict[str, ast.expr] = {}  # names of the module bound once to an expression
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        self.imports.setdefault(alias.asname, alias.name)
                    else:
                        self.imports.setdefault(alias.name.partition(".")[0], alias.name.partition(".")[0])
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.append(module)
                    else:
                        joined = f"{module}{'' if module.endswith('.') else '.'}{alias.name}"
                        self.imports.setdefault(alias.asname or alias.name, joined)
        self._define(tree.body)

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

    def holds(self, node: ast.AST) -> bool:
        """Whether a node is one of this file's."""
        if self._nodes is None:
            self._nodes = {id(inner) for inner in ast.walk(self.tree)}
        return id(node) in self._nodes

    def source(self, node: ast.AST, limit: int = 80) -> str:
        """An expression as it is written, on one line, shortened."""
        found = ast.get_source_segment(self.text, node) or ""
        words = " ".join(found.split())
        return words if len(words) <= limit else f"{words[: limit - 1]}…"


class Project:
    """All files of one review."""

    def __init__(self) -> None:
        self.files: list[File] = []
        self.problems: list[Problem] = []
        self.read = 0  # lines
        self.skipped = 0  # files without anything to look at
        self._by_base: dict[str, File] = {}
        self._modules: dict[tuple[str, str], File | None] = {}
        self._names: dict[tuple[int, str], str | Definition] = {}

    def add(self, path: str) -> None:
        """Read one file; what cannot be read becomes a problem."""
        where = shown(path)
        try:
            text = read_text(path, LIMIT).replace("\r\n", "\n").replace("\r", "\n")
            self.read += text.count("\n") + (not text.endswith("\n"))
            passes_on = path.endswith("__init__.py") and "import" in text
            if not passes_on and not any(mark in text for mark in _MARKS):
                self.skipped += 1
                return
            tree = parse(text, where)
        except UnusableInput as error:
            words = str(error)
            place = words.partition(", line ")[2].partition(":")[0]
            why = words.removeprefix(where).lstrip(":, ")
            if words.startswith(f"{where}, line "):
                why = words.partition(": ")[2]
            self.problems.append(Problem(path, int(place) if place.isdigit() else 0, why))
            return
        base = os.path.abspath(path).removesuffix(".py")  # noqa: PTH100 - pathlib costs more than the whole start
        if base.endswith(os.sep + "__init__"):
            base = base[: -len(os.sep) - 8]
        try:
            file = File(path, base, text, tree)
        except RecursionError:
            self.problems.append(Problem(path, 0, "nested too deeply to be read."))
            return
        self.files.append(file)
        self._by_base[base] = file

    def module(self, dotted: str, user: File) -> File | None:
        """The project's file that an import of ``dotted`` in ``user`` means; None for a module from elsewhere."""
        folder = os.path.dirname(user.base)  # noqa: PTH120
        if dotted.startswith("."):
            level = len(dotted) - len(dotted.lstrip("."))
            if user.path.endswith("__init__.py"):
                folder = user.base
            for _ in range(level - 1):
                folder = os.path.dirname(folder)  # noqa: PTH120
            rest = dotted[level:]
            return self._by_base.get(f"{folder}{os.sep}{rest.replace('.', os.sep)}" if rest else folder)
        key = (folder, dotted)
        if key not in self._modules:
            found, tail = None, dotted.replace(".", os.sep)
            while found is None and folder and folder != os.path.dirname(folder):  # noqa: PTH120
                found = self._by_base.get(folder + os.sep + tail) or self._by_base.get(
                    f"{folder}{os.sep}src{os.sep}{tail}"
                )
                folder = os.path.dirname(folder)  # noqa: PTH120
            self._modules[key] = found
        return self._modules[key]

    def resolve(self, file: File, dotted: str, depth: int = _DEPTH) -> str | Definition:
        """What a dotted name of a file means: a definition of the project, or the full name of something from elsewhere ("")."""
        key = (id(file), dotted)
        known = self._names.get(key)
        if known is None:
            known = self._names[key] = self._resolve(file, dotted, depth)
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
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def collect(paths: tuple[str, ...]) -> tuple[list[str], list[Problem]]:
    """The Python files among paths and folders, in order. Raises UnusableInput for a path that does not exist."""
    found: list[str] = []
    problems: list[Problem] = []
    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112
            if not os.path.exists(path):  # noqa: PTH110
                raise UnusableInput(f"{shown(path)}: there is no such file or folder.")
            found.append(path)
            continue
        for folder, below, names in os.walk(path):
            below[:] = sorted(name for name in below if name not in _SKIP and not name.startswith("."))
            found.extend(os.path.join(folder, name) for name in sorted(names) if name.endswith(".py"))  # noqa: PTH118
            if len(found) > FILES:
                raise UnusableInput(f"{shown(path)}: more than {FILES} Python files; name a folder further down.")
    if not found:
        raise UnusableInput("there is no Python file in what was handed over.")
    return list(dict.fromkeys(found)), problems
