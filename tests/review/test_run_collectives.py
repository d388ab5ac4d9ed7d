"""Mistakes with collectives, made for real by two processes over Gloo: each hangs, errs or gives wrong numbers, and the right form does not."""

from __future__ import annotations

import datetime

import pytest
from tests.snippets import gloo

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PATIENT = 120  # a rank of a busy machine may be late, but it comes
HASTY = 2  # for what nobody comes to: to be shorter or longer changes nothing


def hasty() -> None:
    """To be called by every rank before a mistake that hangs: from here on a collective waits ``HASTY`` seconds only."""
    import torch.distributed as dist

    dist.barrier()
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=HASTY))


def wrong_outcomes(body, world: int = 2, seconds: float = PATIENT) -> list[object]:
    """The outcomes of a program that begins with the mistake."""
    return outcomes(lambda rank: (hasty(), body(rank))[1], world, seconds)


def outcomes(body, world: int = 2, seconds: float = PATIENT) -> list[object]:
    """What ``body(rank)`` gives on each rank: its result, or "hangs" where a collective ran into the timeout, or the error.

    ["no end"] where a process has died, or is not through in time.
    """

    def one(rank: int) -> object:
        import torch.distributed as dist

        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=PATIENT))
        try:
            return body(rank)
        except RuntimeError as error:
            words = str(error).lower()
            waited = ("timed out", "timeout", "connection closed", "connection reset", "broken pipe", "aborted")
            return "hangs" if any(word in words for word in waited) else f"{type(error).__name__}: {error}"
        except ValueError as error:
            return f"ValueError: {error}"

    try:
        return gloo.run(world, one, timeout=seconds)
    except gloo.RankFailed:
        return ["no end"]


def ones(rank: int, size: int = 1):
    return torch.full((size,), float(rank + 1))


def test_FSD201_one_rank_alone_waits() -> None:
    import torch.distributed as dist

    assert "hangs" in wrong_outcomes(lambda rank: dist.all_reduce(ones(rank)) if rank == 0 else None)

    def right(rank: int) -> float:
        x = ones(rank)
        dist.all_reduce(x)
        return x.item()

    assert outcomes(right) == [3.0, 3.0]


def test_FSD201_the_sandwich_goes_through() -> None:
    import torch.distributed as dist

    def right(rank: int) -> str:
        if rank != 0:
            dist.barrier()
        if rank == 0:
            dist.barrier()
        return "through"

    assert outcomes(right) == ["through", "through"]


def test_FSD202_an_exception_on_one_rank() -> None:
    import torch.distributed as dist

    def wrong(rank: int) -> None:
        try:
            if rank == 0:
                raise RuntimeError("out of memory")
        except RuntimeError:
            dist.barrier()

    def right(rank: int) -> float:
        flag = torch.zeros(1)
        try:
            if rank == 0:
                raise RuntimeError("out of memory")
        except RuntimeError:
            flag.fill_(1)
        dist.all_reduce(flag)
        return flag.item()

    assert "hangs" in wrong_outcomes(wrong)
    assert outcomes(right) == [1.0, 1.0]


def test_FSD206_FSD208_a_sharded_model_on_one_rank() -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def model():
        torch.manual_seed(0)
        return fully_shard(torch.nn.Linear(2, 2), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))

    def run(rank: int) -> None:
        made = model()
        hasty()
        if rank == 0:
            made(torch.ones(1, 2))

    def gather(rank: int) -> None:
        made = model()
        hasty()
        if rank == 0:
            made.weight.full_tensor()

    def right(rank: int) -> bool:
        made = model()
        whole = made.weight.full_tensor()
        return torch.equal(made(torch.ones(1, 2)), torch.nn.functional.linear(torch.ones(1, 2), whole, made.bias))

    assert "hangs" in outcomes(run)
    assert "hangs" in outcomes(gather)
    assert outcomes(right) == [True, True]


def test_FSD209_FSD214_the_source_counts_in_the_job() -> None:
    import torch.distributed as dist

    def outside(rank: int) -> None:
        group = dist.new_group([1])
        if rank == 1:
            dist.broadcast(ones(rank), src=0, group=group)

    def within(rank: int) -> None:
        group = dist.new_group([1])
        if rank == 1:
            dist.broadcast(ones(rank), src=dist.get_rank(group), group=group)

    def right(rank: int) -> float:
        group = dist.new_group([1])
        x = ones(rank)
        if rank == 1:
            dist.broadcast(x, src=1, group=group)
        return x.item()

    for wrong in (outside, within):
        assert "not part of group" in str(outcomes(wrong)[1])
    assert outcomes(right) == [1.0, 2.0]


def test_FSD210_more_turns_on_one_rank() -> None:
    import torch.distributed as dist

    def wrong(rank: int) -> None:
        for _ in range(rank):
            dist.all_reduce(ones(rank))

    def right(rank: int) -> int:
        for _ in range(dist.get_world_size()):
            dist.all_reduce(ones(rank))
        return 1

    assert "hangs" in wrong_outcomes(wrong)
    assert outcomes(right) == [1, 1]


def test_FSD211_a_loss_that_is_nan_on_one_rank() -> None:
    import torch.distributed as dist

    def model():
        torch.manual_seed(0)
        return torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))

    def wrong(rank: int) -> int:
        made = model()
        hasty()
        for step in range(2):
            bad = rank == 0 and step == 0
            loss = made(torch.full((1, 1), float("nan") if bad else 1.0)).sum()
            if torch.isnan(loss):
                continue
            loss.backward()
        dist.barrier()
        return step

    def right(rank: int) -> int:
        made = model()
        for step in range(2):
            bad = rank == 0 and step == 0
            loss = made(torch.full((1, 1), float("nan") if bad else 1.0)).sum()
            flag = torch.isnan(loss).float()
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)
            if flag.item() > 0:
                continue
            loss.backward()
        dist.barrier()
        return step

    assert outcomes(wrong) != [1, 1]
    assert outcomes(right) == [1, 1]


def test_FSD212_data_of_unknown_length() -> None:
    import torch.distributed as dist
    from torch.utils.data import DataLoader, IterableDataset

    class Lines(IterableDataset):
        def __init__(self, lines: int) -> None:
            self.lines = lines

        def __iter__(self):
            return iter(torch.ones(self.lines))

    def wrong(rank: int) -> None:
        for batch in DataLoader(Lines(2 + rank)):
            dist.all_reduce(batch)

    def right(rank: int) -> int:
        batches = iter(DataLoader(Lines(2 + rank)))
        for _ in range(2):
            dist.all_reduce(next(batches))
        return 2

    assert "hangs" in wrong_outcomes(wrong)
    assert outcomes(right) == [2, 2]


def test_FSD213_another_order() -> None:
    import torch.distributed as dist

    def order(rank: int, first_of_rank_1: int) -> str:
        limit = datetime.timedelta(seconds=HASTY if first_of_rank_1 else PATIENT)
        groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
        for group in groups:
            dist.distributed_c10d._set_pg_timeout(limit, group)
        turn = first_of_rank_1 if rank == 1 else 0
        for at in (turn, 1 - turn):
            dist.all_reduce(ones(rank), group=groups[at])
        return "through"

    assert "hangs" in wrong_outcomes(lambda rank: order(rank, 1))
    assert outcomes(lambda rank: order(rank, 0)) == ["through", "through"]


def test_FSD213_another_operation_gives_wrong_numbers_or_hangs() -> None:
    import torch.distributed as dist

    def wrong(rank: int) -> list[float]:
        x, y = ones(rank), ones(rank) * 10
        for one in (x, y) if rank == 0 else (y, x):
            dist.all_reduce(one)
        return [x.item(), y.item()]

    assert outcomes(wrong) != [[3.0, 30.0]] * 2  # each rank's x was added to the other's y


def test_FSD215_no_backend_for_the_cpu() -> None:
    import torch.distributed as dist

    def wrong(rank: int) -> None:
        dist.destroy_process_group()
        dist.init_process_group("cuda:gloo")  # as with NCCL, there is a backend for CUDA tensors alone
        dist.all_reduce(ones(rank))

    assert all("No backend type associated with device type cpu" in str(one) for one in outcomes(wrong))


def test_FSD217_a_tensor_that_is_under_way() -> None:
    import torch.distributed as dist

    def squared(rank: int, early: bool, done) -> float:
        x = ones(rank, 1000)
        if rank == 1 and early:
            assert done.wait(PATIENT)  # rank 0 is through with its square before rank 1 has come
        work = dist.all_reduce(x, async_op=True)
        if early:
            x.square_()
            done.set()
        work.wait()
        if not early:
            x.square_()
        return x[0].item()

    assert outcomes(lambda rank, done=gloo.event(): squared(rank, True, done))[0] != 9.0
    assert outcomes(lambda rank: squared(rank, False, None)) == [9.0, 9.0]


def test_FSD219_every_rank_sends_first() -> None:
    import torch.distributed as dist

    size = 1 << 24  # larger than what sockets hold back

    def wrong(rank: int) -> float:
        x, y = ones(rank, size), torch.zeros(size)
        dist.send(x, dst=(rank + 1) % 2)
        dist.recv(y, src=(rank - 1) % 2)
        return y[0].item()

    def right(rank: int) -> float:
        x, y = ones(rank, size), torch.zeros(size)
        sending = dist.P2POp(dist.isend, x, (rank + 1) % 2)
        receiving = dist.P2POp(dist.irecv, y, (rank - 1) % 2)
        for work in dist.batch_isend_irecv([sending, receiving]):
            work.wait()
        return y[0].item()

    assert {"hangs", "no end"} & set(wrong_outcomes(wrong, seconds=10))  # a send has no timeout of its own
    assert outcomes(right) == [2.0, 1.0]


def test_FSD221_a_loss_that_was_reduced() -> None:
    import torch.distributed as dist

    def gradient(rank: int, wrong: bool) -> float:
        weight = torch.ones(1, requires_grad=True)
        loss = (weight * (rank + 1)).sum()
        if wrong:
            dist.all_reduce(loss)
            loss = loss / 2
        loss.backward()
        total = weight.grad
        dist.all_reduce(total)
        return total.item() / 2

    assert outcomes(lambda rank: gradient(rank, True)) == [0.75, 0.75]  # half of it: divided once more
    assert outcomes(lambda rank: gradient(rank, False)) == [1.5, 1.5]


def test_FSD222_averaged_twice() -> None:
    import torch.distributed as dist

    def average(rank: int, op) -> float:
        x = ones(rank)
        dist.all_reduce(x, op=op)
        x /= dist.get_world_size()
        return x.item()

    assert outcomes(lambda rank: average(rank, dist.ReduceOp.AVG)) == [0.75, 0.75]
    assert outcomes(lambda rank: average(rank, dist.ReduceOp.SUM)) == [1.5, 1.5]


def test_FSD224_tensors_of_other_sizes() -> None:
    import torch.distributed as dist

    def wrong(rank: int) -> int:
        found = torch.nonzero(torch.ones(rank + 1))
        parts = [torch.zeros_like(found) for _ in range(2)]
        dist.all_gather(parts, found)
        return [part.numel() for part in parts]

    assert wrong_outcomes(wrong) != [[1, 2], [1, 2]]


def test_FSD225_threads_have_no_order() -> None:
    import threading

    import torch.distributed as dist

    def wrong(rank: int) -> list[float]:
        x, y = ones(rank), ones(rank) * 10
        called = threading.Event()

        def other() -> None:
            work = dist.all_reduce(y, async_op=True)
            called.set()
            work.wait()

        thread = threading.Thread(target=other)
        if rank == 0:  # as it may happen: on rank 0 the thread is the first, on rank 1 the main program
            thread.start()
            assert called.wait(PATIENT)
        work = dist.all_reduce(x, async_op=True)
        if rank == 1:
            thread.start()
        work.wait()
        thread.join()
        return [x.item(), y.item()]

    assert outcomes(wrong) == [[21.0, 12.0], [12.0, 21.0]]  # not 3 and 30: one's x was added to the other's y


def test_FSD226_each_rank_asks_for_its_own_group() -> None:
    import torch.distributed as dist

    def wrong(rank: int) -> float | None:
        if rank in (1, 2):
            return None  # which ranks meet is a race; here these two are so late that the others are through before
        first = rank // 2 * 2
        group = dist.new_group(list(range(first, first + 2)))
        x = ones(rank)
        dist.all_reduce(x, group=group)
        return x.item()

    def right(rank: int) -> float:
        mine = None
        for first in (0, 2):
            group = dist.new_group([first, first + 1])
            mine = group if rank in (first, first + 1) else mine
        x = ones(rank)
        dist.all_reduce(x, group=mine)
        return x.item()

    assert outcomes(wrong, 4) == [5.0, None, None, 5.0]  # 0 is in a group with 3: it ought to wait for 1, and get 3
    assert outcomes(right, 4) == [3.0, 3.0, 7.0, 7.0]
