"""The harness itself: results in rank order, and no failure that hides."""

from __future__ import annotations

import os
import time

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from . import gloo  # noqa: E402

pytestmark = pytest.mark.torch


def test_ranks_talk_and_answer_in_order() -> None:
    def body(rank: int) -> tuple[int, float]:
        gloo.init()
        tensor = torch.tensor([float(rank)])
        torch.distributed.all_reduce(tensor)
        return rank, tensor.item()

    assert gloo.run(3, body) == [(0, 3.0), (1, 3.0), (2, 3.0)]


def test_one_rank_that_raises_is_reported_with_its_traceback() -> None:
    def body(rank: int) -> None:
        gloo.init()
        if rank == 1:
            raise ValueError("the second rank")
        torch.distributed.barrier()

    started = time.monotonic()
    with pytest.raises(gloo.RankFailed, match="the second rank"):
        gloo.run(2, body)
    assert time.monotonic() - started < 100


def test_a_rank_that_dies_and_one_that_hangs_are_reported() -> None:
    def dies(rank: int) -> None:
        if rank == 0:
            os._exit(7)

    with pytest.raises(gloo.RankFailed, match="rank 0: the process died"):
        gloo.run(2, dies)
    with pytest.raises(gloo.RankFailed, match="rank 1: no result within 1"):
        gloo.run(2, lambda rank: time.sleep(60 * rank), timeout=1.0)
