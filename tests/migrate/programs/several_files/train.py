"""The program."""

import argparse

import torch
import torch.distributed as dist
from checkpoint import load_model_checkpoint, save_model_checkpoint
from network import Decoder
from sharding import shard
from torch.distributed.fsdp import ShardingStrategy


def train(model, optimizer, first, steps, rank):
    history = []
    for step in range(first, first + steps):
        tokens = torch.randint(0, 18, (4, 7), generator=torch.Generator().manual_seed(3 * step + rank))
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    return history


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--save")
    parser.add_argument("--resume")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(33)
    model = Decoder()
    if args.resume:
        load_model_checkpoint(model, args.resume)
    model = shard(model, ShardingStrategy.SHARD_GRAD_OP)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    history = train(model, optimizer, args.first, args.steps, rank)
    if args.save:
        save_model_checkpoint(model, rank, args.save)
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
