"""The errors that guides copy from each other (MISSION, "Widely copied errors"): what Shardguide says instead, and that PyTorch agrees.

Each test asks the product, as a user does, and compares with PyTorch 2.13.0 itself where the question can be put to it.
"""

import ast
import importlib
import re

import pytest

from shardguide.guidance.serialise import to_dict
from shardguide.knowledge import api, pattern_store, releases
from shardguide.knowledge import backends as capabilities
from shardguide.workflows.explain import ExplainRequest, explain
from shardguide.workflows.fsdp2 import Fsdp2Request, fsdp2
from shardguide.workflows.join import JoinRequest, join
from shardguide.workflows.plan import PlanRequest, plan
from tests.docs.samples import LLAMA


def page(topic, release="2.13", **more):
    return to_dict(explain(ExplainRequest(topic, torch=release, **more)))


def said(topic, release="2.13"):
    """All statements of a page that hold for the release, by id."""
    topic = page(topic, release)["topic"]
    rows = [*topic["answer"], *(one for section in topic["sections"] for one in section["statements"])]
    return {one["id"]: one["text"] for one in rows}


def decision(record, name):
    return next(one for one in to_dict(record)["decisions"] if one["id"] == name)


def test_the_table_has_eight_columns_and_nccl_runs_everything_on_gpus_and_nothing_on_cpus():
    for release in releases.known():
        newest = releases.within(release, "2.10-2.15")
        for operation in capabilities.OPERATIONS:
            assert capabilities.cell(operation, "nccl", "cpu", release).mark == "n"
            assert capabilities.cell(operation, "nccl", "gpu", release).mark == "y"
        columns = capabilities.table(release).columns
        assert (
            len(columns) == 8 if newest else len(columns) in (6, 8)
        )  # xccl has columns of its own in later tables only


def test_classes_are_not_imported_as_modules():
    statements = said("join")
    assert {"join.import.ddp", "join.import.zero"} <= set(statements)
    for name in pattern_store.ids():
        for node in ast.walk(ast.parse(pattern_store.get(name).code)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    assert not alias.name.rpartition(".")[2][:1].isupper(), f"{name} imports a class as a module"


@pytest.mark.torch
def test_pytorch_refuses_to_import_these_classes_as_modules():
    for name in ("torch.nn.parallel.DistributedDataParallel", "torch.distributed.optim.ZeroRedundancyOptimizer"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


def test_fsdp_is_not_joinable():
    record = join(JoinRequest({"with": "fsdp", "uneven": "yes", "torch": "2.13"}))
    use = decision(record, "use")
    assert re.search(r"\bnot?\b", use["choice"].lower())
    assert any("Joinable" in reason for reason in use["because"])
    assert not any("Join([" in one["code"] and "fully_shard" in one["code"] for one in to_dict(record)["snippets"])


@pytest.mark.torch
def test_pytorch_agrees_that_fsdp_is_not_joinable():
    from torch.distributed.algorithms.join import Joinable
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    assert not issubclass(FullyShardedDataParallel, Joinable) and not issubclass(FSDPModule, Joinable)
    assert issubclass(DistributedDataParallel, Joinable) and issubclass(ZeroRedundancyOptimizer, Joinable)


@pytest.mark.parametrize("release", releases.known())
def test_from_which_release_on_there_is_fsdp2(release):
    """2.0 to 2.2: FSDP1 only; 2.3 to 2.5: at the private path; from 2.6 public. By the releases' own files, see docs api."""
    record = fsdp2(Fsdp2Request({"torch": release, "goal": "sharding", "using": "none"}))
    minor = int(release.split(".")[1])
    line = decision(record, "import")["choice"] if minor >= 3 else ""
    adopt = decision(record, "adopt")["choice"].lower()
    if minor < 3:
        assert "fsdp1" in adopt
    elif minor < 6:
        assert "torch.distributed._composable.fsdp" in line
    else:
        assert "from torch.distributed.fsdp import" in line and "_composable" not in line
    assert api.exists("torch.distributed.fsdp.fully_shard", release) == (minor >= 6)


def test_reshard_after_forward_defaults_to_none_since_2_8():
    for release, default in (("2.6", "True"), ("2.7", "True"), ("2.8", "None"), ("2.13", "None"), ("2.15", "None")):
        call = dict(api.signature("torch.distributed.fsdp.fully_shard", release))
        assert call["reshard_after_forward"] == default
    assert "fsdp2.reshard.default" in said("reshard-after-forward")


def test_old_import_paths_are_shown_to_old_releases_only():
    for name in pattern_store.ids():
        pattern = pattern_store.get(name)
        for release in releases.known():
            if pattern_store.offered(pattern, release) and releases.within(release, "2.6-2.15"):
                assert "_composable.fsdp" not in pattern_store.code_for(pattern, release), f"{name} for {release}"


def test_deprecations_come_and_go():
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor"):
        deprecated = [one for one in releases.known() if api.deprecated(f"torch.distributed.{name}", one)]
        assert deprecated == ["2.13", "2.14"]
    assert "coll.into_tensor.deprecated" in said("collectives", "2.13")
    assert "coll.into_tensor.deprecated" not in said("collectives", "2.15")


def test_the_documented_recipe_for_static_graphs_shows_nothing():
    assert "never shows the key" in said("ddp-static-graph")["ddp.static.recipe"]


def test_rank_0_needs_master_addr_too():
    assert "wrong" in said("init-env")["init.env.rank0_addr"]


@pytest.mark.torch
def test_pytorch_refuses_rank_0_without_master_addr(monkeypatch):
    import torch.distributed as dist

    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("MASTER_PORT", "29511")
    with pytest.raises(ValueError, match="MASTER_ADDR"):
        dist.init_process_group("gloo", rank=0, world_size=1)


def test_the_file_of_a_file_initialisation_goes_at_a_normal_exit_and_stays_after_a_hard_one():
    text = said("init-file")
    assert "left behind" in text["init.file.left"] and "normal exit" in text["init.file.removed"]


def test_the_multi_gpu_functions_are_gone():
    have = [one for one in releases.known() if api.exists("torch.distributed.all_reduce_multigpu", one)]
    assert have == ["2.0", "2.1"]
    assert "multigpu.gone" in said("multi-gpu-functions")


def test_adafactor_is_refused_under_fsdp2():
    record = to_dict(plan(PlanRequest(given=LLAMA | {"optimizer": "adafactor"})))
    assert any(check["result"] == "failed" and "Adafactor" in check["evidence"] for check in record["checks"])
    assert "optim.adafactor_fsdp2" in said("optimizer")


def test_the_group_that_join_compares_is_the_joinables():
    assert "Joinable's join_process_group" in said("join")["join.group.whose"]
