"""Questions and confirmations through the client, in both eras; and clients that cannot ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("mode", ["auto", "legacy"])

OPEN = {"device": "cuda", "torch": "2.13"}


class Person:
    """Answers forms."""

    def __init__(self, *answers: dict[str, Any] | str) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            return types.ElicitResult(action=answer)  # type: ignore[arg-type]
        return types.ElicitResult(action="accept", content=answer)


@BOTH
async def test_open_questions_are_put_to_the_user(server: Any, mode: str) -> None:
    person = Person({"inter": "infiniband", "os": "linux"})
    async with Client(server, mode=mode, elicitation_callback=person) as client:
        record = (await client.call_tool("backend", OPEN)).structured_content
    assert record is not None and record["status"] in ("complete", "partial") and not record["questions"]
    assert record["answers"]["inter"] == {"value": "infiniband", "from": "user"}
    (form,) = person.asked
    assert set(form.requested_schema["properties"]) == {"inter", "os"} and not form.requested_schema["required"]
    assert "What links the nodes?" in form.message


@BOTH
@pytest.mark.parametrize("answer", ["decline", "cancel", {}, {"inter": "", "os": " "}])
async def test_who_does_not_answer_gets_the_questions(server: Any, mode: str, answer: Any) -> None:
    person = Person(answer, answer)
    async with Client(server, mode=mode, elicitation_callback=person) as client:
        record = (await client.call_tool("backend", OPEN)).structured_content
    assert record is not None and [one["id"] for one in record["questions"]] == ["inter", "os"]
    assert record["next"][0] == {
        "tool": "backend",
        "arguments": OPEN,
        "why": "answer the questions and call backend again",
    }


@BOTH
async def test_a_wrong_answer_is_said(server: Any, mode: str) -> None:
    person = Person({"inter": "string and cups", "os": "linux"})
    async with Client(server, mode=mode, elicitation_callback=person) as client:
        result = await client.call_tool("backend", OPEN)
    assert result.is_error and "string and cups" in result.content[0].text


@BOTH
async def test_without_forms_the_questions_come_back(server: Any, mode: str) -> None:
    async with Client(server, mode=mode) as client:
        record = (await client.call_tool("backend", OPEN)).structured_content
        assert (
            record is not None
            and record["status"] == "needs_answers"
            and "Still to be answered: inter, os" in record["summary"]
        )
        step = record["next"][0]
        again = (
            await client.call_tool(step["tool"], {**step["arguments"], "inter": "ethernet", "os": "linux"})
        ).structured_content
    assert again is not None and again["decisions"][0]["choice"] == "nccl"


@BOTH
async def test_what_was_answered_is_not_asked_again(server: Any, mode: str) -> None:
    async with Client(server, mode=mode) as client:
        await client.call_tool("backend", {**OPEN, "inter": "infiniband", "os": "linux"})
        record = (await client.call_tool("backend", OPEN)).structured_content
    assert record is not None and not record["questions"] and record["answers"]["os"]["from"] == "notebook"


SCRIPT = """\
import torch.distributed as dist


def main():
    dist.init_process_group("nccl", group_name="train")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""


@BOTH
async def test_apply_writes_after_a_yes_and_keeps_what_was_there(server: Any, mode: str) -> None:
    Path("train.py").write_text(SCRIPT)
    person = Person({"write": True})
    async with Client(server, mode=mode, elicitation_callback=person) as client:
        found = (
            await client.call_tool("review", {"paths": ["train.py"], "torch": "2.13", "select": ["FSD109"]})
        ).structured_content
        assert found is not None and [one["rule"] for one in found["findings"]] == ["FSD109"]
        result = await client.call_tool("apply", {"id": found["id"]})
    assert not result.is_error, result.content
    assert 'dist.init_process_group("nccl")' in Path("train.py").read_text()
    assert Path("train.py.bak").read_text() == SCRIPT
    assert '-    dist.init_process_group("nccl", group_name="train")' in person.asked[0].message
    assert person.asked[0].requested_schema["required"] == ["write"]


@BOTH
@pytest.mark.parametrize("answer", ["decline", "cancel", {"write": False}])
async def test_apply_writes_nothing_without_a_yes(server: Any, mode: str, answer: Any) -> None:
    Path("train.py").write_text(SCRIPT)
    async with Client(server, mode=mode, elicitation_callback=Person(answer)) as client:
        found = (
            await client.call_tool("review", {"paths": ["train.py"], "torch": "2.13", "select": ["FSD109"]})
        ).structured_content
        assert found is not None
        result = await client.call_tool("apply", {"id": found["id"]})
    assert result.structured_content == {"summary": "Nothing was written: the user did not confirm it.", "written": []}
    assert Path("train.py").read_text() == SCRIPT and not Path("train.py.bak").exists()


@BOTH
async def test_apply_refuses_where_the_client_cannot_ask(server: Any, mode: str) -> None:
    Path("train.py").write_text(SCRIPT)
    async with Client(server, mode=mode) as client:
        found = (
            await client.call_tool("review", {"paths": ["train.py"], "torch": "2.13", "select": ["FSD109"]})
        ).structured_content
        assert found is not None
        result = await client.call_tool("apply", {"id": found["id"]})
    assert result.is_error and f"shardguide apply {found['id']}" in result.content[0].text
    assert Path("train.py").read_text() == SCRIPT


@BOTH
async def test_a_yes_counts_for_what_was_shown_only(server: Any, mode: str) -> None:
    """The file changes while the person looks at the diff: nothing is written."""
    Path("train.py").write_text(SCRIPT)
    changed = SCRIPT.replace("main():", "main():  # changed")

    class Slow(Person):
        async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
            Path("train.py").write_text(changed)
            return await super().__call__(context, params)

    async with Client(server, mode=mode, elicitation_callback=Slow({"write": True}, "decline")) as client:
        found = (
            await client.call_tool("review", {"paths": ["train.py"], "torch": "2.13", "select": ["FSD109"]})
        ).structured_content
        assert found is not None
        result = await client.call_tool("apply", {"id": found["id"]})
    assert result.is_error or result.structured_content["written"] == []
    assert Path("train.py").read_text() == changed
