# /// pattern
# id = "ddp-full-script"
# title = "A whole training script with DDP: start it with torchrun"
# topics = ["torchrun", "ddp"]
# follows = ["torch.nn.parallel.DistributedDataParallel", "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"]
# departs = "The tutorial keeps a checkpoint in the temporary folder and no data; here data, evaluation and resuming are part of the loop."
# form = "ddp"
# test = "test_full_scripts.py::test_ddp_full_script"
# processes = 2
# [run]
# '"nccl"' = '"gloo"'
# '"cuda"' = '"cpu"'
# 'pin_memory=True' = 'pin_memory=False'
# '    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))' = '    pass'
# 'device_ids=[int(os.environ["LOCAL_RANK"])]' = 'device_ids=None'
# ///
"""torchrun --nproc-per-node 8 train.py. Model, data and sizes are stand-ins: put yours in their place."""

import gc
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DEVICE = "cuda"
CHECKPOINT = "checkpoint.pt"
EPOCHS, BATCH, LEARNING_RATE, CLIP_NORM = 2, 16, 1e-2, 1.0


def build() -> DistributedDataParallel:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)).to(DEVICE)
    return DistributedDataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])])


def loader(count: int, seed: int) -> DataLoader:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 32, generator=generator)
    data = TensorDataset(x, x.flip(1))
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)  # as many batches on every rank
    return DataLoader(data, BATCH, sampler=sampler, drop_last=True, pin_memory=True)


def mean_loss(model, batches, optimizer=None) -> float:
    total = torch.zeros(2, device=DEVICE)
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x.to(DEVICE)), y.to(DEVICE))
        if optimizer is not None:
            loss.backward()  # averages the gradients over the ranks
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            optimizer.step()
            optimizer.zero_grad()
        total += torch.stack([loss.detach(), torch.ones_like(loss)])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def train() -> None:
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    training, held_out = loader(512, seed=1), loader(128, seed=2)
    start = 0
    if os.path.exists(CHECKPOINT):  # every rank reads the same file, onto its own device
        state = torch.load(CHECKPOINT, map_location=DEVICE, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"]
    for epoch in range(start, EPOCHS):
        training.sampler.set_epoch(epoch)  # another order in each epoch
        model.train()
        loss = mean_loss(model, training, optimizer)
        model.eval()
        with torch.no_grad():
            held = mean_loss(model.module, held_out)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, held out {held:.4f}", flush=True)
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
            torch.save(state, CHECKPOINT)  # the replicas are equal: one rank writes
        dist.barrier()  # nobody goes on, or reads, before it is written


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    train()
    gc.collect()  # model and hooks refer to each other; what still holds a group when it goes can abort the exit (seen over Gloo)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
