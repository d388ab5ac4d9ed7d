"""Forms of FSDP1 whose migration needs a function of its own, trained before and after: the same losses and norms."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import parity

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HEAD = """
import contextlib
import functools
import io

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffload, FullStateDictConfig, FullyShardedDataParallel, MixedPrecision, ShardingStrategy, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import (
    CustomPolicy,
    ModuleWrapPolicy,
    _or_policy,
    always_wrap_policy,
    enable_wrap,
    lambda_auto_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
    wrap,
)

CPU = torch.device("cpu")
IGNORED = []  # parameters whose gradients the program itself sums


class Block(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.second(torch.tanh(self.first(x)))


class Model(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.inp = nn.Linear(4, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(3)])
        self.out = nn.Linear(width, 2)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x) * self.scale


def batch(step):
    generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
    return torch.randn(5, 4, generator=generator), torch.randn(5, 2, generator=generator)

"""
TRAIN = """

def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    history = []
    for step in range(4):
        x, y = batch(step)
        loss = (model(x).float() - y).square().mean()
        loss.backward()
        for p in IGNORED:
            dist.all_reduce(p.grad)
        norm = model.clip_grad_norm_(0.5)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history
"""

WRAPS = {
    "options from a function": """
def options(kind):
    return dict(sharding_strategy=ShardingStrategy[kind], auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=CPU)


def build():
    return FSDP(Model(), use_orig_params=True, **options("SHARD_GRAD_OP"))
""",
    "options written out": """
def build():
    options = {"auto_wrap_policy": ModuleWrapPolicy({Block}), "device_id": CPU}
    model = FSDP(Model(), **options)
    return model
""",
    "policies joined": """
def build():
    large = functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, nn.Linear) and m.in_features > 6)
    blocks = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    policy = functools.partial(_or_policy, policies=[large, blocks])
    return FSDP(Model(), auto_wrap_policy=policy, device_id=CPU)
""",
    "policy of one's own": """
def policy(module, recurse, nonwrapped_numel):
    return recurse or nonwrapped_numel > 100


def build():
    model = FSDP(Model(), auto_wrap_policy=policy, device_id=CPU)
    return model
""",
    "always": """
def build():
    model = Model()
    model = FSDP(model, auto_wrap_policy=always_wrap_policy, device_id=CPU)
    return model
""",
    "custom policy": """
def chosen(module):
    return isinstance(module, Block)


def build():
    return FSDP(Model(), auto_wrap_policy=CustomPolicy(chosen), device_id=CPU)
""",
    "wrap with arguments from elsewhere": """
def settings():
    return {"device_id": CPU, "sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}


def build():
    with enable_wrap(wrapper_cls=FSDP, **settings()):
        model = Model()
        model.blocks = nn.ModuleList([wrap(block) for block in model.blocks])
        return wrap(model)
""",
    "ignored parameters that are trained": """
def build():
    model = Model()
    IGNORED.extend(model.out.parameters())
    model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), ignored_modules=[model.out], device_id=CPU)
    return model
""",
    "offload by a flag": """
OFFLOAD = False


def build():
    return FSDP(Model(), cpu_offload=CPUOffload(True) if OFFLOAD else None, device_id=CPU)
""",
    "strategy by name": """
def build(name="full_shard"):
    if name == "full_shard":
        strategy = ShardingStrategy.FULL_SHARD
    else:
        strategy = ShardingStrategy.SHARD_GRAD_OP
    model = FSDP(Model(), sharding_strategy=strategy, auto_wrap_policy=ModuleWrapPolicy([Block]), device_id=CPU)
    return model
""",
    "reset on the meta device": """
class Fixed(nn.Linear):
    def reset_parameters(self):
        with torch.no_grad():
            self.weight.fill_(0.125)
            self.bias.fill_(0.25)


def build():
    with torch.device("meta"):
        model = nn.Sequential(Fixed(4, 6), Fixed(6, 2))
    return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Fixed}), device_id=CPU)
""",
    "wrapped in a comprehension": """
def build():
    model = Model()
    model.blocks = nn.ModuleList([FSDP(block, device_id=CPU) for block in model.blocks])
    return FSDP(model, device_id=CPU)
""",
    "wrapped in a loop": """
def build():
    model = Model()
    for i, block in enumerate(model.blocks):
        model.blocks[i] = FSDP(block, device_id=CPU)  # one by one
    model = FSDP(module=model, device_id=CPU)
    return model
""",
    "activation checkpointing by a function": """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing


def recompute(model):
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))


def build(recomputed=True):
    model = Model()
    model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=CPU)
    if recomputed:
        recompute(model)
    return model
""",
}
WHOLE = {
    "accumulation chosen as it goes": """
def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = FSDP(Model(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for step in range(6):
        x, y = batch(step)
        last = step % 3 == 2
        with contextlib.ExitStack() as stack:
            if not last:
                stack.enter_context(model.no_sync())
            loss = (model(x) - y).square().mean() / 3
            loss.backward()
        context = contextlib.nullcontext() if last else model.no_sync()
        with context:
            loss = (model(x) - y).square().mean() / 3
            loss.backward()
        if last:
            norm = model.clip_grad_norm_(max_norm=0.5, norm_type=2)
            optimizer.step()
            optimizer.zero_grad()
            history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history
""",
    "whole parameters written": """
def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = FSDP(Model(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=CPU, use_orig_params=True)
    history = []
    for step in range(3):
        x, y = batch(step)
        loss = (model(x) - y).square().mean()
        with FSDP.summon_full_params(model):
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(0.9)
        with FSDP.summon_full_params(model, writeback=False):
            total = sum(p.square().sum().item() for p in model.parameters())
        history.append((loss.item(), total))
    dist.destroy_process_group()
    return history
""",
    "state dicts without a context": """
def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = FSDP(Model(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=CPU)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    x, y = batch(0)
    history = []
    for step in range(2):
        (model(x) - y).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    file = io.BytesIO()
    torch.save(FSDP.optim_state_dict(model, optimizer), file)
    file.seek(0)
    moments = torch.load(file, weights_only=True)
    history.append((sum(value.sum().item() for value in state.values()), float(len(moments["state"]))))
    for step in range(2):
        loss = (model(x) - y).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    model.load_state_dict(state)
    to_load = FSDP.optim_state_dict_to_load(model, optimizer, moments)
    optimizer.load_state_dict(to_load)
    for step in range(2):
        loss = (model(x) - y).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    assert history[1:3] == history[3:5]
    dist.destroy_process_group()
    return history
""",
    "a kind of state dict set once": """
def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = FSDP(Model(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=CPU)
    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=False))
    x, y = batch(0)
    loss = (model(x) - y).square().mean()
    loss.backward()
    state = model.state_dict()
    norm = model.clip_grad_norm_(9.0)
    history = [(loss.item(), norm.item()), (float(len(state)), sum(value.sum().item() for value in state.values()))]
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        text = '''
        not code
        '''
        model.load_state_dict(model.state_dict())
    history.append(((model(x) - y).square().mean().item(), float(len(text))))
    dist.destroy_process_group()
    return history
""",
    "bf16 around batch norm": """
class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.inp(x))))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = FSDP(Normed(), auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=half, device_id=CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for step in range(3):
        x, y = batch(step)
        out = model(x)
        loss = (out.float() - y).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history
""",
}
CASES = {
    **{name: HEAD + wrap + TRAIN for name, wrap in WRAPS.items()},
    **{name: HEAD + rest for name, rest in WHOLE.items()},
}
LOOSE = {"bf16 around batch norm": parity.BF16}


@pytest.fixture(scope="module", autouse=True)
def imported():
    """What every program imports, once, before the forks."""
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.fsdp
    import torch.distributed.tensor  # noqa: F401


@pytest.mark.parametrize("name", CASES)
def test_same_training(name: str, tmp_path: Path) -> None:
    before = tmp_path / "before.py"
    before.write_text(CASES[name])
    texts, result = parity.migrate(before)
    assert [use for use in result.uses if use.status == "left"] == []
    after = tmp_path / "after.py"
    after.write_text(texts[str(before)])
    assert "FSDP(" not in after.read_text()
    difference = parity.difference(parity.train(before, None), parity.train(after, None))
    assert difference <= LOOSE.get(name, 1e-6)
    again, _ = parity.migrate(after)
    assert again == {}
