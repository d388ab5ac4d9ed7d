"""The index of every release's API, and the releases themselves, against PyTorch 2.13.0 and its published history."""

import importlib
import inspect
import warnings

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge import api, releases

FULLY_SHARD = "torch.distributed.fsdp.fully_shard"


def parameters(name, release):
    call = api.signature(name, release)
    return None if call is None else [item[0] for item in call]


def test_releases_known():
    assert releases.known() == tuple(f"2.{minor}" for minor in range(16))
    assert releases.known()[-1] == releases.NEWEST and releases.known()[0] == releases.OLDEST


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.13", "2.13"),
        ("2.13.0", "2.13"),
        ("v2.13.0", "2.13"),
        ("2.13.0+cu126", "2.13"),
        (" 2.6.0\n", "2.6"),
        ("2.0.1", "2.0"),
        ("2.14.0.dev20260801", "2.14"),
        ("2.14.0a0+git1f2e3d4", "2.14"),
        ("2.12.0rc3", "2.12"),
    ],
)
def test_normalise(version, expected):
    assert releases.normalise(version) == expected


@pytest.mark.parametrize(
    "version",
    ["2.99", "2.16", "2.13.1", "2.6.1", "2.10.7", "1.13.1", "3.0", "2", "", "latest", "2.x", "2.13.0.0", "２.13"],
)
def test_releases_that_do_not_exist(version):
    with pytest.raises(UnusableInput, match=r"\.$"):
        releases.normalise(version)


def test_ranges():
    assert releases.within("2.10", "2.9-2.11") and releases.within("2.13.0+cpu", "2.3-2.5, 2.13")
    assert (
        not releases.within("2.2", "2.3-2.5")
        and not releases.within("", "2.0-2.15")
        and not releases.within("2.13", "")
    )
    assert releases.within("2.17.0", "2.6-2.15")  # later than this knowledge: the newest release answers
    assert releases.ranges(["2.3", "2.9", "2.10", "2.4", "2.5"]) == "2.3-2.5, 2.9-2.10"


def test_fsdp2_path():
    # 2.0 to 2.2 have only an unrelated prototype; the public path came with 2.6
    expected = {"2.2": "", "2.3": "torch.distributed._composable.fsdp", "2.5.1": "torch.distributed._composable.fsdp"}
    expected |= {"2.6": "torch.distributed.fsdp", "2.15.0": "torch.distributed.fsdp", "1.13": ""}
    for version, path in expected.items():
        assert releases.fsdp2_path(version) == path


def test_fully_shard_through_the_releases():
    """Release notes and sources: 2.6 shard_placement_fn, 2.7 ignored_params, 2.8 default None, 2.12 dp_mesh_dims."""
    assert not api.exists(FULLY_SHARD, "2.5")
    assert "ignored_params" not in parameters(FULLY_SHARD, "2.6")
    assert "ignored_params" in parameters(FULLY_SHARD, "2.7")
    assert dict(api.signature(FULLY_SHARD, "2.7"))["reshard_after_forward"] == "True"
    assert dict(api.signature(FULLY_SHARD, "2.8"))["reshard_after_forward"] == "None"
    assert "dp_mesh_dims" not in parameters(FULLY_SHARD, "2.11") and "dp_mesh_dims" in parameters(FULLY_SHARD, "2.12")
    assert api.since("torch.distributed._composable.fsdp.fully_shard") == "2.3-2.15"
    assert parameters("torch.distributed._composable.fsdp.fully_shard", "2.3") == [
        *("module", "*", "mesh", "reshard_after_forward", "mp_policy"),
    ]
    assert "param_dtype_override_fn" in parameters("torch.distributed.fsdp.MixedPrecisionPolicy", "2.15")
    assert "param_dtype_override_fn" not in parameters("torch.distributed.fsdp.MixedPrecisionPolicy", "2.14")
    assert api.since("torch.optim.Muon") == "2.9-2.15"
    assert api.since("torch.distributed.fsdp.FSDPModule.set_reshard_after_forward") == "2.8-2.15"


def test_what_the_index_says_of_nothing():
    assert (
        not api.exists("torch.distributed.nothing", "2.13")
        and api.signature("torch.distributed.nothing", "2.13") is None
    )
    assert api.since("torch.distributed.nothing") == "" and not api.exists('a"b', "2.13")
    assert api.signature("torch.distributed.fsdp.ShardingStrategy", "2.13") is None
    assert api.exists("torch.distributed.fsdp.ShardingStrategy.FULL_SHARD", "2.13")
    assert api.deprecated("torch.distributed.fsdp.FSDPModule.set_reduce_scatter_divide_factor", "2.13")


def resolve(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


# What Python inspects of these is a metaclass, a __new__ or __init__ that says less than the other, or an operator made of a function.
OF_THEIR_OWN = (
    "torch.distributed._shard.sharded_tensor.ShardedTensor",
    "torch.distributed.tensor.DTensor",
    "torch.distributed.tensor.experimental._context_parallel.flex_cp_allgather",
    "torch.utils.checkpoint.CheckpointFunction",
)


@pytest.mark.torch
def test_index_equals_2_13_0():
    """Every signature of the index that Python can inspect: the same names, and defaults in the same places."""
    torch = pytest.importorskip("torch", reason="compares with the real signatures")
    if not torch.__version__.startswith("2.13"):
        pytest.skip("another PyTorch than 2.13 is installed here")
    compared = 0
    missing = []
    for name in api.names():
        if not api.exists(name, "2.13"):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = resolve(name)
        except AttributeError:
            missing.append(name)
            continue
        call = api.signature(name, "2.13")
        if call is None or api.entry(name, "2.13").name in OF_THEIR_OWN:
            continue
        try:
            real = list(inspect.signature(found).parameters.values())
        except (ValueError, TypeError):
            continue
        bound = not inspect.isclass(found) and api.entry(name, "2.13").kind != "function"
        if real and bound and real[0].name in ("self", "cls"):
            real = real[1:]
        mine = [item for item in call if item[0] not in ("*", "/")]
        assert [item.name for item in real] == [item[0].lstrip("*") for item in mine], name
        assert [item.default is not item.empty for item in real] == [item[1] is not None for item in mine], name
        compared += 1
    assert compared > 1000
    # not there at run time: attributes that only instances have, backends that this build lacks, three errors of the stubs
    lacking = ("ProcessGroupNCCL", "ProcessGroupMPI", "ProcessGroupUCC", "ProcessGroupXCCL")
    lacking += ("AllreduceOptions.sparseIndices", "ReduceOp.UNUSED", "_distributed_c10d.Backend.get_error")
    lacking += ("torch.distributed.elastic.rendezvous.etcd_",)  # modules that need the package etcd
    assert [name for name in missing if not any(part in name for part in lacking) and not is_field(name)] == []


def is_field(name):
    """Whether a name is an annotated attribute of a class, which only instances have."""
    found = resolve(name.rpartition(".")[0])
    return any(
        name.rpartition(".")[2] in vars(base).get("__annotations__", {}) for base in getattr(found, "__mro__", ())
    )


# Read from the releases' own sources, by hand.
SINCE = {
    "torch.distributed.ReduceOp.AVG": "2.0-2.15",
    "torch.distributed._composable.replicate.replicate": "2.0-2.15",
    "torch.distributed._functional_collectives.all_gather_tensor": "2.1-2.15",
    "torch.distributed._functional_collectives.all_reduce": "2.1-2.15",
    "torch.distributed._symmetric_memory.enable_symm_mem_for_group": "2.5-2.15",
    "torch.distributed._tensor.init_device_mesh": "2.1-2.15",
    "torch.distributed._tools.fsdp2_mem_tracker.FSDPMemTracker": "2.5-2.15",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.apply_activation_checkpointing": "2.0-2.15",
    "torch.distributed.autograd.backward": "2.0-2.15",
    "torch.distributed.checkpoint.default_planner._EmptyStateDictLoadPlanner": "2.4-2.15",
    "torch.distributed.checkpoint.format_utils.dcp_to_torch_save": "2.3-2.15",
    "torch.distributed.device_mesh.DeviceMesh._flatten": "2.5-2.15",
    "torch.distributed.device_mesh.DeviceMesh._unflatten": "2.10-2.15",
    "torch.distributed.distributed_c10d._coalescing_manager": "2.0-2.15",
    "torch.distributed.fsdp.wrap.transformer_auto_wrap_policy": "2.0-2.15",
    "torch.distributed.launch": "2.0-2.15",
    "torch.distributed.rpc.RRef.to_here": "2.0-2.15",
    "torch.distributed.tensor.placement_types._StridedShard": "2.5-2.15",
    "torch.multiprocessing.spawn": "2.0-2.15",
    "torch.nn.parallel.DistributedDataParallel._set_static_graph": "2.0-2.15",
    "torch.nn.parallel.distributed.DistributedDataParallel": "2.0-2.15",
    "torch.testing._internal.distributed.fake_pg.FakeStore": "2.1-2.15",
    "torch.utils.data.DistributedSampler.set_epoch": "2.0-2.15",
}


def test_what_users_import_beside_the_public_names():
    assert {name: api.since(name) for name in SINCE} == SINCE


def test_deprecations_in_all_their_forms():
    # an object whose class warns; a docstring; arguments in docstrings, with the release; a warning of another change
    assert all(api.deprecated("torch.distributed.reduce_op", minor) for minor in releases.known())
    assert api.deprecated("torch.nn.utils.weight_norm", "2.13").startswith("This function is deprecated.")
    said = {minor: api.entry("torch.optim.lr_scheduler.LambdaLR", minor).warns for minor in releases.known()}
    verbose = "argument verbose is described as deprecated since 2.2"
    assert [minor for minor, warns in said.items() if verbose in warns] == ["2.2", "2.3", "2.4", "2.5", "2.6"]
    options = api.entry("torch.distributed.checkpoint.state_dict.StateDictOptions", "2.13")
    assert options.deprecated == "" and "argument keep_submodule_prefixes is described as deprecated" in options.warns
    step = api.entry("torch.amp.GradScaler.step", "2.13")
    assert step.deprecated == "" and step.warns[0].startswith("GradScaler is going to stop passing itself")
