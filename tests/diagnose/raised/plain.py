"""Tensors, optimizers, devices and releases: the mistakes of every public thread."""

from __future__ import annotations

import io
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .common import case, shard, x


def _linear() -> nn.Linear:
    return nn.Linear(8, 8)


def _sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1)


@case
def meta_copy(fixed: bool) -> None:
    with torch.device("meta"):
        layer = _linear()
    shard(layer)
    if fixed:
        layer.to_empty(device="cpu")
        layer.reset_parameters()
    else:
        layer.to("cpu")


@case
def meta_used(fixed: bool) -> None:
    with torch.device("meta"):
        layer = _linear()
    if fixed:
        layer.to_empty(device="cpu")
        layer.reset_parameters()
    layer(x())


@case
def optimizer_no_parameters(fixed: bool) -> None:
    layer = _linear()
    parameters = layer.parameters()
    list(parameters)
    _sgd(layer.parameters() if fixed else parameters)


@case
def optimizer_not_parameters(fixed: bool) -> None:
    layer = _linear()
    _sgd(layer.parameters() if fixed else dict(layer.named_parameters()))


@case
def optimizer_non_leaf(fixed: bool) -> None:
    weight = torch.randn(8, requires_grad=True)
    _sgd([weight if fixed else weight.to(torch.float64)])


@case
def optimizer_parameter_twice(fixed: bool) -> None:
    layer = _linear()
    _sgd([{"params": [layer.weight]}, {"params": [layer.bias] if fixed else layer.parameters()}])


@case
def optimizer_state_of_another_form(fixed: bool) -> None:
    optimizer = _sgd(_linear().parameters())
    saved = {"optimizer": optimizer.state_dict()}
    optimizer.load_state_dict(saved["optimizer"] if fixed else saved)


@case
def scheduler_past_its_end(fixed: bool) -> None:
    optimizer = _sgd(_linear().parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=4 if fixed else 2)
    for _ in range(3):
        optimizer.step()
        scheduler.step()


@case
def fsdp2_method_of_fsdp1(fixed: bool) -> None:
    model = shard(_linear())
    if fixed:
        model.set_requires_gradient_sync(False)
        model(x()).sum().backward()
    else:
        with model.no_sync():
            model(x()).sum().backward()


@case
def fsdp2_method_on_plain_module(fixed: bool) -> None:
    model = nn.Sequential(_linear())
    shard(model)
    (model if fixed else model[0]).set_requires_gradient_sync(False)


@case
def wrapper_hides_attribute(fixed: bool) -> None:
    model = nn.parallel.DistributedDataParallel(_linear())
    assert (model.module if fixed else model).in_features == 8


@case
def attribute_not_in_release(fixed: bool) -> None:
    name = "all_reduce" if fixed else "all_reduce_coalesced_v9"
    getattr(torch.distributed, name)


@case
def argument_not_in_release(fixed: bool) -> None:
    shard(_linear(), **({"reshard_after_forward": True} if fixed else {"sharding_strategy": "FULL_SHARD"}))


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4, bias=False), nn.Linear(8, 8, bias=False)


@case
def sharded_shape_used(fixed: bool) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    model = FSDP(Masked(), device_id=torch.device("cpu"), use_orig_params=True)
    if fixed:
        with FSDP.summon_full_params(model):
            torch.ones(4, 4) * model.first.weight
    else:
        torch.ones(4, 4) * model.first.weight


@case
def shapes_differ(fixed: bool) -> None:
    x(4, 8) + x(4, 8 if fixed else 7)


@case
def view_not_contiguous(fixed: bool) -> None:
    turned = x(3, 4).t()
    (turned.reshape if fixed else turned.view)(12)


class AddsInPlace(nn.Module):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.fixed, self.layer = fixed, _linear()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fixed:
            x = x + 1
        else:
            x += 1
        return self.layer(x)


@case
def fsdp2_input_changed_in_place(fixed: bool) -> None:
    shard(AddsInPlace(fixed))(x().requires_grad_() * 1).sum().backward()


@case
def view_changed_in_place(fixed: bool) -> None:
    first, _ = x().requires_grad_().split(2)
    (first.clone() if fixed else first).add_(1)


@case
def fsdp2_first_forward_in_inference_mode(fixed: bool) -> None:
    model = nn.Sequential(_linear(), _linear())
    for layer in model:
        shard(layer)
    shard(model)
    with torch.no_grad() if fixed else torch.inference_mode():
        model(x())
    model(x()).sum().backward()


@case
def inference_tensor_in_training(fixed: bool) -> None:
    with torch.no_grad() if fixed else torch.inference_mode():
        cached = x()
    (cached * torch.ones(8, requires_grad=True)).sum().backward()


@case
def dtype_not_implemented(fixed: bool) -> None:
    matrix = torch.eye(4, dtype=torch.bfloat16)
    torch.linalg.svd(matrix.float() if fixed else matrix)


@case
def dtype_of_two_operands(fixed: bool) -> None:
    query = torch.randn(1, 1, 2, 4)
    value = query if fixed else query.bfloat16()
    nn.functional.scaled_dot_product_attention(query, query, value)


@case
def gradient_of_another_form(fixed: bool) -> None:
    layer = _linear()
    layer.weight.grad = torch.zeros(8, 8, dtype=torch.float32 if fixed else torch.bfloat16)


@case
def backward_of_no_scalar(fixed: bool) -> None:
    loss = x().requires_grad_() * 2
    (loss.mean() if fixed else loss).backward()


@case
def indices_are_floats(fixed: bool) -> None:
    ids = torch.tensor([1, 2])
    nn.Embedding(4, 4)(ids if fixed else ids.to(torch.bfloat16))


@case
def backend_lacks_operation(fixed: bool) -> None:
    mine = torch.ones(2)
    torch.distributed.all_gather([torch.zeros(2), torch.zeros(2)], mine if fixed else mine.to_sparse())


@case
def batch_of_unequal_lists(fixed: bool) -> None:
    torch.utils.data.default_collate([[0, 1], [2, 3] if fixed else [2]])


@case
def start_method_set_twice(fixed: bool) -> None:
    multiprocessing.get_context(multiprocessing.get_start_method())  # which sets it
    multiprocessing.set_start_method(multiprocessing.get_start_method(), force=fixed)


@case
def dtensor_in_plain_collective(fixed: bool) -> None:
    layer = _linear()
    nn.parallel.DistributedDataParallel(layer if fixed else shard(layer))


@case
def local_tensor_of_plain(fixed: bool) -> None:
    layer = _linear()
    (shard(layer) if fixed else layer).weight._local_tensor


@case
def device_without_index(fixed: bool) -> None:
    torch.device(f"cuda:{0 if fixed else None}")


@case
def load_on_missing_device(fixed: bool) -> None:
    saved = io.BytesIO()
    torch.save(torch.zeros(2), saved)
    saved.seek(0)
    torch.load(saved, map_location="cpu" if fixed else "cuda")


@case
def safetensors_shared_tensors(fixed: bool) -> None:
    from safetensors.torch import save_file

    weight = torch.zeros(4)
    with tempfile.TemporaryDirectory() as folder:
        save_file({"embed": weight, "head": weight.clone() if fixed else weight}, Path(folder) / "x.safetensors")
