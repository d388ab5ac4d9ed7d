"""Engine: what one step is."""
import contextlib
import os

import distributed
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.fsdp as fsdp


class Engine:
    def __init__(self, model, optimizer_cls, accumulate=2, **optimizer_kwargs):
        self.model = model
        decay, no_decay = [], []
        for name, param in self.model.named_parameters():
            (no_decay if name.endswith("bias") or "norm" in name else decay).append(param)
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}]
        self.optimizer = optimizer_cls(groups, **optimizer_kwargs)
        self.accumulate = accumulate
        self.micro = 0

    def maybe_no_sync(self):
        """Gradients are reduced on the last micro batch only."""
        last = (self.micro + 1) % self.accumulate == 0
        if distributed.is_fsdp(self.model) and not last:
            return self.model.no_sync()
        return contextlib.nullcontext()

    def step(self, x, y):
        with self.maybe_no_sync():
            loss = torch.nn.functional.mse_loss(self.model(x), y) / self.accumulate
            loss.backward()
        self.micro += 1
        if self.micro % self.accumulate:
            return loss, None
        norm = distributed.grad_norm(self.model, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss, norm

    def save(self, folder):
        with fsdp.FullyShardedDataParallel.state_dict_type(self.model, fsdp.StateDictType.SHARDED_STATE_DICT):
            state = {
                "model": self.model.state_dict(),
                "optimizer": fsdp.FullyShardedDataParallel.optim_state_dict(self.model, self.optimizer),
                "micro": torch.tensor(self.micro),
            }
        dcp.save(state, checkpoint_id=os.path.join(folder, "dcp"))

    def load(self, folder):
        FSDP = fsdp.FullyShardedDataParallel
        with FSDP.state_dict_type(self.model, fsdp.StateDictType.SHARDED_STATE_DICT):
            state = {
                "model": self.model.state_dict(),
                "optimizer": FSDP.optim_state_dict(self.model, self.optimizer),
                "micro": torch.tensor(0),
            }
            dcp.load(state, checkpoint_id=os.path.join(folder, "dcp"))
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(
                FSDP.optim_state_dict_to_load(
                    optim_state_dict=state["optimizer"], model=self.model, optim=self.optimizer
                )
            )
        self.micro = int(state["micro"])

    def describe(self):
        return {name: type(layer).__name__ for name, layer in distributed.unwrap(self.model).named_children()}
