"""The wrapper by an option: FSDP or DDP; every use asks which of them it is."""
import argparse
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel


class Layer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = nn.Linear(n, n)

    def forward(self, x):
        return x + self.lin(x).tanh()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), Layer(8), Layer(8))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x))


def save(args, model, optimizer):
    if args.fsdp:
        cfg = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, cfg):
            model_state = model.state_dict()
            optim_state = FullyShardedDataParallel.full_optim_state_dict(model, optimizer)
    else:
        model_state = model.module.state_dict()
        optim_state = optimizer.state_dict()
    if dist.get_rank() == 0:
        torch.save((model_state, optim_state), os.path.join(args.save, "state.pt"))
    dist.barrier()


def load(args, model, optimizer):
    model_state, optim_state = torch.load(os.path.join(args.resume, "state.pt"), weights_only=True)
    if args.fsdp:
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            model.load_state_dict(model_state)
        optim_state = FullyShardedDataParallel.optim_state_dict_to_load(model, optimizer, optim_state)
    else:
        model.module.load_state_dict(model_state)
    optimizer.load_state_dict(optim_state)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", default="")
    parser.add_argument("--resume", default="")
    parser.add_argument("--ddp", dest="fsdp", action="store_false")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = Net()
    if args.fsdp:
        model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Layer}), device_id=torch.device("cpu"), use_orig_params=True)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    if args.resume:
        load(args, model, optimizer)
    history = []
    for step in range(args.first, args.first + args.steps):
        for i in range(2):
            x = torch.randn(4, 3, generator=torch.Generator().manual_seed(20 * step + 5 * i + dist.get_rank()))
            with model.no_sync() if i == 0 else nullcontext():
                loss = (model(x) - x[:, 1:]).square().mean()
                loss.backward()
        if isinstance(model, FullyShardedDataParallel):
            norm = model.clip_grad_norm_(1.0)
        else:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    if args.save:
        save(args, model, optimizer)
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
