"""What every front end does around a workflow: what the notebook knows goes in, what was answered and found is kept."""

from __future__ import annotations

import os
from collections.abc import Callable

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.guidance.record import Guidance
from shardguide.guidance.serialise import to_dict, with_approval
from shardguide.notebook import Notebook, project_key
from shardguide.notebook.values import dump
from shardguide.workflows.sources import knowledge_version

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


def conduct(make: Callable[[dict[str, Any]], Guidance], notebook: Notebook) -> dict[str, Any]:
    """Run a workflow with the remembered answers and keep what it gave; returns the JSON object.

    ``make`` takes the remembered answers. What the user stated replaces what was remembered, and what it supersedes (the
    memory of another GPU) is forgotten. Raises UnusableInput as ``make`` does, naming a remembered answer that is the cause.
    Where the same was asked here before, ``earlier`` says what the answer was and what is other now.
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
    text = dump(record)
    before = notebook.find(guidance.request, project(), guidance.id, text) if guidance.request else None
    notebook.save(record, guidance.request or guidance.id, project(), knowledge_version(), text)
    state = notebook.approval(guidance.id).state
    found = with_approval(record, state) if state != "draft" else record
    if before is not None:
        from .earlier import told

        earlier = told(before, record)
        found = found | ({"earlier": earlier} if earlier else {})
    if notebook.unavailable:
        found = found | {"not_done": [*found["not_done"], f"not kept in the notebook: {notebook.unavailable}"]}
    return found


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
