"""Units by size: everything with enough parameters becomes one."""

import functools

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.conv2 = nn.Conv2d(6, 12, 3)
        self.fc1 = nn.Linear(12 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.relu(self.fc1(torch.flatten(x, 1)))
        return torch.log_softmax(self.fc2(x), dim=1)


def fsdp_main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    my_auto_wrap_policy = functools.partial(size_based_auto_wrap_policy, min_num_params=500)
    model = Net()
    model = FSDP(model, auto_wrap_policy=my_auto_wrap_policy, device_id=torch.device("cpu"))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    history = []
    model.train()
    for batch_idx in range(4):
        generator = torch.Generator().manual_seed(batch_idx * 2 + rank)
        data = torch.randn(4, 1, 12, 12, generator=generator)
        target = torch.randint(0, 10, (4,), generator=generator)
        optimizer.zero_grad()
        output = model(data)
        loss = nn.functional.nll_loss(output, target, reduction="sum")
        loss.backward()
        norm = model.clip_grad_norm_(20.0)
        optimizer.step()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


def main():
    return fsdp_main()


if __name__ == "__main__":
    main()
