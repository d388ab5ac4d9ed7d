# ruff: noqa: PTH100, PTH117, PTH119, PTH120
# (pathlib costs more at start-up than the whole guard)
"""Whose code may be loaded: the standard library's, Shardguide's own and that of its declared dependencies.

A name alone says little, because a user's folder can hold a ``random.py`` of its own; so both the name of a module and
the file that its code comes from are looked at.
"""

from __future__ import annotations

import os
import sys

# Top-level modules of pyproject.toml's dependencies and of what these require themselves.
DEPENDENCIES = frozenset(
    {
        "rich",
        "pygments",
        "markdown_it",
        "mdurl",
        "typing_extensions",
        "yaml",
        "_yaml",
        "zstandard",
        "tomli",
        "prompt_toolkit",
        "wcwidth",
    }
)

# Parts of the standard library that reach past the audit events: foreign functions, interpreters that have no hook (on
# 3.12 and 3.13 no event tells of them either), database files opened in C; then those that start processes in C without
# an event.
REFUSED = frozenset(
    {
        "_ctypes",
        "ctypes",
        "_dbm",
        "_gdbm",
        "dbm",
        "_interpreters",
        "_xxsubinterpreters",
        "interpreters",
    }
)
FORKING = frozenset({"_posixsubprocess", "multiprocessing.util"})

# Standard-library files that run source text which they wrote themselves: namedtuple's constructor, dataclass methods,
# annotations, plural formulas (checked there against a small grammar), signatures of builtins.
GENERATORS = ("collections/__init__.py", "dataclasses.py", "typing.py", "gettext.py", "inspect.py")

_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


class Trust:
    """The folders and names in force, taken once when the guard is installed."""

    def __init__(self) -> None:
        library = os.path.dirname(os.__file__)
        self.own = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
        folders = [library + os.sep]
        self.packages = [os.path.dirname(self.own[:-1]) + os.sep]
        for entry in sys.path:
            tail = os.path.basename(entry)
            if tail in _PACKAGE_FOLDERS and os.path.isabs(entry):
                self.packages.append(entry + os.sep)
            elif tail == "lib-dynload" or (tail.startswith("python3") and tail.endswith(".zip")):
                folders.append(entry + os.sep)
        self.library = tuple(folders)
        self.names = DEPENDENCIES
        self.extra: frozenset[str] = frozenset()
        self.generators = frozenset(library + os.sep + name for name in GENERATORS)
        self.ast = library + os.sep + "ast.py"

    def add(self, names: frozenset[str]) -> None:
        """Trust further packages, by top-level module name, for a front end that declares more dependencies."""
        self.extra |= names
        self.names |= names

    def name(self, module: str) -> bool:
        """Whether a module of this dotted name may be imported."""
        top = module.partition(".")[0]
        if top == "shardguide" or top in self.names:
            return True
        return (top in sys.stdlib_module_names and top not in REFUSED) or top.startswith("_sysconfigdata_")

    def in_library(self, path: str) -> bool:
        """Whether the file belongs to the standard library (site-packages inside of its folder does not)."""
        if path.startswith("<frozen "):
            return True
        for folder in self.library:
            if path.startswith(folder):
                return not path[len(folder) :].startswith(_PACKAGE_FOLDERS)
        return False

    def package(self, path: str) -> str:
        """The trusted third-party package that the file belongs to, or an empty string."""
        for folder in self.packages:
            if path.startswith(folder):
                top = path[len(folder) :].partition(os.sep)[0].partition(".")[0]
                if top in self.names:
                    return top
        return ""

    def file(self, path: str) -> bool:
        """Whether code of this file may run."""
        return path.startswith(self.own) or self.in_library(path) or bool(self.package(path))

    def generates(self, path: str) -> bool:
        """Whether code of this file may run source text that it wrote itself."""
        return path in self.generators or (bool(self.extra) and self.package(path) in self.extra)
