"""A CheckpointManager with methods for model and optimizer, called inside of one context by save() and load()."""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
from torch.distributed.fsdp.api import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n, n), nn.ELU(), nn.Linear(n, n))

    def forward(self, x):
        return x + self.net(x)


class CheckpointManager:
    def __init__(self, model, optimizer, scheduler, folder):
        self.model, self.optimizer, self.scheduler, self.folder = model, optimizer, scheduler, folder
        self.full = FullStateDictConfig(offload_to_cpu=False, rank0_only=False)
        self.full_optim = FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=False)

    def path(self):
        return os.path.join(self.folder, "checkpoint.pt")

    def model_state(self):
        return self.model.state_dict()

    def optimizer_state(self):
        return FSDP.optim_state_dict(self.model, self.optimizer)

    def save(self, step):
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT, self.full, self.full_optim):
            state = {"model": self.model_state(), "optimizer": self.optimizer_state()}
        state.update(scheduler=self.scheduler.state_dict(), step=step)
        if dist.get_rank() == 0:
            torch.save(state, self.path())
        dist.barrier()

    def load(self):
        state = torch.load(self.path(), weights_only=True)
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT, self.full, self.full_optim):
            self.model.load_state_dict(state["model"], strict=True)
            optim_state = FSDP.optim_state_dict_to_load(self.model, self.optimizer, state["optimizer"])
        self.optimizer.load_state_dict(optim_state)
        self.scheduler.load_state_dict(state["scheduler"])
        return state["step"]


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", default="")
    parser.add_argument("--resume", default="")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    torch.manual_seed(10)
    model = FSDP(nn.Sequential(nn.Linear(5, 9), Block(9), Block(9), nn.Linear(9, 1)),
                 auto_wrap_policy=ModuleWrapPolicy([Block]), device_id=torch.device("cpu"))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    manager = CheckpointManager(model, optimizer, scheduler, args.save or args.resume)
    start = manager.load() if args.resume else args.first
    history = []
    for step in range(start, start + args.steps):
        x = torch.randn(6, 5, generator=torch.Generator().manual_seed(3 * step + dist.get_rank()))
        loss = (model(x) - x.norm(dim=1, keepdim=True)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        scheduler.step()
        history.append((loss.item(), norm.item()))
    if args.save:
        manager.save(step + 1)
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
