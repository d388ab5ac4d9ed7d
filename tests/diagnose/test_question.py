"""Questions without a log, and beside one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardguide.knowledge import symptom_index
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose

# None of them is a symptom word for word; what is right was decided before they were tried.
ASKED = {
    "our model hangs at the end of each epoch, ranks got a different number of batches": "uneven_batches",
    "slurm cancelled the job, it ran into the time limit": "slurm_time_limit",
    "nvidia-smi shows a GPU fell off the bus": "xid_79",
    "torchrun says address already in use on port 29500": "port_in_use",
    "bus error in dataloader workers inside docker, shared memory": "dev_shm_too_small",
    "training stops when I close my ssh terminal": "sighup_terminal_closed",
    "NCCL freezes on PCIe GPUs unless NCCL_P2P_DISABLE=1": "p2p_blocked_by_acs",
    "no space left on device while writing checkpoints": "disk_full",
    "model.generate hangs with FSDP because prompt lengths differ": "generate_unsynced_ranks",
    "infiniband vendor err 129 after a few hours": "ib_retry_exceeded",
    # What happens stands beside the case that it happens in, and in one clause of several.
    "my 70B run hangs after 1st epoch on 4 nodes 8 h100 each, py-spy shows rank 17 in all_gather": "uneven_batches",
    "MixedPrecision(param_dtype=torch.float16) gives nan losses after 200 steps on T4": "fp16_without_scaler",
}
# Nothing to do with any diagnosis.
UNRELATED = (
    "what is the weather in Paris tomorrow",
    "how do I bake sourdough bread",
    "recommend a good book about gardening",
    "please translate this sentence into French",
    "xyzzy plugh",
    "!!!",
)


def told(question: str, *paths: str) -> dict[str, Any]:
    return dict(diagnose(DiagnoseRequest(paths, question, torch="2.13")).extra)


@pytest.mark.parametrize("question", ASKED)
def test_a_question_alone_is_possible_at_most(question: str) -> None:
    extra = told(question)
    assert extra["outcome"] == "diagnosed"
    ids = [one["id"] for one in extra["diagnoses"]]
    assert ASKED[question] in ids[:3]
    assert {one["confidence"] for one in extra["diagnoses"]} == {"possible"}
    assert extra["diagnoses"][0]["evidence"][0]["file"] == "question"


def test_most_are_first() -> None:
    first = sum(told(question)["diagnoses"][0]["id"] == wanted for question, wanted in ASKED.items())
    assert first >= 0.8 * len(ASKED)


@pytest.mark.parametrize("question", UNRELATED)
def test_no_guess_on_other_words(question: str) -> None:
    extra = told(question)
    assert (extra["outcome"], extra["diagnoses"]) == ("unrecognised", [])


def test_the_question_decides_between_what_the_lines_leave_open(tmp_path: Path) -> None:
    log = tmp_path / "rank1.log"
    log.write_text(
        "[rank1]:[E112 15:47:18.7 ProcessGroupNCCL.cpp:572] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7930, OpType=_ALLGATHER_BASE, NumelIn=2140, NumelOut=8560, Timeout(ms)=600000) ran for 600047 milliseconds\n",
        encoding="utf-8",
    )
    alone = told("", str(log))
    asked = told("generation hangs under FSDP, decoding steps differ between ranks", str(log))
    assert "generate_unsynced_ranks" not in [one["id"] for one in alone["diagnoses"]]
    assert asked["diagnoses"][0]["id"] == "generate_unsynced_ranks"
    assert asked["diagnoses"][0]["evidence"][0]["file"] == str(log)


def test_a_certain_line_stands_above_the_question(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(
        "slurmstepd: error: *** JOB 4711 ON node0 CANCELLED AT 2026-01-05T03:00:11 DUE TO TIME LIMIT ***\n",
        encoding="utf-8",
    )
    extra = told("infiniband vendor err 129 after a few hours", str(log))
    assert extra["diagnoses"][0]["id"] == "slurm_time_limit"


def test_words_without_their_endings() -> None:
    assert symptom_index.tokens("Checkpoints hang while saving the embeddings") == symptom_index.tokens(
        "checkpoint hangs: save embedding"
    )
    assert symptom_index.tokens("the run is a problem") == []


def test_weights_are_those_of_the_formula() -> None:
    """BM25 by hand: two entries of equal length, one word in each, so idf = ln(1 + 1.5 / 1.5) and the norm is 1."""
    blank = {"kind": "cause", "title": "", "cause": "", "tell": "", "signs": []}
    built = symptom_index.build({"a": {**blank, "symptoms": ["tokenizer"]}, "b": {**blank, "symptoms": ["infiniband"]}})
    word = symptom_index.tokens("tokenizer")[0]
    strength = 4 * 2.2 / (4 + 1.2)  # the word counts four times in symptoms; k = 1.2
    assert built["@idf"][word] == round(100 * 0.6931471805599453)
    assert built[word] == [0, round(100 * 0.6931471805599453 * strength), 1]
