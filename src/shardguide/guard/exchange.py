"""What a pickle may name where processes of ours exchange what they read (permit "results")."""

from __future__ import annotations

# What processes that read for us send and are sent: records of plain values, and which of two functions to call. Never more.
RECORDS = {
    "shardguide.readers.logs.records": {"Event", "Evidence", "Failed", "Frame", "Raised"},
    "shardguide.readers.flight_recorder.dump": {"Dump", "Last", "Op", "Status"},
    "shardguide.workflows.diagnose.reading": {"dumps", "logs"},
    "shardguide.frontends.cli.workers": {"_ready"},
    "shardguide.guidance.errors": {"UnusableInput"},
    "shardguide.guard.hook": {"GuardViolation", "RefusedImport", "RefusedCache"},
    "concurrent.futures.process": {"_CallItem", "_ResultItem", "_RemoteTraceback", "_rebuild_exc"},
}

# What a process can end with by itself, to be shown as one sentence.
ERRORS = frozenset({"MemoryError", "OSError", "RecursionError", "RuntimeError", "TypeError", "ValueError", "KeyError",
                     "IndexError", "AttributeError", "AssertionError", "OverflowError", "UnicodeDecodeError"})  # fmt: skip
