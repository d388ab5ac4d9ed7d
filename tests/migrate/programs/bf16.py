"""bfloat16 for computing, float32 for reducing and for the master weights."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

# Gradients are summed in float32.
bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.w2(F.silu(self.w1(x)) * self.w3(x))


class Regressor(nn.Module):
    def __init__(self, dim: int = 16):
        super().__init__()
        self.stem = nn.Linear(4, dim)
        self.layers = nn.ModuleList([FeedForward(dim, 32) for _ in range(3)])
        self.final = nn.Linear(dim, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.final(x)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(42)
    model = FSDP(
        Regressor(),
        auto_wrap_policy=ModuleWrapPolicy({FeedForward}),
        mixed_precision=bf16,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    history = []
    for step in range(5):
        generator = torch.Generator().manual_seed(step + 100 * rank)
        inputs = torch.randn(8, 4, generator=generator)
        target = inputs.prod(dim=1, keepdim=True)
        prediction = model(inputs)
        loss = F.mse_loss(prediction.float(), target)
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
