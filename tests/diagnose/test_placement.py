"""Devices of processes, as start-up lines tell them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shardguide.workflows.diagnose import DiagnoseRequest, diagnose

INIT = "node{host}:{pid}:{pid}0 [{device}] NCCL INFO ncclCommInitRank comm 0x7f{pid} rank {rank} nranks {of} cudaDev {device} nvmlDev {device} busId {bus} commId {comm} - Init COMPLETE\n"


def told(text: str, folder: Path) -> list[dict[str, Any]]:
    log = folder / "job.log"
    log.write_text(text, encoding="utf-8")
    return list(diagnose(DiagnoseRequest((str(log),), torch="2.13")).extra["diagnoses"])


def init(rank: int, device: int, bus: str, host: int = 0, pid: int = 0, of: int = 2, comm: str = "0xabc") -> str:
    return INIT.format(host=host, pid=pid or 100 + rank, device=device, rank=rank, of=of, bus=bus, comm=comm)


def test_two_processes_on_one_bus(tmp_path: Path) -> None:
    found = told(init(0, 0, "1000") + init(1, 0, "1000"), tmp_path)
    assert (found[0]["id"], found[0]["ranks"], found[0]["confidence"]) == ("duplicate_gpu", [0, 1], "likely")


def test_each_on_its_own(tmp_path: Path) -> None:
    assert told(init(0, 0, "1000") + init(1, 1, "2000"), tmp_path) == []


def test_one_bus_on_two_hosts(tmp_path: Path) -> None:
    assert told(init(0, 0, "1000") + init(1, 0, "1000", host=1), tmp_path) == []


def test_one_process_in_two_communicators(tmp_path: Path) -> None:
    """A rank has another number in a group of its own."""
    assert told(init(1, 1, "2000", pid=7) + init(0, 1, "2000", pid=7, comm="0xdef"), tmp_path) == []


def test_other_jobs_in_one_file(tmp_path: Path) -> None:
    assert told(init(0, 0, "1000", pid=7) + init(1, 0, "1000", pid=9, comm="0xdef"), tmp_path) == []


def test_accelerate_with_fewer_gpus_than_processes(tmp_path: Path) -> None:
    state = "Num processes: {of}\nProcess index: {rank}\nLocal process index: {rank}\nDevice: cuda:{device}\n"
    few = "".join(state.format(of=4, rank=rank, device=rank % 2) for rank in range(4))
    found = told(few, tmp_path)
    assert (found[0]["id"], found[0]["ranks"]) == ("more_ranks_than_gpus", [2, 3])
    assert told("".join(state.format(of=4, rank=rank, device=rank) for rank in range(4)), tmp_path) == []


def test_first_collective_over_direct_access(tmp_path: Path) -> None:
    direct = "node0:71:140 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via {way}\n"
    wait = (
        "[rank0]:[E112 15:47:18.7 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600047 milliseconds\n"
    )
    found = told(direct.format(way="P2P/IPC") + wait.format(seq=1), tmp_path)
    assert found[0]["id"] == "p2p_blocked_by_acs"
    for text in (
        direct.format(way="SHM/direct/direct") + wait.format(seq=1),
        direct.format(way="P2P/IPC") + wait.format(seq=700),
    ):
        assert "p2p_blocked_by_acs" not in [one["id"] for one in told(text, tmp_path)]
