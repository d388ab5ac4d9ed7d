"""The index of ``ask`` as shipped: ``data/ask.db``, written by ``scripts/build_ask.py`` from the glossary and all that can answer.

SQLite's full-text search (FTS5, Porter's stemmer) finds rows by words; what the rows stand for is in the table ``rows``. The file is
opened read-only and immutable, so SQLite neither locks nor writes anything beside it.
"""

# No pathlib in this module: ask is held to a few times a bare Python.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import re

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any, NamedTuple
from shardguide.knowledge.lines import DATA

if TYPE_CHECKING:
    from sqlite3 import Connection

FILE = os.path.join(DATA, "ask.db")
_open: list[Connection] = []
_words: dict[str, Any] = {}
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_WORD = re.compile(r"[A-Za-z0-9]+")
_VERSION = re.compile(r"\bv?2\.[0-9]{1,2}(?:\.[0-9]+)?(?:\+\w+)?(?![0-9.]*[0-9])(?!\s*[GMTK]?i?B\b)")
_URL = re.compile(r"\b(file|tcp|env)://")
# The collectives are spelled in many ways; "all" and "to" alone would say nothing.
_COLLECTIVE = re.compile(
    r"(?<![a-z])(all|reduce)[-_ ]?(to[-_ ]?all|gather|reduce|scatter)(?=s?(?![a-z])|ing|d\b)", re.IGNORECASE
)
VERSION = "releasenumber"  # stands for the number of any release, in rows and questions alike


class Row(NamedTuple):
    """A row that has some of the words."""

    id: str  # of the claim, pattern or diagnosis; the title of a page; "" for a phrasing
    targets: tuple[str, ...]  # topics, "workflow:NAME", or "outside:SUBJECT"
    score: float  # BM25, the higher the better


def plain(text: str) -> str:
    """Lower-case words of letters and digits, one space apart."""
    return " ".join(_WORD.findall(_joined(text))).lower()


def _joined(text: str) -> str:
    """What would fall apart into words that mean something else, as one word: 2.8, file://, all_gather."""
    text = _COLLECTIVE.sub(lambda found: (found[1] + found[2]).replace("_", "").replace("-", "").replace(" ", ""), text)
    return _URL.sub(r"\1url ", _VERSION.sub(VERSION, text))


def unversioned(text: str) -> str:
    """The text without numbers of releases."""
    return _VERSION.sub(" ", text)


def indexed(text: str) -> str:
    """The text with the parts of CamelCase names put behind it, so that either spelling finds the other."""
    text = _joined(text)
    parts = [part for word in _WORD.findall(text) for part in camel(word)]
    return f"{text} {' '.join(parts)}" if parts else text


def camel(word: str) -> list[str]:
    """The parts of a CamelCase name; none for any other word."""
    parts = _CAMEL.findall(word)
    return parts if len(parts) > 1 and any(part[:1].isupper() and part[1:].islower() for part in parts) else []


def connection() -> Connection:
    """The index, opened once in a process.

    It has to be open before the guard is on, which lets nobody open a database by URI.

    Raises UnusableInput where this Python's SQLite cannot search.
    """
    if not _open:
        try:
            import sqlite3
        except ImportError:
            raise UnusableInput(_LACKS) from None
        try:
            path = FILE.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
            database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True, check_same_thread=False)
            database.execute("select rowid from asks where asks match 'fsdp' limit 1")
        except sqlite3.OperationalError as error:
            if "no such module" in str(error):
                raise UnusableInput(_LACKS) from None
            raise UnusableInput(f"Shardguide's index of questions cannot be read ({error}): {FILE}.") from None
        _open.append(database)
    return _open[0]


_LACKS = "this Python's SQLite has no full-text search (FTS5), which ask and docs search need; another Python has it."


def version() -> str:
    """What identifies the index."""
    return f"{connection().execute('pragma user_version').fetchone()[0]:07x}"


def words(name: str) -> Any:
    """A part of the glossary for reading questions: ``stop``, ``code``, ``say``, ``strong``, ``weak``, ``hard`` or ``intents``."""
    if name not in _words:
        import json

        row = connection().execute("select value from words where name = ?", (name,)).fetchone()
        _words[name] = json.loads(row[0])
    return _words[name]


def search(table: str, expression: str, limit: int, weights: tuple[float, ...] = ()) -> list[Row]:
    """The best rows of ``pages``, ``asks``, ``claims``, ``patterns`` or ``diagnoses`` for an FTS5 expression."""
    rank = f"bm25({', '.join((table, *map(str, weights)))})"
    found = connection().execute(
        f"select r.id, r.targets, -f.score from (select rowid, {rank} as score from {table} where {table} match ? "
        f'order by score limit ?) f join rows r on r."table" = ? and r.number = f.rowid order by f.score, f.rowid',
        (expression, limit, table),
    )
    return [Row(row[0], tuple(row[1].split()), row[2]) for row in found]


def page_has(target: str, expression: str) -> bool:
    """Whether the page of a target has a word."""
    row = connection().execute(
        "select 1 from pages where pages match ? and rowid = (select number from rows where \"table\" = 'pages' and targets = ?)",
        (expression, target),
    )
    return row.fetchone() is not None


def title(target: str) -> str:
    """The title that stands for a target, "" where there is none."""
    row = connection().execute("select id from rows where \"table\" = 'pages' and targets = ?", (target,)).fetchone()
    return row[0] if row else ""
