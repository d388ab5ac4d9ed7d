import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from vit import TrainSet, ValSet, ViT


def evaluate(model, loader, device):
    correct = torch.zeros((), device=device)
    total = torch.zeros((), device=device)
    with torch.no_grad():
        for images, labels in loader:
            out = model(images.to(device))
            correct += (out.argmax(-1) == labels.to(device)).sum()
            total += labels.numel()
    return correct, total


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    rank = dist.get_rank()

    model = DDP(ViT().to(device), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    train_set = TrainSet()
    sampler = DistributedSampler(train_set)
    train = DataLoader(train_set, batch_size=64, sampler=sampler, num_workers=4)
    val = DataLoader(ValSet(), batch_size=64, num_workers=4)

    for epoch in range(90):
        sampler.set_epoch(epoch)
        for images, labels in train:
            loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        correct, total = evaluate(model.module, val, device)
        if rank == 0:
            dist.all_reduce(correct)
            dist.all_reduce(total)
            print(f"epoch {epoch} acc {correct.item() / total.item():.4f}")

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
