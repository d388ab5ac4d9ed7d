"""The user's settings for ``review``: ``[tool.shardguide.review]`` of the nearest pyproject.toml that has it."""

from __future__ import annotations

import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.readers.files import read_bytes, shown

LIMIT = 1 << 20
FORMATS = ("text", "md", "json", "sarif", "github")
_LISTS = ("select", "ignore", "exclude")
_TEXTS = ("torch", "baseline", "format")


class Settings(NamedTuple):
    """What is set, and where."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file: tuple[tuple[str, tuple[str, ...]], ...] = ()  # pattern and beginnings of codes
    torch: str = ""
    exclude: tuple[str, ...] = ()
    baseline: str = ""  # a path, from the working folder
    format: str = ""
    root: str = ""  # the folder that patterns and paths start from: that of the file, or the working folder


def settings(paths: tuple[str, ...]) -> Settings:
    """The settings for a review of these paths. Raises UnusableInput for a table that says what cannot be meant."""
    here = os.path.abspath(paths[0]) if paths else os.path.abspath(os.curdir)  # noqa: PTH100
    folder = here if os.path.isdir(here) else os.path.dirname(here)  # noqa: PTH112, PTH120
    while True:
        path = os.path.join(folder, "pyproject.toml")  # noqa: PTH118
        if os.path.isfile(path):  # noqa: PTH113
            found = _read(path, folder)
            if found is not None:
                return found
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder:
            return Settings(root=os.path.abspath(os.curdir))  # noqa: PTH100
        folder = above


def _read(path: str, folder: str) -> Settings | None:
    """The table of one file; None where it has none. The TOML reader is loaded only for a file that names us."""
    try:
        data = read_bytes(path, LIMIT)
    except UnusableInput:
        return None  # somebody else's file, as far as we know
    if b"shardguide" not in data:
        return None
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    where = shown(path)
    try:
        loaded: Any = tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise UnusableInput(f"{where}: not UTF-8 text.") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnusableInput(f"{where}: not valid TOML ({str(error)[:80]}).") from None
    for name in ("tool", "shardguide", "review"):
        loaded = loaded.get(name) if isinstance(loaded, dict) else None
    return _checked(loaded, folder, where) if isinstance(loaded, dict) else None


def _checked(table: dict[str, Any], folder: str, where: str) -> Settings:
    known = (*_LISTS, *_TEXTS, "per-file-ignores")
    for name, value in table.items():
        if name not in known:
            raise UnusableInput(
                f"{where}: [tool.shardguide.review] has no {name[:40]!r}; it has {', '.join(sorted(known))}."
            )
        if name in _LISTS and not _texts(value):
            raise UnusableInput(f"{where}: {name} is a list of texts.")
        if name in _TEXTS and not isinstance(value, str):
            raise UnusableInput(f"{where}: {name} is one text, in quotes.")
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict) or not all(_texts(codes) for codes in per_file.values()):
        raise UnusableInput(f"{where}: per-file-ignores is a table from a pattern to a list of codes.")
    if table.get("format", "text") not in FORMATS:
        raise UnusableInput(f"{where}: format is {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    baseline = table.get("baseline", "")
    return Settings(
        _codes(table.get("select", [])),
        _codes(table.get("ignore", [])),
        tuple((pattern, _codes(codes)) for pattern, codes in per_file.items()),
        table.get("torch", ""),
        tuple(table.get("exclude", [])),
        os.path.join(folder, baseline) if baseline else "",  # noqa: PTH118
        table.get("format", ""),
        folder,
    )


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _codes(given: list[str]) -> tuple[str, ...]:
    return tuple(code.strip().upper() for code in given if code.strip())
