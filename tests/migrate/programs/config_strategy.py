"""The strategy and the precision come from the command line."""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

STRATEGIES = {
    "full": ShardingStrategy.FULL_SHARD,
    "grad_op": ShardingStrategy.SHARD_GRAD_OP,
}


def get_args(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", choices=STRATEGIES, default="full")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args(argv)


class Layer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.lin = nn.Linear(size, size)

    def forward(self, x):
        return x + torch.sin(self.lin(x))


def setup_model(args):
    torch.manual_seed(9)
    precision = None
    if args.bf16:
        precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    return FSDP(
        nn.Sequential(Layer(10), Layer(10), nn.Linear(10, 2)),
        auto_wrap_policy=ModuleWrapPolicy({Layer}),
        sharding_strategy=STRATEGIES[args.strategy],
        mixed_precision=precision,
        cpu_offload=CPUOffload(offload_params=args.offload),
        device_id=torch.device("cpu"),
    )


def main(argv=None):
    args = get_args(argv)
    dist.init_process_group("gloo")
    model = setup_model(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    history = []
    for step in range(args.steps):
        x = torch.randn(8, 10, generator=torch.Generator().manual_seed(41 * step + dist.get_rank()))
        loss = nn.functional.mse_loss(model(x).float(), x[:, :2])
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
