"""A base class that knows no sharding and a subclass that adds it; the loop calls the hooks of the subclass."""
import abc
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from functools import partial


class Layer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Linear(n, n)

    def forward(self, x):
        return x + torch.tanh(self.w(x))


class BaseTrainer(abc.ABC):
    def __init__(self, model, lr):
        self.model = self.setup_model(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)

    @abc.abstractmethod
    def setup_model(self, model):
        ...

    def clip(self, value):
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), value)

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        norm = self.clip(0.5)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item(), norm.item()

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


class ShardedTrainer(BaseTrainer):
    strategy = ShardingStrategy.SHARD_GRAD_OP

    def setup_model(self, model):
        policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer})
        return FSDP(model, auto_wrap_policy=policy, sharding_strategy=self.strategy, device_id=torch.device("cpu"))

    def clip(self, value):
        return self.model.clip_grad_norm_(value)

    def state(self):
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT):
            return {
                "model": self.model.state_dict(),
                "optimizer": FSDP.optim_state_dict(self.model, self.optimizer),
            }

    def restore(self, state):
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT):
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(
                FSDP.optim_state_dict_to_load(self.model, self.optimizer, state["optimizer"])
            )


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", default="")
    parser.add_argument("--resume", default="")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    trainer = ShardedTrainer(nn.Sequential(nn.Linear(4, 6), Layer(6), Layer(6), nn.Linear(6, 2)), lr=0.02)
    if args.resume:
        trainer.restore(torch.load(os.path.join(args.resume, "t.pt"), weights_only=True))
    history = []
    for step in range(args.first, args.first + args.steps):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(6 * step + dist.get_rank()))
        history.append(trainer.step(x, x[:, :2].exp()))
    if args.save:
        state = trainer.state()
        if dist.get_rank() == 0:
            torch.save(state, os.path.join(args.save, "t.pt"))
        dist.barrier()
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
