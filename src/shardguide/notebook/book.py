"""The notebook as the front ends use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any, NamedTuple, TypeVar
from shardguide.notebook import schema
from shardguide.notebook.place import Place
from shardguide.notebook.store import Store, Unreachable, shown
from shardguide.notebook.values import (
    ID_DIGITS,
    LONGEST_ID,
    MAX_ANSWERS,
    MAX_RESULT,
    SHORTEST_ID,
    checked_id,
    checked_name,
    checked_text,
    dump,
    encode,
    now,
    same_answer,
)  # fmt: skip

if TYPE_CHECKING:
    from sqlite3 import Connection
    from types import TracebackType

Result = TypeVar("Result")

STATES = ("draft", "approved", "rejected")


class Remembered(NamedTuple):
    """An answer of an earlier call."""

    value: Any
    unit: str  # "" or e.g. "GiB"
    source: str  # where it came from then: "user", "file:NAME", "measured"
    since: str  # UTC, ISO 8601
    scope: str  # "project" or "default"


class Mark(NamedTuple):
    """Whether a guidance was confirmed."""

    state: str  # "draft", "approved" or "rejected"
    note: str
    at: str  # UTC, ISO 8601; "" for a draft that nobody has touched


class Entry(NamedTuple):
    """One line of the history."""

    id: str
    workflow: str
    torch: str
    status: str
    state: str
    project: str
    at: str  # when it was last asked for
    times: int  # how often


class Kept(NamedTuple):
    """A guidance from the record."""

    id: str
    workflow: str
    torch: str
    knowledge: str
    status: str
    guidance: dict[str, Any]  # the Guidance's JSON as it was saved
    at: str  # UTC, ISO 8601: when it was first given; from ``find``, when that request was last answered with it
    mark: Mark


class Notebook:
    """Opened at its first use, and not at all while there is no file and nothing to keep. For one thread.

    Raises UnusableInput for a file that is damaged, of a newer Shardguide or not a notebook. Where it merely cannot be reached
    (rights, space, lock) that is an error only if the user named it (``Place.asked``); otherwise reading gives nothing, keeping
    does nothing, and ``unavailable`` holds the reason, for ``Guidance.not_done``.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.unavailable = ""
        self._store = Store(place.path)

    def __enter__(self) -> Notebook:
        """The notebook itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        self.close()

    def close(self) -> None:
        """Let go of the file; a later call opens it again."""
        self._store.close()

    # Answers ---------------------------------------------------------------------------------------------------------

    def answers(self, project: str = "") -> dict[str, Remembered]:
        """What is known for a project (a ``project_key``), the global default where it has no answer of its own."""
        rows = self._read(
            "SELECT project, name, value, unit, source, since FROM answers WHERE project IN ('', ?)"
            " ORDER BY project, name",
            (project,),
        )
        return {
            name: Remembered(self._load(value), unit, source, since, "project" if owner else "default")
            for owner, name, value, unit, source, since in rows
        }

    def remember(
        self, project: str, values: Mapping[str, Any], source: str, units: Mapping[str, str] | None = None
    ) -> None:
        """Keep answers: JSON scalars or lists of them, all or none. One that is already known keeps its date."""
        checked_text(source, "The source of an answer")
        checked_text(project, "A project")
        rows = [
            (
                project,
                checked_name(name),
                encode(name, value),
                checked_text((units or {}).get(name, ""), "A unit"),
                source,
            )
            for name, value in values.items()
        ]
        if rows:
            self._write(lambda connection: _remember(connection, [(*row, now()) for row in rows]))

    def forget(self, project: str, name: str | None = None) -> tuple[str, ...]:
        """Drop one answer of a project, or all of them; the names that were dropped. "" drops global defaults."""

        def drop(connection: Connection) -> tuple[str, ...]:
            where, arguments = (
                ("project = ?", [project]) if name is None else ("project = ? AND name = ?", [project, name])
            )
            rows = connection.execute(f"SELECT name FROM answers WHERE {where} ORDER BY name", arguments).fetchall()
            connection.execute(f"DELETE FROM answers WHERE {where}", arguments)
            return tuple(row[0] for row in rows)

        return self._write(drop) or ()

    # Conversations ---------------------------------------------------------------------------------------------------

    def conversation(self, project: str) -> Any:
        """The state of the conversation that was left open in a project; None where there is none."""
        rows = self._read("SELECT state FROM conversations WHERE project = ?", (project,))
        return self._load(rows[0][0]) if rows else None

    def keep_conversation(self, project: str, state: Any) -> None:
        """Keep where a conversation stands, JSON in one transaction; None ends it.

        ``project`` may be followed by ``//`` and a name: a project has several where several people talk at once.
        """
        checked_text(project, "A project")
        if state is None:
            self._write(
                lambda connection: connection.execute("DELETE FROM conversations WHERE project = ?", (project,))
            )
            return
        text = dump(state)
        self._write(
            lambda connection: connection.execute(
                "INSERT OR REPLACE INTO conversations VALUES (?, ?, ?)", (project, text, now(fine=True))
            )
        )

    # Guidance --------------------------------------------------------------------------------------------------------

    def save(
        self, guidance: Mapping[str, Any], inputs: str, project: str = "", knowledge: str = "", text: str = ""
    ) -> None:
        """Keep a Guidance's JSON and note in the ledger that the request with this digest of inputs was handled.

        The same guidance again is only noted. If its id is known with other content, the new content replaces it and an
        approval that it had lapses, for it was given to something else. ``text``: its ``dump``, where that is at hand.
        """
        identity = checked_id(guidance.get("id"))
        checked_text(inputs, "A digest of inputs")
        checked_text(project, "A project")
        result = text or dump(guidance)
        if len(result) > MAX_RESULT:
            raise UnusableInput(f"The guidance {identity} is too large for the notebook: at most {MAX_RESULT} bytes.")
        release = guidance.get("torch")
        torch = str(release.get("version", "")) if isinstance(release, Mapping) else ""
        row = (
            identity,
            str(guidance.get("workflow", "")),
            torch,
            knowledge,
            str(guidance.get("status", "")),
            result,
            now(),
        )

        def keep(connection: Connection) -> None:
            _keep(connection, row)
            connection.execute(
                "INSERT INTO handled (at, project, inputs, guidance) VALUES (?, ?, ?, ?)",
                (now(), project, inputs, identity),
            )

        self._write(keep)

    def find(self, inputs: str, project: str = "", identity: str = "", text: str = "") -> Kept | None:
        """The guidance that answered the request with this digest of inputs: the one of this id, else the latest.

        One that only asked back is no answer. Where it is ``text`` to the byte (``dump``), ``guidance`` is left empty.
        """
        rows = self._read(schema.GIVEN.format(schema.FOUND), (text, inputs, project, identity))
        return self._as_kept(rows[0]) if rows else None

    def load(self, identity: str) -> Kept:
        """A guidance by its id or the first digits of it; UnusableInput if there is none or more than one."""
        return self._kept(self.resolve(identity))

    def resolve(self, identity: str) -> str:
        """The whole id for the first digits of it."""
        start = identity.strip().lower()
        if not SHORTEST_ID <= len(start) <= LONGEST_ID or not ID_DIGITS.issuperset(start):
            raise UnusableInput(f"{identity[:80]!r} is no id of a guidance: give at least {SHORTEST_ID} of its digits.")
        rows = self._read(
            "SELECT id FROM guidance WHERE substr(id, 1, ?) = ? ORDER BY id = ? DESC, id LIMIT 4",
            (len(start), start, start),
        )
        found = [row[0] for row in rows]
        if not found:
            self.require("No guidance can be looked up")
            raise UnusableInput(f"The notebook holds no guidance {start}; shardguide history lists what it holds.")
        if len(found) > 1 and found[0] != start:
            names = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
            raise UnusableInput(f"Several guidances begin with {start} ({names}); give more digits.")
        return str(found[0])

    def history(self, project: str | None = None, limit: int = 20) -> list[Entry]:
        """The guidances handled, of one project or of all, the one asked for last first."""
        rows = self._read(
            f"SELECT id, workflow, torch, status, {schema.STATE.format('id')}, project, at, times FROM guidance JOIN"
            " (SELECT guidance AS of, project, at, max(number) AS last, count(*) AS times FROM handled"
            "  WHERE ? IS NULL OR project = ? GROUP BY guidance) ON of = id ORDER BY last DESC LIMIT ?",
            (project, project, max(1, limit)),
        )
        return [
            Entry(identity, workflow, torch, status, state or "draft", owner, at, times)
            for identity, workflow, torch, status, state, owner, at, times in rows
        ]

    # Approval --------------------------------------------------------------------------------------------------------

    def approve(self, identity: str, note: str = "") -> Mark:
        """The user confirms a guidance. Raises UnusableInput where that cannot be kept."""
        return self._mark(identity, "approved", note)

    def reject(self, identity: str, note: str = "") -> Mark:
        """The user declines a guidance. Raises UnusableInput where that cannot be kept."""
        return self._mark(identity, "rejected", note)

    def approval(self, identity: str) -> Mark:
        """The state of a guidance, by its whole id; a draft if it is unknown."""
        rows = self._read(
            "SELECT state, note, at FROM approvals WHERE guidance = ? ORDER BY number DESC LIMIT 1", (identity,)
        )
        return Mark(*rows[0]) if rows else Mark("draft", "", "")

    def _mark(self, identity: str, state: str, note: str) -> Mark:
        whole = self.resolve(identity)
        checked_text(note, "A note")

        def mark(connection: Connection) -> None:
            row = connection.execute(
                "SELECT state, note FROM approvals WHERE guidance = ? ORDER BY number DESC LIMIT 1", (whole,)
            ).fetchone()
            if row != (state, note):
                connection.execute(
                    "INSERT INTO approvals (guidance, state, note, at) VALUES (?, ?, ?, ?)", (whole, state, note, now())
                )

        self._write(mark)
        self.require()
        return self.approval(whole)

    # Exchange --------------------------------------------------------------------------------------------------------

    def export(self) -> dict[str, Any]:
        """Everything, as one JSON object (``exchange.SCHEMA``)."""
        from shardguide.notebook.exchange import export

        record = export(self._read)
        self.require("Nothing can be exported")
        return record

    def import_(self, record: object) -> dict[str, int]:
        """Add what an export holds; how many rows of each kind were new. What is known here already stays."""
        from shardguide.notebook.exchange import add, checked

        rows = checked(record)
        return self._write(lambda connection: add(connection, rows)) or {}

    def rows(self, sql: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query, for what is kept by other modules of the notebook."""
        return self._read(sql, arguments)

    def transaction(self, action: Callable[[Connection], None]) -> None:
        """Run the action in one transaction, for what is kept by other modules of the notebook."""
        self._write(action)

    def value(self, text: str) -> Any:
        """What a column of JSON holds."""
        return self._load(text)

    # Under the hood --------------------------------------------------------------------------------------------------

    def require(self, so: str = "Nothing was kept") -> None:
        """Raise UnusableInput if the notebook could not be reached, for commands that are about nothing else."""
        if self.unavailable:
            raise UnusableInput(f"{so}: {self.unavailable}; name another file with --notebook.")

    def _kept(self, identity: str) -> Kept:
        rows = self._read(
            schema.GIVEN.format("(SELECT created AS at, id AS of FROM guidance WHERE id = ?)"), ("", identity)
        )
        if not rows:
            raise UnusableInput(f"The notebook {shown(self.place.path)} is damaged (guidance {identity} is missing).")
        return self._as_kept(rows[0])

    def _as_kept(self, row: tuple[Any, ...]) -> Kept:
        mark = self.approval(row[0])
        return Kept(row[0], row[1], row[2], row[3], row[4], self._load(row[5] or "{}"), row[6], mark)

    def _load(self, text: str) -> Any:
        import json

        try:
            return json.loads(text)
        except ValueError as error:
            raise UnusableInput(
                f"The notebook {shown(self.place.path)} is damaged (a value is no JSON); move it away and a new one is "
                "started, or name another file with --notebook."
            ) from error

    def _read(self, sql: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._reach(lambda: self._store.read(sql, arguments)) or []

    def _write(self, action: Callable[[Connection], Result]) -> Result | None:
        return None if self.unavailable else self._reach(lambda: self._store.write(action))

    def _reach(self, action: Callable[[], Result]) -> Result | None:
        """Run the action; without access, raise if the user named the file, else say so in ``unavailable``."""
        try:
            return action()
        except Unreachable as error:
            reason = str(error)
            if self.place.asked:
                raise UnusableInput(f"{reason[0].upper()}{reason[1:]}; name another file with --notebook.") from error
            self.unavailable = reason
            return None


def _remember(connection: Connection, rows: list[tuple[str, str, str, str, str, str]]) -> None:
    """Write answers: project, name, value, unit, source, since."""
    connection.executemany(
        "INSERT INTO answers (project, name, value, unit, source, since) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (project, name) DO UPDATE SET value = excluded.value, unit = excluded.unit,"
        " source = excluded.source, since = excluded.since WHERE value <> excluded.value OR unit <> excluded.unit",
        rows,
    )
    for project in {row[0] for row in rows}:
        count = connection.execute("SELECT count(*) FROM answers WHERE project = ?", (project,)).fetchone()[0]
        if count > MAX_ANSWERS:
            raise UnusableInput(f"More than {MAX_ANSWERS} answers for one project cannot be kept; forget some first.")


def _keep(connection: Connection, row: tuple[str, str, str, str, str, str, str]) -> None:
    """Write a guidance: id, workflow, torch, knowledge, status, result, created."""
    old = connection.execute("SELECT result FROM guidance WHERE id = ?", row[:1]).fetchone()
    if old is not None and old[0] != row[5] and not same_answer(old[0], row[5]):
        state = connection.execute("SELECT " + schema.STATE.format("?"), row[:1]).fetchone()[0]
        if state not in (None, "draft"):
            connection.execute(
                "INSERT INTO approvals (guidance, state, note, at) VALUES (?, 'draft', 'the guidance changed', ?)",
                (row[0], now()),
            )
    connection.execute(
        "INSERT INTO guidance (id, workflow, torch, knowledge, status, result, created) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET workflow = excluded.workflow, torch = excluded.torch,"
        " knowledge = excluded.knowledge, status = excluded.status, result = excluded.result"
        " WHERE result <> excluded.result OR knowledge <> excluded.knowledge",
        row,
    )
