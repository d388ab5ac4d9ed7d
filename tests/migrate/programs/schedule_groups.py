"""Weight decay for matrices only, a warm-up schedule, and data from a DistributedSampler."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Waves(Dataset):
    def __init__(self, length=24):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        x = torch.linspace(0, 1, 12) * (index + 1)
        return x.sin(), x.cos().mean()


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.relu(self.fc(self.norm(x)))


def build_model():
    torch.manual_seed(55)
    return nn.Sequential(nn.Linear(12, 16), Block(16), Block(16), nn.Linear(16, 1))


def decayed_names(model):
    """Before wrapping: afterwards every parameter is one-dimensional."""
    return {name for name, parameter in model.named_parameters() if parameter.ndim > 1}


def param_groups(model, names):
    decay, rest = [], []
    for name, parameter in model.named_parameters():
        (decay if name.replace("_fsdp_wrapped_module.", "") in names else rest).append(parameter)
    return [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]


def main():
    dist.init_process_group("gloo")
    model = build_model()
    names = decayed_names(model)
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.AdamW(param_groups(model, names), lr=1e-2)
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    dataset = Waves()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler, drop_last=True)
    history = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            loss.backward()
            norm = model.clip_grad_norm_(1.0)
            optimizer.step()
            scheduler.step()
            history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
