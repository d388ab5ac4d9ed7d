"""A Trainer class with a dataclass of settings; a full checkpoint of the model, written by rank 0 and read by all."""

import argparse
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    FullStateDictConfig,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


@dataclass
class Config:
    steps: int = 3
    first: int = 0
    lr: float = 0.1
    clip: float = 1.0
    save: str = ""
    resume: str = ""


class Mixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin1 = nn.Linear(width, width)
        self.lin2 = nn.Linear(width, width)

    def forward(self, x):
        return x + self.lin2(torch.relu(self.lin1(x)))


class Network(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.mixers = nn.ModuleList([Mixer(width) for _ in range(2)])
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        x = self.inp(x)
        for mixer in self.mixers:
            x = mixer(x)
        return self.out(x)


class Trainer:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.rank = dist.get_rank()
        self.model = FSDP(
            Network(),
            auto_wrap_policy=ModuleWrapPolicy({Mixer}),
            sharding_strategy=ShardingStrategy.FULL_SHARD,
            device_id=torch.device("cpu"),
        )
        if config.resume:
            self.load(config.resume)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.lr)
        self.loss = nn.CrossEntropyLoss()

    def batch(self, step: int):
        generator = torch.Generator().manual_seed(10 * step + self.rank)
        x = torch.randn(8, 6, generator=generator)
        return x, x[:, :3].argmax(dim=1)

    def train(self):
        history = []
        for step in range(self.config.first, self.config.first + self.config.steps):
            x, y = self.batch(step)
            loss = self.loss(self.model(x), y)
            loss.backward()
            norm = self.model.clip_grad_norm_(self.config.clip)
            self.optimizer.step()
            self.optimizer.zero_grad()
            history.append((loss.item(), norm.item()))
        if self.config.save:
            self.save(self.config.save)
        return history

    def save(self, folder: str) -> None:
        # Every rank takes part in gathering; only rank 0 gets the tensors.
        policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT, policy):
            state = self.model.state_dict()
        if self.rank == 0:
            torch.save(state, os.path.join(folder, "model.pt"))
        dist.barrier()

    def load(self, folder: str) -> None:
        state = torch.load(os.path.join(folder, "model.pt"), map_location="cpu", weights_only=True)
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT):
            self.model.load_state_dict(state)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", default="")
    parser.add_argument("--resume", default="")
    config = Config(**vars(parser.parse_args(argv)))
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    history = Trainer(config).train()
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
