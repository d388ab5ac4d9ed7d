"""Mistakes that no other test makes for real: contexts that are not entered, flat parameters, files that meet, scaling for nothing."""

from __future__ import annotations

import os
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from tests.review.sharded import CPU, Net, batch, fsdp1, net, run  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: E402
from torch.distributed.fsdp import ShardingStrategy  # noqa: E402
from torch.distributed.fsdp.wrap import ModuleWrapPolicy  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402

pytestmark = pytest.mark.torch


def test_FSD004_the_old_launcher_warns_and_hands_over_an_argument(tmp_path) -> None:
    script = tmp_path / "show.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")

    def body(module):
        import subprocess

        words = [sys.executable, "-m", module, "--nnodes=1", "--nproc-per-node=1", "--master-port=0", str(script)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=True)
        return done.stdout, "deprecated" in done.stderr

    old, told = body("torch.distributed.launch")
    assert "--local-rank=0" in old and told
    new, told = body("torch.distributed.run")
    assert "local" not in new and not told


def test_FSD105_no_sync_as_a_statement_changes_nothing() -> None:
    def body(entered):
        model = DDP(nn.Linear(2, 1, bias=False))
        nn.init.ones_(model.module.weight)
        x = torch.full((1, 2), 1.0 + dist.get_rank())
        if entered:
            with model.no_sync():
                model(x).sum().backward()
        else:
            model.no_sync()
            model(x).sum().backward()
        return model.module.weight.grad.tolist()

    assert run(lambda: body(False)) == [[[1.5, 1.5]], [[1.5, 1.5]]]  # averaged all the same
    assert run(lambda: body(True)) == [[[1.0, 1.0]], [[2.0, 2.0]]]


def test_FSD109_the_name_of_the_group_is_not_taken() -> None:
    def body(rank):
        dist.init_process_group("gloo", group_name="train")
        return dist.group.WORLD.group_name

    assert "train" not in gloo.run(2, body)


def test_FSD203_the_result_is_read_before_it_is_there() -> None:
    read = gloo.event()

    def body():
        if dist.get_rank() == 1:
            assert read.wait(60)  # rank 0 has read before this rank comes
        x = torch.ones(1000)
        dist.all_reduce(x, async_op=True)  # nobody waits
        seen = x.sum().item()
        read.set()
        dist.barrier()
        return seen

    assert run(body)[0] != 2000.0


def test_FSD303_one_unit_of_all_parameters() -> None:
    def body(policy):
        model = fsdp1(net(), auto_wrap_policy=policy)
        return len(FSDP.fsdp_modules(model)), [p.numel() for p in model.parameters()]

    assert run(lambda: body(None)) == [(1, [20]), (1, [20])]
    assert run(lambda: body(ModuleWrapPolicy({nn.Linear})))[0][0] == 3


def test_FSD027_FSD307_nothing_is_compiled_over_flat_parameters() -> None:
    from torch._dynamo.testing import CompileCounter

    def body(original):
        seen = CompileCounter()
        model = torch.compile(fsdp1(net(), use_orig_params=original), backend=seen)
        model(batch()).sum().backward()
        return seen.frame_count, seen.op_count

    assert run(lambda: body(True)) == [(1, 3), (1, 3)]  # two layers and tanh
    assert run(lambda: body(False)) == [(0, 0), (0, 0)]


def test_FSD030_what_is_checkpointed_twice_is_computed_three_times() -> None:
    from torch.utils.checkpoint import checkpoint

    def times(body):
        calls = []

        class Layer(nn.Linear):
            def forward(self, x):
                calls.append(1)
                return super().forward(x)

        layer = Layer(4, 4)
        body(layer, torch.ones(1, 4, requires_grad=True)).sum().backward()
        return len(calls)

    def again(layer, x):
        return checkpoint(layer, x, use_reentrant=True)

    once = times(again)
    twice = times(lambda layer, x: checkpoint(lambda y: again(layer, y), x, use_reentrant=True))
    assert (once, twice) == (2, 3)


def test_FSD031_NO_SHARD_warns_and_shards_nothing() -> None:
    def body(rank):
        gloo.init()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model = FSDP(Net(), device_id=CPU, sharding_strategy=ShardingStrategy.NO_SHARD)
        said = any("NO_SHARD" in str(one.message) and "deprecated" in str(one.message) for one in told)
        return said, sum(p.numel() for p in model.parameters())

    assert gloo.run(2, body) == [(True, 40), (True, 40)]


def test_FSD318_one_rank_a_group_of_shards_trains_a_model_of_its_own() -> None:
    from torch.distributed.device_mesh import init_device_mesh

    def body(*shape):
        torch.manual_seed(0)
        model = FSDP(
            Net(),
            device_id=CPU,
            device_mesh=init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")),
            sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        )
        model(batch()).sum().backward()
        return sum(p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None)

    one, other = run(lambda: body(2, 1))
    assert abs(one - other) > 0.1  # the replicas' gradients are never averaged

    def averaged():
        torch.manual_seed(0)
        model = DDP(Net())
        model(batch()).sum().backward()
        return sum(p.grad.abs().sum().item() for p in model.parameters())

    whole, again = run(averaged)
    assert whole == again and sum(run(lambda: body(1, 2))) == pytest.approx(whole, rel=1e-4)


def test_FSD520_who_leaves_without_shutdown_leaves_the_others_alone(tmp_path) -> None:
    import fcntl

    import torch.distributed.rpc as rpc

    def body(shutdown, file):
        def whole(rank):
            with (tmp_path / "alive").open("w") as alive:
                if rank == 0:
                    fcntl.flock(alive, fcntl.LOCK_EX)
                options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{file}", rpc_timeout=60)
                rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
                answer = 0
                if rank == 1:
                    if not shutdown:
                        fcntl.flock(alive, fcntl.LOCK_EX)  # comes back when rank 0 is no more
                    answer = rpc.rpc_sync("worker0", abs, args=(-1,))
                if shutdown:
                    rpc.shutdown()
                elif rank == 0:
                    os._exit(0)
            return answer

        return gloo.run(2, whole)

    assert body(True, tmp_path / "one") == [0, 1]
    with pytest.raises(gloo.RankFailed, match="rank 1: Traceback"):
        body(False, tmp_path / "two")


def test_FSD619_the_last_joiner_waits_alone() -> None:
    from tests.join_check import programs

    part = programs.METER.partition("        common = ")
    alone = "        if is_last_joiner:\n            dist.all_reduce(self.meter.total, group=self.meter.group)\n\n"
    broken = part[0] + alone + part[2][part[2].index("\ndef train") :]

    from tests.join_check.test_runs import HASTY, run

    assert run(programs.METER) == [[6.0], [6.0]]
    with pytest.raises(gloo.RankFailed):
        run(broken, HASTY)


def test_FSD719_the_last_rank_wins(tmp_path) -> None:
    def body():
        for rank in range(2):  # each after the other; at once they may also mix
            if dist.get_rank() == rank:
                torch.save({"rank": rank}, tmp_path / "model.pt")
            dist.barrier()
        return torch.load(tmp_path / "model.pt")["rank"]

    assert run(body) == [1, 1]


def test_FSD804_nothing_underflows_in_bfloat16() -> None:
    def grad(dtype):
        x = torch.ones(1, dtype=dtype, requires_grad=True)
        (x * 1e-30).sum().backward()
        return x.grad.item()

    assert grad(torch.float16) == 0.0 and grad(torch.bfloat16) == pytest.approx(1e-30, rel=0.01)
