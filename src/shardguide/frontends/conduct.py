"""What every front end does around a workflow: what the notebook knows goes in, what was answered and found is kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.guidance.record import Guidance
from shardguide.guidance.serialise import to_dict, with_approval
from shardguide.notebook import Notebook, project_key
from shardguide.workflows.sources import knowledge_version

if TYPE_CHECKING:
    from shardguide.frontends.applying import Change

# Whether the answer that was given last is one of the record: a sentence, for the front end that shows it; "" if it is new.
BEFORE: ContextVar[str] = ContextVar("BEFORE", default="")

# Answers worth remembering for the project; files and one-time switches are not.
REMEMBERED = frozenset(
    {"model", "torch", "gpus", "nodes", "gpu", "gpu_memory", "device", "host_memory", "intra", "inter", "optimizer", "param_dtype", "tp",
     "implementation", "os", "ipoib"}
)  # fmt: skip


def project() -> str:
    """The project that answers belong to: the working folder's real path."""
    return project_key(os.curdir)


def remembered(notebook: Notebook) -> dict[str, Any]:
    """What was answered before in this project, or for all projects."""
    return {name: kept.value for name, kept in notebook.answers(project()).items()}


def conduct(make: Callable[[dict[str, Any]], Guidance], notebook: Notebook, request: str = "") -> dict[str, Any]:
    """Run a workflow with the remembered answers and keep what it gave; returns the JSON object.

    ``make`` takes the remembered answers. What the user stated replaces what was remembered, and what it supersedes (the
    memory of another GPU) is forgotten. Raises UnusableInput as ``make`` does, naming a remembered answer that is the cause.
    ``request`` identifies what was asked whatever the release (``earlier.request``); the ledger finds it again by that.
    """
    known = remembered(notebook)
    try:
        guidance = make(known)
    except UnusableInput as error:
        raise _blamed(error, make, known) from None
    record = to_dict(guidance)
    said = {
        name: answer.value
        for name, answer in guidance.answers.items()
        if answer.source == "user" and name in REMEMBERED and known.get(name) != answer.value
    }
    if said:
        notebook.remember(project(), said, "user")
    if known:
        from shardguide.workflows.remembered import superseded

        stated = {name: answer.value for name, answer in guidance.answers.items() if answer.source == "user"}
        for name in superseded(stated, known):
            notebook.forget(project(), name)
    BEFORE.set(_before(notebook, guidance.id))
    notebook.save(record, request or guidance.id, project(), knowledge_version())
    state = notebook.approval(guidance.id).state
    if state != "draft":
        record = with_approval(record, state)
    if notebook.unavailable:
        record["not_done"] = [*record["not_done"], f"not kept in the notebook: {notebook.unavailable}"]
    return record


def _before(notebook: Notebook, identity: str) -> str:
    """What the record says of an answer: its id is made of the inputs, the release and the knowledge, so it is the same one."""
    rows = notebook.rows("SELECT max(at) FROM handled WHERE guidance = ? AND project = ?", (identity, project()))
    at = rows[0][0] if rows else None
    return f"Asked here before ({str(at)[:10]}); worked out and checked again, the answer is the same." if at else ""


def proposal(notebook: Notebook, identity: str) -> Change:
    """What an earlier answer of this project would write.

    Raises UnusableInput for one that is not known, is another project's, was turned down, waits for answers or proposes nothing.
    """
    from shardguide.frontends.applying import proposed

    whole = notebook.resolve(identity)
    here = project()
    if all(entry.id != whole for entry in notebook.history(here, 1_000_000)):
        raise UnusableInput(f"{whole} was asked for in another folder; apply it there.")
    record = notebook.load(whole).guidance
    mark = notebook.approval(whole)
    if mark.state == "rejected":
        raise UnusableInput(f"{whole} was turned down; shardguide approve {whole} takes that back.")
    if record.get("status") == "needs_answers":
        raise UnusableInput(f"{whole} waits for answers, so nothing of it is written yet.")
    try:
        return proposed(record, os.curdir)
    except UnusableInput as error:
        if mark.note == "applied":
            raise UnusableInput(f"{whole} was written on {mark.at[:10]}, and now: {error}") from None
        raise


# The likelier cause first. Counts are not here: the workflow asks about remembered ones, and without them nothing is planned
# that could be refused.
_CAUSES = (
    "tp", "implementation", "param_dtype", "optimizer", "intra", "inter", "device", "gpu_memory", "host_memory", "gpu", "torch",
    "model",
)  # fmt: skip


def _blamed(error: UnusableInput, make: Callable[[dict[str, Any]], Guidance], known: dict[str, Any]) -> UnusableInput:
    """The refusal, with the remembered answer that causes it: the one without which there is none."""
    for name in _CAUSES:
        if name not in known or (name == "model" and str(known[name]) not in str(error)):
            continue
        try:
            make({other: value for other, value in known.items() if other != name})
        except UnusableInput:
            continue
        origin = f"{name} {known[name]} was remembered; shardguide answers forget {name} drops it"
        return UnusableInput(f"{str(error).removesuffix('.')} ({origin}).")
    return error
