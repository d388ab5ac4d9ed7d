"""A model that wraps its own layers while it is built, as older code does, with one dictionary of arguments for all."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import BackwardPrefetch, ShardingStrategy

fsdp_args = dict(
    sharding_strategy=ShardingStrategy.FULL_SHARD,
    backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
    device_id=torch.device("cpu"),
)


class EncoderLayer(nn.Module):
    def __init__(self, dim, dropout=0.0):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(dim, 2, dropout=dropout, batch_first=True)
        self.linear = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = x + self.self_attn(x, x, x, need_weights=False)[0]
        return x + self.linear(self.norm(x))


class Encoder(nn.Module):
    def __init__(self, dim=8, layers=3, shard=True):
        super().__init__()
        self.embed = nn.Linear(3, dim)
        self.layers = nn.ModuleList()
        for _ in range(layers):
            layer = EncoderLayer(dim)
            if shard:
                layer = FSDP(layer, **fsdp_args)
            self.layers.append(layer)
        self.head = nn.Linear(dim, 3)
        if shard:
            self.head = FSDP(self.head, **fsdp_args)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    model = FSDP(Encoder(), **fsdp_args)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    history = []
    for step in range(4):
        x = torch.randn(3, 5, 3, generator=torch.Generator().manual_seed(29 * step + dist.get_rank()))
        loss = nn.functional.smooth_l1_loss(model(x), x.flip(1))
        loss.backward()
        norm = model.clip_grad_norm_(max_norm=0.6)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), float(norm)))
    if dist.get_rank() == 0:
        print(model)
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
