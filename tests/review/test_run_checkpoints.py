"""Mistakes with checkpoints made for real by two processes over Gloo on PyTorch 2.13.0: each errs, hangs or trains wrongly, and the right form does not."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from tests.review.sharded import batch, fails, fsdp1, net, run, sharded  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: E402
from torch.distributed.fsdp import StateDictType  # noqa: E402

pytestmark = pytest.mark.torch


def test_FSD701_FSD702_FSD711_on_one_rank_only(tmp_path) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def state():
        model = fsdp1(net())
        if dist.get_rank() == 0:
            model.state_dict()

    def save():
        if dist.get_rank() == 0:
            dcp.save({"x": torch.ones(2)}, checkpoint_id=str(tmp_path / "a"))

    def consolidate():
        model = net()
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
        model(batch()).sum().backward()
        optimizer.step()
        if dist.get_rank() == 0:
            optimizer.consolidate_state_dict(to=0)

    for body in (state, save, consolidate):
        with pytest.raises(gloo.RankFailed):
            gloo.run(2, lambda rank, body=body: (gloo.init(), body(), dist.barrier())[2], timeout=4)


def test_FSD703_FSD713_FSD721_shards_in_a_file(tmp_path) -> None:
    def body():
        model = sharded(net())
        path = tmp_path / f"{dist.get_rank()}.pt"
        torch.save(model.state_dict(), path)
        state = torch.load(path, weights_only=False)
        return type(state["first.weight"]).__name__, tuple(state["first.weight"].to_local().shape)

    assert run(body) == [("DTensor", (2, 4))] * 2


def test_FSD709_FSD710_the_optimizer_starts_cold() -> None:
    def body():
        model = sharded(net())
        optimizer = torch.optim.AdamW(model.parameters())
        model(batch()).sum().backward()
        optimizer.step()
        return tuple(optimizer.state_dict()["state"][0]["exp_avg"].to_local().shape)

    assert run(body) == [(2, 4)] * 2  # of a (4, 4) weight: half on each rank

    def fresh(load: bool):
        model = fsdp1(net())
        optimizer = torch.optim.AdamW(model.parameters())
        model(batch()).sum().backward()
        optimizer.step()
        state = FSDP.optim_state_dict(model, optimizer)
        other = torch.optim.AdamW(model.parameters())
        ready = FSDP.optim_state_dict_to_load(model, other, copy.deepcopy(state))
        if load:
            other.load_state_dict(ready)
        return len(other.state)

    assert run(lambda: fresh(False)) == [0, 0] and run(lambda: fresh(True)) == [1, 1]


def test_FSD715_local_shards_of_another_world_size(tmp_path) -> None:
    def save():
        model = fsdp1(net())
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            state = model.state_dict()
        return [tuple(one.local_shards()[0].tensor.shape) for one in state.values() if hasattr(one, "local_shards")]

    assert run(save) == [[(20,)]] * 2  # flat, half of 40


def test_FSD716_every_rank_holds_the_whole() -> None:
    from torch.distributed.fsdp import FullStateDictConfig

    def body(*options):
        model = fsdp1(net())
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(*options)):
            return len(model.state_dict())

    assert run(body) == [4, 4] and run(lambda: body(False, True)) == [4, 0]


def test_FSD704_a_file_that_runs_code(tmp_path) -> None:
    class Bad:
        def __reduce__(self):
            return (exec, (f"open({str(tmp_path / 'ran')!r}, 'w').close()",))

    torch.save({"x": Bad()}, tmp_path / "bad.pt")
    torch.load(tmp_path / "bad.pt", weights_only=False)
    assert (tmp_path / "ran").exists()
    with pytest.raises(Exception, match="Weights only"):
        torch.load(tmp_path / "bad.pt", weights_only=True)


def test_FSD718_keys_of_ddp() -> None:
    from torch.nn.parallel import DistributedDataParallel as DDP

    def body(inner: bool):
        model = DDP(net())
        net().load_state_dict(model.module.state_dict() if inner else model.state_dict())

    fails(lambda: body(False), "Missing key")
    assert run(lambda: body(True)) == [None, None]


def test_FSD720_before_the_folder_is_there(tmp_path) -> None:
    tried = gloo.event()

    def body(wait: bool):
        folder = tmp_path / str(wait)
        if dist.get_rank() == 0:
            assert wait or tried.wait(60)  # without a barrier rank 1 may come first
            folder.mkdir()
        if wait:
            dist.barrier()
        try:
            torch.save({}, folder / f"{dist.get_rank()}.pt")
        finally:
            tried.set()
        return "saved"

    said = run(lambda: body(False))
    assert said[0] == "saved" and "does not exist" in said[1]
    assert run(lambda: body(True)) == ["saved", "saved"]
