# ruff: noqa: PTH103, PTH116, PTH120, PTH123
# (pathlib costs more at start-up than reading the notebook)
"""The database file: opened late, written in whole transactions, every failure a sentence.

SQLite's rollback journal rather than its write-ahead log: the log needs shared memory, which network home folders of
clusters do not give, and the journal leaves nothing beside the file. With ``synchronous=FULL`` (SQLite's default) a
killed process or a power cut loses at most the transaction that was under way; the next one to open rolls it back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any, TypeVar
from shardguide.notebook import schema
from shardguide.notebook.values import now

if TYPE_CHECKING:
    from sqlite3 import Connection

Result = TypeVar("Result")

WAIT = 10.0  # seconds for another process's write
_HEADER = b"SQLite format 3\0"


class Unreachable(Exception):
    """The file cannot be read or written here: rights, space, a lock. The message is a clause, not a sentence."""


def shown(path: str) -> str:
    """A path fit for a terminal."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in path)


class Store:
    """One notebook file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._connection: Connection | None = None

    def close(self) -> None:
        """Let go of the file; a later call opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def read(self, sql: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of one query; none when there is no notebook yet."""
        return self._sentences("read", lambda: self._read(sql, arguments))

    def write(self, action: Callable[[Connection], Result]) -> Result:
        """Run the action in one transaction: all of it is kept, or nothing."""
        return self._sentences("written", lambda: self._write(action))

    def _read(self, sql: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        connection = self._open(create=False)
        return [] if connection is None else connection.execute(sql, arguments).fetchall()

    def _write(self, action: Callable[[Connection], Result]) -> Result:
        connection = self._open(create=True)
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = action(connection)
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise
        return result

    def _open(self, create: bool) -> Connection | None:
        """The connection, its schema brought up to date; None when there is no file and none is to be made."""
        if self._connection is not None:
            return self._connection
        if not self.path:
            raise Unreachable("there is no home folder to keep a notebook in")
        if not self._inspect():  # no file, or an empty one
            if not create:
                return None
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = _connect(self.path)
        try:
            connection.execute("PRAGMA temp_store=MEMORY")  # no query spills into a folder for temporary files
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _inspect(self) -> bool:
        """Whether there is something to read. Another thing of that name is refused before SQLite touches it."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a plain file"
            raise UnusableInput(f"{shown(self.path)} is {kind}; name a file for the notebook with --notebook.")
        if status.st_size == 0:
            return False
        with open(self.path, "rb") as file:
            head = file.read(100)
        # https://www.sqlite.org/fileformat2.html#the_database_header: the application id is big-endian at byte 68.
        if not head.startswith(_HEADER) or int.from_bytes(head[68:72], "big") != schema.APPLICATION_ID:
            raise UnusableInput(f"{shown(self.path)} is not a Shardguide notebook; name another file with --notebook.")
        return True

    def _migrate(self, connection: Connection) -> None:
        """Bring the tables up to date, in one transaction; a file of a newer Shardguide is left alone."""
        known = len(schema.MIGRATIONS)
        if self._version(connection) == known:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = self._version(connection)  # again: another process may have been faster
            if version == 0:
                connection.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
                connection.execute("CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, at TEXT)")
            for number in range(version, known):
                name, statements = schema.MIGRATIONS[number]
                for statement in statements:
                    connection.execute(statement)
                connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number + 1, name, now()))
            connection.execute(f"PRAGMA user_version={known}")
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise

    def _version(self, connection: Connection) -> int:
        """How many migrations the file has had."""
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if not 0 <= version <= len(schema.MIGRATIONS):
            raise UnusableInput(
                f"The notebook {shown(self.path)} was written by a newer Shardguide (schema {version}, this one knows "
                f"{len(schema.MIGRATIONS)}); update Shardguide, or name another file with --notebook."
            )
        return version

    def _sentences(self, verb: str, action: Callable[[], Result]) -> Result:
        """Run the action; turn what the system and SQLite say into Unreachable or UnusableInput."""
        try:
            return action()
        except OSError as error:
            raise Unreachable(f"the notebook {shown(self.path)} cannot be {verb} ({error.strerror})") from error
        except Exception as error:
            if not _is_sqlite(error):
                raise
            said = str(error)
            if any(words in said for words in ("malformed", "not a database", "no such")):
                raise UnusableInput(
                    f"The notebook {shown(self.path)} is damaged ({said}); move it away and a new one is started, or "
                    "name another file with --notebook."
                ) from error
            if "locked" in said:
                said = f"another process has kept it locked for {WAIT:.0f} s"
            raise Unreachable(f"the notebook {shown(self.path)} cannot be {verb} ({said})") from error


def _connect(path: str) -> Connection:
    """Open for explicit transactions."""
    try:
        # What sqlite3 adds (adapters for dates) is not used here, and takes a millisecond of every start.
        from _sqlite3 import connect
    except ImportError:
        from sqlite3 import connect
    return connect(path, timeout=WAIT, isolation_level=None)


def _roll_back(connection: Connection) -> None:
    """Undo, whatever state the failure left; SQLite may have undone it by itself (full disk)."""
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except Exception as error:
            if not _is_sqlite(error):
                raise


def _is_sqlite(error: BaseException) -> bool:
    """Whether SQLite reports a condition of the file (asked without loading the module); misuse of it is ours."""
    return type(error).__module__ == "sqlite3" and type(error).__name__ in ("OperationalError", "DatabaseError")
