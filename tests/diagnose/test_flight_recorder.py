"""Flight Recorder dumps of every form that the releases have written; synthetic ones after FlightRecorder.hpp and its readers."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.readers.flight_recorder import read
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose

FRAMES = [{"name": "step", "filename": "/home/user/train.py", "line": 40}]


def entry(at: int, name: str = "all_reduce", done: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "frames": FRAMES, "record_id": at, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": at + 1,
        "p2p_seq_id": 0, "op_id": at + 1, "profiling_name": f"nccl:{name}", "time_created_ns": 10**18 + at, "input_sizes": [[64]],
        "input_dtypes": ["Float"], "output_sizes": [[64]], "output_dtypes": ["Float"], "state": "completed" if done else "started",
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": done, "timeout_ms": 600000, "is_p2p": False,
    } | more  # fmt: skip


def p2p(at: int, name: str, done: bool = False, size: int = 64) -> dict[str, Any]:
    return entry(
        at, name, done, is_p2p=True, p2p_seq_id=at + 1, collective_seq_id=0, input_sizes=[[size]], output_sizes=[[size]]
    )


def content(entries: list[dict[str, Any]], ranks: int = 2, version: str = "2.10") -> dict[str, Any]:
    group = {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}
    return {"version": version, "pg_config": {"0": group}, "pg_status": {}, "entries": entries}


def diagnosed(folder: Path, dumps: list[Any], form: str = "pickle") -> dict[str, Any]:
    for rank, dump in enumerate(dumps):
        data = pickle.dumps(dump, protocol=2) if form == "pickle" else json.dumps(dump).encode()
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
    return diagnose(DiagnoseRequest((str(folder),), torch="2.13")).extra["diagnoses"][0]


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_a_missing_rank_in_both_forms(tmp_path: Path, form: str) -> None:
    whole = [entry(at, done=at < 3) for at in range(4)]
    first = diagnosed(tmp_path, [content(whole), content(whole[:3])], form)
    assert (first["id"], first["ranks"]) == ("fr_rank_missing", [1])


def test_the_first_versions_with_one_kind_of_number_and_no_group_names(tmp_path: Path) -> None:
    """``seq_id`` and ``pg_id`` only, no ``pg_config``, no ``is_p2p``, no dtypes: what the readers of the first versions took."""

    def old(at: int, done: bool) -> dict[str, Any]:
        return {
            "record_id": at, "pg_id": 0, "seq_id": at + 1, "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18 + at,
            "input_sizes": [[64]], "output_sizes": [[64]], "state": "completed" if done else "scheduled", "retired": done, "frames": FRAMES,
        }  # fmt: skip

    whole = [old(at, at < 3) for at in range(4)]
    first = diagnosed(tmp_path, [{"version": "1.1", "entries": whole}, {"version": "1.1", "entries": whole[:3]}])
    assert (first["id"], first["ranks"]) == ("fr_rank_missing", [1])


def test_a_wrapped_buffer_is_known_as_one(tmp_path: Path) -> None:
    (tmp_path / "rank_0").write_bytes(pickle.dumps(content([entry(at) for at in range(5000, 5010)])))
    dump = read(str(tmp_path / "rank_0"))
    assert dump.wrapped and dump.rank == 0 and min(dump.ops["0"]) == 5001


def test_a_truncated_dump_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    whole = [entry(at, done=at < 3) for at in range(4)]
    for rank, dump in enumerate([content(whole, 3), content(whole[:3], 3), content(whole, 3)]):
        data = pickle.dumps(dump, protocol=2)
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(data[: len(data) // 2] if rank == 2 else data)
    record = diagnose(DiagnoseRequest((str(tmp_path),), torch="2.13"))
    assert record.extra["diagnoses"][0]["ranks"] == [1]
    assert any("nccl_trace_rank_2" in text for text in record.not_done)


def test_coalesced_operations_align_like_others(tmp_path: Path) -> None:
    whole = [entry(0), entry(1, "ALLGATHER_coalesced"), entry(2, "coalesced", done=False)]
    other = [entry(0), entry(1, "REDUCE_SCATTER_coalesced", done=False)]
    first = diagnosed(tmp_path, [content(whole), content(other)])
    assert first["id"] == "fr_op_mismatch" and "REDUCE_SCATTER_coalesced" in first["evidence"][0]["text"]


def test_two_ranks_that_both_receive(tmp_path: Path) -> None:
    first = diagnosed(tmp_path, [content([entry(0), p2p(1, "recv 0<-1")]), content([entry(0), p2p(1, "recv 1<-0")])])
    assert (first["id"], first["ranks"]) == ("fr_p2p_unmatched", [0, 1])
    assert "both receive" in first["evidence"][0]["text"]


def test_along_a_pipeline_the_stage_at_the_end_is_named(tmp_path: Path) -> None:
    """Rank 3 waits for 2, 2 for 1; 1 has nothing open: it never sent."""
    dumps = [[entry(0)], [entry(0)], [entry(0), p2p(1, "recv 2<-1")], [entry(0), p2p(1, "recv 3<-2")]]
    first = diagnosed(tmp_path, [content(one, 4) for one in dumps])
    assert (first["id"], first["ranks"]) == ("fr_p2p_unmatched", [1])


def test_a_send_and_a_receive_of_different_sizes(tmp_path: Path) -> None:
    first = diagnosed(tmp_path, [content([p2p(1, "send 0->1", size=64)]), content([p2p(1, "recv 1<-0", size=32)])])
    assert (first["id"], first["ranks"]) == ("fr_size_mismatch", [0, 1])


def test_a_pair_that_fits_is_no_finding_of_its_own(tmp_path: Path) -> None:
    for rank, one in enumerate([p2p(1, "send 0->1"), p2p(1, "recv 1<-0")]):
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(content([entry(0), one])))
    found = diagnose(DiagnoseRequest((str(tmp_path),), torch="2.13")).extra["diagnoses"]
    assert not any(one["id"] in ("fr_p2p_unmatched", "fr_size_mismatch") for one in found)


@pytest.mark.parametrize("broken", [{}, {"entries": 3}, {"entries": [7]}, {"entries": [{"seq_id": 1}]}, [], 5])
def test_what_is_no_dump_is_one_sentence(tmp_path: Path, broken: Any) -> None:
    (tmp_path / "rank_0").write_bytes(pickle.dumps(broken))
    with pytest.raises(UnusableInput):
        read(str(tmp_path / "rank_0"))
