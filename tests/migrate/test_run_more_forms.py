"""Forms that came up in other people's repositories, trained before and after their migration."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import parity
from .test_run_forms import HEAD, TRAIN, imported  # noqa: F401 - the fixture holds here as well

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

WRAPS = {
    "checkpointing where the wrapping function is called": """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing


def wrapped(module):
    return FSDP(module, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=CPU)


def build():
    bare = Model()
    model = wrapped(bare)
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block) and not isinstance(m, FSDP))
    return model
""",
    "wrapped twice": """
def build():
    settings = dict(device_id=CPU, use_orig_params=True)
    with enable_wrap(wrapper_cls=FSDP, **settings):
        model = Model()
        model.blocks = nn.ModuleList([wrap(wrap(block)) for block in model.blocks])
        return wrap(model)
""",
    "a partial, for parts and for the whole": """
class Sharding:
    def __init__(self, **more):
        self.shard = functools.partial(FSDP, device_id=CPU, **more)

    def __call__(self, model):
        for i, block in enumerate(model.blocks):
            model.blocks[i] = self.shard(block)
        return self.shard(model)


def build():
    return Sharding(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)(Model())
""",
    "a partial in bf16": """
shard = functools.partial(FSDP, device_id=CPU, mixed_precision=MixedPrecision(torch.bfloat16, torch.float32))


class Beside(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = shard(nn.Linear(4, 6))
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        x = self.inner(x)
        assert x.dtype == torch.bfloat16
        return self.out(x)


def build():
    return shard(Beside())
""",
    "one module with a strategy of its own": """
def chosen(module):
    if isinstance(module, Block):
        return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP, "forward_prefetch": True}
    return isinstance(module, nn.Linear) and module.out_features == 2


def build():
    policy = CustomPolicy(chosen)
    return FSDP(Model(), auto_wrap_policy=policy, device_id=CPU, use_orig_params=True)
""",
    "another name of the class": """
def build():
    Sharded = torch.distributed.fsdp.FullyShardedDataParallel
    model = Model()
    for i in range(len(model.blocks)):
        model.blocks[i] = Sharded(model.blocks[i], device_id=CPU)
    model = Sharded(model, device_id=CPU)
    assert isinstance(model, Sharded)
    return model
""",
}
RESUMES = {
    "in one of two cases": """
        state = moments
        if sharded:
            state = FSDP.optim_state_dict_to_load(model, optimizer, state)
        optimizer.load_state_dict(state)
""",
    "in the order of 2.0": """
        if torch.__version__ < "2.1":
            ready = FSDP.optim_state_dict_to_load(moments, model, optimizer)
        else:
            ready = FSDP.optim_state_dict_to_load(model, optimizer, moments)
        gc.collect()
        optimizer.load_state_dict(ready)
""",
    "deleted in between": """
        held = {"optimizer": moments}
        ready = FSDP.optim_state_dict_to_load(model, optimizer, held["optimizer"])
        del held
        optimizer.load_state_dict(ready)
        del ready
""",
}
RESUME = """
import gc


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = FSDP(Model(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=CPU)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    x, y = batch(0)
    history, sharded = [], True
    for turn in range(3):
        if turn == 1:
            state = {name: value.clone() for name, value in model.state_dict().items()}
            file = io.BytesIO()
            torch.save(FSDP.optim_state_dict(model, optimizer), file)
        if turn == 2:
            model.load_state_dict(state)
            file.seek(0)
            moments = torch.load(file, weights_only=True)
            load(model, optimizer, moments, sharded)
        for step in range(2):
            loss = (model(x) - y).square().mean()
            loss.backward()
            norm = model.clip_grad_norm_(1.0)
            optimizer.step()
            optimizer.zero_grad()
            history.append((loss.item(), norm.item()))
    assert history[2:4] == history[4:6]
    dist.destroy_process_group()
    return history


def load(model, optimizer, moments, sharded):
    if optimizer is not None:
"""
CASES = {
    **{name: HEAD + wrap + TRAIN for name, wrap in WRAPS.items()},
    **{f"loaded {name}": HEAD + RESUME + code for name, code in RESUMES.items()},
}
LOOSE = {"a partial in bf16": parity.BF16}


@pytest.mark.parametrize("name", CASES)
def test_same_training(name: str, tmp_path: Path) -> None:
    before = tmp_path / "before.py"
    before.write_text(CASES[name])
    texts, result = parity.migrate(before)
    assert [use for use in result.uses if use.status == "left"] == []
    after = tmp_path / "after.py"
    after.write_text(texts[str(before)])
    assert "FSDP(" not in after.read_text() and "FSDP.optim" not in after.read_text()
    difference = parity.difference(parity.train(before, None), parity.train(after, None))
    assert difference <= LOOSE.get(name, 1e-6)
    again, _ = parity.migrate(after)
    assert again == {}


GROUPS = """
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    torch.manual_seed(rank)
    model = Model()
    model.scale.fill_(rank + 1.0)
    model = FSDP(
        model,
        process_group=groups[rank // 2],
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sync_module_states=True,
        device_id=CPU,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for step in range(3):
        x, y = batch(step)
        loss = (model(x) - y).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(0.5)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history
"""


def test_the_first_rank_of_each_group(tmp_path: Path) -> None:
    """Two models over two groups of ranks: each is sent within its own group."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(HEAD + GROUPS)
    texts, result = parity.migrate(before)
    assert [use for use in result.uses if use.status == "left"] == []
    after.write_text(texts[str(before)])
    old = parity.train(before, None, 4)
    assert old[0][0][1] != old[2][0][1]  # the norms of two models
    assert parity.difference(old, parity.train(after, None, 4)) <= 1e-6
