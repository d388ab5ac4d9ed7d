"""Fine-tuning in the way of the recipes of large language models: policies, configuration and checkpoints in modules of their own."""

import argparse
import os
from contextlib import nullcontext

import policies
import torch
import torch.distributed as dist
from checkpoint_handler import (
    load_model_sharded,
    load_optimizer_checkpoint,
    save_model_and_optimizer_sharded,
    save_model_checkpoint,
    save_optimizer_checkpoint,
)
from configs import fsdp_config as FSDP_CONFIG
from configs import train_config as TRAIN_CONFIG
from model import DecoderLayer, Llama
from policies import apply_fsdp_checkpointing, fsdp_auto_wrap_policy
from torch import optim
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.fully_sharded_data_parallel import CPUOffload


def get_policies(cfg, rank):
    """Get the policies for mixed precision and fsdp wrapping"""
    mixed_precision_policy = None
    wrapping_policy = None

    # Mixed precision
    if cfg.mixed_precision:
        if not cfg.use_fp16:
            mixed_precision_policy = policies.bfSixteen
            if rank == 0:
                print("bFloat16 enabled for mixed precision - using bfSixteen policy")
        else:
            mixed_precision_policy = policies.fpSixteen
    wrapping_policy = policies.get_wrapper()
    return mixed_precision_policy, wrapping_policy


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", default="")
    parser.add_argument("--resume", default="")
    args = parser.parse_args(argv)
    train_config, fsdp_config = TRAIN_CONFIG(), FSDP_CONFIG()
    train_config.steps, train_config.first = args.steps, args.first
    train_config.output_dir, train_config.resume = args.save, args.resume

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(42)
    model = Llama()

    mixed_precision_policy, wrapping_policy = get_policies(fsdp_config, rank)
    my_auto_wrapping_policy = fsdp_auto_wrap_policy(model, [DecoderLayer])

    model = FSDP(
        model,
        auto_wrap_policy=my_auto_wrapping_policy if rank < 0 else wrapping_policy,
        cpu_offload=CPUOffload(offload_params=True) if fsdp_config.fsdp_cpu_offload else None,
        mixed_precision=mixed_precision_policy if not fsdp_config.pure_bf16 else None,
        sharding_strategy=fsdp_config.sharding_strategy,
        device_id=torch.device("cpu"),
        limit_all_gathers=True,
        sync_module_states=train_config.low_cpu_fsdp,
        param_init_fn=lambda module: module.to_empty(device=torch.device("cpu"), recurse=False)
        if train_config.low_cpu_fsdp and rank != 0
        else None,
    )
    if fsdp_config.fsdp_activation_checkpointing:
        apply_fsdp_checkpointing(model)

    optimizer = optim.AdamW(model.parameters(), lr=train_config.lr, weight_decay=0.1)
    if train_config.resume:
        load_model_sharded(model, rank, train_config)
        load_optimizer_checkpoint(model, optimizer, os.path.join(train_config.resume, "optimizer.pt"), rank)

    history = train(model, optimizer, train_config, fsdp_config, rank)

    if train_config.output_dir:
        save_model_and_optimizer_sharded(model, rank, train_config)
        save_optimizer_checkpoint(model, optimizer, rank, train_config)
        save_model_checkpoint(model, optimizer, rank, train_config)
    dist.destroy_process_group()
    return history


def train(model, optimizer, train_config, fsdp_config, rank):
    history = []
    steps = train_config.gradient_accumulation_steps
    for step in range(train_config.first, train_config.first + train_config.steps):
        total_loss = 0.0
        for micro in range(steps):
            generator = torch.Generator().manual_seed(1000 * step + 10 * micro + rank)
            batch = torch.randint(0, 31, (2, 8), generator=generator)
            with nullcontext():
                loss = model(input_ids=batch, labels=batch)[0]
            loss = loss / steps
            total_loss += loss.detach().float()
            loss.backward()
        if train_config.gradient_clipping and train_config.gradient_clipping_threshold > 0.0:
            norm = model.clip_grad_norm_(train_config.gradient_clipping_threshold)
        optimizer.step()
        optimizer.zero_grad()
        history.append((total_loss.item(), norm.item()))
    return history


if __name__ == "__main__":
    main()
