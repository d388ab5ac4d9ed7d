"""The server as a client sees it: both eras, all tools, answers, refusals, bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator
from mcp import Client, MCPError
from mcp_types import PromptReference, ResourceTemplateReference

pytestmark = pytest.mark.anyio

FULL = {
    "model": "7b", "gpus": 16, "nodes": 2, "gpu": "H100 SXM 80GB", "intra": "nvlink", "inter": "infiniband", "optimizer": "adamw",
    "param_dtype": "float32", "torch": "2.13",
}  # fmt: skip
LOG = "RuntimeError: trying to initialize the default process group twice!\n"
CALLS: dict[str, dict[str, Any]] = {
    "start": {"words": "should I use nccl or gloo for CUDA GPUs on Linux over InfiniBand", "torch": "2.13"},
    "plan": FULL,
    "tune": {**FULL, "now": ["api=fsdp2", "param=fp16"]},
    "backend": {"device": "cuda", "inter": "infiniband", "os": "linux", "torch": "2.13"},
    "init": {"method": "env", "backend": "nccl", "launcher": "torchrun", "torch": "2.13"},
    "join": {"with": "ddp", "uneven": "yes", "on_exhausted": "drain", "collectives": "no", "torch": "2.13"},
    "fsdp2": {"goal": "memory", "torch": "2.13"},
    "explain": {"topic": "gradient-clipping", "torch": "2.13"},
    "diagnose": {"text": LOG, "torch": "2.13"},
    "review": {"paths": ["train.py"], "torch": "2.13"},
    "docs": {"names": ["fully_shard"]},
}
BOTH = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.fixture(autouse=True)
def script(desk: Any) -> None:
    Path("train.py").write_text(
        "import torch\nfrom torch.distributed.fsdp import fully_shard\n\nfully_shard(torch.nn.ModuleList())\n"
    )


@BOTH
async def test_the_list_of_tools(server: Any, mode: str) -> None:
    async with Client(server, mode=mode) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == [*CALLS, "apply"] and len(tools) <= 12
    size = sum(len(tool.model_dump_json(exclude={"output_schema"}, exclude_none=True, by_alias=True)) for tool in tools)
    assert size < 40_000
    for tool in tools:
        assert tool.description and len(tool.description) <= 2048
        assert tool.input_schema["additionalProperties"] is False and tool.output_schema is not None
        hints = tool.annotations
        assert hints is not None and hints.open_world_hint is False
        assert hints.read_only_hint is (tool.name != "apply") and hints.destructive_hint is (tool.name == "apply")
        for name, schema in tool.input_schema["properties"].items():
            assert schema["description"] and isinstance(schema["type"], str), (tool.name, name)
            assert schema["type"] != "array" or schema["items"]["type"] == "string"
        Draft202012Validator.check_schema(tool.input_schema)


@BOTH
@pytest.mark.parametrize("name", CALLS)
async def test_every_tool_answers(server: Any, mode: str, name: str) -> None:
    async with Client(server, mode=mode) as client:
        result = await client.call_tool(name, CALLS[name])
    assert not result.is_error, result.content
    record = result.structured_content
    assert record and json.loads(result.content[0].text) == record
    assert next(iter(record)) == "summary" and record["summary"]
    assert len(json.dumps(record)) < 60_000
    if name != "docs":
        assert record["status"] in ("complete", "partial") and len(record["id"]) == 16


async def test_the_record_is_that_of_the_command_line(server: Any, tmp_path: Path) -> None:
    import shardguide

    expected = shardguide.to_dict(shardguide.backend(device="cuda", inter="infiniband", os="linux", torch="2.13"))
    got: dict[str, Any] = {}
    async with Client(server) as client:
        number, pages = 1, 1
        while number <= pages:
            part = (await client.call_tool("backend", {**CALLS["backend"], "page": number})).structured_content
            assert part is not None
            pages = part.pop("page")["of"]
            for name, value in part.items():
                if isinstance(value, list) and name in got and got[name] != value:
                    got[name] = [*got[name], *value]
                else:
                    got.setdefault(name, value)
            number += 1
    got.pop("summary")
    assert [step["tool"] for step in got.pop("next")] == ["init"] and expected.pop("next")
    assert pages > 0 and {name: got[name] for name in sorted(got)} == {
        name: expected[name] for name in sorted(expected)
    }


@BOTH
async def test_a_long_answer_comes_in_parts_that_hold_everything_once(server: Any, mode: str) -> None:
    import shardguide

    expected = shardguide.to_dict(shardguide.fsdp2(goal="migrate", using="fsdp1", torch="2.13"))
    rows, sources = [], []
    async with Client(server, mode=mode) as client:
        first = (
            await client.call_tool("fsdp2", {"goal": "migrate", "using": "fsdp1", "torch": "2.13"})
        ).structured_content
        assert first is not None and first["page"]["of"] > 2 and "decisions" in first and "later" in first["page"]
        for number in range(1, first["page"]["of"] + 1):
            arguments = {"goal": "migrate", "using": "fsdp1", "torch": "2.13", "page": number}
            part = (await client.call_tool("fsdp2", arguments)).structured_content
            assert part is not None and part["id"] == expected["id"] and len(json.dumps(part)) < 60_000
            rows += part.get("mapping", [])
            sources += part.get("sources", [])
    assert rows == expected["mapping"] and sources == expected["sources"]


@BOTH
@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("backend", {"device": "toaster"}, "must be one of"),
        ("backend", {"divice": "cuda"}, "takes no 'divice'"),
        ("plan", {"model": "7b", "gpus": 17, "nodes": 2, "torch": "2.13"}, "17"),
        ("plan", {"model": "7b", "gpus": {"a": 1}}, "gpus"),
        ("review", {}, "review needs files"),
        ("review", {"paths": ["/etc"]}, "outside of the folders"),
        ("review", {"paths": ["../"]}, "outside of the folders"),
        ("diagnose", {"paths": ["nothing.log"]}, "does not exist"),
        ("diagnose", {"paths": ["https://example.org/x.log"]}, "no URLs"),
        ("diagnose", {"paths": ["-"]}, "no standard input"),
        ("diagnose", {}, "needs a log"),
        ("docs", {}, "needs names"),
        ("docs", {"names": ["a", "b"]}, "one name"),
        ("docs", {"names": ["a\x00b"]}, ""),
        ("backend", {"device": "cuda", "page": 0}, "whole number"),
        ("plan", {"model": ["a"]}, "model is one text"),
        ("diagnose", {"paths": {"a": 1}}, "list of texts"),
        ("review", {"paths": ["train.py"], "migrate": "yes"}, "true or false"),
        ("review", {"text": "x = 1", "migrate": True}, "takes files"),
        ("plan", {"gpu_memroy": "80GB"}, "did you mean gpu_memory?"),
        ("plan", {"gpus": "many"}, "gpus must be a whole number"),
        ("explain", {"topic": "zzzz qqqq"}, "the tool start"),
        ("apply", {"id": "zzzz"}, "no id"),
        ("apply", {"id": "abcd1234"}, "no guidance"),
        ("plan", {"torch": "9.9"}, "9.9"),
    ],
)  # fmt: skip
async def test_bad_arguments_are_one_sentence(
    server: Any, mode: str, name: str, arguments: dict[str, Any], words: str
) -> None:
    async with Client(server, mode=mode) as client:
        result = await client.call_tool(name, arguments)
        text = result.content[0].text
        assert result.is_error and words in text and "Traceback" not in text and len(text) < 1000 and "\n" not in text
        assert not (await client.call_tool("docs", {"names": ["fully_shard"]})).is_error  # the server goes on


@BOTH
async def test_a_tool_that_does_not_exist(server: Any, mode: str) -> None:
    async with Client(server, mode=mode) as client:
        with pytest.raises(MCPError, match="no tool 'nothing'"):
            await client.call_tool("nothing", {})


async def test_a_link_that_leads_out_is_refused(server: Any, tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("x = 1\n")
    Path("link.py").symlink_to(tmp_path / "secret.py")
    async with Client(server) as client:
        result = await client.call_tool("review", {"paths": ["link.py"]})
    assert result.is_error and "outside of the folders" in result.content[0].text


@BOTH
async def test_resources_prompts_and_completion(server: Any, mode: str) -> None:
    async with Client(server, mode=mode) as client:
        listed = (await client.list_resources()).resources
        assert len(listed) > 50 and all(one.uri.startswith("shardguide://topics/") for one in listed)
        page = (await client.read_resource("shardguide://topics/join")).contents[0]
        assert page.mime_type == "text/markdown" and page.text.startswith("# Join")
        entry = json.loads((await client.read_resource("shardguide://api/fully_shard")).contents[0].text)
        assert entry["name"] == "torch.distributed.fsdp.fully_shard"
        rule = json.loads((await client.read_resource("shardguide://rules/FSD101")).contents[0].text)
        assert rule["code"] == "FSD101" and rule["wrong"]
        made = (await client.call_tool("backend", CALLS["backend"])).structured_content
        assert made is not None
        earlier = json.loads((await client.read_resource(f"shardguide://guidance/{made['id']}")).contents[0].text)
        assert earlier["decisions"] == made["decisions"]
        for uri in (
            "shardguide://topics/nothing",
            "shardguide://topics/../x",
            "shardguide://what/x",
            "file:///etc/passwd",
        ):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        assert len((await client.list_resource_templates()).resource_templates) == 4
        prompts = (await client.list_prompts()).prompts
        assert {one.name for one in prompts} == {
            "plan",
            "join",
            "backend",
            "explain",
            "fsdp2",
            "tune",
            "diagnose",
            "init",
        }
        prompt = await client.get_prompt("diagnose", {"case": "it hangs"})
        assert "it hangs" in prompt.messages[0].content.text
        assert "torch=2.8" in (await client.get_prompt("plan", {"torch": "2.8"})).messages[0].content.text
        ref = PromptReference(type="ref/prompt", name="plan")
        assert "2.13" in (await client.complete(ref, {"name": "torch", "value": "2.1"})).completion.values
        template = ResourceTemplateReference(type="ref/resource", uri="shardguide://topics/{id}")
        found = (await client.complete(template, {"name": "id", "value": "join"})).completion.values
        assert "join" in found and all(one.startswith("join") for one in found)
        with pytest.raises(MCPError):
            await client.get_prompt("nothing", {})


@BOTH
async def test_calls_at_the_same_time(server: Any, mode: str) -> None:
    got: dict[int, Any] = {}
    names = [name for name in CALLS for _ in range(3)]
    async with Client(server, mode=mode) as client:
        alone = {name: (await client.call_tool(name, CALLS[name])).structured_content for name in CALLS}

        async def one(number: int, name: str) -> None:
            got[number] = (await client.call_tool(name, CALLS[name])).structured_content

        async with anyio.create_task_group() as group:
            for number, name in enumerate(names):
                group.start_soon(one, number, name)
    for record in (*got.values(), *alone.values()):
        record.pop("earlier", None)  # what was answered before, and when
    assert all(got[number] == alone[name] for number, name in enumerate(names))
