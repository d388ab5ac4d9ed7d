"""Values for sharded parameters: drawn, read by rank 0 and sent, or read by every rank from a distributed checkpoint.

Sources, all in PyTorch 2.13.0: torch/distributed/tensor/_random.py (on which meshes a sharded tensor draws its part of one random
tensor), torch/distributed/checkpoint/state_dict.py (StateDictOptions), docstring of fully_shard (ignored_params). transformers
5.24.0: PreTrainedModel.init_weights sets buffers too; 4.57.6: it leaves them alone, and skips modules it saw on the meta device.
"""

from __future__ import annotations

from .spec import TrainingSpec
from .text import Imports, dtype


def initialise(spec: TrainingSpec) -> list[str]:
    """Values for what the meta device left without: shards first, buffers too."""
    if not spec.meta_init:
        return []
    where = '"cpu"' if spec.offload else "device"
    lines = ["def initialise(model, mesh, device):"]
    four = _transformers4(spec)
    body: list[str] = []
    if four:
        body.append("buffers = dict(model.named_buffers())")
    body.append(f"model.to_empty(device={where})  # each rank allocates its own shards only")
    if four:
        body += ["for name, buffer in model.named_buffers():", "    buffer.copy_(buffers[name])"]
    if spec.weights == "random":
        body += _seed(spec)
    if four and spec.weights == "random":
        body += [
            "for module in model.modules():",
            "    module._is_hf_initialized = False  # transformers 4 counts the meta tensors as initialised",
        ]
    if spec.architecture and not (four and spec.weights != "random"):
        what = "parameters and buffers" if not four else "parameters"
        body.append(f"model.init_weights()  # {what}")
    elif not spec.architecture:
        body += [
            "for module in model.modules():",
            '    if hasattr(module, "reset_parameters"):',
            "        module.reset_parameters()  # must set buffers as well",
            "    elif [*module.parameters(recurse=False), *module.buffers(recurse=False)]:",
            '        raise NotImplementedError(f"{type(module).__name__} needs a reset_parameters()")',
        ]
    return [*lines, *(f"    {line}" for line in body)]


def _transformers4(spec: TrainingSpec) -> bool:
    """Whether the model comes from transformers 4, whose init_weights() leaves buffers alone."""
    return bool(spec.architecture) and spec.implementation == "transformers4"


def _seed(spec: TrainingSpec) -> list[str]:
    """DTensor draws one global tensor on CUDA and XPU; on CPU, and for shards kept there, every rank draws its own shard."""
    if spec.device_type != "cpu" and not spec.offload:
        return ["torch.manual_seed(0)  # the same everywhere: a sharded tensor draws its own part of one random tensor"]
    place = 'mesh.get_local_rank("shard")' if len(spec.mesh) > 1 else "mesh.get_local_rank()"
    return [f"torch.manual_seed({place})  # CPU shards: different ones draw different numbers, replicas the same"]


def load(spec: TrainingSpec, imports: Imports) -> list[str]:
    """``load(model)``: the weights of a checkpoint into the shards; nothing where they are drawn or already there."""
    if spec.weights == "random" or not spec.meta_init:
        return []
    state = "torch.distributed.checkpoint.state_dict"
    if spec.weights == "dcp":
        imports.module("torch.distributed.checkpoint as dcp")
        imports.name(state, "get_model_state_dict", "set_model_state_dict")
        return [
            "def load(model):",
            '    """Every rank reads its own shards, whatever number of ranks wrote them."""',
            "    state = get_model_state_dict(model)",
            "    dcp.load(state, checkpoint_id=CHECKPOINT)",
            "    set_model_state_dict(model, state)",
        ]
    imports.name(state, "StateDictOptions", "set_model_state_dict")
    imports.module("torch.distributed as dist")
    keyword = "dtype" if spec.implementation != "transformers4" else "torch_dtype"
    lines = [
        "def load(model):",
        '    """Rank 0 reads the whole checkpoint into host memory; every rank receives its shards."""',
        "    state = {}",
    ]
    if spec.architecture:
        lines += [
            "    if dist.get_rank() == 0:",
            f"        whole = {spec.architecture}.from_pretrained(MODEL, {keyword}={dtype(spec.param_dtype)})",
            "        state = whole.state_dict()",
        ]
    else:
        lines += ["    if dist.get_rank() == 0:", "        state = read_checkpoint()"]
    offload = ", cpu_offload=True" if spec.offload else ""
    lines += [
        f"    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True{offload})",
        "    set_model_state_dict(model, state, options=options)",
    ]
    if spec.architecture:
        return lines
    return [
        "def read_checkpoint():",
        '    """Yours: the whole state dict, on the CPU."""',
        '    raise NotImplementedError("read_checkpoint is yours to write")',
        "",
        "",
        *lines,
    ]


def place_buffers(spec: TrainingSpec) -> list[str]:
    """Offloaded parameters live on the CPU, buffers do not. After loading, which wants everything on one device."""
    if not (spec.offload and spec.meta_init):
        return []
    return [
        "def place_buffers(model, device):",
        '    """Buffers are not offloaded: onto the device, where the layers compute."""',
        "    for module in model.modules():",
        "        for name, buffer in list(module.named_buffers(recurse=False)):",
        "            setattr(module, name, buffer.to(device))",
    ]


def place_ignored(spec: TrainingSpec, imports: Imports) -> list[str]:
    """fully_shard leaves ignored parameters where they are, and as different between ranks as they are."""
    if not spec.ignored:
        return []
    imports.name("torch.distributed.tensor", "DTensor")
    imports.module("torch.distributed as dist")
    return [
        "def place_ignored(model, device):",
        '    """Ignored parameters: onto the device, with rank 0\'s values; fully_shard does neither."""',
        "    for parameter in model.parameters():",
        "        if not isinstance(parameter, DTensor):",
        "            parameter.data = parameter.data.to(device)",
        "            dist.broadcast(parameter.data, src=0)",
    ]
