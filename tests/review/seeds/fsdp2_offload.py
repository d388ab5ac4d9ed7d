"""FSDP2 with parameters resting in CPU memory; the model is built without memory and read from a file."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gate = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.sigmoid(self.gate(x)) * self.value(x)


class Net(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.experts = nn.Sequential(Expert(dim), Expert(dim))
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        return self.out(self.experts(x))


def read_weights(model):
    full = torch.load("weights.pt", map_location="cpu", mmap=True, weights_only=True) if dist.get_rank() == 0 else {}
    set_model_state_dict(model, full, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
    with torch.device("meta"):
        model = Net()
    policy = CPUOffloadPolicy()
    for expert in model.experts:
        fully_shard(expert, offload_policy=policy)
    fully_shard(model, offload_policy=policy)
    model.to_empty(device="cpu")
    read_weights(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(50):
        x = torch.randn(8, 32, device=device)
        loss = model(x).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
