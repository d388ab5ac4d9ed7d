"""Mistakes of process groups, DDP, RPC and data loading, made for real on PyTorch 2.13.0 over Gloo, and the right forms beside them."""

from __future__ import annotations

import datetime
import importlib
import os
import re
import threading
import time
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import torch.distributed as dist  # noqa: E402
import torch.distributed.autograd as dist_autograd  # noqa: E402
import torch.distributed.rpc as rpc  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from tests.snippets.ports import free_port  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, random_split  # noqa: E402


def seconds(number: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=number)


def alone(**arguments: object) -> None:
    """init_process_group with one process, taken down again."""
    try:
        dist.init_process_group(**{"backend": "gloo", "timeout": seconds(3), **arguments})  # type: ignore[arg-type]
        assert dist.is_initialized()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


@pytest.fixture
def one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))


def sums(module: nn.Module) -> list[float]:
    return [round(float(p.grad.sum()), 3) for p in module.parameters() if p.grad is not None]


def hangs_or_errs(body, world: int = 2, words: str = ".") -> None:
    """Every body here errs by itself, if only after a short timeout of its own."""
    with pytest.raises(gloo.RankFailed, match=words):
        gloo.run(world, body)


# Set-up


def test_FSD112_FSD119_timeouts() -> None:
    def body(timeout):
        def rank_(rank):
            dist.init_process_group("gloo", timeout=timeout)
            dist.barrier()
            return dist.get_world_size()

        return rank_

    hangs_or_errs(body(seconds(0)), words="timed out after 0ms")
    hangs_or_errs(body(datetime.timedelta.max), words="timed out after -")
    with pytest.raises(RuntimeError, match="Invalid timeout"):
        alone(store=dist.HashStore(), rank=0, world_size=1, timeout=seconds(-5))
    assert datetime.timedelta(1800).days == 1800
    assert gloo.run(2, body(seconds(30))) == [2, 2]


def test_FSD115_the_port_is_taken() -> None:
    first = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with pytest.raises(Exception, match=r"address already in use|EADDRINUSE"):
        dist.TCPStore("127.0.0.1", first.port, is_master=True, wait_for_workers=False)


def test_FSD118_groups_made_in_threads() -> None:
    """Two threads, in another order on each rank: the same handle stands for another group."""
    from torch.distributed.distributed_c10d import _world

    def body(in_threads):
        def rank_(rank):
            gloo.init()
            names: dict[int, str] = {}

            def make(number: int) -> None:
                names[number] = dist.new_group([0, 1]).group_name

            threads = [threading.Thread(target=make, args=(number,)) for number in (0, 1)]
            for thread in (threads if rank == 0 else threads[::-1]) if in_threads else ():
                before = _world.group_count
                thread.start()
                while (
                    _world.group_count == before and thread.is_alive()
                ):  # its group has a name, and waits for the other rank
                    time.sleep(0.01)
            for thread in threads if in_threads else ():
                thread.join()
            for number in () if in_threads else (0, 1):
                make(number)
            dist.barrier()
            return names[0], names[1]

        return rank_

    mixed, ordered = gloo.run(2, body(True)), gloo.run(2, body(False))
    assert mixed[0] == mixed[1][::-1] and ordered[0] == ordered[1]


@pytest.mark.parametrize(
    ("url", "kind", "words"),
    [
        ("tcp://localhost", ValueError, "port number missing"),
        ("tcp:localhost:29500", ValueError, "port number missing"),
        ("tcp://127.0.0.1:99999", ValueError, "Port out of range"),
        ("http://localhost:29500", RuntimeError, "No rendezvous handler"),
        ("localhost:29500", RuntimeError, "No rendezvous handler"),
        ("file://", ValueError, "path missing"),
    ],
)
def test_FSD122_urls(url: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        alone(init_method=url, rank=0, world_size=1)


def test_FSD139_an_address_of_ones_own_under_torchrun() -> None:
    """As under torchrun, whose agent serves the store (gloo.run sets TORCHELASTIC_USE_AGENT_STORE as it does)."""
    port = free_port()

    def body(agent):
        def rank_(rank):
            os.environ["TORCHELASTIC_USE_AGENT_STORE"] = agent
            url, limit = f"tcp://127.0.0.1:{port}", seconds(3 if agent == "True" else 60)
            dist.init_process_group("gloo", init_method=url, rank=rank, world_size=2, timeout=limit)
            dist.barrier()
            return dist.get_rank()

        return rank_

    hangs_or_errs(body("True"), words="timed out|failed to connect")
    assert gloo.run(2, body("False")) == [0, 1]


def test_FSD108_file_assigns_no_rank(tmp_path) -> None:
    with pytest.raises(ValueError, match="rank parameter missing"):
        alone(init_method=f"file://{tmp_path}/group")
    alone(init_method=f"file://{tmp_path}/group", rank=0, world_size=1)


def test_FSD123_two_slashes_drop_the_first_folder(tmp_path) -> None:
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(iter(rendezvous(f"file://shared{tmp_path}/group?rank=0&world_size=1")))
    store.set("key", "value")
    assert (tmp_path / "group").exists()


def test_FSD124_each_process_its_own_file(tmp_path) -> None:
    def own(rank):
        name = f"{tmp_path}/group{rank}"
        dist.init_process_group("gloo", init_method=f"file://{name}", rank=rank, world_size=2, timeout=seconds(3))

    hangs_or_errs(own, words="imeout")

    def common(rank):
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=rank, world_size=2)
        dist.barrier()
        return dist.get_rank()

    assert gloo.run(2, common) == [0, 1]


def test_FSD125_the_environment_holds_texts() -> None:
    with pytest.raises(TypeError, match="str expected"):
        os.environ["WORLD_SIZE"] = 2  # type: ignore[assignment]


def test_FSD126_what_is_set_later_changes_nothing() -> None:
    def body(rank):
        gloo.init()
        os.environ["WORLD_SIZE"], os.environ["RANK"] = "7", "5"
        os.environ["GLOO_SOCKET_IFNAME"] = "no-such-interface"
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        return dist.get_world_size(), dist.get_rank(), tensor.item()

    assert gloo.run(2, body) == [(2, 0, 2.0), (2, 1, 2.0)]


def test_FSD128_FSD129_ranks_and_world_size() -> None:
    def same(rank):
        os.environ["RANK"] = "0"
        dist.init_process_group("gloo", timeout=seconds(3))

    def larger(rank):
        dist.init_process_group("gloo", world_size=3, timeout=seconds(3))

    hangs_or_errs(same, words="wait timeout")
    hangs_or_errs(larger, words="wait timeout")


def test_FSD130_FSD131_without_a_group(one) -> None:
    dist.barrier()
    dist.destroy_process_group()
    for call in (dist.barrier, dist.get_rank):
        with pytest.raises(ValueError, match="not been initialized"):
            call()


def test_FSD132_destroyed_on_one_rank() -> None:
    def body(rank):
        gloo.init()
        if rank == 0:
            dist.destroy_process_group()
        else:
            dist.barrier()

    hangs_or_errs(body, words="Connection (closed|reset)")


def test_FSD133_arguments_that_exclude_each_other() -> None:
    wrong = [
        {"store": dist.HashStore(), "init_method": "env://", "rank": 0, "world_size": 1},
        {"store": dist.HashStore()},
        {"init_method": "tcp://127.0.0.1:29519?rank=0&world_size=1", "rank": 0, "world_size": 1},
    ]
    for arguments in wrong:
        with pytest.raises(AssertionError):
            alone(**arguments)
    alone(store=dist.HashStore(), rank=0, world_size=1)


def test_FSD133_a_rank_outside_the_world(tmp_path) -> None:
    with pytest.raises(Exception, match=r"rank|timeout|Timeout"):
        alone(init_method=f"file://{tmp_path}/group", rank=2, world_size=2)


@pytest.mark.parametrize(
    "name",
    ["gloo,nccl", "cpu", "gloo:cpu", "cpu:gloo;cuda:nccl", "cpu:gloo,cpu:gloo", "cpu:gloo, cuda:gloo", "golo", "rccl"],
)
def test_FSD134_backends(name: str) -> None:
    with warnings.catch_warnings(), pytest.raises((ValueError, AssertionError, RuntimeError)):
        warnings.simplefilter("ignore")
        alone(backend=name, store=dist.HashStore(), rank=0, world_size=1)
    alone(backend="cpu:gloo", store=dist.HashStore(), rank=0, world_size=1)


def test_FSD135_FSD809_local_ranks_are_not_unique() -> None:
    """As on two machines with one process each: LOCAL_RANK is 0 on both."""

    def body(rank):
        os.environ["LOCAL_RANK"] = "0"
        dist.init_process_group("gloo", rank=int(os.environ["LOCAL_RANK"]), world_size=2, timeout=seconds(3))

    hangs_or_errs(body, words="wait timeout")
    parts = [list(DistributedSampler(range(6), 2, 0, shuffle=False)) for _ in range(2)]
    assert parts[0] == parts[1]  # two processes with the local rank 0
    with pytest.raises(ValueError, match="Invalid rank"):
        DistributedSampler(range(6), num_replicas=2, rank=2)


def index_only(index: int) -> None:
    assert index == 0


def nothing() -> None:
    return


def test_FSD136_what_spawn_hands_over() -> None:
    for function, args in ((index_only, 2), (index_only, (2,)), (nothing, ())):
        with pytest.raises(Exception, match="TypeError"):
            mp.start_processes(function, args=args, nprocs=1, start_method="fork")
    mp.start_processes(index_only, nprocs=1, start_method="fork")


def test_FSD137_debug_level(monkeypatch) -> None:
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "1")
    with pytest.raises(ValueError, match="must be OFF, INFO, or DETAIL"):
        dist.set_debug_level_from_env()
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "OFF")
    dist.set_debug_level_from_env()


def test_FSD138_device_id() -> None:
    store = dist.HashStore()
    with pytest.raises(AttributeError):
        alone(store=store, rank=0, world_size=1, device_id="cuda:0")
    with pytest.raises(ValueError):
        alone(store=store, rank=0, world_size=1, device_id=torch.device("cuda"))


def test_FSD120_FSD127_words_of_PyTorch() -> None:
    """What only a GPU could show: the renamed variables, as the build's own header lists them."""
    header = Path(torch.__file__).parent / "include/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"
    text = re.sub(r"\s+", " ", header.read_text())
    for name in ("ASYNC_ERROR_HANDLING", "BLOCKING_WAIT", "DESYNC_DEBUG", "ENABLE_TIMING"):
        assert f'"TORCH_NCCL_{name}", "NCCL_{name}"' in text


def test_FSD107_a_file_that_was_left_behind(tmp_path) -> None:
    path = tmp_path / "group"

    def init(rank, limit):
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2, timeout=seconds(limit))

    def together(rank):
        init(rank, 60)
        dist.barrier()
        return path.read_bytes()

    def first(rank):
        with pytest.raises(RuntimeError) as failure:
            init(rank, 1)
        return str(failure.value)

    left = gloo.run(2, together)[0]
    assert left
    # Rank 0 comes first: it takes the old address of rank 1, instead of waiting for the new one. Which of the two is to connect is
    # decided by their port numbers: it is refused at once, or waits in vain for rank 1 of then.
    path.write_bytes(left)
    (said,) = gloo.run(1, first)
    assert "Gloo connectFullMesh failed" in said and ("Connection refused" in said or "Connect timeout" in said)
    path.unlink()
    assert gloo.run(1, first) == ["Wait timeout"]  # a new file: it is rank 1 itself that is waited for
    path.unlink(missing_ok=True)
    gloo.run(2, together)


def test_FSD116_FSD117_on_some_ranks_only() -> None:
    def group(rank):
        dist.init_process_group("gloo", timeout=seconds(3))
        if rank == 0:
            dist.new_group([0, 1], timeout=seconds(3))
        else:
            time.sleep(1)

    def world(rank):
        if rank == 0:
            dist.init_process_group("gloo", timeout=seconds(3))

    hangs_or_errs(group)
    hangs_or_errs(world, words="wait timeout")


def test_FSD114_local_rank_as_an_argument() -> None:
    import argparse

    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--local_rank", type=int)
    assert parser.parse_known_args(["--local-rank=1"])[1] == ["--local-rank=1"]  # left over, so parse_args refuses it
    both = argparse.ArgumentParser()
    both.add_argument("--local-rank", "--local_rank", type=int)
    assert both.parse_args(["--local-rank=1"]).local_rank == both.parse_args(["--local_rank=1"]).local_rank == 1


# DDP


def trained(change, steps: int = 2, dtype=torch.float32, **arguments):
    def body(rank):
        gloo.init()
        wrapped = change(DDP(model(), **arguments))
        for step in range(steps):
            wrapped(torch.full((2, 4), float(rank + 1 + step), dtype=dtype)).sum().backward()
        return sums(wrapped)

    return body


def test_ddp_averages() -> None:
    one_, other = gloo.run(2, trained(lambda made: made))
    assert one_ == other


def test_FSD506_both_flags(one) -> None:
    with pytest.warns(UserWarning, match="_set_static_graph"):
        DDP(model(), find_unused_parameters=True, static_graph=True)


class Changing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.calls = nn.Linear(4, 4), nn.Linear(4, 4), 0

    def forward(self, x):
        self.calls += 1
        x = self.a(x)
        return self.b(x) if self.calls % 2 else x


def test_FSD507_static_graph_that_changes() -> None:
    def body(**arguments):
        def rank_(rank):
            gloo.init()
            wrapped = DDP(Changing(), **arguments)
            for _ in range(3):
                wrapped(torch.ones(2, 4)).sum().backward()

        return rank_

    hangs_or_errs(body(static_graph=True), words="training graph has changed")
    gloo.run(2, body(find_unused_parameters=True))


def test_FSD508_frozen_or_replaced_later_errs() -> None:
    def frozen(made):
        made.module[0].requires_grad_(False)
        return made

    def replaced(made):
        made.module[1] = nn.Linear(4, 4)
        return made

    hangs_or_errs(trained(frozen), words="Expected to have finished reduction")
    hangs_or_errs(trained(replaced), words="Expected to have finished reduction")


def test_FSD508_thawed_later_is_not_reduced() -> None:
    def body(first):
        def rank_(rank):
            gloo.init()
            plain = model()
            plain[0].requires_grad_(first)
            wrapped = DDP(plain)
            plain[0].requires_grad_(True)
            wrapped(torch.full((2, 4), float(rank + 1))).sum().backward()
            return sums(wrapped)[0]

        return rank_

    one_, other = gloo.run(2, body(False))
    assert one_ != other
    one_, other = gloo.run(2, body(True))
    assert one_ == other


def test_FSD514_cast_later_is_not_reduced() -> None:
    one_, other = gloo.run(2, trained(lambda made: made.to(torch.float64), dtype=torch.float64))
    assert one_ != other


def test_FSD515_reduced_twice() -> None:
    def body(rank):
        gloo.init()
        wrapped = DDP(model())
        wrapped(torch.full((2, 4), float(rank + 1))).sum().backward()
        before = sums(wrapped)
        for parameter in wrapped.parameters():
            dist.all_reduce(parameter.grad)
        return before, sums(wrapped)

    for before, after in gloo.run(2, body):
        assert after == pytest.approx([2 * value for value in before], abs=0.01)


def test_FSD504_a_module_put_in_later(one) -> None:
    """What convert_sync_batchnorm puts in, DDP does not know."""
    wrapped = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(wrapped)
    assert isinstance(converted.module[1], nn.SyncBatchNorm) and converted is wrapped


def test_FSD505_the_inner_forward_prepares_nothing() -> None:
    def body(inner):
        def rank_(rank):
            gloo.init()
            made = DDP(model())
            for _ in range(2):
                (made.module if inner else made)(torch.full((2, 4), float(rank + 1))).sum().backward()
            return sums(made)

        return rank_

    one_, other = gloo.run(2, body(True))
    assert one_ != other  # each rank keeps its own gradients
    one_, other = gloo.run(2, body(False))
    assert one_ == other


def test_FSD501_only_the_backward_inside_no_sync() -> None:
    def body(rank):
        gloo.init()
        made = DDP(model())
        loss = made(torch.full((2, 4), float(rank + 1))).sum()
        with made.no_sync():
            loss.backward()
        outside = sums(made)
        made.zero_grad()
        with made.no_sync():
            made(torch.full((2, 4), float(rank + 1))).sum().backward()
        return outside, sums(made)

    (outside, inside), (outside_, inside_) = gloo.run(2, body)
    assert outside == outside_ and inside != inside_


def test_FSD503_reentrant_checkpoints_and_unused_parameters() -> None:
    from torch.utils.checkpoint import checkpoint

    def body(reentrant):
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.block = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x):
                return checkpoint(self.block, self.first(x), use_reentrant=reentrant)

        def rank_(rank):
            gloo.init()
            made = DDP(Net(), find_unused_parameters=True)
            for _ in range(2):
                made(torch.ones(2, 4)).sum().backward()

        return rank_

    hangs_or_errs(body(True), words="marked|ready|finished reduction")
    gloo.run(2, body(False))


def test_FSD511_batch_norm_sees_its_own_batch() -> None:
    def body(rank):
        gloo.init()
        wrapped = DDP(nn.BatchNorm1d(1))
        return wrapped(torch.tensor([[0.0], [1.0]]) + 10 * rank).mean().item()

    assert gloo.run(2, body) == pytest.approx([0, 0], abs=1e-3)  # over both batches: -1 and 1


def test_FSD516_FSD517_arguments(one) -> None:
    with pytest.raises(TypeError):
        DDP(model(), device_ids=0)
    with pytest.raises(RuntimeError, match="both process_group and device_mesh"):
        DDP(model(), process_group=dist.group.WORLD, device_mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(ValueError, match="at the same time"):
        DDP(model(), delay_all_reduce_named_params=[("0.weight", nn.Parameter(torch.ones(1)))])


def test_FSD518_FSD519_some_ranks_only() -> None:
    def wraps(rank):
        dist.init_process_group("gloo", timeout=seconds(3))
        if rank == 0:
            DDP(model())
        else:
            time.sleep(1)

    def runs(rank):
        dist.init_process_group("gloo", timeout=seconds(3))
        wrapped = DDP(model())
        if rank == 0:
            wrapped(torch.ones(2, 4)).sum().backward()
        else:
            time.sleep(1)

    hangs_or_errs(wraps)
    hangs_or_errs(runs)


# DDP with RPC

OTHERS = nn.Linear(4, 4)


def embed(x):
    return OTHERS(x)


def test_FSD512_FSD513_ddp_with_rpc(tmp_path) -> None:
    def body(how):
        def rank_(rank):
            gloo.init()
            options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/{how}", rpc_timeout=60)
            rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, rpc_backend_options=options)
            dense = DDP(nn.Linear(4, 4))
            optimizer = torch.optim.SGD(dense.parameters(), lr=1.0)
            before = [p.detach().clone() for p in (*dense.parameters(), *OTHERS.parameters())]
            if how == "plain":
                dense(rpc.rpc_sync(f"w{1 - rank}", embed, (torch.ones(2, 4),))).sum().backward()
                optimizer.step()
            else:
                with dist_autograd.context() as context:
                    loss = dense(rpc.rpc_sync(f"w{1 - rank}", embed, (torch.ones(2, 4),))).sum()
                    dist_autograd.backward(context, [loss])
                    if how == "plain optimizer":
                        optimizer.step()
                    else:
                        references = [rpc.RRef(p) for p in dense.parameters()]
                        references += rpc.rpc_sync(f"w{1 - rank}", references_of)
                        dist.barrier()
                        from torch.distributed.optim import DistributedOptimizer

                        DistributedOptimizer(torch.optim.SGD, references, lr=1.0).step(context)
            dist.barrier()
            now = (*dense.parameters(), *OTHERS.parameters())
            changed = [not torch.equal(a, b) for a, b in zip(before, now)]
            rpc.shutdown()
            return any(changed[:2]), any(changed[2:])

        return rank_

    assert gloo.run(2, body("plain")) == [(True, False)] * 2  # the other side never learns
    assert gloo.run(2, body("plain optimizer")) == [(False, False)] * 2
    assert gloo.run(2, body("right")) == [(True, True)] * 2


def references_of():
    return [rpc.RRef(p) for p in OTHERS.parameters()]


# Data


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(range(4))


def test_FSD805_FSD806_everybody_sees_everything() -> None:
    def body(rank):
        gloo.init()
        whole = [int(x) for batch in DataLoader(range(4), shuffle=False) for x in batch]
        sampler = DistributedSampler(range(4), shuffle=False)
        part = [int(x) for batch in DataLoader(range(4), sampler=sampler) for x in batch]
        return whole, part, [int(x) for batch in DataLoader(Numbers()) for x in batch]

    (whole, part, stream), (whole_, part_, stream_) = gloo.run(2, body)
    assert whole == whole_ == stream == stream_ == [0, 1, 2, 3] and sorted(part + part_) == [0, 1, 2, 3]
    workers = [int(x) for batch in DataLoader(Numbers(), num_workers=2) for x in batch]
    assert sorted(workers) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_FSD807_parts_of_different_length_hang() -> None:
    samples = [torch.ones(4)] * 5

    def body(how):
        def rank_(rank):
            dist.init_process_group("gloo", timeout=seconds(3 if how == "cut" else 60))
            wrapped = DDP(model())
            whole = DataLoader(samples, sampler=DistributedSampler(samples))
            loader = DataLoader(samples[rank::2]) if how == "cut" else whole
            for batch in loader:
                wrapped(batch).sum().backward()
            time.sleep(1)
            return len(loader)

        return rank_

    hangs_or_errs(body("cut"))
    assert gloo.run(2, body("sampler")) == [3, 3]


def test_FSD810_no_sampler_for_an_iterable() -> None:
    with pytest.raises(ValueError, match="unspecified sampler"):
        DataLoader(Numbers(), sampler=DistributedSampler(range(4), 2, 0))


def test_FSD801_FSD803_FSD811_orders() -> None:
    sampler = DistributedSampler(range(20), 2, 0)
    first = list(sampler)
    sampler.set_epoch(0)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    seen = [x for rank in (0, 1) for x in DistributedSampler(range(20), 2, rank, seed=rank)]
    assert sorted(seen) != list(range(20))


def test_FSD812_random_splits_differ() -> None:
    def body(seeded):
        def rank_(rank):
            generator = torch.Generator().manual_seed(0) if seeded else None
            if not seeded:
                torch.seed()
            held = random_split(range(50), [40, 10], generator=generator)[1]
            return sorted(held.indices)

        return rank_

    one_, other = gloo.run(2, body(False))
    assert one_ != other
    one_, other = gloo.run(2, body(True))
    assert one_ == other


def test_FSD113_sampler_before_init() -> None:
    assert not dist.is_initialized()
    with pytest.raises(ValueError, match="not been initialized"):
        DistributedSampler(range(4))


# API


def test_FSD901_FSD902_FSD908_FSD909_what_is_not_there() -> None:
    assert not hasattr(dist, "all_reduce_multigpu")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("torch.distributed.checkpoint._hf_storage")
    with pytest.raises(TypeError):
        dist.init_process_group("gloo", time_out=None)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        init_device_mesh("cpu")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        dist.all_reduce(torch.ones(1), dist.ReduceOp.SUM, None, False, 3)  # type: ignore[call-arg]


def test_FSD902_a_call_of_PyTorch_itself(tmp_path) -> None:
    """What review finds in torch/distributed/checkpoint/_checkpointer.py: save() takes no coordinator_rank any more."""
    from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
    from torch.distributed.checkpoint._checkpointer import _Checkpointer

    saver = _Checkpointer(FileSystemWriter(tmp_path), FileSystemReader(tmp_path), no_dist=True)
    with pytest.raises(TypeError, match="coordinator_rank"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saver.save({"x": torch.ones(1)})


def test_FSD909_the_modules_of_this_release() -> None:
    from shardguide.knowledge import module_store

    root = Path(torch.__file__).parent
    names = [
        ".".join(("torch", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        for path in (root / "distributed").rglob("*.py")
    ]
    assert len(names) > 300 and all(module_store.missing(name, "2.13") is None for name in names)
    for name, where in (
        ("checkpoint._hf_storage", "2.7"),
        ("fsdp.flat_param", "2.0-2.1"),
        ("checkpoint._hf_planner", ""),
    ):
        assert module_store.missing(f"torch.distributed.{name}", "2.13") == where


def test_FSD906_moved_modules_forward() -> None:
    from torch.distributed import fsdp, tensor
    from torch.distributed._composable import fsdp as old

    assert old.fully_shard is fsdp.fully_shard
    assert importlib.import_module("torch.distributed._tensor").DTensor is tensor.DTensor


def test_FSD903_FSD905_FSD907_warn(one) -> None:
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "cp"))
    flat = mesh["dp", "cp"]._flatten("dp_cp")
    assert flat.size() == 1
    with pytest.warns(UserWarning, match="flatten"):
        mesh["dp_cp"]
    with pytest.warns(FutureWarning, match="all_gather_single"):
        dist.all_gather_into_tensor(torch.zeros(1), torch.ones(1))
    with pytest.warns(FutureWarning, match="forward_sync_buffers"):
        DDP(model(), broadcast_buffers=True)
