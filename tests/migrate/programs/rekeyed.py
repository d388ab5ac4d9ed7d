"""An optimizer's state that an unwrapped model saved, read into FSDP by its keys, and the other way round."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.fully_sharded_data_parallel import OptimStateKeyType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Cell(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.Linear(n, n)
        self.b = nn.Linear(n, n, bias=False)

    def forward(self, x):
        return x + self.b(torch.sigmoid(self.a(x)))


def network():
    torch.manual_seed(12)
    return nn.Sequential(nn.Linear(4, 6), Cell(6), Cell(6), nn.Linear(6, 1))


def data(step):
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(3 * step + dist.get_rank()))
    return x, x.prod(1, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    # A few steps on one process, as they were done before the cluster was there.
    local = network()
    local_optim = torch.optim.Adam(local.parameters(), lr=0.02)
    for step in range(2):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(900 + step))
        (local(x) - x.prod(1, keepdim=True)).square().mean().backward()
        local_optim.step()
        local_optim.zero_grad()

    model = network()
    model.load_state_dict(local.state_dict())
    model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Cell}), device_id=torch.device("cpu"))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    full_osd = FSDP.rekey_optim_state_dict(local_optim.state_dict(), OptimStateKeyType.PARAM_NAME, local)
    sharded_osd = FSDP.shard_full_optim_state_dict(full_osd, model)
    optimizer.load_state_dict(sharded_osd)

    history = []
    for step in range(4):
        x, y = data(step)
        loss = (model(x) - y).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    saved = FSDP.full_optim_state_dict(model, optimizer)
    if rank == 0:
        nonwrapped = FSDP.rekey_optim_state_dict(saved, OptimStateKeyType.PARAM_ID, local)
        local_optim.load_state_dict(nonwrapped)
        history.append((sum(s["exp_avg"].abs().sum().item() for s in nonwrapped["state"].values()), 0.0))
    else:
        history.append((0.0, 0.0))
    dist.barrier()
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
