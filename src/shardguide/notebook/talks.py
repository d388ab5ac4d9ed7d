"""What conversations keep besides answers: where each was left, and the lines that were typed. Loaded by conversations only."""

from __future__ import annotations

from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.notebook.values import checked_text, now

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shardguide.notebook.book import Notebook

TYPED = 500  # lines kept of a project


def conversations(notebook: Notebook, project: str) -> list[tuple[str, Any]]:
    """All that were left open in a project, each with its name, the one spoken last first."""
    rows = notebook.rows(
        "SELECT project, state FROM conversations WHERE project = ? OR substr(project, 1, ?) = ? ORDER BY at DESC, project DESC",
        (project, len(project) + 2, f"{project}//"),
    )
    return [(name, notebook.value(state)) for name, state in rows]


def typed(notebook: Notebook, project: str, limit: int = TYPED) -> tuple[str, ...]:
    """The lines typed in a project's conversations, the latest last."""
    rows = notebook.rows(
        "SELECT line FROM typed WHERE project = ? ORDER BY number DESC LIMIT ?", (project, max(1, limit))
    )
    return tuple(row[0] for row in reversed(rows))


def keep_typed(notebook: Notebook, project: str, line: str) -> None:
    """Keep a line that was typed; the oldest of the project go where there are too many."""
    checked_text(project, "A project")
    checked_text(line, "A line")

    def keep(connection: Connection) -> None:
        connection.execute("INSERT INTO typed (project, line, at) VALUES (?, ?, ?)", (project, line, now()))
        connection.execute(
            "DELETE FROM typed WHERE project = ? AND number <= (SELECT number FROM typed WHERE project = ?"
            " ORDER BY number DESC LIMIT 1 OFFSET ?)",
            (project, project, TYPED),
        )

    notebook.transaction(keep)
