"""A vision model with group norms and frozen stem, parameters offloaded, a scheduler and a mean over classes of parameters."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import (
    CPUOffload,
    FullyShardedDataParallel as FSDP,
    MixedPrecision,
)
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
import functools


class Bottleneck(nn.Module):
    expansion = 2

    def __init__(self, planes):
        super().__init__()
        self.conv1 = nn.Conv2d(planes, planes * self.expansion, 1)
        self.gn = nn.GroupNorm(2, planes * self.expansion)
        self.conv2 = nn.Conv2d(planes * self.expansion, planes, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.conv2(torch.relu(self.gn(self.conv1(x)))))


class ResNet(nn.Module):
    def __init__(self, planes=4, depth=3, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, planes, 3, padding=1)
        self.layers = nn.Sequential(*(Bottleneck(planes) for _ in range(depth)))
        self.fc = nn.Linear(planes, classes)

    def forward(self, x):
        return self.fc(self.layers(self.stem(x)).mean((2, 3)))


def get_model(freeze_stem=True):
    model = ResNet()
    if freeze_stem:
        model.stem.requires_grad_(False)
    return model


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(55)
    model = FSDP(
        get_model(),
        auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=300),
        ignored_modules=None,
        cpu_offload=CPUOffload(offload_params=False),
        mixed_precision=MixedPrecision(param_dtype=torch.float32, reduce_dtype=torch.float32),
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )
    scaler = ShardedGradScaler(device="cpu", enabled=False)
    params = filter(lambda p: p.requires_grad, model.parameters())
    optimizer = torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    history = []
    for it in range(4):
        x = torch.randn(6, 3, 6, 6, generator=torch.Generator().manual_seed(11 * it + dist.get_rank()))
        y = x.mean((2, 3)).argmax(1)
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = model.clip_grad_norm_(1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
