"""What an agent does that knows nothing but the results: it calls what is named, answers as people answer, and hands over what it has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardguide.frontends.mcp import calls
from shardguide.frontends.mcp.tools import input_schema, tools
from shardguide.guidance.errors import UnusableInput

from .conftest import mcp

Client = mcp.Client
types = pytest.importorskip("mcp_types", reason="the MCP SDK is the extra mcp")
pytestmark = pytest.mark.anyio

FSDP1 = "from torch.distributed.fsdp import FullyShardedDataParallel\n\n\ndef wrap(model):\n    return FullyShardedDataParallel(model)\n"
BARRIER = "import torch.distributed as dist\n\n\ndef main():\n    if dist.get_rank() == 0:\n        dist.barrier()\n"
EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-3.1-8b" / "config.json"
CLUSTER = {"gpus": "32", "nodes": "4", "gpu": "H100 80GB", "intra": "nvlink", "inter": "infiniband", "optimizer": "adamw",
           "param_dtype": "float32", "torch": "2.13"}  # fmt: skip


def call(desk: Any, name: str, **arguments: Any) -> dict[str, Any]:
    return calls.call(desk, tools()[name], arguments)


@pytest.mark.parametrize(
    "words",
    [
        "what is NCCL?",
        "plan 7b on 8 H100",
        "migrate this to fsdp2",
        "convert it to fsdp2",
        "is fsdp2 in 2.3?",
        "review this",
        "my job hangs",
    ],
)
@pytest.mark.parametrize("files", [(), ("train.py",)])
def test_what_start_took_it_for_is_a_tool_of_this_server(desk: Any, words: str, files: tuple[str, ...]) -> None:
    Path("train.py").write_text(FSDP1)
    meant = call(desk, "start", words=words, files=list(files), torch="2.13")["understood"]
    assert {meant["tool"], *meant["others"]} <= set(tools())
    assert set(meant["arguments"]) <= set(tools()[meant["tool"]].properties)
    assert call(desk, meant["tool"], **meant["arguments"])["status"]


@pytest.mark.parametrize("words", ["tune", "Tune:", "plan", "plan this"])
def test_a_workflow_named_with_files_is_taken_at_its_word(desk: Any, words: str) -> None:
    Path("train.py").write_text(FSDP1)
    Path("llama").mkdir()
    Path("llama/config.json").write_text(EXAMPLE.read_text())
    meant = call(desk, "start", words=words, files=["train.py", "llama"])["understood"]
    assert meant["tool"] == words.lower().strip(":").split()[0]
    assert meant["arguments"]["model"].endswith("llama") and meant["arguments"]["current"].endswith("train.py")


@pytest.mark.parametrize("migrate", [False, True])
def test_what_leads_on_writes_first_and_never_repeats_the_call(desk: Any, migrate: bool) -> None:
    Path("train.py").write_text(FSDP1 if migrate else BARRIER)
    given = {"paths": ["train.py"], "torch": "2.13", **({"migrate": True} if migrate else {})}
    record = call(desk, "review", **given)
    assert all((one["tool"], one["arguments"]) != ("review", given) for one in record["next"])
    assert all(one["tool"] != "review" for one in record["next"])
    assert any("again" in one for one in record["not_done"])
    if migrate:
        assert record["next"][0]["tool"] == "apply"


@pytest.mark.parametrize("can", [False, True])
async def test_apply_is_named_only_to_who_can_ask(server: Any, can: bool) -> None:
    async def person(context: Any, params: Any) -> Any:
        return types.ElicitResult(action="decline")

    Path("train.py").write_text(FSDP1)
    options = {"elicitation_callback": person} if can else {}
    async with Client(server, **options) as client:
        found = (await client.call_tool("review", {"paths": ["train.py"], "migrate": True})).structured_content
    assert ("apply" in [one["tool"] for one in found["next"]]) == can
    assert any(f"shardguide apply {found['id']}" in one for one in found["not_done"]) == (not can)


@pytest.mark.parametrize(("tool", "name"), [("start", "files"), ("review", "paths"), ("diagnose", "paths")])
def test_one_file_without_its_list_is_one_file(desk: Any, tool: str, name: str) -> None:
    Path("train.py").write_text(BARRIER)
    assert call(desk, tool, **{name: "train.py"})["workflow"] in ("review", "diagnose")
    with pytest.raises(UnusableInput, match=r"nope\.py"):
        call(desk, tool, **{name: "nope.py"})


@pytest.mark.parametrize(
    "text",
    [
        "def f(:\n",
        "#include <stdio.h>\nint main() {}\n",
        "hello world, this is no code",
        "{'a': 1",
        "class A\n    pass\n",
    ],
)
@pytest.mark.parametrize("as_file", [False, True])
def test_what_is_no_python_is_not_read(desk: Any, text: str, as_file: bool) -> None:
    Path("train.py").write_text(text)
    record = call(desk, "review", **({"paths": ["train.py"]} if as_file else {"text": text}))
    assert record["problems"] and record["status"] != "complete"
    assert {one["result"] for one in record["checks"]} == {"unknown"}
    assert "Not read" in calls.as_shown(record)["summary"]


def test_python_that_is_about_something_else_is_read(desk: Any) -> None:
    Path("tool.py").write_text("def add(a, b):\n    return a + b\n")
    assert call(desk, "review", paths=["tool.py"])["problems"] == []


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("plan", {"gpus": 8.5}, "gpus is a whole number, not 8.5."),
        ("plan", {"offload": True}, "offload is one of auto, yes, no, not true."),
        ("plan", {"model": 7.5}, "model is one text"),
        ("apply", {"bogus": 1}, "apply takes no 'bogus'"),
        ("apply", {}, "apply needs id"),
        ("review", {}, "the tool review (argument paths)"),
        (
            "plan",
            {"model": "mistralai/Nothing", "gpus": 8},
            "mistralai/Nothing: there is no such file; if it is a model's name on a hub",
        ),
    ],
)
async def test_a_refusal_says_what_is_wanted(server: Any, tool: str, given: dict[str, Any], said: str) -> None:
    async with Client(server) as client:
        result = await client.call_tool(tool, given)
    text = result.content[0].text
    assert result.is_error and said in text and "shardguide " not in text and "''" not in text


def test_long_text_without_marks_is_read_as_what_was_printed(desk: Any) -> None:
    record = call(desk, "start", words="step 1 loss 2.0\n" * 3000)
    assert record["workflow"] == "diagnose"


def test_no_argument_is_described_by_an_option_or_a_question() -> None:
    for tool in tools().values():
        for name, schema in input_schema(tool)["properties"].items():
            words = schema.get("description", "")
            assert words and "--" not in words and not words.split(" (")[0].endswith("?"), (tool.name, name, words)
    model = tools()["plan"].properties["model"]["description"]
    assert all(one in model for one in ("folder", "config.json", "safetensors", "7b", "hub"))


@pytest.mark.parametrize(
    ("name", "size"),
    [("llama-3.1-8b", 8e9), ("meta-llama/Llama-3.1-8B", 8e9), ("Qwen2.5 72B", 72e9), ("about 7b", 7e9)],
)
def test_a_models_name_is_its_size_and_that_is_said(desk: Any, name: str, size: float) -> None:
    record = call(desk, "plan", model=name, **CLUSTER)
    assert record["hardware"]["parameters"] == size
    assert any("by its size only" in one for one in record["notes"])


@pytest.mark.parametrize(
    "name",
    ["./llama-8b/config.json", "../llama-8b", "/tmp/llama-8b", "sub/folder/llama-8b", "llama-8b.json", "here/llama-8b"],
)
def test_a_path_that_is_not_there_is_no_name(desk: Any, name: str) -> None:
    Path("here").mkdir()
    with pytest.raises(UnusableInput):
        call(desk, "plan", model=name, gpus=8)


@pytest.mark.parametrize("words", ["", " ", "?", "7b", "-", "x", "x 16", "plan"])
def test_few_words_or_none_beside_a_model(desk: Any, words: str) -> None:
    Path("llama").mkdir()
    Path("llama/config.json").write_text(EXAMPLE.read_text())
    assert call(desk, "start", words=words, files=["llama"])["workflow"] == "plan"


def test_the_device_of_another_workflow_is_no_obstacle(desk: Any) -> None:
    call(desk, "backend", device="mps", os="macos", torch="2.13")
    assert call(desk, "plan", model="8b", **CLUSTER)["answers"].get("device", {}).get("value") != "mps"


# What was said and not read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "open_"),
    [
        ("got zz9.48xlarge x 16 want to pretrain a 13b model with fsdp, plan it", {"gpus", "nodes", "gpu"}),
        ("plan a 13b model on 16 XG700", {"gpus", "nodes", "gpu"}),
        ("plan 13b training on tpu v5e pods, 4 of them", {"gpus", "nodes", "gpu"}),
        ("fsdp plan for a 13b on 6 blades please", {"gpus", "nodes"}),
        ("plan 13b on Standard_ND512zz_v9", {"gpus", "nodes", "gpu"}),
        ("plan a 13b on XQ900 cards", {"gpus", "nodes", "gpu"}),
    ],
)
def test_hardware_that_was_not_understood_is_asked_not_remembered(desk: Any, words: str, open_: set[str]) -> None:
    call(desk, "plan", model="70b", **CLUSTER)
    record = call(desk, "start", words=words)
    assert record["workflow"] == "plan", record["workflow"]
    assert open_ <= {one["id"] for one in record["questions"]}
    assert not record["decisions"] or "gpus" not in record["answers"]
    assert "not put in its place" in calls.as_shown(record)["summary"]


@pytest.mark.parametrize(
    "words",
    ["plan a 13b model with fsdp", "fsdp plan for 13b, 3 epochs", "plan a 13b in BF16, batch 8 a gpu on our cluster"],
)
def test_what_was_not_spoken_of_is_remembered(desk: Any, words: str) -> None:
    call(desk, "plan", model="70b", **CLUSTER)
    record = call(desk, "start", words=words)
    assert record["workflow"] == "plan" and record["answers"]["gpus"]["value"] == 32


# In the dialogue ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("said", ["dont know", "no idea", "banana"])
async def test_an_answer_that_cannot_be_read_leaves_one_question_open(server: Any, mode: str, said: str) -> None:
    async def person(context: Any, params: Any) -> Any:
        properties = params.requested_schema["properties"]
        answers = {
            "model": "8b",
            "gpus": 16,
            "nodes": 2,
            "gpu": "H100 80GB",
            "torch": "2.13",
            "optimizer": "adamw",
            "param_dtype": "float32",
            "intra": "nvlink",
        }
        return types.ElicitResult(action="accept", content={name: answers.get(name, said) for name in properties})

    async with Client(server, mode=mode, elicitation_callback=person) as client:
        result = await client.call_tool("plan", {"model": "8b"})
    assert not result.is_error, result.content
    record = result.structured_content
    assert [one["id"] for one in record["questions"]] == ["inter"] and record["answers"]["gpus"]["value"] == 16


async def test_a_page_that_nobody_can_answer_asks_nothing(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardguide.workflows.release.installed", lambda site_packages: [])
    async with Client(server) as client:
        text = (await client.read_resource("shardguide://topics/join")).contents[0].text
        rule = json.loads((await client.read_resource("shardguide://rules/FSD201")).contents[0].text)
    assert "Still to answer" not in text and text.startswith("For PyTorch 2.")
    assert "{" not in rule["message"] + rule["fix"] and rule["claims"]
