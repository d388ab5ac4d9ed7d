"""The plan as a whole: what is decided, what is asked, what is refused, and that every choice has its source.

Right values: the counts and sizes are published or worked out in the issue they come from (Llama-3.1-8B at world 6);
the decisions follow from rules that PyTorch's documentation states, named beside each case.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.serialise import to_dict
from shardguide.knowledge import releases
from shardguide.workflows.plan import plan
from shardguide.workflows.request import PlanRequest

ROOT = Path(__file__).parents[2]
LLAMA = str(ROOT / "examples" / "llama-3.1-8b")
CASES = ROOT / "tests" / "knowledge" / "family_cases"

BASE = {
    "model": LLAMA, "gpus": 16, "nodes": 2, "gpu": "H100 SXM 80GB", "intra": "nvlink", "inter": "infiniband",
    "optimizer": "adamw", "param_dtype": "float32", "torch": "2.13",
}  # fmt: skip

IDS = [
    "sharding", "mesh", "reshard_after_forward", "wrapping", "mixed_precision", "cpu_offload",
    "activation_checkpointing", "backend", "launch",
]  # fmt: skip


def made(**changes: Any) -> dict[str, Any]:
    """The record of a plan; a change to None leaves the field out."""
    extra = {name: changes.pop(name) for name in ("measured", "files", "also", "remembered") if name in changes}
    given = {name: value for name, value in (BASE | changes).items() if value is not None}
    return to_dict(plan(PlanRequest(given=given, **extra)))


def decided(record: dict[str, Any]) -> dict[str, str]:
    return {decision["id"]: decision["choice"] for decision in record["decisions"]}


def check(record: dict[str, Any], name: str) -> dict[str, str]:
    return next(one for one in record["checks"] if one["id"] == name)


def test_every_decision_is_there_with_reason_alternative_and_source() -> None:
    record = made()
    assert [decision["id"] for decision in record["decisions"]] == IDS
    known = {source["id"] for source in record["sources"]}
    for decision in record["decisions"]:
        assert decision["because"], decision["id"]
        assert decision["sources"] and set(decision["sources"]) <= known, decision["id"]
        assert decision["instead_of"], decision["id"]
    for source in record["sources"]:
        assert source["url"].startswith("https://"), source


def test_numbers_of_llama_8b_at_world_6() -> None:
    """The worked example of the issue: the last rank owns 1,335,864,553 elements and stores 1,338,879,339."""
    record = made(gpus=6, nodes=1, inter=None, strategy="full")
    accounting = record["accounting"]
    assert accounting["parameters"] == 8_030_261_248
    last = accounting["per_rank"][-1]
    assert last["last_rank"] == 5
    assert (last["parameters"], last["stored_parameters"]) == (1_335_864_553, 1_338_879_339)
    assert last["parameter_bytes"] == last["gradient_bytes"] == 4 * 1_338_879_339
    assert last["optimizer_bytes"] == 2 * 4 * 1_335_864_553
    assert (
        sum((run["last_rank"] - run["first_rank"] + 1) * run["parameters"] for run in accounting["per_rank"])
        == 8_030_261_248
    )


def test_mixtral_at_1024_ranks_places_experts_elsewhere() -> None:
    """Fused experts on dim 0 would store 5,638,848,772 elements on every rank (the issue's figure)."""
    record = made(model=str(CASES / "mixtral-8x7b-v0.1.json"), gpus=1024, nodes=128, strategy="full")
    shard0 = record["accounting"]["per_rank_shard0"]
    assert {run["stored_parameters"] for run in shard0} == {5_638_848_772}
    placed = record["accounting"]["per_rank"]
    assert max(run["stored_parameters"] for run in placed) < 46_702_792_704 / 1024 * 1.01
    assert "shard_placement_fn" in decided(record)["mesh"]
    assert check(record, "memory")["result"] == "passed"


@pytest.mark.parametrize(
    ("changes", "decision", "expected"),
    [
        # FSDP1's HYBRID_SHARD: full sharding within a node, replication across, for medium-sized models
        ({}, "sharding", r"^hybrid: .* groups of 8 ranks \(one node\), replicated over 2 groups"),
        ({}, "mesh", r"replicate=2, shard=8"),
        # one node has no slower network to spare
        ({"gpus": 8, "nodes": 1, "inter": None}, "sharding", r"^full"),
        # the tutorial: DDP where the model fits a GPU and more are wanted for speed
        ({"model": str(CASES / "gpt2.json"), "gpus": 8, "nodes": 1, "inter": None}, "sharding", r"^none: Distributed"),
        ({"model": str(CASES / "gpt2.json"), "gpus": 1, "nodes": None, "intra": None, "inter": None}, "sharding", r"^none: one"),
        # odd GPU counts shard as well
        ({"gpus": 7, "nodes": 1, "inter": None}, "sharding", r"^full: .* all 7"),
        ({"gpus": 6, "nodes": 2}, "mesh", r"shard=6|replicate=2, shard=3"),
        # torch.cuda.is_bf16_supported(including_emulation=False): compute capability 8.0
        ({"gpu": "V100 32GB"}, "mixed_precision", r"param_dtype=float16, reduce_dtype=float32.*GradScaler"),
        ({"gpu": "T4", "gpus": 64, "nodes": 8}, "mixed_precision", r"float16.*GradScaler"),
        ({"gpu": "A100 80GB"}, "mixed_precision", r"param_dtype=bfloat16, reduce_dtype=float32"),
        # backends: NCCL for CUDA (and under that name on ROCm), XCCL for XPU, Gloo for CPU
        ({}, "backend", r"^nccl$"),
        ({"gpu": "MI300X", "intra": "xgmi"}, "backend", r"^nccl$"),
        ({"gpu": "Max 1550", "intra": "xelink"}, "backend", r"^xccl$"),
        ({"gpu": None, "device": "cpu", "intra": None}, "backend", r"^gloo$"),
        # offload needs a CPU backend beside NCCL
        ({"offload": "yes"}, "backend", r"^cpu:gloo,cuda:nccl$"),
        ({"offload": "yes"}, "cpu_offload", r"CPUOffloadPolicy"),
        ({"strategy": "grad_op"}, "reshard_after_forward", r"^False"),
        ({"torch": "2.7"}, "reshard_after_forward", r"whatever is passed"),
        ({"torch": "2.8"}, "reshard_after_forward", r"None for the root"),
        ({"torch": "2.1"}, "wrapping", r"auto_wrap_policy"),
        ({"gpus": 1, "nodes": 1, "strategy": "full", "intra": None, "inter": None}, "mesh", r"shard=1"),
    ],
)  # fmt: skip
def test_decisions(changes: dict[str, Any], decision: str, expected: str) -> None:
    record = made(**changes)
    assert re.search(expected, decided(record)[decision]), decided(record)[decision]


def test_tied_weights_stay_in_one_group() -> None:
    """From 2.12 on fully_shard raises ValueError for tied weights in two groups."""
    record = made(model=str(CASES / "llama-3.2-1b-instruct.json"), strategy="full")
    wrapping = next(d for d in record["decisions"] if d["id"] == "wrapping")
    assert any("tied" in reason for reason in wrapping["because"])
    names = [module for group in record["accounting"]["groups"] for module in group["modules"]]
    assert "lm_head" not in names and "model.embed_tokens" not in names


def test_cannot_fit_is_an_answer_with_the_arithmetic() -> None:
    record = made(
        model=str(CASES / "llama-3.1-405b.json"), gpus=8, nodes=1, gpu=None, gpu_memory="80GB", inter=None, offload="no"
    )
    memory = check(record, "memory")
    assert record["status"] == "complete"
    assert memory["result"] == "failed"
    run = record["accounting"]["per_rank"][0]
    total = run["parameter_bytes"] + run["gradient_bytes"] + run["optimizer_bytes"]
    assert total == 405_853_388_800 // 8 * 16
    assert f"{total:,}" in memory["evidence"]


def test_host_memory_closes_forced_offload() -> None:
    big = {"model": str(CASES / "llama-3.1-70b-instruct.json"), "gpus": 8, "nodes": 1, "inter": None}
    forced = made(**big)
    assert "CPUOffloadPolicy" in decided(forced)["cpu_offload"]
    assert check(forced, "memory")["result"] == "failed"  # the host's memory was not stated
    assert check(made(**big, host_memory="2TB"), "memory")["result"] == "passed"
    assert check(made(**big, host_memory="512GB"), "memory")["result"] == "failed"


def test_80gb_is_read_as_gib_when_refusing() -> None:
    """Llama-2-7B under DDP with AdamW in fp32 takes 16 bytes a parameter: 107,814,649,856 bytes, over 100 GB and 100 GiB."""
    model = str(CASES / "llama-2-7b.json")
    stated = {"gpu": None, "strategy": "none", "gpus": 8, "nodes": 1, "inter": None, "model": model}
    assert check(made(**stated, gpu_memory="100GB"), "memory")["result"] == "failed"
    # 101 GB is 101,000,000,000 bytes: less than needed; 101 GiB is 108,447,924,224: more. The larger reading counts.
    assert check(made(**stated, gpu_memory="101GB"), "memory")["result"] == "passed"


@pytest.mark.parametrize(
    ("missing", "question"),
    [
        ({"gpus": None}, "gpus"), ({"nodes": None}, "nodes"), ({"gpu": None}, "gpu"), ({"intra": None, "gpu": "A100 80GB"}, "intra"),
        ({"inter": None}, "inter"), ({"optimizer": None}, "optimizer"), ({"param_dtype": None}, "param_dtype"), ({"model": None}, "model"),
    ],
)  # fmt: skip
def test_what_is_missing_is_asked(missing: dict[str, Any], question: str) -> None:
    record = made(**missing)
    assert record["status"] == "needs_answers"
    assert question in [one["id"] for one in record["questions"]]
    assert all(one["why"] for one in record["questions"])


def test_accounting_is_there_while_questions_are_open() -> None:
    record = made(inter=None, intra=None)
    assert record["accounting"]["per_rank"][0]["parameter_bytes"]
    assert made(param_dtype=None)["accounting"]["per_rank"][0]["stored_parameters"]


def test_param_dtype_is_asked_not_taken_from_the_config() -> None:
    record = made(param_dtype=None)
    why = next(one["why"] for one in record["questions"] if one["id"] == "param_dtype")
    assert "bfloat16" in why  # the config's torch_dtype is shown
    assert record["accounting"]["per_rank"][0]["parameter_bytes"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"gpus": 17}, {"gpus": "many"}, {"gpus": 0}, {"gpus": -8}, {"nodes": 3}, {"gpu_memory": "120GB"}, {"gpu_memory": "lots"},
        {"tp": 3}, {"param_dtype": "float3"}, {"strategy": "magic"}, {"intra": "telepathy"}, {"inter": "pigeon"},
        {"torch": "9.9"}, {"torch": "1.13"}, {"model": "no/such/file"}, {"model": "0b"},
    ],
)  # fmt: skip
def test_contradictions_and_nonsense_are_refused_in_one_sentence(changes: dict[str, Any]) -> None:
    with pytest.raises(UnusableInput) as caught:
        made(**changes)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_size_that_only_a_partition_explains_is_a_question() -> None:
    record = made(gpu="H100", gpu_memory="24GB")
    question = next(one for one in record["questions"] if one["id"] == "gpu")
    assert "MIG" in question["ask"] and record["status"] == "needs_answers"


def test_a_file_against_an_option_is_a_question(tmp_path: Path) -> None:
    csv = tmp_path / "gpus.csv"
    row = "NVIDIA A100-SXM4-40GB, 40960 MiB"
    csv.write_text("name, memory.total [MiB]\n" + "\n".join([row] * 8) + "\n")
    record = made(files=(str(csv),))
    assert record["status"] == "needs_answers"
    asked = {one["id"]: one["ask"] for one in record["questions"]}
    assert "gpus.csv" in " ".join(asked.values())


def test_hardware_from_a_file(tmp_path: Path) -> None:
    csv = tmp_path / "gpus.csv"
    csv.write_text("name, memory.total [MiB]\n" + "NVIDIA A100-SXM4-40GB, 40960 MiB\n" * 8)
    record = made(gpu=None, files=(str(csv),))
    source = record["answers"]["gpu"]["from"]
    assert source.startswith("file:") and "gpus.csv" in source
    assert record["hardware"]["memory_bytes"] == 40960 << 20


def test_remembered_answers_are_used_and_shown() -> None:
    record = made(intra=None, remembered={"intra": "nvlink"})
    assert record["answers"]["intra"] == {"value": "nvlink", "from": "notebook"}
    assert record["status"] == "complete"


def test_remembered_answers_of_another_cluster_are_dropped() -> None:
    record = made(nodes=None, gpus=8, remembered={"gpus": 1024, "nodes": 128})
    assert "nodes" in [one["id"] for one in record["questions"]]


def test_measurement_closes_what_was_open(tmp_path: Path) -> None:
    assert [d["id"] for d in made()["decisions"] if d["open"]] == ["cpu_offload", "activation_checkpointing"]
    total = 85_024_112_640
    roomy = {"torch": "2.13.0", "ranks": [{"rank": 0, "max_memory_allocated": 40 << 30, "total_memory": total}]}
    short = {"torch": "2.13.0", "ranks": [{"rank": 3, "max_memory_allocated": 78 << 30, "total_memory": total}]}
    for name, content, choice in (("roomy", roomy, "none"), ("short", short, "checkpoint_wrapper")):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(content))
        record = made(measured=(str(path),))
        found = next(d for d in record["decisions"] if d["id"] == "activation_checkpointing")
        assert not found["open"] and found["choice"].startswith(choice)
        assert f"{name}.json" in found["because"][0]


def test_measured_headroom_changes_full_to_grad_op(tmp_path: Path) -> None:
    """The unsharded parameters of Llama-3.1-8B in bfloat16 are 8,030,261,248 x 2 bytes = 14.96 GiB."""
    path = tmp_path / "m.json"
    one_node = {"gpus": 8, "nodes": 1, "inter": None}
    for peak, expected in ((50 << 30, "grad_op"), (70 << 30, "full")):
        path.write_text(
            json.dumps({"ranks": [{"rank": 0, "max_memory_allocated": peak, "total_memory": 85_024_112_640}]})
        )
        record = made(measured=(str(path),), **one_node)
        sharding = record["decisions"][0]
        assert sharding["choice"].startswith(expected)
        assert "14.96 GiB" in " ".join(sharding["because"])


@pytest.mark.parametrize("release", releases.known())
def test_every_release_gets_a_plan_whose_claims_hold_for_it(release: str) -> None:
    record = made(torch=release)
    assert record["status"] == "complete"
    assert not [line for line in record["not_done"] if "not confirmed" in line]
    for decision in record["decisions"]:
        assert decision["sources"], (release, decision["id"])


def test_optimizer_that_fails_under_fully_shard_is_refused_with_its_error() -> None:
    record = made(optimizer="adafactor", strategy="full")
    found = check(record, "optimizer")
    assert found["result"] == "failed" and "RuntimeError" in found["evidence"]


def test_unknown_optimizer_state_is_said_not_guessed() -> None:
    record = made(optimizer="adamw8bit")
    assert check(record, "optimizer")["result"] == "unknown"
    assert record["accounting"]["per_rank"][0]["optimizer_bytes"] is None


def test_same_request_same_bytes() -> None:
    first, second = made(), made()
    assert json.dumps(first) == json.dumps(second)
    assert made(gpus=32, nodes=4)["id"] != first["id"]


def test_never_claims_that_it_fits_nor_how_long_it_takes() -> None:
    """G3: no estimate of time, and "fits" is never said of a plan."""
    for changes in (
        {},
        {"strategy": "full"},
        {"offload": "yes"},
        {"model": "7b"},
        {"gpus": 8, "nodes": 1, "inter": None},
    ):
        text = json.dumps({k: v for k, v in made(**changes).items() if k not in ("snippets", "sources")}).lower()
        for word in (" fits", "will fit", "seconds per", "tokens per", "hours", "faster by"):
            assert word not in text, word


def test_what_fully_shard_would_refuse_is_a_failed_check(tmp_path: Path) -> None:
    """Two trainable dtypes in one group: FSDP expects uniform original parameter dtype."""
    rows = [
        {"name": f"layers.{i}.{n}", "shape": [64, 64], "dtype": d}
        for i in (0, 1)
        for n, d in (("a", "float32"), ("b", "bfloat16"))
    ]
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(rows))
    record = made(model=str(path), strategy="full", param_dtype=None)
    assert record["status"] == "complete"  # a manifest states the dtypes of the user's own model: nothing to ask
    assert check(record, "fully_shard")["result"] == "failed"
    assert "uniform original parameter dtype" in check(record, "fully_shard")["evidence"]
    assert check(made(model=str(path), strategy="full"), "fully_shard")["result"] == "passed"  # all cast to float32
    tied = made(model=str(CASES / "llama-3.2-1b-instruct.json"), strategy="full")
    assert check(tied, "fully_shard")["result"] == "passed"


def test_muon_takes_the_matrices_of_the_layers_and_adamw_the_rest() -> None:
    """Muon keeps one buffer a matrix, AdamW two tensors for the embeddings, the head and the norms."""
    record = made(optimizer="muon", gpus=8, nodes=1, inter=None, strategy="full")
    matrices = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
    rest = 8_030_261_248 - matrices
    assert record["accounting"]["per_rank"][0]["optimizer_bytes"] == (matrices + 2 * rest) // 8 * 4


def test_tensor_parallel_plan_is_the_familys_the_users_or_asked(tmp_path: Path) -> None:
    """Llama's plan in transformers splits the projections, not the embeddings and norms."""
    own = made(tp=8, gpus=64, nodes=8)
    split = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
    whole = 8_030_261_248 - split
    assert own["accounting"]["per_rank"][0]["stored_parameters"] == (split // 8 + whole) // 8
    path = tmp_path / "tp.json"
    path.write_text(json.dumps({"lm_head": "colwise"}))
    users = made(tp=8, gpus=64, nodes=8, tp_plan=str(path))
    head = 128_256 * 4096
    assert users["accounting"]["per_rank"][0]["stored_parameters"] == (head // 8 + 8_030_261_248 - head) // 8
    asked = made(model=str(CASES / "bloom-560m.json"), tp=8, gpus=64, nodes=8)
    assert "tp_plan" in [question["id"] for question in asked["questions"]]
    path.write_text("[1]")
    with pytest.raises(UnusableInput):
        made(tp=8, gpus=64, nodes=8, tp_plan=str(path))


def test_stated_size_gives_bounds_only() -> None:
    record = made(model="7b")
    assert record["accounting"]["parameters"] == 7_000_000_000
    assert record["accounting"]["per_rank"] == []
    assert record["accounting"]["lower_bounds"]
    assert check(record, "memory")["result"] == "unknown"
    assert "manifest" in [snippet["id"] for snippet in record["snippets"]]


def test_mixed_memory_sizes_hold_the_smallest(tmp_path: Path) -> None:
    csv = tmp_path / "mixed.csv"
    csv.write_text(
        "name, memory.total [MiB]\n"
        + "NVIDIA A100-SXM4-80GB, 81920 MiB\n" * 4
        + "NVIDIA A100-SXM4-40GB, 40960 MiB\n" * 4
    )
    record = made(gpu=None, files=(str(csv),))
    assert record["hardware"]["memory_bytes"] == 40960 << 20
    assert any("differ" in note for note in record["notes"])
