"""The getting-started example: a small vision model, a size-based policy, functions train and test, a reduced loss."""

import argparse
import functools
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.fully_sharded_data_parallel import (
    BackwardPrefetch,
    CPUOffload,
)
from torch.distributed.fsdp.wrap import (
    enable_wrap,
    size_based_auto_wrap_policy,
    wrap,
)
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Digits(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(1)
        self.images = torch.randn(size, 1, 8, 8, generator=generator)
        self.labels = self.images.flatten(1)[:, :10].argmax(1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, rank, world_size, train_loader, optimizer, epoch, history, sampler=None):
    model.train()
    ddp_loss = torch.zeros(2).to(rank)
    if sampler:
        sampler.set_epoch(epoch)
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(rank), target.to(rank)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target, reduction="sum")
        loss.backward()
        optimizer.step()
        ddp_loss[0] += loss.item()
        ddp_loss[1] += len(data)

    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    if dist.get_rank() == 0:
        print("Train Epoch: {} \tLoss: {:.6f}".format(epoch, ddp_loss[0] / ddp_loss[1]))
    history.append((loss.item(), (ddp_loss[0] / ddp_loss[1]).item()))


def test(model, rank, world_size, test_loader):
    model.eval()
    ddp_loss = torch.zeros(3).to(rank)
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(rank), target.to(rank)
            output = model(data)
            ddp_loss[0] += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            ddp_loss[1] += pred.eq(target.view_as(pred)).sum().item()
            ddp_loss[2] += len(data)

    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    return ddp_loss[0].item() / ddp_loss[2].item()


def fsdp_main(args):
    dist.init_process_group("gloo")
    rank = "cpu"
    world_size = dist.get_world_size()
    torch.manual_seed(args.seed)

    dataset1, dataset2 = Digits(64), Digits(32)
    sampler1 = DistributedSampler(dataset1, rank=dist.get_rank(), num_replicas=world_size, shuffle=True)
    sampler2 = DistributedSampler(dataset2, rank=dist.get_rank(), num_replicas=world_size)
    train_loader = DataLoader(dataset1, batch_size=args.batch_size, sampler=sampler1)
    test_loader = DataLoader(dataset2, batch_size=args.batch_size, sampler=sampler2)

    my_auto_wrap_policy = functools.partial(size_based_auto_wrap_policy, min_num_params=1000)

    model = Net().to(rank)

    model = FSDP(model,
        auto_wrap_policy=my_auto_wrap_policy,
        # cpu_offload=CPUOffload(offload_params=True),
        device_id=torch.device(rank))

    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    history = []
    for epoch in range(1, args.epochs + 1):
        train(args, model, rank, world_size, train_loader, optimizer, epoch, history, sampler=sampler1)
        history[-1] = (history[-1][0], test(model, rank, world_size, test_loader))
        scheduler.step()

    if args.save_model:
        # use a barrier to make sure training is done on all ranks
        dist.barrier()
        # state_dict for FSDP model is only available on Nightlies for now
        states = model.state_dict()
        if dist.get_rank() == 0:
            torch.save(states, os.path.join(args.save_model, "mnist_cnn.pt"))
    dist.destroy_process_group()
    return history


def main(argv=None):
    parser = argparse.ArgumentParser(description="PyTorch MNIST Example")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-model", default="")
    args = parser.parse_args(argv)
    return fsdp_main(args)


if __name__ == "__main__":
    main()
