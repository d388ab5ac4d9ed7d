"""CPU time and peak memory of ``shardguide diagnose`` over Flight Recorder dumps of large jobs, torchfrtrace beside it.

    python benchmarks/flight_recorder.py [--ranks 1024 --entries 2000] [--torchfrtrace PYTHON] [--beside 64]

The dumps are made here in the form that PyTorch 2.13 pickles: HSDP over 8 ranks a shard group, three groups a rank, and one rank
that never issues the last collective. Every row is a fresh process over a folder of dumps; the first row after the heading is
what is asked of the product (30 CPU seconds, 300 MB), the second has ten times the ranks and a tenth of the entries: the same
number of entries, so that it shows whether cost grows with them alone. torchfrtrace gets a smaller job of ``--beside`` ranks, since it
takes minutes and 4 GB for the whole one (--beside 1024 waits for it). Status 1 when a limit is exceeded or the wrong rank is named.
"""

# Few imports: a process that is started inherits the peak memory of the one that starts it (see README.md).
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from run import interpreter, once

SHARD = 8
CULPRIT = 13
MOST_SECONDS = 30
MOST_BYTES = 300 * 10**6
SITE = "/opt/venv/lib/python3.12/site-packages/torch"


def dump(rank: int, ranks: int, entries: int) -> bytes:
    """One rank's dump."""
    import pickle

    node = rank // SHARD
    across = str(node + 1), f"mesh_shard_{node}", list(range(node * SHARD, (node + 1) * SHARD))
    along = str(10_000 + rank % SHARD), f"mesh_replicate_{rank % SHARD}", list(range(rank % SHARD, ranks, SHARD))
    frames = [
        {"name": f"call_{at}", "filename": f"{SITE}/nn/modules/module{at}.py", "line": 100 + at} for at in range(20)
    ]
    frames.append({"name": "main", "filename": "/workspace/train.py", "line": 77})
    counts = {across[0]: 0, along[0]: 0}
    out = []
    for at in range(entries):
        last = at >= entries - 3
        # Gather, gather, reduce-scatter, all-reduce, as layers do; the last step's are not complete.
        group, op, small, large = (
            (along, "nccl:all_reduce", 27264000, 27264000)
            if at % 4 == 3
            else (across, "nccl:_reduce_scatter_base", 218112000, 27264000)
            if at % 4 == 2
            else (across, "nccl:_all_gather_base", 27264000, 218112000)
        )
        counts[group[0]] += 1
        if rank == CULPRIT and last:
            break
        out.append(
            {
                "frames": list(frames), "record_id": at, "pg_id": 1 if group is across else 2,
                "process_group": (group[0], group[1]), "thread_name": "python", "thread_id": "140138185980800",
                "collective_seq_id": counts[group[0]], "p2p_seq_id": 0, "op_id": counts[group[0]], "profiling_name": op,
                "time_created_ns": 10**18 + 10**6 * at + rank, "input_sizes": [[small]], "input_dtypes": ["BFloat16"],
                "output_sizes": [[large]], "output_dtypes": ["BFloat16"], "state": "scheduled" if last else "completed",
                "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": not last,
                "timeout_ms": 600000, "is_p2p": False,
            }
        )  # fmt: skip
    world = "0", "default_pg", list(range(ranks))
    config = {
        name: {"name": name, "desc": words, "ranks": str(members)} for name, words, members in (world, across, along)
    }
    status = {
        name: {
            "last_enqueued_collective": counts[name],
            "last_started_collective": counts[name],
            "last_completed_collective": counts[name] - 1,
        }
        for name in counts
    }
    content = {
        "version": "2.10",
        "pg_config": config,
        "comm_lib_version": "2.30.3",
        "pg_status": status,
        "entries": out,
    }
    return pickle.dumps(content, protocol=2)


def write(folder: Path, ranks: int, entries: int, first: int = 0) -> None:
    """The dumps of a job (of its ranks from ``first`` on), by a process of its own, so that this one stays small."""
    folder.mkdir()
    pid = os.fork()
    if pid == 0:
        for rank in range(first, ranks):
            (folder / f"nccl_trace_rank_{rank}").write_bytes(dump(rank, ranks, entries))
        os._exit(0)
    os.waitpid(pid, 0)


def size(folder: Path) -> float:
    """Megabytes in a folder."""
    return sum(one.stat().st_size for one in folder.iterdir()) / 1e6


def row(name: str, folder: Path, cpu: float, memory: int, remark: str = "") -> None:
    """Print one row."""
    print(f"{name:<44}{size(folder):>8.0f}{cpu:>9.2f}{memory / 1e6:>10.1f}   {remark}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--torchfrtrace", metavar="PYTHON", help="interpreter of an environment that has PyTorch 2.13")
    parser.add_argument("--beside", type=int, default=64, help="ranks that torchfrtrace gets (default 64)")
    parser.add_argument("--folder", help="where the dumps are made (default: the system's folder for temporary files)")
    arguments = parser.parse_args()
    python = interpreter()
    good = True
    print(f"Python {sys.version.split()[0]}")
    print(f"{'ranks x entries':<44}{'MB':>8}{'CPU s':>9}{'peak MB':>10}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        for ranks, entries in (
            (arguments.ranks, arguments.entries),
            (arguments.ranks * 10, arguments.entries // 10),
        ):
            folder = Path(place) / f"{ranks}"
            write(folder, ranks, entries)
            call = [python, "-m", "shardguide", "diagnose", str(folder), "--json", "--torch", "2.13", "--no-input"]
            call += ["--executor", "serial", "--notebook", str(Path(place) / "notebook.db")]
            cpu, memory = once(call, False, dict(os.environ))
            kept = cpu <= MOST_SECONDS and memory <= MOST_BYTES
            right = json.loads(subprocess.run(call, capture_output=True, check=True).stdout)["diagnoses"][0][
                "ranks"
            ] == [CULPRIT]
            good = good and kept and right
            remark = f"rank {CULPRIT} found" if right else "WRONG RANK"
            row(
                f"shardguide diagnose, {ranks:,} x {entries:,}",
                folder,
                cpu,
                memory,
                remark + ("" if kept else "  OVER"),
            )
            for one in folder.iterdir():
                one.unlink()
        if arguments.torchfrtrace:
            folder = Path(place) / "beside"
            write(folder, arguments.beside, arguments.entries)
            call = [arguments.torchfrtrace, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)]
            cpu, memory = once([*call, "--prefix", "nccl_trace_rank_"], False, dict(os.environ))
            row(f"torchfrtrace, {arguments.beside:,} x {arguments.entries:,}", folder, cpu, memory)
            mine = [python, "-m", "shardguide", "diagnose", str(folder), "--json", "--torch", "2.13", "--no-input"]
            cpu, memory = once([*mine, "--notebook", str(Path(place) / "notebook.db")], False, dict(os.environ))
            row(f"shardguide diagnose, {arguments.beside:,} x {arguments.entries:,}", folder, cpu, memory)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
