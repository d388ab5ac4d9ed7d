"""One script without functions around the loop, in the way of small GPT repositories: contexts by condition, raw model, resume."""

import argparse
import math
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from functools import partial


class MLP(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.c_fc = nn.Linear(n, 4 * n)
        self.c_proj = nn.Linear(4 * n, n)

    def forward(self, x):
        return x + self.c_proj(torch.relu(self.c_fc(x)))


class GPT(nn.Module):
    def __init__(self, n=10):
        super().__init__()
        self.wte = nn.Embedding(17, n)
        self.h = nn.ModuleList([MLP(n) for _ in range(3)])
        self.lm_head = nn.Linear(n, 17, bias=False)
        self.lm_head.weight = self.wte.weight  # weight tying

    def forward(self, idx, targets):
        x = self.wte(idx)
        for block in self.h:
            x = block(x)
        return nn.functional.cross_entropy(self.lm_head(x).view(-1, 17), targets.view(-1))

    def get_num_params(self):
        return sum(p.numel() for p in self.parameters())

    def configure_optimizers(self, weight_decay, learning_rate, betas):
        params = [p for p in self.parameters() if p.requires_grad]
        return torch.optim.AdamW(params, lr=learning_rate, betas=betas, weight_decay=weight_decay)


def get_lr(it, learning_rate=2e-2, warmup_iters=2, lr_decay_iters=8, min_lr=1e-3):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    decay_ratio = min(1.0, (it - warmup_iters) / (lr_decay_iters - warmup_iters))
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * decay_ratio)) * (learning_rate - min_lr)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", default="")
    parser.add_argument("--resume", default="")
    args = parser.parse_args(argv)
    dist.init_process_group(backend="gloo")
    ddp_rank, ddp_world_size = dist.get_rank(), dist.get_world_size()
    master_process = ddp_rank == 0
    gradient_accumulation_steps, grad_clip = 2, 0.8
    torch.manual_seed(1337)

    model = GPT()
    if master_process:
        print("number of parameters: %.2fM" % (model.get_num_params() / 1e6,))
    model = FSDP(model, sharding_strategy=ShardingStrategy.FULL_SHARD, backward_prefetch=BackwardPrefetch.BACKWARD_PRE, auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={MLP}), device_id=torch.device("cpu"), use_orig_params=True)
    raw_model = model.module  # unwrap FSDP container if needed
    optimizer = raw_model.configure_optimizers(0.1, 2e-2, (0.9, 0.95))

    if args.resume:
        checkpoint = torch.load(os.path.join(args.resume, "ckpt.pt"), map_location="cpu", weights_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            model.load_state_dict(checkpoint["model"])
        sharded = FSDP.optim_state_dict_to_load(model, optimizer, checkpoint["optimizer"])
        optimizer.load_state_dict(sharded)
        checkpoint = None  # free up memory

    history = []
    for it in range(args.first, args.first + args.steps):
        lr = get_lr(it)
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr
        for micro_step in range(gradient_accumulation_steps):
            g = torch.Generator().manual_seed(it * 100 + micro_step * 10 + ddp_rank)
            X = torch.randint(0, 17, (3, 6), generator=g)
            ctx = model.no_sync if micro_step < gradient_accumulation_steps - 1 else nullcontext
            with ctx():
                loss = model(X, X.roll(-1, 1)) / gradient_accumulation_steps
                loss.backward()
        if grad_clip != 0.0:
            norm = model.clip_grad_norm_(grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        history.append((loss.item(), norm.item()))

    if args.save:
        with FSDP.state_dict_type(
            model,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
            FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
        ):
            model_state = model.state_dict()
            optim_state = FSDP.optim_state_dict(model, optimizer)
        if master_process:
            checkpoint = {"model": model_state, "optimizer": optim_state, "iter_num": it, "config": vars(args)}
            print(f"saving checkpoint to {args.save}")
            torch.save(checkpoint, os.path.join(args.save, "ckpt.pt"))
        dist.barrier()
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
