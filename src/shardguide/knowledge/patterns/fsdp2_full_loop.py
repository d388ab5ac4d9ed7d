# /// pattern
# id = "fsdp2-full-loop"
# title = "A whole FSDP2 training: set-up, sharding, steps, evaluation, checkpoint"
# topics = ["what-fsdp-does", "wrapping", "optimizer", "gradient-clipping", "gradient-accumulation", "evaluation", "distributed-checkpoint"]
# follows = ["torch.distributed.fsdp.fully_shard", "https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html", "https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_more.py::test_full_loop"
# processes = 2
# [run]
# '"cuda"' = '"cpu"'
# '"nccl"' = '"gloo"'
# ///
"""Train with FSDP2: ``torchrun --nproc-per-node 8 train.py``. Yours are the model, its layers, the data and the loss."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

DEVICE = "cuda"
Loss = Callable[[Any, Any], torch.Tensor]  # the mean loss of a batch


def set_up() -> DeviceMesh:
    # One process per GPU, its device chosen first: init_process_group and fully_shard use the current one.
    if DEVICE != "cpu":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    return init_device_mesh(DEVICE, (dist.get_world_size(),))


def shard(model: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh, dtype: torch.dtype) -> FSDPModule:
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def train_step(model: FSDPModule, optimizer: torch.optim.Optimizer, loss_fn: Loss, micros: Sequence[Any]) -> float:
    total = torch.zeros((), device=DEVICE)
    for index, batch in enumerate(micros):
        model.set_requires_gradient_sync(index == len(micros) - 1)  # reduce with the last one
        loss = loss_fn(model, batch) / len(micros)
        loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)  # for the log only
    return total.item() / dist.get_world_size()


@torch.no_grad()  # not inference_mode, see the pattern fsdp2-evaluate
def evaluate(model: FSDPModule, loss_fn: Loss, batches: Iterable[Any]) -> float:
    model.eval()
    total = torch.zeros(2, device=DEVICE)
    for batch in batches:  # as many on every rank
        total[0] += loss_fn(model, batch) * len(batch)
        total[1] += len(batch)
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def save(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, folder: str) -> None:
    # On all ranks: each writes its own shards. Readable with any other number of ranks.
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states, "step": step}, checkpoint_id=folder)


def resume(model: nn.Module, optimizer: torch.optim.Optimizer, folder: str) -> int:
    # load fills the tensors that it is given; so the state dicts are made first, and set afterwards.
    weights, states = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": states, "step": 0}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return state["step"]


def main(
    build: Callable[[], nn.Module],
    layers: Callable[[nn.Module], Iterable[nn.Module]],
    loss_fn: Loss,
    steps: Sequence[Sequence[Any]],  # of this rank: the micro-batches of each step, as many on every rank
    held_out: Sequence[Any],
    folder: str,
    dtype: torch.dtype = torch.bfloat16,
    start_from: str = "",
) -> list[float]:
    mesh = set_up()
    torch.manual_seed(0)  # the same weights everywhere, since nothing is broadcast
    model = build().to(DEVICE)
    model = shard(model, layers(model), mesh, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)  # after sharding
    done = resume(model, optimizer, start_from) if start_from else 0
    losses = [train_step(model, optimizer, loss_fn, micros) for micros in steps[done:]]
    losses.append(evaluate(model, loss_fn, held_out))
    save(model, optimizer, len(steps), folder)
    dist.destroy_process_group()
    return losses
