"""A small framework of its own, in the way of training libraries: a Strategy class that wraps, clips, accumulates and saves."""

import argparse
import os
from contextlib import contextmanager, nullcontext
from typing import Any, Dict, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, n_embd: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(n_embd)
        self.fc = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        return x + torch.tanh(self.fc(self.norm(x)))


class GPT(nn.Module):
    def __init__(self, n_embd: int = 12, n_layer: int = 2) -> None:
        super().__init__()
        self.wte = nn.Linear(5, n_embd)
        self.h = nn.ModuleList(Block(n_embd) for _ in range(n_layer))
        self.head = nn.Linear(n_embd, 3)

    def forward(self, x):
        x = self.wte(x)
        for block in self.h:
            x = block(x)
        return self.head(x)


class FSDPStrategy:
    def __init__(self, auto_wrap_policy=None, sharding_strategy="FULL_SHARD", state_dict_type="full", **kwargs: Any) -> None:
        self._fsdp_kwargs: Dict[str, Any] = dict(kwargs)
        self._fsdp_kwargs["auto_wrap_policy"] = auto_wrap_policy
        self._fsdp_kwargs["sharding_strategy"] = ShardingStrategy[sharding_strategy.upper()]
        # Avoids the need for user to reference params in `configure_optimizers`
        self._fsdp_kwargs.setdefault("use_orig_params", True)
        self._state_dict_type = state_dict_type
        self.root_device = torch.device("cpu")

    @property
    def global_rank(self) -> int:
        return dist.get_rank()

    def setup_module(self, module: nn.Module) -> FullyShardedDataParallel:
        """Wraps the model into FSDP."""
        if any(isinstance(mod, FullyShardedDataParallel) for mod in module.modules()):
            raise RuntimeError("The model is already wrapped")
        wrapped_module = FullyShardedDataParallel(
            module=module,
            device_id=self.root_device,
            **self._fsdp_kwargs,
        )
        return wrapped_module

    def setup_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        if not any(p.numel() for group in optimizer.param_groups for p in group["params"]):
            raise ValueError("The optimizer does not seem to reference any FSDP parameters.")
        return optimizer

    def clip_gradients_norm(self, module: FullyShardedDataParallel, max_norm: float, norm_type: float = 2.0):
        self_is_root = module
        return self_is_root.clip_grad_norm_(max_norm=max_norm, norm_type=norm_type)

    @contextmanager
    def no_backward_sync(self, module: nn.Module, enabled: bool = True):
        if not isinstance(module, FullyShardedDataParallel):
            raise TypeError(f"Blocking backward sync is only possible for FSDP modules, got: {type(module).__name__}.")
        context = module.no_sync() if enabled else nullcontext()
        with context:
            yield

    def save_checkpoint(self, path: str, state: Dict[str, Any]) -> None:
        modules = [module for module in state.values() if isinstance(module, FullyShardedDataParallel)]
        if len(modules) != 1:
            raise ValueError("Found no or several FSDP models in the given state.")
        module = modules[0]
        state_dict_config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        converted = {}
        with FullyShardedDataParallel.state_dict_type(module, StateDictType.FULL_STATE_DICT, state_dict_config):
            for key, obj in state.items():
                if isinstance(obj, nn.Module):
                    converted[key] = obj.state_dict()
                elif isinstance(obj, torch.optim.Optimizer):
                    converted[key] = FullyShardedDataParallel.optim_state_dict(module, obj)
                else:
                    converted[key] = obj
        if self.global_rank == 0:
            torch.save(converted, os.path.join(path, "state.ckpt"))
        dist.barrier()

    def load_checkpoint(self, path: str, state: Dict[str, Any]) -> None:
        module, optimizer = state["model"], state["optimizer"]
        checkpoint = torch.load(os.path.join(path, "state.ckpt"), weights_only=True, map_location="cpu")
        with FullyShardedDataParallel.state_dict_type(module, StateDictType.FULL_STATE_DICT):
            module.load_state_dict(checkpoint["model"])
            optim_state = FullyShardedDataParallel.optim_state_dict_to_load(
                model=module, optim=optimizer, optim_state_dict=checkpoint["optimizer"]
            )
            optimizer.load_state_dict(optim_state)
        state["step"] = checkpoint["step"]


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", default="")
    parser.add_argument("--resume", default="")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    torch.manual_seed(1337)
    strategy = FSDPStrategy(auto_wrap_policy=ModuleWrapPolicy({Block}), sharding_strategy="shard_grad_op")
    model = strategy.setup_module(GPT())
    optimizer = strategy.setup_optimizer(torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95)))
    state: Dict[str, Any] = {"model": model, "optimizer": optimizer, "step": args.first}
    if args.resume:
        strategy.load_checkpoint(args.resume, state)
    history = []
    while state["step"] < args.first + args.steps:
        for micro in range(2):
            generator = torch.Generator().manual_seed(100 * state["step"] + 10 * micro + dist.get_rank())
            x = torch.randn(4, 5, generator=generator)
            with strategy.no_backward_sync(model, enabled=micro == 0):
                loss = (model(x) - x[:, :3].sin()).square().mean() / 2
                loss.backward()
        norm = strategy.clip_gradients_norm(model, max_norm=0.4)
        optimizer.step()
        optimizer.zero_grad()
        state["step"] += 1
        history.append((loss.item(), norm.item()))
    if args.save:
        strategy.save_checkpoint(args.save, state)
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
