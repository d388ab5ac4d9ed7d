"""A hang told in words: the moment at which it comes says which causes to look at first, and how to tell them apart."""

from __future__ import annotations

import pytest

from shardguide.workflows.diagnose import DiagnoseRequest, diagnose
from shardguide.workflows.diagnose.hangs import told

EPOCH = {"uneven_batches", "rank_divergent_branch"}
# What is meant was decided before they were tried; the first two must hold it.
SAID = {
    "hangs after 1st epoch on 4 nodes 8 h100 each, py-spy shows rank 17 in all_gather": EPOCH,
    "my 70B run hangs after the first epoch on 4 nodes": EPOCH,
    "training gets stuck at the end of epoch 3, no error": EPOCH,
    "the last batch of each epoch never finishes, 16 gpus": EPOCH,
    "rank 5 ran out of batches and the other ranks hang": {"uneven_batches"},
    "deadlock under FSDP because the dataset is uneven over ranks": {"uneven_batches"},
    "hängt nach der ersten Epoche auf 2 Knoten": EPOCH,
    "fsdp job freezes when saving the checkpoint": {"rank0_only_state_dict"},
    "it is stuck in state_dict() under if rank == 0": {"rank0_only_state_dict", "rank0_only_collective"},
    "job hangs when only rank 0 calls barrier": {"rank0_only_collective"},
    "NCCL watchdog timeout after validation": {"uneven_batches", "rank0_only_collective"},
    "model.generate never returns under fsdp2": {"generate_unsynced_ranks"},
    "it hangs at init_process_group with 2 nodes": {"store_barrier_rank_missing"},
    "training stuck before first step, nccl": {"store_barrier_rank_missing", "nccl_init_timeout"},
    "no progress since last night, fsdp on 16 gpus, gpu util 100%": EPOCH,
    "ranks wait forever in reduce_scatter": {"rank_divergent_branch"},
}
OTHER = ("how do I bake bread without it getting stuck", "out of memory, then it hangs", "what does an epoch mean")


@pytest.mark.parametrize("words", SAID)
def test_the_moment_leads_to_the_causes(words: str) -> None:
    record = diagnose(DiagnoseRequest(question=words, torch="2.13"))
    found = record.extra["diagnoses"]
    assert record.extra["outcome"] == "diagnosed"
    assert {one["id"] for one in found[:2]} & SAID[words]
    assert {one["confidence"] for one in found} == {"possible"}
    # How to tell them apart, and what would decide.
    assert all(one["tell"] for one in found[:2])
    assert any(one["next_evidence"] or "py-spy" in one["tell"] for one in found[:2])


def test_after_an_epoch_both_causes_are_said_and_told_apart() -> None:
    found = diagnose(DiagnoseRequest(question=next(iter(SAID)), torch="2.13")).extra["diagnoses"]
    assert [one["id"] for one in found[:2]] == ["uneven_batches", "rank_divergent_branch"]
    assert all("py-spy dump" in one["tell"] for one in found[:2])


@pytest.mark.parametrize("words", OTHER)
def test_other_words_tell_of_no_hang(words: str) -> None:
    assert told(words) == ()


def test_a_log_is_not_overruled_by_the_moment() -> None:
    text = "[rank1]: ValueError: optimizer got an empty parameter list"
    found = diagnose(DiagnoseRequest(text=text, question="hangs after the first epoch", torch="2.13")).extra[
        "diagnoses"
    ]
    assert (found[0]["id"], found[0]["confidence"]) == ("optimizer_no_parameters", "certain")
    assert "uneven_batches" not in [one["id"] for one in found if one["confidence"] != "possible"]
