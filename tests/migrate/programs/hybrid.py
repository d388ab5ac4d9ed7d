"""Sharded inside a node, replicated between nodes; FSDP makes the process groups."""

from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 2
BATCH = 4


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv1d(channels, channels, 3, padding=1)
        self.second = nn.Conv1d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))


def build():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv1d(2, 8, 3, padding=1),
        Residual(8),
        Residual(8),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def data():
    generator = torch.Generator().manual_seed(0)
    signals = torch.randn(32, 2, 12, generator=generator)
    labels = torch.randint(0, 3, (32,), generator=generator)
    return TensorDataset(signals, labels)


def main():
    dist.init_process_group("gloo")
    dataset = data()
    sampler = DistributedSampler(dataset, shuffle=True, seed=1)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)

    wrap = partial(transformer_auto_wrap_policy, transformer_layer_cls={Residual})
    model = FSDP(
        build(),
        auto_wrap_policy=wrap,
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()

    history = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        model.train()
        for signal, label in loader:
            optimizer.zero_grad()
            loss = criterion(model(signal), label)
            loss.backward()
            total_norm = model.clip_grad_norm_(max_norm=2.0)
            optimizer.step()
            history.append((loss.item(), total_norm.item()))
    dist.barrier()
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
