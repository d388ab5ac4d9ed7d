"""Questions and confirmations through the client, in both eras; and clients that cannot ask."""

from __future__ import annotations

import json
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
async def test_a_wrong_answer_is_said_and_asked_again(server: Any, mode: str) -> None:
    person = Person({"inter": "string and cups", "os": "linux"}, {"inter": "ethernet", "os": "linux"})
    async with Client(server, mode=mode, elicitation_callback=person) as client:
        record = (await client.call_tool("backend", OPEN)).structured_content
    assert record is not None and not record["questions"] and record["answers"]["inter"]["value"] == "ethernet"
    assert "string and cups" in person.asked[1].message.splitlines()[0] and "--" not in person.asked[1].message


@BOTH
async def test_twice_wrong_stays_open(server: Any, mode: str) -> None:
    person = Person({"inter": "string and cups", "os": "linux"}, {"inter": "pigeons", "os": "linux"})
    async with Client(server, mode=mode, elicitation_callback=person) as client:
        result = await client.call_tool("backend", OPEN)
    record = result.structured_content
    assert not result.is_error and record is not None and len(person.asked) == 2
    assert record["answers"]["os"]["value"] == "linux" and [one["id"] for one in record["questions"]] == ["inter"]
    assert any("inter is still open" in one and "pigeons" in one for one in record["not_done"])


@BOTH
async def test_closed_questions_are_lists_and_counts_are_numbers(server: Any, mode: str) -> None:
    """And what the first answers lead to is asked as well: the network only where there is more than one node."""
    first = {"nodes": 2, "gpu": "H100 SXM 80GB", "intra": "nvlink", "optimizer": "adamw", "param_dtype": "float32"}
    person = Person(first, {"inter": "infiniband"})
    async with Client(server, mode=mode, elicitation_callback=person) as client:
        record = (await client.call_tool("plan", {"model": "7b", "gpus": 16, "torch": "2.13"})).structured_content
    assert record is not None and record["status"] == "complete" and not record["questions"]
    assert record["answers"]["nodes"] == {"value": 2, "from": "user"}
    asked = person.asked[0].requested_schema["properties"]
    assert asked["nodes"]["type"] == "integer" and asked["gpu"]["type"] == "string"
    assert set(person.asked[1].requested_schema["properties"]) == {"inter"}
    person = Person({"on_exhausted": "I don't know", "collectives": "no"}, "decline")
    async with Client(server, mode=mode, elicitation_callback=person) as client:
        record = (await client.call_tool("join", {"with": "ddp", "uneven": "yes", "torch": "2.13"})).structured_content
    assert record is not None and [one["id"] for one in record["questions"]] == ["on_exhausted"]
    assert person.asked[0].requested_schema["properties"]["on_exhausted"]["enum"] == ["drain", "stop", "I don't know"]
    flat = {"type", "title", "description", "enum", "minimum", "maxLength"}
    for form in person.asked:
        for field in form.requested_schema["properties"].values():
            assert set(field) <= flat and field["type"] in ("string", "integer", "number", "boolean")


@BOTH
async def test_who_has_said_nothing_is_asked_what_it_is_about(server: Any, mode: str) -> None:
    person = Person({"words": "should I use nccl or gloo for CUDA GPUs on Linux over InfiniBand, PyTorch 2.13"})
    async with Client(server, mode=mode, elicitation_callback=person) as client:
        record = (await client.call_tool("start", {})).structured_content
    assert record is not None and record["workflow"] == "backend" and record["understood"]["tool"] == "backend"
    assert record["decisions"][0]["choice"] == "nccl"


async def test_what_changes_between_two_rounds_is_asked_again(server: Any, desk: Any) -> None:
    """The answer to another question than the one that is open now counts for nothing."""

    class Meanwhile(Person):
        async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
            if len(self.asked) == 0:
                from shardguide.frontends import conduct

                with desk.open() as notebook:
                    notebook.remember(conduct.project(), {"os": "linux"}, "user")
            return await super().__call__(context, params)

    person = Meanwhile({"inter": "infiniband", "os": "windows"}, {"inter": "ethernet"})
    async with Client(server, elicitation_callback=person) as client:
        record = (await client.call_tool("backend", OPEN)).structured_content
    assert set(person.asked[1].requested_schema["properties"]) == {"inter"}
    assert record is not None and record["answers"]["inter"]["value"] == "ethernet"
    assert record["answers"]["os"] == {"value": "linux", "from": "notebook"}


async def test_a_state_that_the_client_made_up_is_read_like_arguments(server: Any) -> None:
    async with Client(server, elicitation_callback=Person(*["decline"] * 8)) as client:
        for state in ("x", "[]", '{"answers": 3}', '{"answers": {"inter": "infiniband"}}', "9" * 30_000):
            result = await client.call_tool("backend", OPEN, request_state=state)
            assert not result.is_error
        for answers in ('{"os": "BeOS"}', '{"nothing": "x"}'):
            result = await client.call_tool("backend", OPEN, request_state=f'{{"answers": {answers}}}')
            assert result.is_error and len(result.content[0].text) < 500


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
    async with Client(server) as client:
        record = json.loads((await client.read_resource(f"shardguide://guidance/{found['id']}")).contents[0].text)
    assert record["approval"]["state"] == "approved"  # by the same yes, as in every other front end


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


@BOTH
async def test_a_yes_counts_for_what_the_dialogue_had_no_room_for(server: Any, mode: str, monkeypatch: Any) -> None:
    """A diff of existing files that is longer than a dialogue is not confirmed unseen."""
    from shardguide.frontends.mcp import server as module

    monkeypatch.setattr(module, "_SHOWN", 100)
    Path("train.py").write_text(SCRIPT)
    async with Client(server, mode=mode, elicitation_callback=Person({"write": True})) as client:
        found = (
            await client.call_tool("review", {"paths": ["train.py"], "torch": "2.13", "select": ["FSD109"]})
        ).structured_content
        assert found is not None
        result = await client.call_tool("apply", {"id": found["id"]})
    assert result.is_error and "too long for a dialogue" in result.content[0].text
    assert Path("train.py").read_text() == SCRIPT


@BOTH
async def test_apply_writes_a_migration_that_start_has_found(server: Any, mode: str) -> None:
    """From words to written files by nothing but the steps of the results."""
    Path("train.py").write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel\n\n\n"
        "def wrap(model):\n    return FullyShardedDataParallel(model)\n"
    )
    person = Person({"write": True})
    async with Client(server, mode=mode, elicitation_callback=person) as client:
        arguments = {"words": "convert this to fsdp2", "files": ["train.py"], "torch": "2.13"}
        found = (await client.call_tool("start", arguments)).structured_content
        assert (
            found is not None
            and found["understood"]["tool"] == "review"
            and found["understood"]["arguments"]["migrate"]
        )
        step = found["next"][0]
        assert step["tool"] == "apply" and any("read the code again" in one for one in found["not_done"])
        result = await client.call_tool(step["tool"], step["arguments"])
        assert not result.is_error, result.content
        again = await client.call_tool(step["tool"], step["arguments"])
        checked = (await client.call_tool("review", {"paths": ["train.py"]})).structured_content
    assert "fully_shard(model)" in Path("train.py").read_text() and len(person.asked) == 1
    assert again.is_error  # the file is no longer the one that was read
    assert checked is not None and checked["workflow"] == "review"
