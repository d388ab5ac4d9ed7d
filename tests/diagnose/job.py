"""A made-up job: a log and a Flight Recorder dump of every rank, in the form of PyTorch 2.13."""

from __future__ import annotations

import pickle
from pathlib import Path


def dump(rank: int, ranks: int, culprit: int, entries: int = 40) -> bytes:
    """A dump in which all ranks but one issued the last all-reduce."""
    count = entries - 1 if rank == culprit else entries
    out = [
        {
            "frames": [{"name": "main", "filename": "/workspace/train.py", "line": 77}], "record_id": at, "pg_id": 0,
            "process_group": ("0", "default_pg"), "thread_name": "python", "thread_id": "1", "collective_seq_id": at + 1,
            "p2p_seq_id": 0, "op_id": at + 1, "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18 + at,
            "input_sizes": [[4096]], "input_dtypes": ["Float"], "output_sizes": [[4096]], "output_dtypes": ["Float"],
            "state": "completed" if at < entries - 1 else "scheduled", "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None, "retired": at < entries - 1, "timeout_ms": 600000, "is_p2p": False,
        }
        for at in range(count)
    ]  # fmt: skip
    status = {
        "last_enqueued_collective": count,
        "last_started_collective": count,
        "last_completed_collective": entries - 1,
    }
    return pickle.dumps(
        {
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}},
            "comm_lib_version": "2.30.3",
            "pg_status": {"0": status},
            "entries": out,
        },
        protocol=2,
    )


def write_job(folder: Path, ranks: int, culprit: int) -> None:
    """The job's folder; the dump of rank 5 is cut off."""
    for rank in range(ranks):
        content = dump(rank, ranks, culprit)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(content[: len(content) // 2] if rank == 5 else content)
        lines = [f"[rank{rank}]: step {step} loss {1 / (step + 1):.4f} lr 1e-4" for step in range(200)]
        (folder / f"rank{rank}.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
