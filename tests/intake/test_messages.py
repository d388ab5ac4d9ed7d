"""First messages (``messages.toml``): the workflow that they lead to, and every fact that they state."""

from __future__ import annotations

import time
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


def diagnosed(words: str) -> list[str]:
    found = understand(words)
    assert found.tool == "diagnose"
    record = catalogue.run("diagnose", {"torch": "2.13", **found.arguments}, {}, None)
    return [one["id"] for one in record.extra["diagnoses"]]


DIAGNOSED = [one for one in MESSAGES if one.get("diagnosed")]


@pytest.mark.parametrize("message", DIAGNOSED, ids=lambda one: str(one["id"]))
def test_the_diagnosis_is_first(message: dict[str, Any]) -> None:
    assert diagnosed(message["words"])[0] == message["diagnosed"]


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 3 has a total capacity of 79.11 GiB of which 1.02 GiB is free."


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (f"{OOM} -- only on first step w/ fsdp", "oom_optimizer_state"),
        (OOM, "oom_capacity"),
        ("RuntimeError: NCCL Error 2: unhandled system error", "nccl_system_error"),
        ("job frozen at init, nothing printed, 2 nodes", "store_barrier_rank_missing"),
        ("init_method=file:///scratch/u/rdv hangs second time i start the job", "stale_filestore"),
    ],
)
def test_a_line_that_was_printed_comes_before_the_words_around_it(words: str, first: str) -> None:
    assert diagnosed(words)[0] == first


@pytest.mark.parametrize("around", ["", " -- only on first step w/ fsdp", " when i save the state dict"])
def test_words_beside_a_full_gpu_lead_to_nothing_but_memory(around: str) -> None:
    from shardguide.knowledge import diagnosis_store

    assert {diagnosis_store.get(one).family for one in diagnosed(OOM + around)} == {"memory"}


# As PyTorch's table of backends has it (docs: torch.distributed, "Backends that come with PyTorch").
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("does gloo support reduce_scatter on gpu", "reduce_scatter by gloo on GPU tensors: yes"),
        ("does gloo support reduce_scatter on gpu, torch 2.5", "reduce_scatter by gloo on GPU tensors: no"),
        ("can gloo send from gpu", "send by gloo on GPU tensors: no"),
        ("does nccl support all_to_all on cpu tensors", "all_to_all by nccl on CPU tensors: no"),
        ("can gloo do all_gather with cuda tensors?", "all_gather by gloo on GPU tensors: yes"),
        ("is barrier supported by gloo on cpu", "barrier by gloo on CPU tensors: yes"),
        ("does nccl have reduce-scatter on cuda", "reduce_scatter by nccl on GPU tensors: yes"),
    ],
)
def test_a_question_on_a_capability_is_answered_by_the_table(words: str, says: str) -> None:
    found = understand(words)
    assert found.tool == "backend"
    assert says in found.notes[0]


def test_a_mac_has_gloo_whatever_else_is_known() -> None:
    record = catalogue.run(
        "backend", {**understand("distributed backend on a mac").arguments, "torch": "2.13"}, {}, None
    )
    assert [one.choice for one in record.decisions if one.id == "backend"] == ["gloo"]
    assert not record.questions


@pytest.mark.parametrize(
    "words", ["x", "?!...", "\x1b[31m", "\u202eabc", "(" * 3000, "init_process_group(" + "(" * 900, "no "]
)
def test_any_words_are_read(words: str) -> None:
    assert understand(words).tool in catalogue.TASKS


@pytest.mark.parametrize("piece", ["a", "a.", "1", "8xA100 ", "x Error: ", "(", "\u202e", '`"'])
def test_a_long_text_takes_no_longer_than_its_length(piece: str) -> None:
    before = time.process_time()
    understand((piece * (1 << 20))[: 1 << 20])
    assert time.process_time() - before < 8  # it is under one second; quadratic reading takes minutes


@pytest.mark.parametrize("words", ["", "  ", "plan"])
def test_files_without_words_are_enough(words: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": 64}', encoding="utf-8")
    found = understand(words, (str(tmp_path),))
    assert (found.tool, found.arguments["model"]) == ("plan", str(tmp_path))


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
