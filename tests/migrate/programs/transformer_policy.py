"""PyTorch's own encoder layers, wrapped by the policy for transformers."""

import argparse
import functools

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp.fully_sharded_data_parallel import BackwardPrefetch, ShardingStrategy
from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class Tagger(nn.Module):
    def __init__(self, vocabulary: int, tags: int, dim: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(
            [
                nn.TransformerEncoderLayer(dim, nhead=4, dim_feedforward=32, dropout=0.0, batch_first=True)
                for _ in range(2)
            ]
        )
        self.tags = nn.Linear(dim, tags)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.tags(hidden)


def get_policy():
    return functools.partial(
        transformer_auto_wrap_policy,
        transformer_layer_cls={
            nn.TransformerEncoderLayer,
        },
    )


def train_step(model, optimizer, tokens, tags, clip):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens).transpose(1, 2), tags)
    loss.backward()
    grad_norm = model.clip_grad_norm_(clip)
    optimizer.step()
    return loss.item(), grad_norm.item()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args(argv)

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(77)
    model = FSDP(
        Tagger(25, 4),
        auto_wrap_policy=get_policy(),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        limit_all_gathers=True,
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    history = []
    for step in range(args.steps):
        generator = torch.Generator().manual_seed(900 + 2 * step + rank)
        tokens = torch.randint(0, 25, (3, 7), generator=generator)
        history.append(train_step(model, optimizer, tokens, tokens % 4, args.clip))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
