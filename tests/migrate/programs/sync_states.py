"""Only rank 0 has the weights that count; they are broadcast while the model is wrapped."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        self.register_buffer("shift", torch.rand(dim))

    def forward(self, x):
        return torch.tanh(self.linear(x) + self.shift)


class AutoEncoder(nn.Module):
    def __init__(self, dim=9):
        super().__init__()
        self.encoders = nn.Sequential(Encoder(dim), Encoder(dim))
        self.decoder = nn.Linear(dim, dim)

    def forward(self, x):
        return self.decoder(self.encoders(x))


def load_pretrained(rank):
    """Rank 0 would read a file here; the others start from anything."""
    torch.manual_seed(0 if rank == 0 else 1000 + rank)
    return AutoEncoder()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = load_pretrained(rank)
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Encoder}),
        device_id=torch.device("cpu"),
        sync_module_states=True,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    history = []
    for step in range(4):
        x = torch.randn(7, 9, generator=torch.Generator().manual_seed(13 * step + rank))
        loss = nn.functional.mse_loss(model(x), x)
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
