"""One file with the full state of model and optimizer, so that a run can go on with another number of ranks."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
from torch.distributed.fsdp.api import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.key = nn.Linear(dim, 2 * dim)
        self.value = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.value(F.relu(self.key(x)).square()) + x


class Model(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.embedding = nn.Embedding(20, dim)
        self.experts = nn.ModuleList([Expert(dim), Expert(dim)])
        self.norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, 20)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for expert in self.experts:
            x = expert(x)
        return self.output(self.norm(x))


def save_checkpoint(model, optimizer, step, path):
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    ):
        model_state = model.state_dict()
        optim_state = FSDP.optim_state_dict(model, optimizer)
    if dist.get_rank() == 0:
        torch.save({"model": model_state, "optim": optim_state, "step": step}, path)
    dist.barrier()  # nobody reads the file before it is complete


def load_checkpoint(model, optimizer, path):
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(rank0_only=False),
        FullOptimStateDictConfig(rank0_only=False),
    ):
        model.load_state_dict(checkpoint["model"])
        optim_state = FSDP.optim_state_dict_to_load(model, optimizer, checkpoint["optim"])
        optimizer.load_state_dict(optim_state)
    return checkpoint["step"]


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--resume", type=Path)
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = FSDP(
        Model(), auto_wrap_policy=ModuleWrapPolicy({Expert}), device_id=torch.device("cpu"), use_orig_params=True
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    start = args.first
    if args.resume:
        start = load_checkpoint(model, optimizer, args.resume / "last.pt")

    history = []
    for step in range(start, start + args.steps):
        generator = torch.Generator().manual_seed(2 * step + dist.get_rank())
        tokens = torch.randint(0, 20, (4, 9), generator=generator)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    if args.save:
        save_checkpoint(model, optimizer, start + args.steps, args.save / "last.pt")
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
