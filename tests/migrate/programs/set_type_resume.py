"""The kind of all state dicts said once, right after wrapping; the checkpoint is read before, the optimizer's state after."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp.wrap import always_wrap_policy


def build_model():
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 2))


def setup(args):
    """Model and optimizer, from the checkpoint where there is one."""
    model = build_model()
    checkpoint = None
    if args.resume:
        checkpoint = torch.load(os.path.join(args.resume, "last.pt"), map_location="cpu", weights_only=True)
        missing, unexpected = model.load_state_dict(checkpoint["model"], strict=False)
        assert not missing and not unexpected
    model = FSDP(
        model,
        None,
        ShardingStrategy.FULL_SHARD,
        auto_wrap_policy=always_wrap_policy,
        device_id=torch.device("cpu"),
    )
    FSDP.set_state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(rank0_only=False),
        FullOptimStateDictConfig(rank0_only=False),
    )
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.01)
    if checkpoint is not None:
        optim_state = FSDP.optim_state_dict_to_load(model, optimizer, checkpoint["optimizer"])
        optimizer.load_state_dict(optim_state)
        del checkpoint, optim_state
    return model, optimizer


def save(model, optimizer, folder):
    state = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}
    if dist.get_rank() == 0:
        torch.save(state, os.path.join(folder, "last.pt"))


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", default="")
    parser.add_argument("--resume", default="")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    torch.manual_seed(77)
    model, optimizer = setup(args)
    history = []
    for step in range(args.first, args.first + args.steps):
        x = torch.randn(7, 6, generator=torch.Generator().manual_seed(19 * step + dist.get_rank()))
        loss = nn.functional.l1_loss(model(x), x[:, :2] + x[:, 2:4])
        optimizer.zero_grad()
        loss.backward()
        norm = model.clip_grad_norm_(0.7)
        optimizer.step()
        history.append((loss.item(), norm.item()))
    if args.save:
        save(model, optimizer, args.save)
    dist.barrier()
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
