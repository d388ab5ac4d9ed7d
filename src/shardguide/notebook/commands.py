"""What ``answers``, ``history``, ``approve`` and ``reject`` do, as functions that return plain data for any front end.

Unlike a workflow, which goes on without a notebook, these are about nothing else: where it cannot be reached they raise
UnusableInput.
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.guidance.record import OF_THE_PRESENT
from shardguide.notebook.book import Notebook

MAX_IMPORT = 256 * 1024 * 1024  # bytes


def answers_show(notebook: Notebook, project: str = "", name: str | None = None) -> dict[str, Any]:
    """``{"project", "answers": [{name, value, unit, from, since, scope}]}``, by name; with ``name`` that one alone."""
    known = notebook.answers(project)
    notebook.require("Nothing can be shown")
    return {
        "project": project,
        "answers": [
            {"name": key, "value": it.value, "unit": it.unit, "from": it.source, "since": it.since, "scope": it.scope}
            for key, it in sorted(known.items())
            if name in (None, key)
        ],
    }


def answers_set(notebook: Notebook, project: str, name: str, text: str, unit: str = "") -> dict[str, Any]:
    """Remember what the user typed (see ``typed``), and show the answer as ``answers_show`` does."""
    notebook.remember(project, {name: typed(text)}, "user", {name: unit})
    notebook.require()
    return answers_show(notebook, project, name)


def answers_forget(notebook: Notebook, project: str, name: str | None = None) -> dict[str, Any]:
    """``{"project", "forgotten": [name]}``; a name that is not known is unusable input."""
    gone = notebook.forget(project, name)
    notebook.require()
    if name is not None and not gone:
        raise UnusableInput(f"No answer {name[:80]!r} is remembered here; shardguide answers show lists them.")
    return {"project": project, "forgotten": list(gone)}


def history(notebook: Notebook, project: str | None = None, limit: int = 20) -> dict[str, Any]:
    """``{"guidance": [{id, workflow, torch, status, state, project, at, times}]}``, the latest first."""
    entries = notebook.history(project, limit)
    notebook.require("Nothing can be shown")
    return {"guidance": [entry._asdict() for entry in entries]}


def recall(notebook: Notebook, identity: str) -> dict[str, Any]:
    """The Guidance's JSON as it was given, with its approval as it stands now (``history ID``)."""
    from shardguide.guidance.serialise import with_approval

    kept = notebook.load(identity)
    return with_approval(kept.guidance, kept.mark.state)


def failed(guidance: dict[str, Any]) -> list[dict[str, Any]]:
    """The failed checks of a Guidance's JSON that speak against using it."""
    return [
        check
        for check in guidance.get("checks", [])
        if check["result"] == "failed" and check["id"] not in OF_THE_PRESENT
    ]


def approve(notebook: Notebook, identity: str, note: str = "", anyway: bool = False) -> dict[str, Any]:
    """``{"id", "state", "note", "at"}`` after the user's yes.

    Raises UnusableInput for a guidance with open questions, and unless ``anyway`` for one with a failed check.
    """
    kept = notebook.load(identity).guidance
    if kept.get("status") == "needs_answers":
        open_ = ", ".join(question["id"] for question in kept.get("questions", []))
        raise UnusableInput(
            f"{kept['id']} has open questions ({open_}) and cannot be approved: answer them in a new {kept['workflow']}."
        )
    wrong = failed(kept)
    if wrong and not anyway:
        found = "; ".join(f"{check['id']}: {check['evidence'].removesuffix('.')}" for check in wrong)
        raise UnusableInput(
            f"{kept['id']} is not approved, for a check failed ({found}); shardguide approve {kept['id']} --anyway does it."
        )
    return _marked(notebook, identity, "approved", note)


def reject(notebook: Notebook, identity: str, note: str = "") -> dict[str, Any]:
    """``{"id", "state", "note", "at"}`` after the user's no."""
    return _marked(notebook, identity, "rejected", note)


def import_text(notebook: Notebook, text: str) -> dict[str, int]:
    """Add an export that was read from a file; how many rows of each kind were new."""
    import json

    if len(text) > MAX_IMPORT:
        raise UnusableInput(f"The export is too large: at most {MAX_IMPORT} bytes.")
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableInput(f"The export is not JSON ({error}).") from error
    added = notebook.import_(record)
    notebook.require()
    return added


def typed(text: str) -> Any:
    """What was typed: as JSON where it is a whole number, true, false or a list; all else stays text.

    A decimal stays text too: release 2.10 is not 2.1.
    """
    import json

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, (bool, int, list)) else text


def _marked(notebook: Notebook, identity: str, state: str, note: str) -> dict[str, Any]:
    whole = notebook.resolve(identity)
    mark = notebook.approve(whole, note) if state == "approved" else notebook.reject(whole, note)
    return {"id": whole} | mark._asdict()
