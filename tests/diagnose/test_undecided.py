"""What the evidence leaves open is said as that: ranks without a dump, logs that hold only consequences, words that fit nothing."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose

OLD = "[E ProcessGroupNCCL.cpp:458] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, "
OLD += "Timeout(ms)=1800000) ran for 25624887 milliseconds before timing out.\n"
CLOSED = (
    "node1:63025:66048 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node2<51159>\n"
)


def answer(path: Path, text: str | bytes = "", **more: Any) -> dict[str, Any]:
    """The record's own part for a file of this content."""
    if text:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return diagnose(DiagnoseRequest((str(path),), torch="2.13", **more)).extra


def dump(ranks: int, waits: bool) -> bytes:
    """A Flight Recorder dump as ProcessGroupNCCL writes it, of five collectives and one that does not end."""
    entries = [
        {
            "record_id": at, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": at + 1,
            "p2p_seq_id": 0, "op_id": at + 1, "profiling_name": "nccl:all_reduce", "time_created_ns": 10**9 + at,
            "input_sizes": [[64]], "input_dtypes": ["Float"], "output_sizes": [[64]], "output_dtypes": ["Float"],
            "state": "started" if waits and at == 5 else "completed", "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None, "retired": not (waits and at == 5), "timeout_ms": 600000,
            "is_p2p": False, "frames": [{"name": "step", "filename": "/home/user/train.py", "line": 40}],
        }
        for at in range(6)
    ]  # fmt: skip
    group = {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}
    return pickle.dumps({"version": "2.10", "pg_config": {"0": group}, "pg_status": {}, "entries": entries})


@pytest.mark.parametrize(("there", "missing"), [((0, 2, 3), [1]), ((2,), [0, 1, 3])])
def test_ranks_without_a_dump_are_named_and_nothing_below_is_blamed(
    tmp_path: Path, there: tuple[int, ...], missing: list[int]
) -> None:
    for rank in there:
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(dump(4, waits=True))
    (first,) = answer(tmp_path)["diagnoses"]
    assert (first["id"], first["ranks"], first["confidence"]) == ("fr_dump_missing", missing, "possible")
    assert "Two causes remain" in first["cause"]
    assert first["next_evidence"]


def test_with_all_dumps_nobody_is_missing(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(dump(4, waits=True))
    assert answer(tmp_path)["diagnoses"][0]["id"] == "fr_all_entered"


def test_the_rank_whose_number_is_far_below_the_others_left_their_order(tmp_path: Path) -> None:
    log = "".join(OLD.format(rank=rank, seq=seq) for rank, seq in ((0, 96120), (1, 96117), (2, 96125), (7, 64088)))
    first = answer(tmp_path / "train.log", log)["diagnoses"][0]
    assert (first["id"], first["ranks"]) == ("rank_divergent_branch", [7])
    assert "SeqNum=64088" in first["evidence"][0]["text"]


def test_numbers_that_lie_close_together_name_nobody_alone(tmp_path: Path) -> None:
    log = "".join(OLD.format(rank=rank, seq=seq) for rank, seq in ((0, 100), (1, 102), (2, 104)))
    assert answer(tmp_path / "train.log", log)["diagnoses"][0]["ranks"] == [0, 1, 2]


def test_the_rank_in_the_watchdogs_line_of_old_releases(tmp_path: Path) -> None:
    line = "[E ProcessGroupNCCL.cpp:916] [Rank 5] NCCL watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered\n"
    first = answer(tmp_path / "train.log", line)["diagnoses"][0]
    assert (first["id"], first["ranks"]) == ("xid_48", [5])


def test_only_consequences_are_no_cause_and_say_where_to_look(tmp_path: Path) -> None:
    found = answer(tmp_path / "train.log", CLOSED)
    assert (found["outcome"], found["diagnoses"]) == ("consequence", [])
    assert [one["evidence"][0]["line"] for one in found["consequences"]] == [1]
    assert "logs of all ranks" in found["notes"][-1]


def test_a_question_that_fits_nothing_says_so() -> None:
    found = diagnose(DiagnoseRequest(question="what is the weather like")).extra
    assert found["outcome"] == "unrecognised"
    assert "fits no diagnosis" in found["notes"][0]


@pytest.mark.parametrize(
    ("question", "expect", "snippet"),
    [
        ("how do I use Join with uneven inputs under DDP", "join_not_on", "join-ddp"),
        ("should I switch the detection of uneven inputs off", "join_not_on", "join-ddp"),
        ("what does throw_on_early_termination do on all ranks", "join_throw_early", "join-throw-early"),
        ("notify_join_context before the collectives", "join_own_collective", "join-own-joinable"),
    ],
)
def test_join_is_reached_by_a_question(question: str, expect: str, snippet: str) -> None:
    record = diagnose(DiagnoseRequest(question=question, torch="2.13"))
    assert record.extra["diagnoses"][0]["id"] == expect
    assert snippet in [one.id for one in record.snippets]


def test_a_killed_loader_worker_beside_the_steps_memory_limit(tmp_path: Path) -> None:
    log = (
        "│   1024 │   raise RuntimeError('DataLoader worker (pid(s) {}) exited unexpectedly'.f  │\n"
        "RuntimeError: DataLoader worker (pid 164244) is killed by signal: Killed. \n"
        "slurmstepd: error: Detected 1 oom_kill event in StepId=77.batch. Some of the step tasks have been OOM Killed.\n"
    )
    found = answer(tmp_path / "slurm.out", log)["diagnoses"]
    assert [one["id"] for one in found[:2]] == ["host_oom_cgroup", "dataloader_worker_killed"]
    assert [line["line"] for line in found[1]["evidence"]] == [2]


def test_random_bytes_are_no_log(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="binary"):
        answer(tmp_path / "x.bin", random.Random(3).randbytes(3000))


def test_zstd_is_read_with_the_guard_on(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard", reason="an optional part")
    path = tmp_path / "train.log.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(OLD.format(rank=0, seq=9).encode()))
    done = subprocess.run(
        [sys.executable, "-m", "shardguide", "diagnose", str(path), "--torch", "2.13"],
        capture_output=True, text=True, check=False, env={**os.environ, "SHARDGUIDE_STATE": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "did not finish within the timeout" in done.stdout
