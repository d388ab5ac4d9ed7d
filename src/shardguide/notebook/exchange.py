"""The notebook as one JSON object, to be kept elsewhere or carried to another machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.notebook.values import MAX_RESULT, checked_id, checked_name, checked_text, dump, encode

if TYPE_CHECKING:
    from sqlite3 import Connection

SCHEMA = "shardguide-notebook/1"

# Table, its columns in order, and the column that holds JSON.
TABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "answers": (("project", "name", "value", "unit", "source", "since"), "value"),
    "guidance": (("id", "workflow", "torch", "knowledge", "status", "result", "created"), "result"),
    "approvals": (("guidance", "state", "note", "at"), ""),
    "handled": (("at", "project", "inputs", "guidance"), ""),
}
_ORDER = {"answers": "project, name", "guidance": "id", "approvals": "number", "handled": "number"}
_LIMIT = 1_000_000  # rows of one table

Rows = dict[str, list[tuple[Any, ...]]]


def export(read: Callable[[str], list[tuple[Any, ...]]]) -> dict[str, Any]:
    """All tables; JSON columns as JSON."""
    import json

    record: dict[str, Any] = {"schema": SCHEMA}
    for table, (columns, parsed) in TABLES.items():
        rows = read(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {_ORDER[table]}")
        objects = [dict(zip(columns, row, strict=True)) for row in rows]
        for entry in objects if parsed else ():
            entry[parsed] = json.loads(entry[parsed])
        record[table] = objects
    return record


def checked(record: object) -> Rows:
    """The rows of an export, every field looked at; UnusableInput for anything that export() does not write."""
    from shardguide.notebook.book import STATES

    if not isinstance(record, Mapping) or record.get("schema") != SCHEMA:
        raise UnusableInput(f"This is no export of a notebook: its schema is not {SCHEMA}.")
    rows: Rows = {}
    for table, (columns, parsed) in TABLES.items():
        entries = record.get(table)
        if not isinstance(entries, list) or len(entries) > _LIMIT:
            raise UnusableInput(f"The export's {table} is not a list of at most {_LIMIT} entries.")
        rows[table] = []
        for entry in entries:
            if not isinstance(entry, Mapping) or set(entry) != set(columns):
                raise UnusableInput(
                    f"An entry of the export's {table} does not have just the fields {', '.join(columns)}."
                )
            for column in columns:
                if column != parsed:
                    checked_text(entry[column], f"The field {column} of the export's {table}")
            if table == "answers":
                value = encode(checked_name(entry["name"]), entry["value"])
            elif table == "guidance":
                value = _checked_guidance(entry)
            else:
                checked_id(entry["guidance"])
                value = ""
            if table == "approvals" and entry["state"] not in STATES:
                raise UnusableInput(f"{entry['state'][:40]!r} in the export is no state of an approval.")
            rows[table].append(tuple(value if column == parsed else entry[column] for column in columns))
    return rows


def _checked_guidance(entry: Mapping[str, Any]) -> str:
    """The JSON text of an exported guidance."""
    identity, result = checked_id(entry["id"]), entry["result"]
    if not isinstance(result, Mapping) or result.get("id") != identity:
        raise UnusableInput(f"The export's guidance {identity} is not an object with that id.")
    text = dump(result)
    if len(text) > MAX_RESULT:
        raise UnusableInput(f"The export's guidance {identity} is too large: at most {MAX_RESULT} bytes.")
    return text


def add(connection: Connection, rows: Rows) -> dict[str, int]:
    """Insert what is not known yet; how many rows of each table were new.

    A newer answer replaces an older one. Of log entries with the same fields as many are known as are there, so that importing
    twice changes nothing.
    """
    added = {}
    for table, (columns, _) in TABLES.items():
        before = connection.total_changes
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        if table == "answers":
            connection.executemany(
                f"INSERT INTO answers ({names}) VALUES ({marks}) ON CONFLICT (project, name) DO UPDATE SET"
                " value = excluded.value, unit = excluded.unit, source = excluded.source, since = excluded.since"
                " WHERE since < excluded.since",
                rows[table],
            )
        elif table == "guidance":
            connection.executemany(f"INSERT OR IGNORE INTO guidance ({names}) VALUES ({marks})", rows[table])
        else:
            added[table] = _log(connection, table, columns, rows[table])
            continue
        added[table] = connection.total_changes - before
    return added


def _log(connection: Connection, table: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> int:
    """Insert the entries of a log that are not there yet. Approvals stay in the order of their times: the last one holds."""
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    same = " AND ".join(f"{column} = ?" for column in columns)
    owner = columns.index("guidance")
    there = {
        row: connection.execute(f"SELECT count(*) FROM {table} WHERE {same}", row).fetchone()[0] for row in set(rows)
    }
    new = []
    for row in rows:
        there[row] -= 1
        if there[row] < 0 and connection.execute("SELECT 1 FROM guidance WHERE id = ?", (row[owner],)).fetchone():
            new.append(row)
    connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", new)
    if table == "approvals":
        for identity in {row[owner] for row in new}:
            log = connection.execute(
                f"SELECT {names} FROM approvals WHERE guidance = ? ORDER BY at, number", (identity,)
            ).fetchall()
            connection.execute("DELETE FROM approvals WHERE guidance = ?", (identity,))
            connection.executemany(f"INSERT INTO approvals ({names}) VALUES ({marks})", log)
    return len(new)
