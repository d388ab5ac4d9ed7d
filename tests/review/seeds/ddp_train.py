"""DDP on GPUs with automatic mixed precision, validation on all ranks and a checkpoint by rank 0."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, dim), nn.BatchNorm1d(dim), nn.ReLU())
        self.middle = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, 4)

    def forward(self, x):
        x = self.backbone(x)
        x = checkpoint(self.middle, x, use_reentrant=False)
        return self.head(x)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save", default="ddp.pt")
    return parser.parse_args()


def loaders():
    generator = torch.Generator().manual_seed(0)
    train = TensorDataset(torch.randn(512, 8, generator=generator), torch.randint(0, 4, (512,), generator=generator))
    held_out = TensorDataset(torch.randn(64, 8, generator=generator), torch.randint(0, 4, (64,), generator=generator))
    sampler = DistributedSampler(train, shuffle=True, drop_last=True)
    train_loader = DataLoader(train, batch_size=16, sampler=sampler, num_workers=2, drop_last=True)
    held_out_loader = DataLoader(held_out, batch_size=16, sampler=DistributedSampler(held_out, shuffle=False))
    return train_loader, held_out_loader, sampler


def validate(model, loader, criterion, device):
    model.eval()
    totals = torch.zeros(2, device=device)
    with torch.no_grad():
        for x, y in loader:
            loss = criterion(model(x.to(device)), y.to(device))
            totals[0] += loss
            totals[1] += 1
    dist.all_reduce(totals)
    model.train()
    return (totals[0] / totals[1]).item()


def main():
    args = parse()
    torch.cuda.set_device(args.local_rank)
    device = torch.device("cuda", args.local_rank)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.SyncBatchNorm.convert_sync_batchnorm(Net()).to(device)
    model = DDP(net, device_ids=[args.local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    criterion = nn.CrossEntropyLoss()
    train_loader, held_out_loader, sampler = loaders()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = criterion(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        quality = validate(model, held_out_loader, criterion, device)
        if rank == 0:
            print(f"epoch {epoch}: {quality:.3f}")
            torch.save(model.module.state_dict(), args.save)
        dist.barrier()
    best = Net()
    best.load_state_dict(torch.load(args.save, map_location="cpu", weights_only=True))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
