"""Functions that a migrated file gets where FSDP1's behaviour depends on values that are not known before the program runs.

Each is code of its own, run by the tests; ``{names}`` in braces are what it imports.
"""

from __future__ import annotations

from shardguide.guidance.hints import TYPE_CHECKING

from . import helpers_own
from .todos import Refusal

if TYPE_CHECKING:
    from .unit import Unit

_FSDP = "torch.distributed.fsdp"
_STATE = "torch.distributed.checkpoint.state_dict"

# name -> (what it imports: placeholder -> full name, code)
HELPERS: dict[str, tuple[dict[str, str], str]] = {
    "policy_modules": (
        {"ModuleList": "torch.nn.ModuleList", "ModuleDict": "torch.nn.ModuleDict"},
        '''
def {self}(model, policy, ignored=()):
    """The modules below ``model`` that an FSDP1 auto_wrap_policy picks, innermost first."""
    ignored_parameters = {{id(p) for module in ignored for p in module.parameters()}}
    picked = []

    def visit(module):
        whole = sum(p.numel() for p in module.parameters() if id(p) not in ignored_parameters)
        if policy is None or not policy(module=module, recurse=True, nonwrapped_numel=whole):
            return 0
        taken = sum(visit(child) for child in module.children() if child not in ignored)
        if module is not model and policy(module=module, recurse=False, nonwrapped_numel=whole - taken):
            if module not in picked and not isinstance(module, ({ModuleList}, {ModuleDict})):  # they have no forward
                picked.append(module)
            return whole
        return taken

    visit(model)
    return picked
''',
    ),
    "reshard_after_forward": (
        {"ShardingStrategy": f"{_FSDP}.ShardingStrategy"},
        '''
def {self}(strategy):
    """What an FSDP1 sharding strategy is for fully_shard."""
    if strategy is {ShardingStrategy}.NO_SHARD:
        raise ValueError("NO_SHARD has no counterpart in fully_shard: use DistributedDataParallel")
    if strategy in ({ShardingStrategy}.SHARD_GRAD_OP, {ShardingStrategy}._HYBRID_SHARD_ZERO2):
        return False
    return {default}
''',
    ),
    "mesh_of": (
        {
            "ShardingStrategy": f"{_FSDP}.ShardingStrategy",
            "init_device_mesh": "torch.distributed.device_mesh.init_device_mesh",
            "get_world_size": "torch.distributed.get_world_size",
            "torch": "torch",
        },
        '''
def {self}(strategy, device_type):
    """All ranks; for the hybrid strategies nodes and devices of a node, as FSDP1 made its groups."""
    ranks = {get_world_size}()
    if strategy not in ({ShardingStrategy}.HYBRID_SHARD, {ShardingStrategy}._HYBRID_SHARD_ZERO2):
        return {init_device_mesh}(device_type, (ranks,))
    per_node = getattr({torch}, device_type).device_count()
    return {init_device_mesh}(device_type, (ranks // per_node, per_node), mesh_dim_names=("replicate", "shard"))
''',
    ),
    "precision_policy": (
        {"MixedPrecisionPolicy": f"{_FSDP}.MixedPrecisionPolicy"},
        '''
def {self}(mixed_precision, root=True):
    """The policy of a module for an FSDP1 MixedPrecision; only the root casts its inputs, unless told otherwise."""
    if mixed_precision is None:
        return {MixedPrecisionPolicy}()
    cast = mixed_precision.cast_root_forward_inputs if root else mixed_precision.cast_forward_inputs
    return {MixedPrecisionPolicy}(
        param_dtype=mixed_precision.param_dtype,
        reduce_dtype=mixed_precision.reduce_dtype or mixed_precision.param_dtype,
        cast_forward_inputs=cast,
    )
''',
    ),
    "cast_buffers": (
        {},
        '''
def {self}(model, dtype):
    """FSDP1's buffer_dtype: fully_shard leaves the buffers as they are."""
    if dtype is not None:
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.to(dtype)
''',
    ),
    "materialize": (
        {"no_grad": "torch.no_grad", "Parameter": "torch.nn.Parameter"},
        '''
def {self}(model, init, device, offload=False):
    """Give memory and values to what is on the meta device, module by module, as FSDP1 did (init: its param_init_fn)."""
    on_meta = [
        module
        for module in model.modules()
        if any(t.is_meta for t in (*module.parameters(recurse=False), *module.buffers(recurse=False)))
    ]
    for module in on_meta:
        if init is not None:
            init(module)
        else:
            module.to_empty(device=device, recurse=False)
            with {no_grad}():
                module.reset_parameters()
        if offload:  # FSDP2 takes offloaded parameters from the CPU only
            for name, p in list(module.named_parameters(recurse=False)):
                setattr(module, name, {Parameter}(p.detach().cpu(), p.requires_grad))
''',
    ),
    "shard_model": (
        {
            "fully_shard": f"{_FSDP}.fully_shard",
            "CPUOffloadPolicy": f"{_FSDP}.CPUOffloadPolicy",
            "OffloadPolicy": f"{_FSDP}.OffloadPolicy",
            "FSDPModule": f"{_FSDP}.FSDPModule",
            "DeviceMesh": "torch.distributed.device_mesh.DeviceMesh",
            "torch": "torch",
            "reshard_after_forward": "helper",
            "mesh_of": "helper",
            "mesh_of_groups": "helper",
            "precision_policy": "helper",
            "policy_modules": "helper",
            "cast_buffers": "helper",
            "materialize": "helper",
            "broadcast_from_rank0": "helper",
        },
        '''
def {self}(
    model,
    process_group=None,
    sharding_strategy=None,
    cpu_offload=None,
    auto_wrap_policy=None,
    mixed_precision=None,
    ignored_modules=None,
    param_init_fn=None,
    device_id=None,
    sync_module_states=False,
    ignored_states=None,
    device_mesh=None,
    root=True,
    **unused,
):
    """fully_shard for FSDP1's arguments, for those that are known only here; what FSDP2 has no switch for is left out."""
    device_type = {torch}.device(device_id).type if isinstance(device_id, (str, {torch}.device)) else "cuda"
    if isinstance(model, {FSDPModule}):  # FSDP1 around FSDP1 had no parameters of its own
        return model
    mesh = device_mesh
    if mesh is None and isinstance(process_group, tuple):
        mesh = {mesh_of_groups}(process_group, device_type)
    elif mesh is None and process_group is not None:
        mesh = {DeviceMesh}.from_group(process_group, device_type)
    if mesh is None:
        mesh = {mesh_of}(sharding_strategy, device_type)
    outside = list(ignored_modules or ()) + [s for s in ignored_states or () if isinstance(s, {torch}.nn.Module)]
    ignored = {{inner for module in outside for inner in module.modules()}}
    parameters = {{p for module in ignored for p in module.parameters(recurse=False)}}
    parameters |= {{p for p in ignored_states or () if isinstance(p, {torch}.nn.Parameter)}}
    options = {{
        "mesh": mesh,
        "reshard_after_forward": {reshard_after_forward}(sharding_strategy),
        "offload_policy": {CPUOffloadPolicy}() if cpu_offload and cpu_offload.offload_params else {OffloadPolicy}(),
    }}
    if parameters:
        options["ignored_params"] = parameters
    state = model.state_dict() if sync_module_states else None
    for module in {policy_modules}(model, auto_wrap_policy, ignored):
        {fully_shard}(module, mp_policy={precision_policy}(mixed_precision, root=False), **options)
    {fully_shard}(model, mp_policy={precision_policy}(mixed_precision, root=root), **options)
    {materialize}(model, param_init_fn, device_type, bool(cpu_offload and cpu_offload.offload_params))
    if mixed_precision is not None:
        {cast_buffers}(model, mixed_precision.buffer_dtype)
    if sync_module_states:
        {broadcast_from_rank0}(model, state, None if isinstance(process_group, tuple) else process_group)
    return model
''',
    ),
    "sharding": (
        {"contextmanager": "contextlib.contextmanager"},
        '''
_options = None


@{contextmanager}
def {self}(**options):
    """Inside of it shard_module shards modules, with these arguments of fully_shard."""
    global _options
    before, _options = _options, options
    try:
        yield
    finally:
        _options = before
''',
    ),
    "shard_module": (
        {"fully_shard": f"{_FSDP}.fully_shard", "FSDPModule": f"{_FSDP}.FSDPModule"},
        '''
def {self}(module, **options):
    """Shard a module inside of ``with sharding(...)``; elsewhere leave it as it is."""
    if _options is None or isinstance(module, {FSDPModule}):
        return module
    return {fully_shard}(module, **{{**_options, **options}})
''',
    ),
    "own_steps": (
        {"torch": "torch"},
        '''
def {self}(state_dict):
    """An optimizer's state with a step count for each parameter; files of FSDP1 have one for all parameters of a unit."""
    for values in (state_dict or {{}}).get("state", {{}}).values():
        for name, value in values.items():
            if isinstance(value, {torch}.Tensor) and value.dim() == 0:
                values[name] = value.clone()
    return state_dict or {{}}
''',
    ),
    "names_of": (
        {},
        '''
def {self}(model):
    """The name of each parameter, before fully_shard puts others in their place."""
    return {{id(p): name for name, p in model.named_parameters()}}
''',
    ),
    "follow_parameters": (
        {},
        '''
def {self}(optimizer, model, names):
    """Give an optimizer from before fully_shard the parameters that stand in the place of its own, group by group."""
    parameters = dict(model.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [parameters[names[id(p)]] for p in group["params"]]
''',
    ),
    "shard_module_as_told": (
        {"shard_model": "helper"},
        '''
def {self}(module, **options):
    """Shard a module inside of ``with sharding(...)``; elsewhere leave it as it is."""
    return module if _options is None else {shard_model}(module, **{{**_options, **options}})
''',
    ),
    "clip_grad_norm": (
        {"clip_grad_norm_": "torch.nn.utils.clip_grad_norm_", "torch": "torch"},
        '''
def {self}(model, max_norm, norm_type=2.0):
    """Clip sharded and whole gradients together, as FSDP1's clip_grad_norm_ did; returns their total norm."""
    parameters = [p for p in model.parameters() if p.grad is not None]
    sharded = [p for p in parameters if hasattr(p, "full_tensor")]
    whole = [p for p in parameters if not hasattr(p, "full_tensor")]
    norms = [{clip_grad_norm_}(group, float("inf"), norm_type) for group in (sharded, whole) if group]
    norms = [norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in norms]
    total = {torch}.linalg.vector_norm({torch}.stack(norms), norm_type) if norms else {torch}.tensor(0.0)
    factor = min(max_norm / (total.item() + 1e-6), 1.0)
    for p in parameters:
        p.grad.mul_(factor)
    return total
''',
    ),
    "no_sync": (
        {
            "contextmanager": "contextlib.contextmanager",
        },
        '''
@{contextmanager}
def {self}(model):
    """Accumulate gradients without communication, as FSDP1's no_sync did."""
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)
''',
    ),
    "no_sync_of": (
        {"contextmanager": "contextlib.contextmanager", "FSDPModule": f"{_FSDP}.FSDPModule"},
        '''
@{contextmanager}
def {self}(model):
    """Accumulate gradients without communication, for fully_shard and for DistributedDataParallel."""
    if not isinstance(model, {FSDPModule}):
        with model.no_sync():
            yield
        return
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)
''',
    ),
    "full_parameters": (
        {
            "contextmanager": "contextlib.contextmanager",
            "FSDPModule": f"{_FSDP}.FSDPModule",
        },
        '''
@{contextmanager}
def {self}(model, recurse=True):
    """Whole parameters to read, as in FSDP1's summon_full_params; what is written into them is lost."""
    modules = [m for m in (model.modules() if recurse else [model]) if isinstance(m, {FSDPModule})]
    for module in modules:
        module.unshard()
    try:
        yield
    finally:
        for module in modules:
            module.reshard()
''',
    ),
    "full_parameters_written_back": (
        {
            "contextmanager": "contextlib.contextmanager",
            "FSDPModule": f"{_FSDP}.FSDPModule",
            "distribute_tensor": "torch.distributed.tensor.distribute_tensor",
            "no_grad": "torch.no_grad",
        },
        '''
@{contextmanager}
def {self}(model, recurse=True):
    """Whole parameters, as in FSDP1's summon_full_params: what is written into them goes back into the shards."""
    modules = [m for m in (model.modules() if recurse else [model]) if isinstance(m, {FSDPModule})]
    for module in modules:
        module.unshard()
    try:
        yield
        full = {{name: p.detach().clone() for name, p in model.named_parameters()}}
    finally:
        for module in modules:
            module.reshard()
    with {no_grad}():
        for name, p in model.named_parameters():
            if hasattr(p, "placements"):
                p.copy_({distribute_tensor}(full[name], p.device_mesh, p.placements{src}))
''',
    ),
}


def add(unit: Unit, name: str) -> str:
    """Put a helper into a file, once; returns the name that it has there."""
    imports, code = HELPERS.get(name) or helpers_own.HELPERS[name]
    if name in ("shard_model", "mesh_of_groups") and not unit.target.has(
        "torch.distributed.device_mesh.DeviceMesh.from_group"
    ):
        raise Refusal("release", f"PyTorch {unit.target.release} makes no mesh of a process group.")
    if name.startswith("full_parameters") and not unit.target.method("unshard"):
        raise Refusal("release", f"PyTorch {unit.target.release} has no unshard.")
    if name.startswith("broadcast_from_rank0") and not unit.target.takes(
        f"{_STATE}.StateDictOptions", "broadcast_from_rank0"
    ):
        raise Refusal("release", f"PyTorch {unit.target.release} cannot broadcast a state dict.")
    own = name
    if name in unit.helpers:
        return unit.helper_names[name]
    while own in unit.names.own or own in unit.names.imports or any(key == own for _, key in unit.names.bound):
        own = f"fsdp2_{own}" if not own.startswith("fsdp2_") else f"{own}_"
    unit.helper_names[name] = own
    unit.helpers[name] = ""
    words = {
        placeholder: add(unit, placeholder) if full == "helper" else unit.need(full)
        for placeholder, full in imports.items()
    }
    words["self"] = own
    words["default"] = "None" if unit.target.at_least >= (2, 8) else "True"
    source = unit.target.takes("torch.distributed.tensor.distribute_tensor", "src_data_rank")
    words["src"] = ", src_data_rank=None" if source else ""
    unit.helpers[name] = code.strip("\n").format(**words)
    return own
