"""The functions behind ``answers``, ``history``, ``approve``, ``reject``, export and import."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.notebook import Notebook, Place, commands

ID = "aaaa1111aaaa1111"
RECORD = {
    "id": ID, "workflow": "plan", "torch": {"version": "2.13.0"}, "status": "complete", "answers": {},
    "approval": {"state": "draft", "asked": "Use it?"},
}  # fmt: skip


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    with Notebook(Place(str(tmp_path / "notebook.db"), True)) as opened:
        yield opened


@pytest.fixture
def unreachable(tmp_path: Path) -> Notebook:
    (tmp_path / "home").write_text("a file")
    return Notebook(Place(str(tmp_path / "home" / "notebook.db"), False))


@pytest.mark.parametrize(
    ("text", "value"),
    [("16", 16), ("2.10", "2.10"), ("true", True), ("[1, 2]", [1, 2]), ("70b", "70b"), ("H100", "H100"), ("1e9", "1e9"),
     ("", ""), ("null", "null"), ('{"a": 1}', '{"a": 1}'), ("[" * 100_000, "[" * 100_000), ("9" * 5000, "9" * 5000)],
)  # fmt: skip
def test_typed(text: str, value: Any) -> None:
    assert commands.typed(text) == value
    assert type(commands.typed(text)) is type(value)


def test_set_show_forget(notebook: Notebook) -> None:
    commands.answers_set(notebook, "", "torch", "2.13")
    one = commands.answers_set(notebook, "/p", "memory", "80", "GiB")
    assert [entry["name"] for entry in one["answers"]] == ["memory"]
    shown = commands.answers_show(notebook, "/p")
    assert json.loads(json.dumps(shown)) == shown
    memory, torch = shown["answers"]
    assert (memory["value"], memory["unit"], memory["from"], memory["scope"]) == (80, "GiB", "user", "project")
    assert (torch["value"], torch["scope"]) == ("2.13", "default")
    assert commands.answers_forget(notebook, "/p", "memory") == {"project": "/p", "forgotten": ["memory"]}
    with pytest.raises(UnusableInput, match="answers show"):
        commands.answers_forget(notebook, "/p", "memory")
    assert commands.answers_forget(notebook, "/p") == {"project": "/p", "forgotten": []}


def test_history_and_approval(notebook: Notebook) -> None:
    notebook.save(RECORD, "d", "/p")
    assert commands.recall(notebook, "aaaa") == RECORD
    done = commands.approve(notebook, "aaaa", "for the August run")
    assert (done["id"], done["state"], done["note"]) == (ID, "approved", "for the August run")
    assert commands.recall(notebook, ID)["approval"] == {"state": "approved", "asked": "Use it?"}
    listed = commands.history(notebook)["guidance"]
    assert [(entry["id"], entry["state"], entry["project"]) for entry in listed] == [(ID, "approved", "/p")]
    assert json.loads(json.dumps(listed)) == listed
    assert commands.reject(notebook, ID)["state"] == "rejected"
    assert RECORD["approval"] == {"state": "draft", "asked": "Use it?"}


def test_what_is_open_or_refused_is_not_approved(notebook: Notebook) -> None:
    open_ = RECORD | {"id": "b" * 16, "status": "needs_answers", "questions": [{"id": "gpus"}, {"id": "nodes"}]}
    checks = [
        {"id": "memory", "result": "failed", "evidence": "Cannot fit: 90 GiB of 80 GiB."},
        {"id": "rules", "result": "passed", "evidence": "x"},
    ]
    refused = RECORD | {"id": "c" * 16, "checks": checks}
    # what runs now breaks a rule: that is why the recommendation is wanted
    better = RECORD | {"id": "d" * 16, "checks": [{"id": "current", "result": "failed", "evidence": "x"}]}
    for record in (open_, refused, better):
        notebook.save(record, "d", "/p")
    for anyway in (False, True):
        with pytest.raises(UnusableInput, match="gpus, nodes"):
            commands.approve(notebook, "bbbb", anyway=anyway)
    with pytest.raises(UnusableInput, match=r"memory: Cannot fit.*--anyway"):
        commands.approve(notebook, "cccc")
    assert notebook.approval("c" * 16).state == notebook.approval("b" * 16).state == "draft"
    assert commands.approve(notebook, "cccc", anyway=True)["state"] == "approved"
    assert commands.approve(notebook, "dddd")["state"] == "approved"
    assert commands.reject(notebook, "bbbb")["state"] == "rejected"


def test_commands_say_when_there_is_no_notebook(unreachable: Notebook) -> None:
    """A workflow goes on without one; a command that is about nothing else does not."""
    place = unreachable.place
    for action in (
        lambda book: commands.answers_show(book),
        lambda book: commands.answers_set(book, "", "a", "1"),
        lambda book: commands.answers_forget(book, ""),
        lambda book: commands.history(book),
        lambda book: commands.recall(book, ID),
        lambda book: commands.approve(book, ID),
        lambda book: commands.reject(book, ID),
        lambda book: book.export(),
        lambda book: commands.import_text(book, json.dumps(EMPTY)),
    ):
        with pytest.raises(UnusableInput, match=r"Not a directory\).*\.$"):
            action(Notebook(place))


EMPTY = {"schema": "shardguide-notebook/1", "answers": [], "guidance": [], "approvals": [], "handled": []}


def filled(notebook: Notebook) -> None:
    notebook.remember("/p", {"gpus": 16, "names": ["a", "ü"]}, "user", {"gpus": "GPUs"})
    notebook.save(RECORD, "d", "/p", "k1")
    notebook.save(RECORD, "d", "/p", "k1")
    notebook.approve(ID, "yes")


def test_export_and_import_are_the_same_notebook(notebook: Notebook, tmp_path: Path) -> None:
    filled(notebook)
    record = notebook.export()
    text = json.dumps(record)
    with Notebook(Place(str(tmp_path / "other.db"), True)) as other:
        added = commands.import_text(other, text)
        assert added == {"answers": 2, "guidance": 1, "approvals": 1, "handled": 2}
        assert other.answers("/p") == notebook.answers("/p")
        assert other.load(ID) == notebook.load(ID)
        assert commands.import_text(other, text) == {"answers": 0, "guidance": 0, "approvals": 0, "handled": 0}


def test_import_adds_and_does_not_overwrite(notebook: Notebook) -> None:
    """A newer answer wins, an older one does not; a guidance that is known stays as it is."""
    filled(notebook)
    record = notebook.export()
    record["guidance"][0]["result"]["status"] = "forged"
    record["answers"][0] |= {"value": 99, "since": "2001-01-01T00:00:00Z"}
    record["answers"][1] |= {"value": ["newer"], "since": "2999-01-01T00:00:00Z"}
    record["answers"].append(record["answers"][0] | {"name": "new"})
    assert notebook.import_(record)["answers"] == 2
    known = notebook.answers("/p")
    assert (known["gpus"].value, known["names"].value, known["new"].value) == (16, ["newer"], 99)
    assert notebook.load(ID).guidance["status"] == "complete"


def test_log_of_unknown_guidance_is_not_added(notebook: Notebook) -> None:
    mark = {"guidance": "ffffffff", "state": "approved", "note": "", "at": "2026-01-01T00:00:00Z"}
    assert notebook.import_(EMPTY | {"approvals": [mark]})["approvals"] == 0
    assert notebook.approval("ffffffff").state == "draft"


ANSWER = {"project": "", "name": "a", "value": 1, "unit": "", "source": "user", "since": "2026-01-01T00:00:00Z"}
GUIDANCE = {
    "id": "aaaa",
    "workflow": "",
    "torch": "",
    "knowledge": "",
    "status": "",
    "result": {"id": "aaaa"},
    "created": "",
}
MARK = {"guidance": "aaaa", "state": "approved", "note": "", "at": ""}


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "null", "{}", '{"schema": "shardguide/1"}', "[" * 100_000, json.dumps(EMPTY | {"schema": "x"}),
     json.dumps(EMPTY | {"answers": None}), json.dumps(EMPTY | {"answers": [1]}), json.dumps(EMPTY | {"answers": [{}]}),
     json.dumps(EMPTY | {"answers": [ANSWER | {"more": 1}]}), json.dumps(EMPTY | {"answers": [ANSWER | {"value": {}}]}),
     json.dumps(EMPTY | {"answers": [ANSWER | {"name": 1}]}), json.dumps(EMPTY | {"answers": [ANSWER | {"at": 5}]}),
     json.dumps(EMPTY | {"answers": [ANSWER | {"project": "x" * 9000}]}),
     json.dumps(EMPTY | {"guidance": [GUIDANCE | {"id": "../x"}]}),
     json.dumps(EMPTY | {"guidance": [GUIDANCE | {"result": 1}]}),
     json.dumps(EMPTY | {"guidance": [GUIDANCE | {"result": {"id": "bbbb"}}]}),
     json.dumps(EMPTY | {"approvals": [MARK | {"state": "done"}]}),
     json.dumps(EMPTY | {"approvals": [MARK | {"guidance": 1}]}),
     json.dumps(EMPTY)[:-5]],
)  # fmt: skip
def test_import_of_something_else(text: str, notebook: Notebook, tmp_path: Path) -> None:
    with pytest.raises(UnusableInput) as caught:
        commands.import_text(notebook, text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250
    assert list(tmp_path.iterdir()) == []


def test_imported_approvals_keep_the_order_of_their_times(notebook: Notebook, tmp_path: Path) -> None:
    """Several in one second come as they were; an older one that is imported does not outrank a newer one that is here."""
    notebook.save(RECORD, "inputs")
    for mark in (commands.approve, commands.reject, commands.approve):
        mark(notebook, ID)
    record = json.loads(json.dumps(notebook.export()))
    with Notebook(Place(str(tmp_path / "other.db"), True)) as other:
        assert other.import_(record)["approvals"] == 3
        assert other.approval(ID).state == "approved"
        assert other.import_(record)["approvals"] == 0
    older = {
        **record,
        "approvals": [{**one, "state": "rejected", "at": "2020-01-01T00:00:00Z"} for one in record["approvals"][:1]],
    }
    assert notebook.import_(older)["approvals"] == 1
    assert notebook.approval(ID).state == "approved"


def test_the_same_answer_keeps_its_approval(notebook: Notebook) -> None:
    """Where an input was known from is no part of an answer; its content is."""
    first = {
        **RECORD,
        "answers": {"os": {"value": "linux", "from": "user"}},
        "decisions": [{"id": "backend", "choice": "nccl"}],
    }
    notebook.save(first, "inputs")
    commands.approve(notebook, ID)
    notebook.save({**first, "answers": {"os": {"value": "linux", "from": "notebook"}}}, "inputs")
    assert notebook.approval(ID).state == "approved"
    notebook.save({**first, "decisions": [{"id": "backend", "choice": "gloo"}]}, "inputs")
    assert notebook.approval(ID).state == "draft"
