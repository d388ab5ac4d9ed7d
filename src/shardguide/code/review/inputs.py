"""What a review is handed: which files are Python, notebooks, or launch files; the rest of a folder is passed over."""

from __future__ import annotations

import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, NamedTuple
from shardguide.readers.files import HANDED, failure, shown

from .records import Problem

if TYPE_CHECKING:
    from .notebook import Notebook
    from .project import Project

FILES = 20_000
_SKIP = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", ".git", ".venv", "venv"})
PYTHON = (".py", ".ipynb", ".pyi", ".pyw")
LAUNCH = (".sh", ".bash", ".sbatch", ".slurm", ".zsh", ".yaml", ".yml", ".toml")


class Inputs(NamedTuple):
    """The files that were found, in order, and the folders that could not be looked into."""

    python: list[str]  # notebooks among them
    launch: list[str]
    problems: list[Problem]


def gather(paths: tuple[str, ...], exclude: tuple[str, ...] = (), root: str = "") -> Inputs:
    """The files among paths and folders, in order.

    ``exclude``: patterns of paths below ``root`` that are passed over in folders. Raises UnusableInput for a path that does
    not exist, and where nothing is there to read.
    """
    found = Inputs([], [], [])
    passed = False

    def unread(error: OSError) -> None:
        where = str(error.filename)
        found.problems.append(Problem(where, 0, str(failure(where, error)).removeprefix(shown(where)).lstrip(":, ")))

    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112
            if not os.path.exists(path) and path not in HANDED.get():  # noqa: PTH110
                raise UnusableInput(f"{shown(path)}: there is no such file or folder.")
            if exclude and matches(path, exclude, root):
                passed = True
            else:
                (found.launch if _is_launch(path) else found.python).append(path)
            continue
        for folder, below, names in os.walk(path, onerror=unread):
            below[:] = sorted(name for name in below if name not in _SKIP and not name.startswith("."))
            if exclude:
                below[:] = [name for name in below if not matches(os.path.join(folder, name), exclude, root)]  # noqa: PTH118
            for name in sorted(names):
                kind = (
                    found.python
                    if name.endswith((".py", ".ipynb"))
                    else found.launch
                    if name.endswith(LAUNCH)
                    else None
                )
                if kind is None:
                    continue
                full = os.path.join(folder, name)  # noqa: PTH118
                if not exclude or not matches(full, exclude, root):
                    kind.append(full)
            if len(found.python) + len(found.launch) > FILES:
                raise UnusableInput(f"{shown(path)}: more than {FILES} files to read; name a folder further down.")
    if not found.python and not found.launch and not found.problems and not passed:
        raise UnusableInput("there is no Python file, notebook or launch file in what was handed over.")
    if len(paths) == 1:
        return found
    return found._replace(python=_once(found.python), launch=_once(found.launch))


def _once(paths: list[str]) -> list[str]:
    """Each file once, whatever way it was named: ``.`` and ``train.py``."""
    out: dict[str, str] = {}
    for path in paths:
        out.setdefault(os.path.abspath(path), path)  # noqa: PTH100
    return list(out.values())


def read(project: Project, paths: list[str], named: tuple[str, ...] = ()) -> dict[str, tuple[Notebook, str]]:
    """Read Python files and notebooks into a project; gives the notebooks, each with what its cells hand to a shell.

    ``named``: files that were handed over one by one, of which is said that they are no Python even where nothing speaks of PyTorch.
    """
    books: dict[str, tuple[Notebook, str]] = {}
    for path in paths:
        if not path.endswith(".ipynb"):
            project.add(path, path in named)
            continue
        from . import notebook

        found = notebook.add(project, path)
        if found is not None:
            books[path] = found
    return books


def _is_launch(path: str) -> bool:
    """Whether a file that was named is a launch file: by its ending, else by its first line."""
    ending = os.path.splitext(path)[1].lower()  # noqa: PTH122
    if ending in LAUNCH or ending in PYTHON:
        return ending in LAUNCH
    try:
        if not os.path.isfile(path):  # noqa: PTH113
            return False
        with open(path, "rb") as file:  # noqa: PTH123
            head = file.read(4096)
    except OSError:
        return False
    first = head.partition(b"\n")[0]
    return (
        first.startswith(b"#!") and b"python" not in first and first.rstrip().endswith(b"sh")
    ) or b"\n#SBATCH" in head


def matches(path: str, patterns: tuple[str, ...], root: str) -> bool:
    """Whether a path below ``root`` fits one of the patterns: a path or a part of it, with ``*`` and ``?``."""
    from fnmatch import fnmatchcase

    full = os.path.abspath(path)  # noqa: PTH100
    below = os.path.relpath(full, root) if root else path
    below = below.replace(os.sep, "/")
    parts = below.split("/")
    for pattern in patterns:
        bare = pattern.strip("/").removeprefix("./")
        if fnmatchcase(below, bare) or any(fnmatchcase("/".join(parts[:n]), bare) for n in range(1, len(parts))):
            return True
        if "/" not in bare and any(fnmatchcase(part, bare) for part in parts):
            return True
    return False
