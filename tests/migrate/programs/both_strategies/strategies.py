"""What the project does with a model of either kind: the model's type decides."""

from contextlib import nullcontext

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FSDPModule, FullStateDictConfig, StateDictType, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def fsdp_version(model):
    if isinstance(model, FSDP):
        return 1
    elif isinstance(model, FSDPModule):
        return 2
    else:
        return 0


def state_context(model):
    if fsdp_version(model) == 1:
        return FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=False))
    else:
        return nullcontext()


def save(model):
    if fsdp_version(model) == 1:
        with state_context(model):
            return {name: value.clone() for name, value in model.state_dict().items()}
    assert isinstance(model, FSDPModule)
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def load(model, state):
    if fsdp_version(model) == 2:
        set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))
        return
    assert isinstance(model, FSDP)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(state)


def clip(model, limit):
    if isinstance(model, FSDP):
        return model.clip_grad_norm_(limit)
    elif isinstance(model, FSDPModule):
        return torch.nn.utils.clip_grad_norm_(model.parameters(), limit).full_tensor()
    raise TypeError(type(model))


def apply_fsdp2(model, blocks, options):
    for module in model.modules():
        if isinstance(module, blocks):
            fully_shard(module, **options)
    fully_shard(model, **options)


def plain(model):
    module = model
    if isinstance(model, FSDP):
        module = module._fsdp_wrapped_module
    return module
