"""FSDP1 or FSDP2, as a setting says; everything after asks the model for its type."""

import argparse

import torch
import torch.distributed as dist
from strategies import apply_fsdp2, clip, load, plain, save
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.second(torch.tanh(self.first(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)

    def describe(self):
        return len(self.blocks)


class Worker:
    def __init__(self, strategy):
        self.strategy = strategy
        torch.manual_seed(0)
        model = Net()
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        if strategy == "fsdp":
            # the old way
            self.model = FSDP(
                model,
                auto_wrap_policy=ModuleWrapPolicy({Block}),
                device_id=torch.device("cpu"),
                sharding_strategy=ShardingStrategy.FULL_SHARD,
                mixed_precision=MixedPrecision(param_dtype=torch.float32, reduce_dtype=torch.float32),
                device_mesh=mesh,
            )
        elif strategy == "fsdp2":
            policy = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
            apply_fsdp2(model, Block, {"mesh": mesh, "mp_policy": policy})
            self.model = model
        else:
            raise ValueError(strategy)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def step(self, number):
        generator = torch.Generator().manual_seed(10 * number + dist.get_rank())
        x, y = torch.randn(5, 8, generator=generator), torch.randn(5, 2, generator=generator)
        loss = (self.model(x) - y).square().mean()
        loss.backward()
        norm = clip(self.model, 0.5) if number % 2 else self.clipped_here(0.5)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item(), norm.item()

    def clipped_here(self, limit):
        if self.strategy == "fsdp":
            return self.model.clip_grad_norm_(limit)
        return clip(self.model, limit)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="fsdp")
    parser.add_argument("--save")
    parser.add_argument("--resume")
    arguments = parser.parse_args(argv)
    dist.init_process_group("gloo")
    worker = Worker(arguments.strategy)
    assert plain(worker.model).describe() == 3
    if arguments.resume:
        load(worker.model, torch.load(arguments.resume))
    history = [worker.step(number) for number in range(4)]
    state = save(worker.model)
    if arguments.save and dist.get_rank() == 0:
        torch.save(state, arguments.save)
    dist.barrier()
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
