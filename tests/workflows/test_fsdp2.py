"""Workflow ``fsdp2``: against PyTorch's own signatures, the API of every release, and runs of what the mapping says."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.serialise import to_dict
from shardguide.knowledge import api, claims_store, fsdp2_mapping, pattern_store, releases
from shardguide.knowledge.snippets.verify import verify
from shardguide.workflows.fsdp2 import Fsdp2Request, fsdp2, tables
from shardguide.workflows.fsdp2.adopt import Case, adopt, line
from shardguide.workflows.fsdp2.fields import GOALS
from shardguide.workflows.fsdp2.goals import GOALS as SAID

ROOT = Path(__file__).resolve().parent.parent.parent
# MISSION, W5.3: below 2.3 FSDP1 only, 2.3 to 2.5 in a private module, from 2.6 on public.
WHERE = {
    "2.0": "", "2.1": "", "2.2": "",
    "2.3": "torch.distributed._composable.fsdp", "2.4": "torch.distributed._composable.fsdp", "2.5": "torch.distributed._composable.fsdp",
}  # fmt: skip


def ask(remembered: dict[str, Any] | None = None, **given: str) -> dict[str, Any]:
    found: dict[str, Any] = to_dict(fsdp2(Fsdp2Request({"torch": "2.13", **given}, remembered or {})))
    return found


def decision(record: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in record["decisions"] if one["id"] == name)


def check(record: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in record["checks"] if one["id"] == name)


# --- by release ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", releases.known())
def test_adoption_by_release(release: str) -> None:
    record = ask(torch=release, goal="sharding")
    home = WHERE.get(release, "torch.distributed.fsdp")
    chosen, imported = decision(record, "adopt"), decision(record, "import")
    if not home:
        assert chosen["choice"].startswith(f"not in PyTorch {release}") and "fully_shard" not in imported["choice"]
        assert any("is another function" in reason for reason in chosen["because"])  # 2.0's _composable.fully_shard
        assert all(one["choice"].startswith("not with FSDP2") for one in record["decisions"][3:])
    elif home == "torch.distributed.fsdp":
        assert chosen["choice"] == "yes: fully_shard" and imported["choice"].startswith(
            f"from {home} import fully_shard"
        )
    else:
        assert chosen["choice"].startswith("after an upgrade to 2.6") and chosen["open"]
        assert imported["choice"].startswith(f"from {home} import fully_shard")
    assert check(record, "documentation")["result"] == "passed" and record["approval"]["asked"]
    snippet = next(one for one in record["snippets"] if one["id"] == "import")
    assert verify(snippet["code"], release) == (True, True, "")


@pytest.mark.torch
def test_the_import_line_works() -> None:
    pytest.importorskip("torch", reason="imports it")
    for release in ("2.13", "2.4"):  # the private path of 2.4 is still there
        (statement,) = ast.parse(line(Case(release, releases.fsdp2_path(release), "", ()))).body
        assert isinstance(statement, ast.ImportFrom) and len(statement.names) == 5
        module = importlib.import_module(str(statement.module))
        assert all(hasattr(module, one.name) for one in statement.names)


@pytest.mark.parametrize("release", releases.known())
def test_every_decision_has_a_source(release: str) -> None:
    for using in ("", "fsdp1", "fsdp2", "ddp", "none"):
        given = {"using": using} if using else {}
        record = ask(torch=release, goal=",".join(GOALS), **given)
        listed = {one["id"] for one in record["sources"]}
        for one in record["decisions"]:
            assert one["sources"] and set(one["sources"]) <= listed, one["id"]
        assert not any(text.startswith("not confirmed") for text in record["not_done"])
        assert len(record["decisions"]) == 3 + len(GOALS)
        json.dumps(record)


@pytest.mark.parametrize("release", ["2.3", "2.6", "2.12"])
def test_what_is_not_there_yet_is_said(release: str) -> None:
    record = ask(torch=release, goal="sharding,memory,pipeline,tensor-parallel")
    text = json.dumps(record["decisions"])
    for one in record["comparison"]:
        assert one["in_release"] == releases.within(release, one["fsdp2_releases"])
    assert ("shard_placement_fn" in json.dumps(record["comparison"])) and (
        "Not in PyTorch 2.3 yet: Sharding on another dimension" in text
    ) == (release == "2.3")


def test_using_changes_the_advice() -> None:
    assert decision(ask(goal="memory", using="ddp"), "adopt")["open"]
    assert decision(ask(goal="memory", using="fsdp1"), "adopt")["choice"] == "yes: migrate to fully_shard"
    assert decision(ask(goal="memory", using="fsdp2"), "adopt")["choice"].startswith("it is in use")
    assert ask(goal="memory")["mapping"] == [] and ask(goal="memory", using="fsdp1")["mapping"]


@pytest.mark.parametrize("release", ["2.4", "2.13"])
def test_from_ddp_nothing_of_fsdp1_is_said(release: str) -> None:
    record = ask(torch=release, goal="migrate", using="ddp")
    assert record["mapping"] == [] and not any("FSDP1" in note for note in record["notes"])
    said = " ".join(decision(record, "migrate")["because"])
    for name in (
        "model.module",
        "no_sync",
        "find_unused_parameters",
        "device_ids",
        "static_graph",
        "broadcast_from_rank0",
    ):
        assert (name in said) == (name != "find_unused_parameters" or release == "2.13"), name
    assert "FSDP1" not in said


# --- questions, refusals ----------------------------------------------------------------------------------------------------


def test_what_is_missing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    record = ask()
    assert [one["id"] for one in record["questions"]] == ["goal"] and record["approval"]["asked"] == ""
    assert decision(record, "adopt")["choice"] == "yes: fully_shard"  # what is known is answered
    monkeypatch.setattr("shardguide.workflows.release.installed", lambda path: [])
    record = to_dict(fsdp2(Fsdp2Request({"goal": "memory"})))
    assert [one["id"] for one in record["questions"]] == ["torch"]
    assert record["decisions"] == [] and record["comparison"]


@pytest.mark.parametrize(
    "given", [{"goal": "speed"}, {"goal": ","}, {"goal": "memory," * 100}, {"using": "horovod"}, {"torch": "1.13"}]
)
def test_what_cannot_be_meant(given: dict[str, str]) -> None:
    with pytest.raises(UnusableInput) as refused:
        ask(**given)
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value)


def test_other_spellings() -> None:
    assert (
        ask(goal="DCP, tp, torch.compile, LoRA")["answers"]["goal"]["value"]
        == "compile,checkpoint,tensor-parallel,frozen"
    )


# --- the tables ----------------------------------------------------------------------------------------------------------------


def test_the_table_is_current() -> None:
    if sys.version_info < (3, 11):
        pytest.skip("the script needs tomllib, of Python 3.11")
    out = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "build_mapping.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert out.returncode == 0, out.stdout + out.stderr


def _mapped(kind: str) -> set[str]:
    """What the FSDP1 sides of the rows use, from the names in them."""
    return {name for row in fsdp2_mapping.rows() for name in row.names1 if kind in name}


@pytest.mark.torch
def test_every_argument_of_fsdp1_is_mapped() -> None:
    pytest.importorskip("torch", reason="asks PyTorch")
    from torch.distributed.fsdp import (
        BackwardPrefetch,
        CPUOffload,
        FullyShardedDataParallel,
        MixedPrecision,
        ShardingStrategy,
        StateDictType,
    )

    parameters = set(inspect.signature(FullyShardedDataParallel.__init__).parameters) - {"self"}
    assert parameters == {name[25:-1] for name in _mapped("FullyShardedDataParallel(")} - {
        "ignored_parameters"
    }  # of 2.0
    ids = {row.id for row in fsdp2_mapping.rows()}
    assert {f"sharding_strategy.{one.name}" for one in ShardingStrategy} <= ids
    assert {f"backward_prefetch.{one.name}" for one in BackwardPrefetch} | {"backward_prefetch.None"} <= ids
    assert {f"state_dict_type.{one.name}" for one in StateDictType} <= ids
    everything = " ".join(row.fsdp1 for row in fsdp2_mapping.rows())
    for kind in (MixedPrecision, CPUOffload):
        for field in kind.__dataclass_fields__:
            assert field in everything, field


@pytest.mark.torch
def test_every_method_and_class_of_fsdp1_is_mapped() -> None:
    pytest.importorskip("torch", reason="asks PyTorch")
    import torch.distributed.fsdp
    from torch.distributed.fsdp import FullyShardedDataParallel, wrap

    everything = " ".join(f"{row.fsdp1} {' '.join(row.names1)}" for row in fsdp2_mapping.rows())
    methods = [name for name in vars(FullyShardedDataParallel) if not name.startswith("_")]
    assert len(methods) > 20
    for name in methods:
        assert re.search(rf"\b{name}\b", everything), name
    exported = set(torch.distributed.fsdp.__all__)
    fsdp2_side = {
        name
        for name in exported
        if name.endswith(("Policy", "Handle", "MeshDims"))
        or name.startswith(("FSDPModule", "fully_", "register_", "share_"))
    }
    for name in exported - fsdp2_side:
        assert re.search(rf"\b{name}\b", everything), name
    policies = [
        name
        for name, value in vars(wrap).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == wrap.__name__
    ]
    assert "ModuleWrapPolicy" in policies
    for name in policies:
        assert re.search(rf"\b{name}\b", everything), name


@pytest.mark.torch
def test_names_of_the_fsdp2_side_exist() -> None:
    """In PyTorch 2.13.0 itself, not only in the index: every name, every parameter."""
    pytest.importorskip("torch", reason="asks PyTorch")
    import pydoc

    looked_up = 0
    for row in (*fsdp2_mapping.rows(), *fsdp2_mapping.features()):
        for name in row.names2:
            assert releases.within("2.13", row.releases2)
            dotted, _, parameter = name.split("|")[0].rstrip(")").partition("(")
            found = pydoc.locate(dotted if dotted.startswith("torch.") else f"torch.distributed.fsdp.{dotted}")
            assert found is not None, name
            if parameter:
                assert parameter in inspect.signature(found).parameters, name  # type: ignore[arg-type]
            looked_up += 1
    assert looked_up > 100


def test_releases_are_those_of_the_api() -> None:
    """Fixed points read in PyTorch's own sources and release notes."""
    rows = {row.id: row for row in fsdp2_mapping.rows()}
    features = {one.id: one for one in fsdp2_mapping.features()}
    assert rows["ignored_states"].releases2 == "2.7-2.15"  # ignored_params came with 2.7
    assert rows["cpu_offload"].releases2 == "2.4-2.15"
    assert rows["device_mesh"].releases1 == "2.2-2.15"
    assert features["shard_dimension"].releases2 == "2.6-2.15"
    assert features["reshard_setter"].releases2 == "2.8-2.15"
    assert features["communication"].releases2 == "2.9-2.15"
    assert features["pipeline_streams"].releases2 == "2.10-2.15"
    assert features["spmd_mesh"].releases2 == "2.12-2.15"
    assert features["recovery"].releases2 == "2.13-2.15"
    assert all(releases.ranges([*releases.known()][3:]) == row.releases2 or row.releases2 for row in rows.values())


def test_claims_of_the_tables_exist_and_speak_of_the_side() -> None:
    for row in (*fsdp2_mapping.rows(), *fsdp2_mapping.features()):
        assert row.claims and len(set(row.claims)) == len(row.claims)
        for claim in row.claims:
            claims_store.get(claim)


def test_code_in_the_mapping_is_of_the_release() -> None:
    """Calls that the FSDP2 side spells out take the keywords that the newest release takes."""
    known = {
        "fully_shard": "torch.distributed.fsdp.fully_shard",
        "MixedPrecisionPolicy": "torch.distributed.fsdp.MixedPrecisionPolicy",
        "CPUOffloadPolicy": "torch.distributed.fsdp.CPUOffloadPolicy",
        "StateDictOptions": "torch.distributed.checkpoint.state_dict.StateDictOptions",
        "set_model_state_dict": "torch.distributed.checkpoint.state_dict.set_model_state_dict",
        "set_optimizer_state_dict": "torch.distributed.checkpoint.state_dict.set_optimizer_state_dict",
        "get_model_state_dict": "torch.distributed.checkpoint.state_dict.get_model_state_dict",
        "get_optimizer_state_dict": "torch.distributed.checkpoint.state_dict.get_optimizer_state_dict",
        "init_device_mesh": "torch.distributed.device_mesh.init_device_mesh",
    }
    checked = 0
    for row in fsdp2_mapping.rows():
        try:
            tree = ast.parse(row.fsdp2.replace("…", "None").removeprefix("mesh="))
        except SyntaxError:
            continue  # words
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known:
                accepted = {name for name, _ in api.signature(known[node.func.id], "2.15") or ()}
                assert {keyword.arg for keyword in node.keywords} <= accepted, row.id
                checked += 1
    assert checked >= 8


def test_a_name_that_is_not_in_the_release_fails_the_check() -> None:
    features = fsdp2_mapping.features()
    slip = features[0]._replace(names2=("fully_shard(auto_wrap_policy)",))
    count, absent = tables.missing([slip, *features[1:]], [], "2.13")
    assert count > 20 and absent == ["fully_shard(auto_wrap_policy)"]
    failed = tables.documentation(count, absent, "2.13", None)
    assert failed.result == "failed" and failed.refuses and "auto_wrap_policy" in failed.evidence


def test_every_goal_is_decided_and_its_features_exist() -> None:
    assert tuple(SAID) == GOALS
    known = {one.id for one in fsdp2_mapping.features()}
    for goal in SAID.values():
        assert set(goal.features) <= known and goal.because
        assert set(goal.patterns) <= set(pattern_store.ids())


@pytest.mark.parametrize("release", ["2.1", "2.4", "2.8", "2.13", "2.15"])
def test_code_is_shown_that_the_release_can_run(release: str) -> None:
    record = ask(torch=release, goal=",".join(GOALS))
    shown = {one["id"]: one for one in record["snippets"]}
    assert ("fsdp1-shard" in shown) == (release == "2.1") and ("fsdp2-shard" in shown) == (release != "2.1")
    for name in shown.keys() - {"import"}:
        assert pattern_store.offered(pattern_store.get(name), release), name


def test_spellings_of_older_releases() -> None:
    rows = {row["id"]: row for row in ask(torch="2.3", using="fsdp1", goal="migrate")["mapping"]}
    assert "FSDP from torch.distributed._composable.fsdp" in rows["isinstance"]["fsdp2"]
    assert "ignored_parameters" not in rows and not rows["ignored_states"]["in_release"]
    assert "True, the default" in rows["sharding_strategy.FULL_SHARD"]["fsdp2"]
    assert (
        "None is True"
        in {row["id"]: row for row in ask(using="fsdp1", goal="migrate")["mapping"]}["sharding_strategy.FULL_SHARD"][
            "fsdp2"
        ]
    )


def test_no_counterpart_is_said_before_a_migration() -> None:
    reasons = " ".join(decision(ask(using="fsdp1", goal="migrate"), "adopt")["because"])
    for lost in ("NO_SHARD", "buffer_dtype", "register_comm_hook", "LOCAL_STATE_DICT", "size_based_auto_wrap_policy"):
        assert lost in reasons


def test_adopt_alone_for_a_release_with_everything() -> None:
    made = adopt(Case("2.15", "torch.distributed.fsdp", "", ("memory",)), [], [])
    assert not any("came later" in reason for reason in made.because)


# --- what the mapping says, run ------------------------------------------------------------------------------------------------


@pytest.mark.torch
def test_what_the_mapping_says_is_so(tmp_path: Path) -> None:
    """On 2.13.0 with 2 processes: the statements of the mapping that say how something behaves."""
    pytest.importorskip("torch", reason="runs PyTorch")
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor


def raised(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return ""


class Buffered(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("held", torch.full((4,), value))

    def forward(self, x):
        return self.linear(x) + self.held.to(x.dtype)


def work(rank, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    said = {}
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].weight.requires_grad_(False)
    said["in place"] = fully_shard(model, mesh=mesh) is model and isinstance(model, FSDPModule)
    said["names"] = [name for name, _ in model.named_parameters()] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    model(torch.ones(2, 4)).sum().backward()
    said["frozen mixes"] = model[0].weight.grad is None and model[1].weight.grad is not None
    said["norm is a DTensor"] = isinstance(nn.utils.clip_grad_norm_(model.parameters(), 1.0), DTensor)
    said["sharded state dict"] = all(isinstance(one, DTensor) for one in model.state_dict().values())
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    said["full on rank 0"] = len(whole) == (4 if rank == 0 else 0)
    ones = {name: torch.ones_like(value) for name, value in whole.items()}
    set_model_state_dict(model, ones, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    said["broadcast"] = model[1].weight.full_tensor().sum().item() == 16
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler.scale(model(torch.ones(2, 4)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    said["scaler"] = model[1].weight.full_tensor().sum().item() != 16
    shard = model[1].weight.to_local().clone()
    model.unshard()
    with torch.no_grad():
        model[1].weight.fill_(7.0)
    model.reshard()
    said["written is lost"] = torch.equal(shard, model[1].weight.to_local())
    seen = []
    model.apply(lambda module: seen.extend(type(one).__name__ for one in module.parameters(recurse=False)))
    said["apply sees DTensors"] = set(seen) == {"DTensor"}
    said["bare forward"] = raised(lambda: fully_shard(nn.Linear(4, 4), mesh=mesh).forward(torch.ones(1, 4))) == "RuntimeError"
    low = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    buffered = fully_shard(Buffered(float(rank)), mesh=mesh, mp_policy=low)
    buffered(torch.ones(1, 4)).sum().backward()
    said["buffers left alone"] = buffered.held.dtype == torch.float32 and buffered.held[0].item() == rank
    said["gradient dtype"] = buffered.linear.weight.grad.dtype == torch.float32
    said["no policy is not None"] = raised(lambda: fully_shard(nn.Linear(4, 4), mesh=mesh, mp_policy=None)(torch.ones(1, 4))) == "AttributeError"
    linear = nn.Linear(4, 4)
    before = linear.weight
    fully_shard(linear, mesh=mesh)
    said["parameters are replaced"] = linear.weight is not before
    mine = [dist.new_group([one]) for one in range(2)][rank]
    pair = DeviceMesh.from_group([mine, dist.group.WORLD], "cpu", mesh=torch.tensor([[0, 1]]), mesh_dim_names=("replicate", "shard"))
    said["mesh of groups"] = raised(lambda: fully_shard(nn.Linear(4, 4), mesh=pair)) == ""
    said["mesh of one group"] = raised(lambda: fully_shard(nn.Linear(4, 4), mesh=DeviceMesh.from_group(dist.group.WORLD, "cpu"))) == ""
    wrapped = FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"))
    said["fsdp1 full"] = wrapped.state_dict()["weight"].shape == (4, 4)
    order = [type(module).__name__ for module in reversed(list(nn.Sequential(nn.Sequential(nn.Linear(1, 1))).modules()))]
    said["reversed is bottom-up"] = order == ["Linear", "Sequential", "Sequential"]
    wrong = [name for name, so in said.items() if not so]
    os.write(1, f"{len(said)} looked at, wrong: {wrong}\\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(work, (sys.argv[1],), 2, start_method="fork")
"""
    file = tmp_path / "said.py"
    file.write_text(script, encoding="utf-8")
    out = subprocess.run(
        [sys.executable, str(file), str(tmp_path / "store")], capture_output=True, text=True, timeout=180
    )
    assert out.stdout.count("19 looked at, wrong: []") == 2, out.stdout + out.stderr[-3000:]


# --- the command ------------------------------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "shardguide", "fsdp2", *arguments, "--no-input", "--notebook", str(tmp_path / "n.db")],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    missing = run("--torch", "2.13", "--json")
    assert missing.returncode == 3 and json.loads(missing.stdout)["workflow"] == "fsdp2"
    text = run("--torch", "2.13", "--goal", "migrate", "--using", "fsdp1")
    assert text.returncode == 0 and text.stdout.startswith("FSDP2: yes: migrate to fully_shard")
    short = run("--torch", "2.13", "--goal", "compile", "--using", "fsdp1")
    assert "limit_all_gathers=True" in text.stdout and "limit_all_gathers=True" not in short.stdout
    shown = run("--torch", "2.5", "--goal", "memory", "--show", "import")
    assert "torch.distributed._composable.fsdp" in shown.stdout and shown.returncode == 0
    refused = run("--goal", "speed")
    assert refused.returncode == 2 and refused.stdout == "" and refused.stderr.count("\n") == 1
