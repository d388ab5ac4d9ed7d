"""First messages (``messages.toml``): the workflow that they lead to, and every fact that they state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

from shardguide.frontends.mcp import calls
from shardguide.frontends.mcp.calls import Desk
from shardguide.frontends.mcp.folders import Folders
from shardguide.frontends.mcp.tools import tools
from shardguide.workflows import catalogue
from shardguide.workflows.intake import understand

MESSAGES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "messages.toml").read_text(encoding="utf-8"))[
    "message"
]
SEVERAL = ("goal", "with", "now", "needs")  # the words may state more of these than is listed


def wrong(message: dict[str, Any]) -> list[str]:
    """What a message is misread in."""
    found = understand(message["words"])
    out = []
    asked = "none" in message["tools"] and found.tool == "ask"
    if found.tool not in message["tools"] and not asked:
        out.append(f"{found.tool}, not {message['tools']}")
    for name, value in message.get("states", {}).items():
        got = found.arguments.get(name)
        if name in SEVERAL:
            wanted, have = (set(one if isinstance(one, list) else str(one or "").split(",")) for one in (value, got))
            if not wanted <= have:
                out.append(f"{name} is {got}, not {value}")
        elif got != value:
            out.append(f"{name} is {got}, not {value}")
    out += [
        f"{name} is {found.arguments[name]}"
        for name, values in message.get("never", {}).items()
        if found.arguments.get(name) in values
    ]
    if message.get("says") and message["says"] not in " ".join(found.notes):
        out.append(f"nothing is said of {message['says']}: {found.notes}")
    return out


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: str(one["id"]))
def test_it_is_understood(message: dict[str, Any]) -> None:
    assert wrong(message) == []


def test_all_arguments_are_taken_by_the_workflow() -> None:
    for message in MESSAGES:
        found = understand(message["words"])
        task = catalogue.TASKS[found.tool]
        assert set(found.arguments) <= set(catalogue.arguments_of(task))
        fields = {field.name: field for field in task.fields()}
        for name, value in found.arguments.items():
            if name in fields and isinstance(value, str):
                fields[name].parse(value)  # raises for what the field does not take


ASKED = [one for one in MESSAGES if one.get("asks")]


@pytest.mark.parametrize("message", ASKED, ids=lambda one: str(one["id"]))
def test_nothing_recognised_leads_on(message: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No dead end: what was not recognised is answered by a question, and by calls that can be made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    desk = Desk(Folders((str(tmp_path),)), str(tmp_path / "notebook.db"))
    record = calls.call(desk, tools()["start"], {"words": message["words"], "torch": "2.13"})
    assert record["questions"] or record.get("diagnoses")
    assert record["next"]
    assert all(step["tool"] in tools() for step in record["next"])


def test_what_is_said_beside_the_answer_reaches_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    desk = Desk(Folders((str(tmp_path),)), str(tmp_path / "notebook.db"))
    words = "how long will training llama 7b on 8 a100 take"
    record = calls.shown(calls.call(desk, tools()["start"], {"words": words, "torch": "2.13"}), 1)
    assert "never estimated" in record["summary"]
    assert "llama is taken by its size only, 7b" in record["summary"]
