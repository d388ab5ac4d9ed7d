"""FSDP2 with gradient accumulation, evaluation and a full checkpoint."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUMULATE = 2
LAST = "last.pt"


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self, dim=16, depth=3):
        super().__init__()
        self.embed = nn.Linear(4, dim)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, 2)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def shard(model):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model


def save(model, optimizer, rank):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_state = get_model_state_dict(model, options=options)
    optimizer_state = get_optimizer_state_dict(model, optimizer, options=options)
    if rank == 0:
        torch.save({"model": model_state, "optimizer": optimizer_state}, LAST)
    dist.barrier()


def load(model, optimizer, rank):
    state = torch.load(LAST, map_location="cpu", weights_only=True) if rank == 0 else {"model": {}, "optimizer": {}}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, state["model"], options=options)
    set_optimizer_state_dict(model, optimizer, state["optimizer"], options=options)


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    total = torch.zeros(2)
    for x, y in loader:
        total += torch.tensor([criterion(model(x), y).item(), 1.0])
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = shard(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if os.path.exists(LAST):
        load(model, optimizer, rank)
    criterion = nn.CrossEntropyLoss()
    data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=4, sampler=sampler, drop_last=True)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for index, (x, y) in enumerate(loader):
            last = (index + 1) % ACCUMULATE == 0
            model.set_requires_gradient_sync(last)
            loss = criterion(model(x), y) / ACCUMULATE
            loss.backward()
            if last:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        quality = evaluate(model, loader, criterion)
        if rank == 0:
            print(f"epoch {epoch}: {quality:.4f}")
        save(model, optimizer, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
