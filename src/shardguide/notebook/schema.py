"""The notebook's tables, as named migrations (append only: a step that was released is never edited), and longer queries."""

from __future__ import annotations

# "Shgd" as a 32-bit number, in SQLite's header at byte 68: tells a notebook from another program's database.
APPLICATION_ID = 0x53686764

# PRAGMA user_version counts the steps that a file has had; each runs in the same transaction as that counter.
MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "answers, guidance, approvals, handled",
        (
            # project: real path of the project folder, "" for the global default. value: JSON. since: UTC, ISO 8601.
            """CREATE TABLE answers (
                project TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, unit TEXT NOT NULL,
                source TEXT NOT NULL, since TEXT NOT NULL, PRIMARY KEY (project, name)) WITHOUT ROWID""",
            # id: Guidance.id. result: the Guidance's JSON. knowledge: version of the knowledge that made it.
            """CREATE TABLE guidance (
                id TEXT PRIMARY KEY, workflow TEXT NOT NULL, torch TEXT NOT NULL, knowledge TEXT NOT NULL,
                status TEXT NOT NULL, result TEXT NOT NULL, created TEXT NOT NULL)""",
            # A log: the last row of a guidance is its state; none means draft.
            """CREATE TABLE approvals (
                number INTEGER PRIMARY KEY, guidance TEXT NOT NULL, state TEXT NOT NULL, note TEXT NOT NULL,
                at TEXT NOT NULL)""",
            "CREATE INDEX approvals_of ON approvals (guidance, number)",
            # The ledger: every request, by the digest of its inputs, and the guidance that answered it.
            """CREATE TABLE handled (
                number INTEGER PRIMARY KEY, at TEXT NOT NULL, project TEXT NOT NULL, inputs TEXT NOT NULL,
                guidance TEXT NOT NULL)""",
            "CREATE INDEX handled_inputs ON handled (inputs, number)",
            "CREATE INDEX handled_guidance ON handled (guidance, number)",
        ),
    ),
    (
        "conversations",
        (
            # The conversation that is open in a project, as JSON, so that it can go on after an interruption.
            "CREATE TABLE conversations (project TEXT PRIMARY KEY, state TEXT NOT NULL, at TEXT NOT NULL) WITHOUT ROWID",
        ),
    ),
    (
        "what was typed",
        # Lines typed in conversations, for the terminal's history; the oldest go.
        (
            "CREATE TABLE typed (number INTEGER PRIMARY KEY, project TEXT NOT NULL, line TEXT NOT NULL, at TEXT NOT NULL)",
        ),
    ),
)

# The last row of the log; a guidance without one is a draft.
STATE = "(SELECT state FROM approvals WHERE guidance = {} ORDER BY number DESC LIMIT 1)"
# A guidance, without its content where that is the text given; and the one that answered a request, found without reading any content.
GIVEN = "SELECT id, workflow, torch, knowledge, status, nullif(result, ?), at FROM {} JOIN guidance ON id = of"
FOUND = (
    "(SELECT of, at FROM (SELECT guidance AS of, at, max(number) AS last FROM handled WHERE inputs = ? AND project = ? GROUP BY guidance)"
    " JOIN guidance ON id = of WHERE status <> 'needs_answers' ORDER BY of = ? DESC, last DESC LIMIT 1)"
)
