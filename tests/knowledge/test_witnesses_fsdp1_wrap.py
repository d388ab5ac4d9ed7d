"""Witnesses of claims on FullyShardedDataParallel: wrapping, flat parameters, initialisation.

Order and sizes are seen in a fake process group of eight ranks, as the last rank.
"""

import functools
import inspect

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.usefixtures("last_rank"),
    pytest.mark.filterwarnings("ignore:.*NO_SHARD.*:FutureWarning"),
]

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy  # noqa: E402
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy  # noqa: E402
from witness_tools import WEIGHTS, Log, flat, fsdp, sizes, three_layers, trace, units, wrapped  # noqa: E402

WORLD = 8
A, B, C = WEIGHTS


def test_one_rank():
    alone = dist.new_group([dist.get_rank()])
    with pytest.warns(UserWarning, match="switching to use `NO_SHARD`"):
        model = fsdp(nn.Linear(4, 4), process_group=alone)
    assert model.sharding_strategy is ShardingStrategy.NO_SHARD


def test_wrapping_replaces_parameters():
    plain = three_layers()
    before = set(plain.parameters())
    after = set(fsdp(plain).parameters())
    assert before and after and not before & after
    kept = three_layers()
    before = set(kept.parameters())
    assert set(fsdp(kept, use_orig_params=True).parameters()) == before  # the same objects, with other data
    assert sum(parameter.numel() for parameter in before) == (A + B + C) / WORLD


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def test_shared_parameters():
    tokens = torch.zeros(2, 3, dtype=torch.long)
    together = fsdp(Tied())
    assert flat(together) == [16 * 8 / WORLD]
    assert together.embed.weight is together.head.weight
    apart = Tied()
    apart.embed, apart.head = fsdp(apart.embed), fsdp(apart.head)
    root = fsdp(apart)
    root(tokens).sum().backward()  # no error, but the tie is gone
    assert flat(root) == [16 * 8 / WORLD] * 2
    first, second = (parameter.untyped_storage().data_ptr() for parameter in root.parameters())
    assert first != second


def test_synchronised_module_states_on_the_cpu():
    with pytest.raises(ValueError, match="requires them to be on GPU"):
        fsdp(nn.Linear(4, 4), sync_module_states=True)


def test_auto_wrap_policy():
    one = fsdp(three_layers())
    assert len(units(one)) == 1
    with Log() as log:
        one(torch.ones(2, 16))
        assert sizes(log.take()) == [("gather", A + B + C), ("mm", A), ("mm", B), ("mm", C)]  # nothing to overlap
    each = fsdp(three_layers(), auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))
    assert [type(unit.module) for unit in units(each)] == [nn.Sequential, nn.Linear, nn.Linear, nn.Linear]
    mixed = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
    assert [type(unit.module) for unit in units(fsdp(mixed, auto_wrap_policy=ModuleWrapPolicy({nn.LayerNorm})))] == [
        nn.Sequential,
        nn.LayerNorm,
    ]


def test_size_based_policy():
    def wraps(elements):
        return size_based_auto_wrap_policy(nn.Linear(1, 1), recurse=False, nonwrapped_numel=elements)

    assert (wraps(99_999_999), wraps(100_000_000)) == (False, True)
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=B)
    assert len(units(fsdp(three_layers(), auto_wrap_policy=policy))) == 1 + 2  # the root, and the layers of B and C


def test_original_parameters():
    assert inspect.signature(FullyShardedDataParallel).parameters["use_orig_params"].default is False
    assert [name.rpartition(".")[2] for name, _ in fsdp(three_layers()).named_parameters()] == ["_flat_param"]
    original = fsdp(three_layers(), use_orig_params=True)
    names = [name.removeprefix("_fsdp_wrapped_module.") for name, _ in original.named_parameters()]
    assert names == ["0.weight", "1.weight", "2.weight"]


def test_frozen_parameters():
    def half_frozen():
        model = three_layers()
        model[0].requires_grad_(False)
        return model

    with pytest.raises(ValueError, match="uniform `requires_grad`"):
        fsdp(half_frozen())
    model = fsdp(half_frozen(), use_orig_params=True)
    _, backward = trace(model)
    assert sizes(backward, "scatter") == [("scatter", A + B + C)]  # the frozen one's gradient takes its place
    assert model._flat_param.grad.numel() == (A + B + C) / WORLD


def test_forward_of_a_submodule():
    model = fsdp(three_layers())
    model(torch.ones(2, 16)).sum().backward()
    with pytest.raises(RuntimeError):
        model.module[0](torch.ones(2, 16))


def test_flat_parameter_is_padded():
    model = fsdp(nn.Linear(5, 5))  # 30 elements for 8 ranks
    assert flat(model) == [4]
    with Log() as log:
        model(torch.ones(2, 5))
        assert sizes(log.take(), "gather") == [("gather", 32)]


def test_original_parameters_are_aligned():
    model = nn.ParameterList([nn.Parameter(torch.ones(elements)) for elements in (3, 5, 4, 1)])
    for size, expected in ((4, [0, 4, 12, 16]), (2, [0, 8, 16, 24])):
        dtype = torch.float32 if size == 4 else torch.bfloat16
        copy = nn.ParameterList([nn.Parameter(parameter.detach().to(dtype)) for parameter in model])
        root = fsdp(copy, use_orig_params=True)
        with FullyShardedDataParallel.summon_full_params(root):
            assert [parameter.storage_offset() for parameter in copy] == expected  # multiples of 16 bytes
    packed = fsdp(nn.ParameterList([nn.Parameter(torch.ones(elements)) for elements in (3, 5, 4, 1)]))
    assert packed._flat_param._unpadded_unsharded_size.numel() == 13


def test_ignored_states():
    model = three_layers()
    ignored = model[0].weight
    root = fsdp(model, ignored_states=[ignored])
    assert model[0].weight is ignored and ignored.shape == (16, 16)
    _, backward = trace(root)
    assert sizes(backward, "scatter", "reduce") == [("scatter", B + C)]
    assert ignored.grad.shape == (16, 16)
    with pytest.raises(ValueError, match="Cannot pass both"):
        fsdp(three_layers(), ignored_states=[], ignored_modules=[])


def test_meta_modules():
    class Filled(nn.Linear):
        def reset_parameters(self):
            nn.init.constant_(self.weight, 3.0)

    with torch.device("meta"):
        by_reset, by_function = Filled(16, 16, bias=False), nn.Linear(16, 16, bias=False)
    assert set(next(fsdp(by_reset).parameters()).tolist()) == {3.0}

    def fill(module):
        module.to_empty(device="cpu", recurse=False)
        if hasattr(module, "weight"):
            nn.init.constant_(module.weight, 5.0)

    assert set(next(fsdp(by_function, param_init_fn=fill).parameters()).tolist()) == {5.0}


def test_state_dict_type_warns():
    from torch.distributed.fsdp import StateDictType

    with (
        pytest.warns(FutureWarning, match="get_state_dict.*set_state_dict"),
        FullyShardedDataParallel.state_dict_type(wrapped(), StateDictType.FULL_STATE_DICT),
    ):
        pass
