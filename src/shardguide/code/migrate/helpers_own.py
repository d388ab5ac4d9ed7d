"""More functions that a migrated file may get: see helpers.py."""

from __future__ import annotations

_FSDP = "torch.distributed.fsdp"
_STATE = "torch.distributed.checkpoint.state_dict"

HELPERS: dict[str, tuple[dict[str, str], str]] = {
    "mesh_of_groups": (
        {
            "DeviceMesh": "torch.distributed.device_mesh.DeviceMesh",
            "all_gather_object": "torch.distributed.all_gather_object",
            "get_process_group_ranks": "torch.distributed.get_process_group_ranks",
            "get_world_size": "torch.distributed.get_world_size",
            "torch": "torch",
        },
        '''
def {self}(groups, device_type):
    """FSDP1's pair of process groups as a mesh: the first shards, the second replicates."""
    shard, replicate = groups
    ranks = [None] * {get_world_size}()
    {all_gather_object}(ranks, {get_process_group_ranks}(shard))
    ranks = sorted({{tuple(one) for one in ranks}})
    names = ("replicate", "shard")
    return {DeviceMesh}.from_group([replicate, shard], device_type, mesh={torch}.tensor(ranks), mesh_dim_names=names)
''',
    ),
    "module_options": (
        {
            "CPUOffloadPolicy": f"{_FSDP}.CPUOffloadPolicy",
            "OffloadPolicy": f"{_FSDP}.OffloadPolicy",
            "precision_policy": "helper",
            "reshard_after_forward": "helper",
        },
        '''
def {self}(own, **options):
    """Arguments of fully_shard for one module: ``options``, and in their place what an FSDP1 policy gave for the module."""
    for name, value in own.items() if isinstance(own, dict) else ():
        if name == "sharding_strategy" and "HYBRID" not in value.name:
            options["reshard_after_forward"] = {reshard_after_forward}(value)
        elif name == "mixed_precision":
            options["mp_policy"] = {precision_policy}(value, root=False)
        elif name == "cpu_offload":
            options["offload_policy"] = {CPUOffloadPolicy}() if value and value.offload_params else {OffloadPolicy}()
        elif name == "device_mesh":
            options["mesh"] = value
        elif name not in ("backward_prefetch", "forward_prefetch", "limit_all_gathers", "use_orig_params", "device_id"):
            raise ValueError(f"{{name}}={{value}} of one module has no counterpart in fully_shard")
    return options
''',
    ),
    "broadcast_from_rank0": (
        {
            "dist": "torch.distributed",
            "set_model_state_dict": f"{_STATE}.set_model_state_dict",
            "StateDictOptions": f"{_STATE}.StateDictOptions",
        },
        '''
def {self}(model, state_dict, group=None):
    """FSDP1's sync_module_states: every rank gets the first rank's values; ``state_dict`` is that of before sharding."""
    options = {StateDictOptions}(full_state_dict=True, broadcast_from_rank0=True)
    if group is None or {dist}.get_world_size(group) == {dist}.get_world_size():
        {set_model_state_dict}(model, state_dict, options=options)
        group, source = None, 0
    else:  # each group has values of its own
        source = {dist}.get_global_rank(group, 0)
        options = {StateDictOptions}(full_state_dict=True, strict=False)
        device = next(p.device_mesh.device_type for p in model.parameters() if hasattr(p, "device_mesh"))
        for name, value in state_dict.items():
            value = value.new_empty(value.shape, device=device) if value.is_meta else value.to(device)
            {dist}.broadcast(value, src=source, group=group)
            {set_model_state_dict}(model, {{name: value}}, options=options)
    for buffer in model.buffers():
        {dist}.broadcast(buffer, src=source, group=group)
''',
    ),
}
