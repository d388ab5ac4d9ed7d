# /// pattern
# id = "fsdp1-full-script"
# title = "A whole training script with FSDP1: start it with torchrun"
# topics = ["torchrun", "fsdp1-wrapping"]
# follows = ["torch.distributed.fsdp.FullyShardedDataParallel", "https://docs.pytorch.org/tutorials/intermediate/FSDP1_tutorial.html"]
# departs = "The tutorial saves a full state dict on rank 0; here every rank writes its shards with DCP, so that no rank holds the whole model. FSDP1's sharded optimizer state cannot be loaded in 2.13 where a parameter's first dimension is smaller than the number of ranks."
# form = "fsdp1"
# test = "test_full_scripts.py::test_fsdp1_full_script"
# processes = 2
# [run]
# '"nccl"' = '"gloo"'
# '"cuda"' = '"cpu"'
# 'pin_memory=True' = 'pin_memory=False'
# '    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))' = '    pass'
# 'device_id=torch.cuda.current_device(),' = 'device_id=torch.device("cpu"),'
# ///
"""torchrun --nproc-per-node 8 train.py. Model, data and sizes are stand-ins: put yours in their place."""

import functools
import gc
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DEVICE = "cuda"
CHECKPOINT = "checkpoint"
EPOCHS, BATCH, LEARNING_RATE, CLIP_NORM = 2, 16, 1e-2, 1.0


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.gelu(self.linear(self.norm(x)))


class Model(nn.Module):
    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.head = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def build() -> FullyShardedDataParallel:
    torch.manual_seed(0)  # the same weights on all ranks
    return FullyShardedDataParallel(
        Model(),
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer}),
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        device_id=torch.cuda.current_device(),
        use_orig_params=True,
    )


def loader(count: int, seed: int) -> DataLoader:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 32, generator=generator)
    data = TensorDataset(x, x.flip(1))
    # drop_last keeps the number of batches equal on all ranks: one rank with fewer would leave the others waiting.
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    return DataLoader(data, BATCH, sampler=sampler, drop_last=True, pin_memory=True)


def mean_loss(model, batches, optimizer=None) -> float:
    total = torch.zeros(2, device=DEVICE)
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x.to(DEVICE)).float(), y.to(DEVICE))
        if optimizer is not None:
            loss.backward()
            model.clip_grad_norm_(CLIP_NORM)  # FSDP1's own: the norm over all shards
            optimizer.step()
            optimizer.zero_grad()
        total += torch.stack([loss.detach(), torch.ones_like(loss)])
    dist.all_reduce(total)  # the mean over all ranks, not rank 0's part of the data
    return (total[0] / total[1]).item()


def train() -> None:
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)  # after wrapping
    training, held_out = loader(512, seed=1), loader(128, seed=2)
    start = 0
    if os.path.exists(CHECKPOINT):
        weights, states = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": states, "epoch": 0}
        dcp.load(state, checkpoint_id=CHECKPOINT)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        start = state["epoch"]
    for epoch in range(start, EPOCHS):
        training.sampler.set_epoch(epoch)
        model.train()
        loss = mean_loss(model, training, optimizer)
        model.eval()
        with torch.no_grad():  # on all ranks: the forward of a sharded model is a collective
            held = mean_loss(model, held_out)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, held out {held:.4f}", flush=True)
        weights, states = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": states, "epoch": epoch + 1}, checkpoint_id=CHECKPOINT)


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    train()
    gc.collect()  # model and hooks refer to each other; what still holds a group when it goes can abort the exit (seen over Gloo)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
