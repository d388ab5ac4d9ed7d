"""Groups, barriers and collectives of objects, each with 2 to 4 real processes."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.distributed as dist  # noqa: E402

from tests.patterns.load import load  # noqa: E402
from tests.snippets import gloo  # noqa: E402

pytestmark = pytest.mark.torch


def test_new_group_by_every_rank() -> None:
    pattern = load("sub-groups")

    def body(rank: int) -> tuple[list[int], float, float]:
        gloo.init()
        mine = pattern["consecutive_groups"](2)
        mean = pattern["mean_over"](torch.tensor([float(rank)]), mine)
        first = torch.tensor([float(rank)])
        pattern["from_first"](first, mine)
        return dist.get_process_group_ranks(mine), mean.item(), first.item()

    assert gloo.run(4, body) == [([0, 1], 0.5, 0.0)] * 2 + [([2, 3], 2.5, 2.0)] * 2
    # A world that the size does not divide: the last group is smaller, and everybody is in one.
    assert gloo.run(3, body) == [([0, 1], 0.5, 0.0)] * 2 + [([2], 2.0, 2.0)]


def test_mesh_has_the_groups_of_both_dimensions() -> None:
    pattern = load("sub-groups-mesh")

    def body(rank: int) -> tuple[list[int], list[int], float]:
        gloo.init()
        within, across = pattern["hosts_and_gpus"](2)
        total = torch.tensor([float(rank)])
        dist.all_reduce(total, group=across)
        return dist.get_process_group_ranks(within), dist.get_process_group_ranks(across), total.item()

    assert gloo.run(4, body) == [
        ([0, 1], [0, 2], 2.0),
        ([0, 1], [1, 3], 4.0),
        ([2, 3], [0, 2], 2.0),
        ([2, 3], [1, 3], 4.0),
    ]


def test_two_groups_one_after_the_other() -> None:
    groups = load("sub-groups-mesh")["hosts_and_gpus"]
    average = load("several-groups-order")["average_over_both"]

    def body(rank: int) -> float:
        gloo.init()
        within, across = groups(2)
        return average(torch.tensor([float(rank**2)]), within, across).item()

    assert gloo.run(4, body) == [(0 + 1 + 4 + 9) / 4] * 4


def test_result_is_there_after_wait() -> None:
    sum_while = load("async-collective")["sum_while"]

    def body(rank: int) -> tuple[list[float], str]:
        gloo.init()

        def compute() -> str:
            time.sleep(0.2 * rank)  # one rank is late: the other must wait for its part
            return f"computed by {rank}"

        total, result = sum_while(compute, torch.full((3,), float(rank + 1)))
        return total.tolist(), result

    assert gloo.run(2, body) == [([3.0] * 3, "computed by 0"), ([3.0] * 3, "computed by 1")]


def test_objects_travel_both_ways() -> None:
    pattern = load("object-collectives")

    def body(rank: int) -> tuple[Any, Any]:
        gloo.init()
        return pattern["collect"]({"rank": rank}), pattern["share"]({"from": rank})

    everything = [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    assert gloo.run(3, body) == [(everything, {"from": 0}), (None, {"from": 0}), (None, {"from": 0})]


def test_monitored_barrier_names_the_missing_rank() -> None:
    pattern = load("monitored-barrier")

    given_up = [gloo.event() for _ in range(3)]

    def body(rank: int) -> tuple[str, float]:
        gloo.init()
        group = pattern["watch_group"]()
        pattern["all_here"](group, timeout=timedelta(seconds=60))  # all are here
        said, waited = "stayed away", 0.0
        if rank != 1:
            started = time.monotonic()
            try:
                pattern["all_here"](group, timeout=timedelta(seconds=3))
                said = "no error"
            except RuntimeError as error:
                said, waited = str(error), time.monotonic() - started
        given_up[rank].set()
        assert all(one.wait(60) for one in given_up)  # nobody closes the connections while others still wait
        return said, waited

    (first, waited), (missing, _), (other, _) = gloo.run(3, body)
    assert waited > 2.5  # the timeout of the call, and rank 1 was alive all the time
    assert "Rank 1" in first or "Ranks 1" in first or "ranks: 1" in first, first
    assert "2" not in first.split("failed")[0]
    assert missing == "stayed away"
    assert other != "no error"


def test_one_writes_and_all_read(tmp_path: Path) -> None:
    once = load("rank-zero-io")["once"]
    path = tmp_path / "settings"

    def body(rank: int) -> tuple[str, str]:
        gloo.init()

        def write() -> None:
            time.sleep(0.3)
            path.write_text(f"written by {rank}")

        read = once(write, path.read_text)

        def fail() -> None:
            raise OSError("disk full")

        try:
            once(fail, path.read_text)
        except RuntimeError as error:
            return read, str(error)
        return read, "no error"

    message = "rank 0 could not write: OSError('disk full')"
    assert gloo.run(3, body) == [("written by 0", message)] * 3
