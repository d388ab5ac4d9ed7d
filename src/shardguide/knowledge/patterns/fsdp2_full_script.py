# /// pattern
# id = "fsdp2-full-script"
# title = "A whole training script with FSDP2: start it with torchrun"
# topics = ["torchrun", "what-fsdp-does"]
# follows = ["torch.distributed.fsdp.fully_shard", "https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html"]
# departs = "The tutorial trains on random tokens without an end; here data, evaluation and checkpoint are part of the loop, and the state goes through DCP, so that it can be resumed on another number of GPUs."
# form = "fsdp2"
# test = "test_full_scripts.py::test_fsdp2_full_script"
# processes = 2
# [run]
# '"nccl"' = '"gloo"'
# '"cuda"' = '"cpu"'
# 'pin_memory=True' = 'pin_memory=False'
# '    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))' = '    pass'
# ///
"""torchrun --nproc-per-node 8 train.py. Model, data and sizes are stand-ins: put yours in their place."""

import gc
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DEVICE = "cuda"
CHECKPOINT = "checkpoint"
EPOCHS, BATCH, LEARNING_RATE, CLIP_NORM = 2, 16, 1e-2, 1.0


class Model(nn.Module):
    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(depth)
        )
        self.head = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def build(mesh) -> nn.Module:
    with torch.device("meta"):  # no memory yet: each rank allocates its own shards only
        model = Model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)  # last: its group is what the layers left over
    model.to_empty(device=DEVICE)
    torch.manual_seed(0)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return model


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
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            optimizer.step()
            optimizer.zero_grad()
        total += torch.stack([loss.detach(), torch.ones_like(loss)])
    dist.all_reduce(total)  # the mean over all ranks, not rank 0's part of the data
    return (total[0] / total[1]).item()


def train() -> None:
    mesh = init_device_mesh(DEVICE, (dist.get_world_size(),))
    model = build(mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)  # after sharding: it must hold the shards
    training, held_out = loader(512, seed=1), loader(128, seed=2)
    start = 0
    if os.path.exists(CHECKPOINT):
        weights, states = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": states, "epoch": 0}
        dcp.load(state, checkpoint_id=CHECKPOINT)  # in place, each rank its own shards
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        start = state["epoch"]
    for epoch in range(start, EPOCHS):
        training.sampler.set_epoch(epoch)  # another order in each epoch
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
