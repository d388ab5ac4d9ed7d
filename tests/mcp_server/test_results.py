"""What stands in a result: its summary, the calls that lead on, and the bounds of its parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp import Client

from shardguide.frontends.mcp import bounded, calls
from shardguide.frontends.mcp.tools import input_schema, output_schema, tools

from .test_server import CALLS, FULL, LOG

pytestmark = pytest.mark.anyio

FSDP1 = """\
import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


def wrap(model, layer):
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={layer})
    model = FSDP(model, auto_wrap_policy=policy, device_id=torch.cuda.current_device())
    model.clip_grad_norm_(1.0)
    return model
"""
JOINABLE = """\
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook


class CounterHook(JoinHook):
    def main_hook(self):
        dist.all_reduce(torch.zeros(1))


class Counter(Joinable):
    def __init__(self):
        super().__init__()

    def __call__(self):
        Join.notify_join_context(self)
        dist.all_reduce(torch.zeros(1))
        dist.all_reduce(torch.zeros(1))

    def join_hook(self, **kwargs):
        return CounterHook()

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return dist.group.WORLD
"""
SAVED = """\
import torch.distributed as dist

dist.init_process_group("nccl", group_name="train")
if dist.get_rank() == 0:
    dist.barrier()
"""
# Every kind of result: complete, waiting for answers, not known, refused by arithmetic, with and without something to write.
KINDS: list[tuple[str, dict[str, Any]]] = [
    *CALLS.items(),
    ("start", {}),
    ("start", {"words": "my 70B run hangs after the first epoch on 4 nodes"}),
    ("start", {"words": "how much cheese is on the moon", "torch": "2.13"}),
    ("start", {"words": "how do I clip gradients with FSDP2?", "torch": "2.8"}),
    ("start", {"words": "when did fully_shard become public, 2.5 or 2.6?"}),
    ("start", {"words": "what changed between 2.11 and 2.15?"}),
    ("start", {"words": "which arguments does init_device_mesh take"}),
    ("start", {"words": "convert this to fsdp2", "files": ["fsdp1.py"], "torch": "2.13"}),
    ("start", {"words": "plan FSDP for a 70b model on 16 H100 GPUs, 2 nodes", "torch": "2.13"}),
    ("start", {"words": f"what does this mean?\n{LOG * 40}", "torch": "2.13"}),
    ("plan", {}),
    ("plan", {"model": "7b", "gpus": "16", "torch": "2.13"}),
    ("plan", {**FULL, "model": "400b", "gpus": 8, "nodes": 1, "gpu": "A100 40GB"}),
    ("plan", {**FULL, "device": "nvidia", "strategy": "full_shard"}),
    ("tune", {"model": "7b", "gpus": 8}),
    ("backend", {}),
    ("init", {"method": "tcp", "backend": "nccl"}),
    ("init", {"call": "dist.init_process_group('nccl', init_method='tcp://10.0.0.1:2222')", "torch": "2.13"}),
    ("join", {"with": "fsdp", "uneven": "yes", "on_exhausted": "stop", "torch": "2.13"}),
    ("join", {"paths": ["joinable.py"], "torch": "2.13"}),
    ("fsdp2", {"goal": "migrate", "using": "fsdp1", "torch": "2.2"}),
    ("explain", {}),
    ("explain", {"full_script": True, "torch": "2.13"}),
    ("explain", {"topic": "words", "torch": "2.13"}),
    ("diagnose", {"text": "nothing to see", "torch": "2.13"}),
    ("diagnose", {"question": "it hangs at the end of the epoch"}),
    ("review", {"paths": ["saved.py"], "torch": "2.13"}),
    ("review", {"text": SAVED, "torch": "2.13"}),
    ("review", {"paths": ["fsdp1.py"], "migrate": True, "torch": "2.13"}),
    ("review", {"paths": ["saved.py"], "migrate": True, "torch": "2.13"}),
    ("docs", {"action": "changes", "names": ["2.11", "2.15"]}),
    ("docs", {"names": ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]}),
    ("docs", {"names": ["--nproc-per-node"]}),
]  # fmt: skip


@pytest.fixture(autouse=True)
def files(desk: Any) -> None:
    Path("train.py").write_text(
        "import torch\nfrom torch.distributed.fsdp import fully_shard\n\nfully_shard(torch.nn.ModuleList())\n"
    )
    Path("fsdp1.py").write_text(FSDP1)
    Path("joinable.py").write_text(JOINABLE)
    Path("saved.py").write_text(SAVED)


@pytest.mark.parametrize("number", range(len(KINDS)))
async def test_what_leads_on_can_be_called_as_it_stands(server: Any, number: int) -> None:
    name, arguments = KINDS[number]
    known = tools()
    async with Client(server) as client:
        result = await client.call_tool(name, arguments)
        assert not result.is_error, result.content
        record = result.structured_content
        assert record is not None
        Draft202012Validator(output_schema()).validate(record)
        assert record["summary"] and "\n" not in record["summary"]
        if record.get("questions"):  # then the first step is the call to repeat
            assert not (record.get("approval") or {}).get("asked")
            meant = record.get("understood", {}).get("tool", name)
            first = record["next"][0]
            assert first["tool"] == {"ask": "start", "migrate": "review"}.get(meant, meant), first
            if meant == name:
                assert all(
                    str(first["arguments"][one]) == str(arguments[one])
                    for one in arguments
                    if one not in ("paths", "page")
                )
        for step in record.get("next", ()):
            tool = known[step["tool"]]
            Draft202012Validator(input_schema(tool)).validate(step["arguments"])
            again = await client.call_tool(step["tool"], step["arguments"])
            said = again.content[0].text
            if tool.writes:
                assert again.is_error and "cannot ask its user" in said
            else:
                assert not again.is_error, (step, said)
            if arguments.get("torch") and "torch" in tool.properties:
                assert step["arguments"]["torch"] == arguments["torch"]


async def test_a_step_of_the_command_line_is_a_step_of_the_tools(server: Any) -> None:
    async with Client(server) as client:
        plan = (await client.call_tool("plan", FULL)).structured_content
        moved = (
            await client.call_tool("review", {"paths": ["fsdp1.py"], "migrate": True, "torch": "2.13"})
        ).structured_content
    assert plan is not None and moved is not None
    assert [step["tool"] for step in plan["next"]] == [] and "measure" in plan["not_done"][-2]
    assert f"shardguide apply {plan['id']}" in plan["not_done"][-1]  # this client has no dialogue for a yes
    assert plan["approval"]["asked"]
    assert moved["next"] == [] and f"shardguide apply {moved['id']}" in moved["not_done"][-1]
    assert "read the code again" in moved["not_done"][-2]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("diagnose", {"text": LOG, "torch": "2.13"}, ("called twice (certain)", "Fix: ")),
        ("review", {"paths": ["saved.py"], "torch": "2.13"}, ("certain finding", "saved.py:5", "barrier")),
        ("review", {"paths": ["fsdp1.py"], "migrate": True, "torch": "2.13"}, ("of FSDP1 converted, 0 left", "person", "fsdp1.py")),
        ("join", {"paths": ["joinable.py"], "torch": "2.13"}, ("Counter (Joinable): violated", "main_hook does not make all_reduce")),
        ("explain", {"topic": "gradient-clipping", "torch": "2.13"}, ("Clipping gradients: ", "clip_grad_norm_")),
        ("explain", {}, ("call explain with the id",)),
        ("start", {"words": "how much cheese is on the moon"}, ("Not known",)),
        ("init", {"call": "dist.init_process_group('nccl', init_method='tcp://10.0.0.1:2222')", "torch": "2.13"},
         ("Check call failed: tcp:// assigns no ranks",)),
        ("docs", {"names": ["fully_shard"]}, ("function, in 2.6-2.15", "reshard_after_forward")),
        ("plan", {**FULL, "model": "400b", "gpus": 8, "nodes": 1, "gpu": "A100 40GB"}, ("Check memory failed",)),
    ],
)  # fmt: skip
async def test_the_summary_is_enough_to_act(
    server: Any, name: str, arguments: dict[str, Any], words: tuple[str, ...]
) -> None:
    async with Client(server) as client:
        record = (await client.call_tool(name, arguments)).structured_content
    assert record is not None and all(word in record["summary"] for word in words), record["summary"]
    assert len(record["summary"]) <= 1500


def _whole(record: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """All parts of a record put together again as the documentation says, and the parts."""
    cut = bounded.cut(record)
    first = bounded.part(cut, 1)
    parts = [bounded.part(cut, number) for number in range(1, first["page"]["of"] + 1)]
    head = {
        name
        for name in first
        if all(name in part for part in parts) and all(part[name] == first[name] for part in parts)
    }
    whole: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if name == "page":
                continue
            if name not in whole or (name in head and len(parts) > 1):
                whole[name] = value
            elif isinstance(value, dict):
                whole[name] = bounded._joined(whole[name], value)
            else:
                whole[name] = whole[name] + value
    return whole, parts


@pytest.mark.parametrize(
    "record",
    [
        {"summary": "x", "diff": "".join(f"+line {number} é \\n\t\n" for number in range(9000)), "findings": []},
        {"summary": "x", "diff": "\x00" * 30_000 + "é" * 50_000 + '"\\' * 20_000, "id": "a"},
        {"summary": "x", "accounting": {str(number): {"a": ["y" * 300] * 9} for number in range(90)}, "notes": []},
        {"summary": "x", "checks": [{"id": "a", "evidence": "z" * 50_000}], "decisions": [{"id": "d"}]},
        {"summary": "x", "understood": {"arguments": {"text": "z" * 90_000}}, "next": [{"a": "b" * 9000}], "done": ["c"] * 3000},
        {"summary": "x", "snippets": [{"id": "s", "code": "pass\n" * 20_000}, {"id": "t", "code": "x"}]},
    ],
    ids=["diff", "one line", "objects", "long check", "long head", "long snippet"],
)  # fmt: skip
def test_no_part_is_longer_than_it_may_be_and_nothing_is_lost(record: dict[str, Any]) -> None:
    whole, parts = _whole(record)
    assert all(len(json.dumps(part, ensure_ascii=False)) <= 22_000 for part in parts)
    assert len(parts) > 1 and all("summary" in part for part in parts)
    if "snippets" in record:  # an entry that is longer than a part comes as several
        assert "".join(one.get("code", "") for one in whole["snippets"]) == "pass\n" * 20_000 + "x"
        return
    for name, value in record.items():
        if name == "checks":
            assert "".join(one.get("evidence", "") for one in whole["checks"]) == value[0]["evidence"]
        else:
            assert whole[name] == value, name


async def test_large_inputs_stay_bounded(server: Any) -> None:
    """A large project, reviewed and converted; a pasted log of 300 KB; the longest answers of the others."""
    Path("big").mkdir()
    for number in range(16):
        Path(f"big/part{number}.py").write_text(FSDP1.replace("def wrap", f"def wrap{number}") * 3 + SAVED)
    async with Client(server) as client:
        for name, arguments in (
            ("review", {"paths": ["big"], "torch": "2.13"}),
            ("review", {"paths": ["big"], "migrate": True, "torch": "2.13"}),
            ("start", {"words": f"why?\n{LOG * 4000}", "torch": "2.13"}),
            ("review", {"text": SAVED * 60, "torch": "2.13"}),
            ("fsdp2", {"goal": "migrate", "using": "fsdp1", "torch": "2.13"}),
        ):
            number = pages = 1
            while number <= pages:
                result = await client.call_tool(name, {**arguments, "page": number})
                assert not result.is_error and len(result.content[0].text) <= 22_000, (name, number)
                assert result.structured_content is not None
                pages = result.structured_content["page"]["of"]
                number += 1 if number < 3 else max(1, pages // 5)


def test_refusals_name_arguments_and_tools() -> None:
    known = tools()
    assert (
        calls.for_tools("--gpu-memory must be more; shardguide ask knows.", known)
        == "gpu_memory must be more; the tool start knows."
    )
    assert (
        calls.for_tools("shardguide mcp --allow FOLDER adds one.", known) == "shardguide mcp --allow FOLDER adds one."
    )
    assert calls.for_tools("shardguide apply 12ab --yes", known) == "shardguide apply 12ab --yes"
