"""fully_shard, and what FSDP1 checks without an accelerator."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .common import case, mesh, shard, x


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids))


class Scale(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.scale, self.proj = nn.Parameter(torch.ones(shape)), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(x) * self.scale


@case
def fsdp2_tied_params_two_groups(fixed: bool) -> None:
    model = Tied()
    for part in [[model.embed, model.head]] if fixed else [model.embed, model.head]:
        shard(part)
    shard(model)(torch.arange(4))


@case
def fsdp2_mixed_dtype(fixed: bool) -> None:
    layer = nn.Linear(8, 8)
    layer.bias.data = layer.bias.data.to(torch.bfloat16)
    if fixed:
        layer.float()
    shard(layer)(x())


@case
def fsdp2_root_not_first(fixed: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    shard(model[0])
    shard(model)
    if not fixed:
        model[0](x())
    model(x())


@case
def fsdp2_list_as_root(fixed: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    shard([model[0], model[1]])
    if fixed:
        shard(model)
    model(x())


@case
def fsdp2_container(fixed: bool) -> None:
    blocks = nn.ModuleList([nn.Linear(8, 8)])
    shard(blocks[0] if fixed else blocks)


@case
def fsdp_scalar_param(fixed: bool) -> None:
    shard(Scale((1,) if fixed else ()))


@case
def fsdp2_uneven_dim(fixed: bool) -> None:
    from torch.distributed.tensor import Shard

    shard(nn.Linear(8 if fixed else 7, 8), shard_placement_fn=lambda p: Shard(1) if p.ndim == 2 else Shard(0))


@case
def fsdp2_placement_fn(fixed: bool) -> None:
    from torch.distributed.tensor import Shard

    shard(nn.Linear(8, 8), shard_placement_fn=lambda p: Shard(0 if fixed else 2))


@case
def fsdp2_non_contiguous(fixed: bool) -> None:
    layer = nn.Linear(8, 4)
    layer.weight = nn.Parameter(torch.randn(8, 4).t())
    if fixed:
        layer.weight = nn.Parameter(layer.weight.contiguous())
    shard(layer)


@case
def fsdp2_mesh_dims(fixed: bool) -> None:
    whole = mesh((2, 1, 1), ("dp", "cp", "tp"))
    shard(nn.Linear(8, 8), mesh=whole["dp"] if fixed else whole)


@case
def fsdp2_dp_mesh_dims(fixed: bool) -> None:
    from torch.distributed.fsdp import DataParallelMeshDims
    from torch.distributed.tensor import distribute_module

    whole = mesh((2, 1), ("dp", "tp"))
    layer = nn.Linear(8, 8)
    shard(
        distribute_module(layer, whole) if fixed else layer, mesh=whole, dp_mesh_dims=DataParallelMeshDims(shard="dp")
    )


@case
def fsdp2_reshard_int(fixed: bool) -> None:
    shard(nn.Linear(8, 8), reshard_after_forward=2 if fixed else 3)


@case
def fsdp2_deepcopy(fixed: bool) -> None:
    import copy

    model = nn.Linear(8, 8)
    if fixed:
        copy.deepcopy(model)
    shard(model)
    if not fixed:
        copy.deepcopy(model)


@case
def fsdp2_setter_arguments(fixed: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    shard(model[0])
    shard(model)
    model.set_modules_to_forward_prefetch([model[0 if fixed else 1]])


@case
def fsdp2_param_left_on_meta(fixed: bool) -> None:
    with torch.device("meta"):
        model = nn.Linear(8, 8)
    shard(model)
    if fixed:
        model.to_empty(device="cpu")
    model(x())


@case
def fsdp2_forward_hook_bypassed(fixed: bool) -> None:
    from torch.distributed.fsdp import register_fsdp_forward_method

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(16, 8)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.embed(ids)

        def encode(self, ids: torch.Tensor) -> torch.Tensor:
            return self.embed(ids)

    model = shard(Encoder())
    if fixed:
        register_fsdp_forward_method(model, "encode")
    model.encode(torch.arange(4))


@case
def fsdp2_input_not_cast(fixed: bool) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    class Box:
        def __init__(self, value: torch.Tensor) -> None:
            self.value = value

    class Boxed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Linear(8, 8)

        def forward(self, given: Any) -> torch.Tensor:
            return self.proj(given.value if isinstance(given, Box) else given)

    model = shard(Boxed(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    model(x() if fixed else Box(x()))


@case
def fsdp2_view_output(fixed: bool) -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Linear(8, 8)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            out = self.proj(given)
            return out.clone() if fixed else out[:, :4]

    shard(Views())(x())


@case
def plain_tensors_into_dtensor_params(fixed: bool) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    full = nn.Linear(8, 8).state_dict()
    model = shard(nn.Linear(8, 8))
    if fixed:
        set_model_state_dict(model, full, options=StateDictOptions(full_state_dict=True))
    else:
        model.load_state_dict(full)


@case
def mixed_tensors_in_optimizer_or_clip(fixed: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    shard(model, ignored_params=set(model[1].parameters()))
    model(x()).sum().backward()
    for part in [model[0], model[1]] if fixed else [model]:
        torch.nn.utils.clip_grad_norm_(part.parameters(), 0.01)


# FSDP1 needs an accelerator, so what it checks before is run by itself.


@case
def fsdp1_cpu_only(fixed: bool) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    if fixed:
        shard(nn.Linear(4, 4))
    else:
        FullyShardedDataParallel(nn.Linear(4, 4))


def _flatten(*tensors: torch.Tensor, use_orig_params: bool = False) -> None:
    from types import SimpleNamespace

    from torch.distributed.fsdp._flat_param import FlatParamHandle

    FlatParamHandle._validate_tensors_to_flatten(SimpleNamespace(_use_orig_params=use_orig_params), list(tensors))


@case
def fsdp1_mixed_requires_grad(fixed: bool) -> None:
    _flatten(torch.ones(2, requires_grad=True), torch.ones(2), use_orig_params=fixed)


@case
def fsdp1_mixed_dtype(fixed: bool) -> None:
    _flatten(torch.ones(2), torch.ones(2, dtype=torch.float32 if fixed else torch.bfloat16))


@case
def fsdp1_mixed_devices(fixed: bool) -> None:
    _flatten(torch.ones(2), torch.ones(2, device="cpu" if fixed else "meta"))


@case
def fsdp1_integer_params(fixed: bool) -> None:
    _flatten(torch.ones(2, dtype=torch.float32 if fixed else torch.int8))


@case
def fsdp1_sync_module_states_cpu(fixed: bool) -> None:
    from torch.distributed.fsdp._init_utils import _check_module_states_for_sync_module_states

    _check_module_states_for_sync_module_states([torch.ones(2, device="meta" if fixed else "cpu")])


@case
def fsdp2_all_reduce_hook(fixed: bool) -> None:
    model = shard(nn.Linear(8, 8), mesh=mesh((2, 1), ("replicate", "shard")))
    model.set_all_reduce_hook(lambda reduced: None, **({} if fixed else {"stream": object()}))


@case
def fsdp2_tp_layout(fixed: bool) -> None:
    from torch.distributed.tensor import Replicate, distribute_module

    whole = mesh((2, 1, 1, 1), ("dp", "a", "b", "c"))
    part = whole["a"] if fixed else whole["a", "b", "c"]

    def place(name: str, module: nn.Module, where: Any) -> None:
        from torch.distributed.tensor import distribute_tensor

        for key, parameter in list(module._parameters.items()):
            if parameter is not None:
                spread = distribute_tensor(parameter, where, [Replicate()] * where.ndim)
                module.register_parameter(key, nn.Parameter(spread))

    shard(distribute_module(nn.Linear(8, 8), part, place), mesh=whole["dp"])


@case
def fsdp2_comm_conflict(fixed: bool) -> None:
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather

    class Own(DefaultAllGather):
        pass

    class Foreign:
        def __init__(self) -> None:
            self.inner = Own()

        def allocate(self, *given: Any, **named: Any) -> Any:
            return self.inner.allocate(*given, **named)

        def __call__(self, *given: Any, **named: Any) -> Any:
            return self.inner(*given, **named)

    model = shard(nn.Linear(8, 8))
    if not fixed:
        model.set_custom_all_gather(Foreign())
    model.set_allocate_memory_from_process_group_for_comm(True)


@case
def fsdp2_extension(fixed: bool) -> None:
    from torch.distributed.fsdp._fully_shard import _fsdp_param

    layer = nn.Linear(8, 8)
    model = shard(layer)
    if not fixed:
        # What a subclass with half of the extension looks like to FSDP2.
        group = model._get_fsdp_state()._fsdp_param_group
        parameter = group.fsdp_params[0]
        parameter._sharded_local_tensor.fsdp_pre_all_gather = lambda *given: None
        _fsdp_param.FSDPParam._init_extensions(parameter)
    model(x())
