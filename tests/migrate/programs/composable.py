"""FSDP2 as it was at first: imported from the prototype, with reshard_after_forward written out."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed._composable.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed._tensor import DTensor
from torch.distributed.device_mesh import init_device_mesh


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.relu(self.fc(x))


class Model(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.blocks = nn.ModuleList([Block(dim) for _ in range(3)])
        self.head = nn.Linear(dim, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def shard(model, mesh, offload=False):
    policy = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.float32),
        "offload_policy": CPUOffloadPolicy() if offload else OffloadPolicy(),
    }
    for number, block in enumerate(model.blocks):
        # The last block is needed again at once in backward.
        fully_shard(block, reshard_after_forward=number < len(model.blocks) - 1, **policy)
    return fully_shard(model, **policy)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(65)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    model = shard(Model(), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    history = []
    for step in range(4):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(79 * step + dist.get_rank()))
        loss = nn.functional.mse_loss(model(x), x[:, :2])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if isinstance(norm, DTensor):
            norm = norm.full_tensor()
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
