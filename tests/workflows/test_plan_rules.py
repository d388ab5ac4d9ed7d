"""Rules of advice that a review found broken once: each states what must not be said, or what must be refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge import releases

from .test_plan import CASES, check, decided, made

LLAMA_70B = {"model": str(CASES / "llama-3.1-70b-instruct.json")}
NODE = {"gpus": 8, "nodes": 1, "inter": None}


def because(record: dict[str, Any], name: str) -> str:
    found = next(d for d in record["decisions"] if d["id"] == name)
    return " ".join([*found["because"], *(one["why_not"] for one in found["instead_of"])])


def test_fused_experts_that_cannot_fit_are_an_answer() -> None:
    record = made(model=str(CASES / "mixtral-8x22b-v0.1.json"), **NODE, offload="no")
    assert check(record, "memory")["result"] == "failed" and record["status"] == "complete"


def test_the_smallest_cluster_is_not_counted_in_nodes() -> None:
    """Llama-3.1-8B with AdamW in float32: 119.66 GiB of states, so two GPUs of 79.65 GiB hold them and one does not."""
    record = made(gpus=1, nodes=1, inter=None, intra=None, strategy="full", offload="no")
    assert "At least 2 such GPUs" in because(record, "sharding")


def test_grad_op_counts_the_unsharded_model() -> None:
    """70B in bfloat16 is 131.42 GiB unsharded, more than a GPU of 79.65 GiB, whatever the shards take."""
    record = made(**LLAMA_70B, gpus=1024, nodes=128, strategy="grad_op")
    memory = check(record, "memory")
    assert memory["result"] == "failed" and "unsharded" in memory["evidence"]


def test_the_reduce_scatter_input_of_the_largest_group_counts() -> None:
    """DeepSeek-V3's expert layers hold 11.5e9 parameters: 4 bytes each in the reduce-scatter's input are over 40 GiB."""
    record = made(model=str(CASES / "deepseek-v3.json"), gpus=2048, nodes=256, gpu="A100 40GB", strategy="full")
    memory = check(record, "memory")
    assert memory["result"] == "failed" and "reduce-scatter" in memory["evidence"]


@pytest.mark.parametrize(
    ("model", "tp"), [("qwen2.5-0.5b", 8), ("qwen2.5-7b-instruct", 8), ("llama-3.1-8b-instruct", 16)]
)
def test_tensor_parallelism_must_divide_the_heads(model: str, tp: int) -> None:
    """transformers reshapes into heads after the split projection: 14 heads and 2 key-value heads on 8 ranks fail there."""
    with pytest.raises(UnusableInput, match="heads"):
        made(model=str(CASES / f"{model}.json"), gpus=64, nodes=4, tp=tp)


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "none", "tp": 2}, {"strategy": "none", "offload": "yes"}, {"strategy": "full", "shard_size": 4},
        {"strategy": "hybrid", "shard_size": 16}, {"strategy": "hybrid", "shard_size": 3}, {"torch": "2.1", "strategy": "hybrid", "shard_size": 4},
        {"optimizer": "sgd+banana"},
    ],
)  # fmt: skip
def test_what_cannot_be_meant_together_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UnusableInput):
        made(**changes)


def test_float16_parameters_do_not_make_an_h100_lack_bfloat16() -> None:
    text = because(made(param_dtype="float16"), "mixed_precision")
    assert "no native bfloat16" not in text and "scaling" in text


def test_bfloat16_parameters_on_a_v100_fail_the_check() -> None:
    record = made(param_dtype="bfloat16", gpu="V100 32GB")
    assert check(record, "consistency")["result"] == "failed"
    assert "emulates" in because(record, "mixed_precision")


def _measured(tmp_path: Path, **rank: Any) -> tuple[str, ...]:
    path = tmp_path / "measured.json"
    path.write_text(json.dumps({"ranks": [{"rank": 0, "total_memory": 85_024_112_640} | rank]}))
    return (str(path),)


def test_a_short_measurement_of_hybrid_sharding_leads_to_full(tmp_path: Path) -> None:
    record = made(measured=_measured(tmp_path, max_memory_allocated=76 << 30))
    assert decided(record)["sharding"].startswith("full")
    text = because(record, "sharding")
    assert "Changed by your measurement" in text and "does not ask for" not in text


def test_retries_are_pressure(tmp_path: Path) -> None:
    """Allocations that needed the cache flushed: no room for unsharded parameters, whatever the peak says."""
    record = made(**NODE, measured=_measured(tmp_path, max_memory_allocated=50 << 30, num_alloc_retries=12))
    assert decided(record)["sharding"].startswith("full")


@pytest.mark.parametrize("rank", [{"max_memory_allocated": 5 << 30}, {"max_memory_allocated": 40 << 30, "rank": 63}])
def test_a_measurement_of_another_run_is_not_used(tmp_path: Path, rank: dict[str, Any]) -> None:
    """5 GiB is less than this plan's 14.96 GiB of shards; rank 63 does not exist among 16."""
    record = made(measured=_measured(tmp_path, **rank))
    assert any("another run" in note for note in record["notes"])
    assert "activation_checkpointing" in [d["id"] for d in record["decisions"] if d["open"]]


def test_refused_plans_do_not_contradict_themselves() -> None:
    record = made(**LLAMA_70B, strategy="hybrid")
    assert check(record, "memory")["result"] == "failed"
    text = because(record, "sharding") + because(record, "cpu_offload")
    assert "does not ask for" not in text and "Arithmetic does not force it" not in text


def test_offload_that_was_asked_for_is_planned_on_one_gpu() -> None:
    record = made(gpus=1, nodes=1, intra=None, inter=None, offload="yes", host_memory="1TB")
    assert decided(record)["sharding"].startswith("full") and "CPUOffloadPolicy" in decided(record)["cpu_offload"]
    assert check(record, "memory")["result"] == "passed"


def test_before_2_3_everything_is_in_fsdp1s_terms() -> None:
    record = made(torch="2.1", offload="yes")
    assert decided(record)["cpu_offload"] == "CPUOffload(offload_params=True)"
    assert record["accounting"]["transients"] == [] and record["accounting"]["groups"] == []
    assert record["snippets"][0]["id"] == "fsdp1"


@pytest.mark.parametrize(("release", "grouped"), [("2.4", False), ("2.5", True)])
def test_lists_of_modules_came_with_2_5(release: str, grouped: bool) -> None:
    groups = made(torch=release, strategy="full")["accounting"]["groups"]
    assert (["model.norm", "lm_head"] in [group["modules"] for group in groups]) is grouped


def test_no_integer_of_one_is_offered() -> None:
    """reshard_after_forward=1 behaves as False, with a warning."""
    for gpus, nodes in ((8, 8), (7, 7), (16, 2)):
        record = made(gpus=gpus, nodes=nodes, strategy="full")
        assert "an int, e.g. 1" not in json.dumps(record["decisions"]) and "an int, e.g. 0" not in json.dumps(
            record["decisions"]
        )


def test_scalar_parameters_are_a_failed_check_not_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(
        json.dumps(
            [
                {"name": "layers.0.w", "shape": [64, 64], "dtype": "float32"},
                {"name": "scale", "shape": [], "dtype": "float32"},
            ]
        )
    )
    record = made(model=str(path), strategy="full")
    assert "scalar parameters" in check(record, "fully_shard")["evidence"]


def test_momentum_is_in_the_code_as_well_as_in_the_accounting() -> None:
    for spelling in ("sgd+momentum", "sgd_momentum"):
        record = made(optimizer=spelling, strategy="full")
        assert (
            record["accounting"]["per_rank"][0]["optimizer_bytes"]
            == record["accounting"]["per_rank"][0]["parameter_bytes"]
        )
        assert "momentum=0.9" in record["snippets"][0]["code"]


def test_stated_sizes_count_the_optimizer() -> None:
    """7e9 parameters over 8 ranks: at least 875,000,000 elements of 16 bytes each on the fullest rank."""
    memory = check(made(model="7b", **NODE, strategy="full"), "memory")
    assert f"{875_000_000 * 16:,}" in memory["evidence"]


def test_the_release_of_a_report_counts(tmp_path: Path) -> None:
    report = tmp_path / "env.txt"
    report.write_text(
        "PyTorch version: 2.5.1+cu124\nIs debug build: False\nCUDA used to build PyTorch: 12.4\nOS: Ubuntu 22.04\n"
    )
    record = made(torch=None, files=(str(report),))
    assert record["torch"]["version"] == "2.5.1" and "env.txt" in record["torch"]["known_from"]


def test_the_id_is_that_of_the_request_not_of_how_it_was_said() -> None:
    assert made(intra=None, remembered={"intra": "nvlink"})["id"] == made()["id"]


def test_same_advice_needs_a_reason_an_alternative_and_a_source_everywhere() -> None:
    models = ["gpt2", "t5-small", "llama-3.2-1b-instruct", "mixtral-8x7b-v0.1", "deepseek-v3", "vit-base-patch16-224"]
    for number, model in enumerate(models):
        for gpus, nodes in ((1, 1), (7, 1), (6, 3), (64, 64), (1024, 128)):
            for strategy in ("auto", "full", "grad_op", "none"):
                release = releases.known()[(number + gpus) % len(releases.known())]
                record = made(
                    model=str(CASES / f"{model}.json"), gpus=gpus, nodes=nodes, strategy=strategy, torch=release
                )
                for decision in record["decisions"]:
                    where = (model, gpus, nodes, strategy, release, decision["id"])
                    assert decision["because"] and decision["instead_of"] and decision["sources"], where


def test_without_sharding_the_list_of_plain_fully_shard_is_given_too() -> None:
    """GPT-2 over 8 ranks: ceil(50257 / 8) = 6283 rows of the tied embedding on each, and so on."""
    record = made(model=str(CASES / "gpt2.json"), **NODE)
    assert decided(record)["sharding"].startswith("none")
    assert record["accounting"]["per_rank"][0]["stored_parameters"] == 124_439_808
    sharded = record["accounting"]["per_rank_shard0"]
    assert sum((run["last_rank"] - run["first_rank"] + 1) * run["parameters"] for run in sharded) == 124_439_808
    assert sharded[0]["stored_parameters"] > 124_439_808 // 8


NCCL_TESTS = """# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validate: 1
#
# Using devices
{devices}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824      16777216     float    none      -1   3000.0  {bandwidth}  {bandwidth}      0   3000.0  {bandwidth}  {bandwidth}      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {bandwidth}
#
# Collective test concluded: all_gather_perf
"""


def _nccl_tests(path: Path, hosts: int, bandwidth: str) -> str:
    """Output of all_gather_perf over 8 GPUs a host, in the layout of nccl-tests' src/common.cu (synthetic numbers)."""
    rows = [
        f"#  Rank {8 * host + gpu:2d} Group  0 Pid  {1000 + gpu} on node{host} device {gpu:2d} [0x1b] NVIDIA H100 80GB HBM3"
        for host in range(hosts)
        for gpu in range(8)
    ]
    path.write_text("all_gather_perf -b 1G -e 1G\n" + NCCL_TESTS.format(devices="\n".join(rows), bandwidth=bandwidth))
    return str(path)


@pytest.mark.parametrize(
    ("across", "expected", "words"), [("45.10", "hybrid", "Not changed by"), ("340.00", "full", "Changed by")]
)
def test_measured_links_decide_about_hybrid_sharding(tmp_path: Path, across: str, expected: str, words: str) -> None:
    """Hybrid sharding spares a network that is slower than the link within a node: the measurement says whether it is."""
    one = _nccl_tests(tmp_path / "one.txt", 1, "350.00")
    two = _nccl_tests(tmp_path / "two.txt", 2, across)
    record = made(measured=(one, two))
    assert decided(record)["sharding"].startswith(expected)
    assert words in because(record, "sharding")
    assert any("busbw" in fact["id"] for fact in record["facts"])


def test_gradients_and_the_next_gather_count_beside_the_reduce_scatter() -> None:
    """DeepSeek-V3 over 2048 ranks: 3.68 GiB of shards, 43.04 of reduce-scatter input, 21.52 each of gradients and next gather.

    Seen in a run of PyTorch 2.13 at foreach_reduce's copy-in: all of them are alive together, 89.7 GiB of 79.65.
    """
    record = made(model=str(CASES / "deepseek-v3.json"), gpus=2048, nodes=256, gpu="H800", strategy="full")
    memory = check(record, "memory")
    assert memory["result"] == "failed" and "unsharded gradients" in memory["evidence"]


@pytest.mark.parametrize(
    "plan_file", ['{"a": "bogus"}', '{"model.layers.*.self_attn.q_proj": "bogus"}', '{"no.such.module": "colwise"}']
)
def test_tensor_parallel_plans_that_make_no_sense(tmp_path: Path, plan_file: str) -> None:
    path = tmp_path / "tp.json"
    path.write_text(plan_file)
    with pytest.raises(UnusableInput):
        made(tp=8, gpus=64, nodes=8, tp_plan=str(path))


def test_what_full_sharding_takes_is_not_called_what_it_saves() -> None:
    """8B over 32 ranks: 3.74 GiB instead of the 14.96 of hybrid sharding over 8."""
    assert "It would take 3.74 GiB instead of 14.96 GiB" in because(made(gpus=32, nodes=4), "sharding")


def test_equal_links_are_not_called_slower(tmp_path: Path) -> None:
    one = _nccl_tests(tmp_path / "one.txt", 1, "233.42")
    two = _nccl_tests(tmp_path / "two.txt", 2, "231.00")
    text = because(made(measured=(one, two)), "sharding")
    assert "not clearly slower" in text and "says so" not in text
    big = made(**LLAMA_70B, gpus=32, nodes=4, gpu="A100 80GB", measured=(one, two))
    assert "Not changed by your measurement" in because(big, "sharding")


def test_a_measurement_that_decides_nothing_says_so(tmp_path: Path) -> None:
    steps = tmp_path / "steps.csv"
    steps.write_text("step,seconds\n1,2.5\n2,2.4\n")
    assert any("changes nothing" in note for note in made(measured=(str(steps),))["notes"])
    one = _nccl_tests(tmp_path / "one.txt", 1, "233.42")
    assert any("changes nothing" in note for note in made(measured=(one,))["notes"])


def test_retries_are_short_everywhere_in_one_plan(tmp_path: Path) -> None:
    record = made(**NODE, measured=_measured(tmp_path, max_memory_allocated=60_000_000_000, num_alloc_retries=12))
    assert decided(record)["activation_checkpointing"].startswith("checkpoint_wrapper")
    assert "12 allocations" in because(record, "activation_checkpointing")
    assert "leaves" not in because(record, "sharding")


def test_network_advice_is_the_backends_own() -> None:
    gloo = because(
        made(gpu=None, device="cpu", intra=None, inter="ethernet", gpus=4, nodes=4, host_memory="256GB"), "backend"
    )
    assert "GLOO_SOCKET_IFNAME" in gloo and "NCCL" not in gloo


def test_the_launch_files_start_the_plans_own_script() -> None:
    for changes, name in (
        ({}, "train_fsdp2.py"),
        ({"torch": "2.1"}, "train_fsdp1.py"),
        ({"strategy": "none"}, "train_ddp.py"),
    ):
        record = made(**changes)
        for snippet in record["snippets"]:
            if snippet["id"] in ("torchrun", "sbatch", "kubernetes"):
                assert name in snippet["code"], (name, snippet["id"])
        assert name in decided(record)["launch"]


def test_without_a_release_nothing_is_called_confirmed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardguide.workflows import release

    monkeypatch.setattr(release, "installed", lambda path: [])
    record = made(torch=None)
    assert "torch" in [question["id"] for question in record["questions"]]
    assert not [line for line in record["not_done"] if "not confirmed" in line]


@pytest.mark.parametrize(("model", "is_open"), [("7b", True), ("8b", True), ("70b", False)])
def test_a_size_that_one_node_may_hold_leaves_hybrid_open(model: str, is_open: bool) -> None:
    """8 bytes to 16 a parameter on 8 ranks: 7b may stay below a quarter of 79.65 GiB, 70b cannot even fit."""
    from shardguide.workflows import catalogue

    given = {"model": model, "gpus": "16", "nodes": "2", "gpu": "H100-SXM-80GB", "intra": "nvlink", "inter": "infiniband",
             "optimizer": "adamw", "param_dtype": "float32", "torch": "2.13"}  # fmt: skip
    decision = next(one for one in catalogue.run("plan", given).decisions if one.id == "sharding")
    assert decision.open == is_open
    assert any("a config.json shows that one node's 8 ranks hold them" in one for one in decision.because) == is_open
