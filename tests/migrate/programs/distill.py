"""A teacher that is never trained and a student; the teacher is frozen after it was wrapped; logits under no_grad."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import fsdp
from torch.distributed.fsdp import wrap as fsdp_wrap


class Unit(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(x)))


def make(d, n):
    return nn.Sequential(nn.Linear(4, d), *[Unit(d) for _ in range(n)], nn.Linear(d, 3))


def is_fsdp_unit(module):
    return isinstance(module, Unit)


def distribute(model, frozen=False):
    wrapped = fsdp.FullyShardedDataParallel(
        model,
        auto_wrap_policy=fsdp_wrap.CustomPolicy(lambda m: isinstance(m, Unit)),
        sharding_strategy=fsdp.ShardingStrategy.SHARD_GRAD_OP if frozen else fsdp.ShardingStrategy.FULL_SHARD,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    if frozen:
        wrapped.requires_grad_(False)
        wrapped.eval()
    return wrapped


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(44)
    teacher, student = distribute(make(10, 3), frozen=True), distribute(make(6, 2))
    assert fsdp.FullyShardedDataParallel.fsdp_modules(student)
    optimizer = torch.optim.SGD([p for p in student.parameters() if p.requires_grad], lr=0.2, momentum=0.9)
    history = []
    for step in range(4):
        x = torch.randn(7, 4, generator=torch.Generator().manual_seed(8 * step + dist.get_rank()))
        with torch.no_grad():
            target = teacher(x).softmax(-1)
        loss = nn.functional.kl_div(student(x).log_softmax(-1), target, reduction="batchmean")
        loss.backward()
        norm = student.clip_grad_norm_(max_norm=0.5)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
