"""Workflow ``join``: against PyTorch's classes, the released sources' statements, and runs with several processes."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.serialise import to_dict
from shardguide.knowledge import releases
from shardguide.workflows.join import PARTS, JoinRequest, join
from shardguide.workflows.join.hooks import DDP, FSDP, ZERO, _is_joinable

BASE = {"torch": "2.13", "uneven": "yes", "on_exhausted": "drain", "collectives": "no"}


def ask(remembered: dict[str, Any] | None = None, site_packages: str | None = None, **given: str) -> dict[str, Any]:
    found: dict[str, Any] = to_dict(join(JoinRequest({"torch": "2.13", **given}, remembered or {}, site_packages)))
    return found


def answer(parts: str, **more: str) -> dict[str, Any]:
    return ask(**{**BASE, "with": parts, **more})


def decision(record: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in record["decisions"] if one["id"] == name)


def check(record: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in record["checks"] if one["id"] == name)


# --- the answers that PyTorch's documentation gives --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "more", "use"),
    [
        ("ddp", {}, "Join([model])"),
        ("ddp,zero", {}, "Join([model, set_gradients, optimizer])"),
        ("zero, ddp", {}, "Join([model, set_gradients, optimizer])"),  # the order is the iteration's, not the user's
        ("ddp,zero", {"on_exhausted": "stop"}, "Join([model, optimizer], throw_on_early_termination=True)"),
        ("own", {}, "Join([own])"),
        ("ddp,own", {"on_exhausted": "stop"}, "Join([model, own], throw_on_early_termination=True)"),
        ("ddp", {"collectives": "yes"}, "Join([model], throw_on_early_termination=True)"),
        ("ddp", {"skew": "large"}, "Join([model], divide_by_initial_world_size=False)"),
        ("ddp", {"skew": "large", "on_exhausted": "stop"}, "Join([model], throw_on_early_termination=True)"),
        ("ddp", {"uneven": "no"}, "no Join is needed"),
        ("fsdp", {}, "no Join: FSDP is not Joinable"),
        ("ddp,fsdp", {}, "no Join: FSDP is not Joinable"),
    ],
)
def test_the_call_for_a_loop(parts: str, more: dict[str, str], use: str) -> None:
    record = answer(parts, **more)
    assert record["status"] == "complete" and record["questions"] == []
    assert decision(record, "use")["choice"] == use
    assert record["approval"]["asked"]  # W2.5: asked for, before anything is used


def test_the_bare_forms_that_train_wrongly_are_not_recommended() -> None:
    """What tests/patterns/test_join.py and the witnesses show by running: each is said in the answer, with its claim."""
    bare = decision(answer("ddp,zero"), "use")
    assert {"join.zero.stale", "join.zero.order", "join.ddp.optimizer"} <= set(bare["sources"])
    assert any(
        one["choice"] == "Join([model, optimizer])" and "wrong parameters" in one["why_not"]
        for one in bare["instead_of"]
    )
    order = decision(answer("ddp,zero"), "order")
    assert order["choice"] == "[model, set_gradients, optimizer]" and "join.zero.order" in order["sources"]
    alone = decision(answer("ddp"), "use")
    assert any("one epoch only" in reason for reason in alone["because"]) and "join.ddp.optimizer" in alone["sources"]
    for parts in ("ddp", "ddp,zero", "own"):
        for stop in ("drain", "stop"):
            assert "join.stays_on" in decision(answer(parts, on_exhausted=stop), "use")["sources"]
    assert "join.stays_on" not in decision(answer("ddp", uneven="no"), "use")["sources"]


def test_enable_is_off_only_for_inputs_known_to_be_even() -> None:
    for uneven, choice in (("yes", "True"), ("unknown", "True"), ("no", "False")):
        assert decision(answer("ddp", uneven=uneven), "enable")["choice"].startswith(choice)


def test_other_collectives_make_it_throw_whatever_was_wished() -> None:
    """DistributedDataParallel.join's warning: with SyncBatchNorm and the like the flag must be on."""
    record = answer("ddp", collectives="yes", on_exhausted="drain")
    chosen = decision(record, "throw_on_early_termination")
    assert chosen["choice"] == "True" and chosen["open"]
    assert "join.throw.when" in chosen["sources"]
    assert any("not possible" in note for note in record["notes"])


def test_the_divisor_is_ddps_own() -> None:
    assert {one["id"] for one in answer("own")["decisions"]}.isdisjoint({"divide_by_initial_world_size"})
    assert decision(answer("ddp", on_exhausted="stop"), "divide_by_initial_world_size")["choice"] == "left alone"
    assert decision(answer("ddp"), "divide_by_initial_world_size")["choice"].startswith("True")


def test_fsdp_is_told_what_to_do_in_its_place() -> None:
    stop, drain = answer("fsdp", on_exhausted="stop"), answer("fsdp", on_exhausted="drain")
    assert decision(stop, "instead")["choice"].startswith("agree on the number of steps")
    assert decision(drain, "instead")["choice"].startswith("pad")
    assert {one["id"] for one in stop["decisions"]} == {"use", "instead"}
    assert stop["shadowed"] == [] and check(stop, "joinable")["result"] == "passed"


@pytest.mark.parametrize(
    ("parts", "more", "shown"),
    [
        ("ddp", {}, ["join-ddp"]),
        ("ddp,zero", {}, ["join-ddp-zero"]),
        ("ddp,zero,own", {"on_exhausted": "stop"}, ["join-throw-early", "join-ddp-zero", "join-own-joinable"]),
        ("ddp", {"uneven": "no"}, ["join-enable-off", "join-ddp"]),
        ("fsdp", {"on_exhausted": "drain"}, ["fsdp2-uneven-inputs-pad", "fsdp2-uneven-inputs-agree"]),
        ("fsdp", {"uneven": "no"}, []),
    ],
)
def test_code_for_a_loop(parts: str, more: dict[str, str], shown: list[str]) -> None:
    assert [one["id"] for one in answer(parts, **more)["snippets"]] == shown


def test_several_groups_are_refused() -> None:
    record = answer("ddp,own", groups="several")
    assert check(record, "process_group")["result"] == "failed" and record["approval"]["asked"] == ""


# --- questions, refusals -------------------------------------------------------------------------------------------------


def test_what_is_missing_is_asked_and_nothing_more() -> None:
    def asked(**given: str) -> list[str]:
        return [one["id"] for one in ask(**given)["questions"]]

    assert asked() == ["with", "uneven", "on_exhausted"]
    assert asked(**{"with": "ddp"}) == ["uneven", "on_exhausted", "collectives"]
    assert asked(**{"with": "ddp", "uneven": "no"}) == []
    assert asked(**{"with": "fsdp", "uneven": "yes"}) == ["on_exhausted"]
    record = ask(**{"with": "ddp", "uneven": "yes"})
    assert record["status"] == "needs_answers" and record["approval"]["asked"] == ""
    assert all(one["why"] and one["choices"] for one in record["questions"])


def test_a_release_that_is_not_known_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardguide.workflows.release.installed", lambda path: [])
    record = to_dict(join(JoinRequest({"with": "ddp", "uneven": "no"})))
    assert [one["id"] for one in record["questions"]] == ["torch"] and record["decisions"] == []


@pytest.mark.parametrize(
    "given",
    [
        {"with": "horovod"},
        {"with": ", ,"},
        {"with": "ddp," * 200},
        {"uneven": "perhaps so"},
        {"on_exhausted": "explode"},
        {"collectives": "unknown"},
        {"skew": "7"},
        {"groups": "no"},
        {"torch": "9.9"},
    ],
)
def test_what_cannot_be_meant(given: dict[str, str]) -> None:
    with pytest.raises(UnusableInput) as refused:
        ask(**given)
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value) and len(str(refused.value)) < 300


def test_other_spellings() -> None:
    record = answer("DistributedDataParallel, ZeroRedundancyOptimizer", on_exhausted="throw")
    assert record["answers"]["with"]["value"] == "ddp,zero" and record["answers"]["on_exhausted"]["value"] == "stop"
    assert answer("fully_shard")["answers"]["with"]["value"] == "fsdp"


# --- sources and checks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", releases.known())
def test_every_decision_has_a_source_that_is_found(release: str) -> None:
    """In each release, for each kind of loop."""
    for parts, uneven, exhausted, others in itertools.product(
        ("ddp", "ddp,zero", "own", "ddp,zero,own", "fsdp"), ("yes", "no"), ("drain", "stop"), ("yes", "no")
    ):
        record = answer(parts, torch=release, uneven=uneven, on_exhausted=exhausted, collectives=others)
        listed = {one["id"] for one in record["sources"]}
        for one in record["decisions"]:
            assert one["sources"] and set(one["sources"]) <= listed, (parts, one["id"])
        assert check(record, "sources")["result"] == "passed", record["not_done"]
        assert check(record, "hooks")["result"] == ("unknown" if "own" in parts and uneven == "yes" else "passed")
        json.dumps(record)


def test_the_parts_are_explained() -> None:
    """W2.1 names them; each explanation speaks of its part."""
    parts = {one["name"]: one["text"] for one in ask()["parts"]}
    assert set(parts) == {name for name, _ in PARTS}
    assert {"Join", "Joinable", "JoinHook", "JoinHook.main_hook", "JoinHook.post_hook"} <= set(parts)
    for name, text in parts.items():
        assert name.rpartition(".")[2] in text


def test_own_classes_are_not_vouched_for() -> None:
    record = answer("ddp,own")
    assert check(record, "hooks")["result"] == "unknown" and "one by one" in check(record, "hooks")["evidence"]
    assert [one["result"] for one in record["shadowed"] if one["joinable"] == "your own class"] == ["unknown"]
    assert record["approval"]["asked"]  # unknown is no refusal


@pytest.mark.torch
def test_a_statement_that_is_gone_is_noticed(tmp_path: Path) -> None:
    """A PyTorch whose DDP hook no longer says what it shadows: the check does not pass."""
    pytest.importorskip("torch", reason="copies PyTorch's sources")
    import torch

    installed = Path(torch.__file__).parent
    for name in (
        "version.py",
        "nn/parallel/distributed.py",
        "distributed/algorithms/join.py",
        "distributed/optim/zero_redundancy_optimizer.py",
    ):
        target = tmp_path / "torch" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((installed / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "torch" / "__init__.py").write_text("", encoding="utf-8")
    ddp = tmp_path / "torch" / "nn" / "parallel" / "distributed.py"
    ok = to_dict(join(JoinRequest({**BASE, "with": "ddp"}, {}, str(tmp_path))))
    assert check(ok, "hooks")["result"] == "passed" and ok["torch"]["path"]
    text = ddp.read_text(encoding="utf-8")
    start, end = text.index("class _DDPJoinHook"), text.index("class DistributedDataParallel(")
    ddp.write_text(
        text[:start] + "class _DDPJoinHook(JoinHook):\n    def main_hook(self):\n        pass\n\n\n" + text[end:],
        encoding="utf-8",
    )
    broken = to_dict(join(JoinRequest({**BASE, "with": "ddp"}, {}, str(tmp_path))))
    assert check(broken, "hooks")["result"] == "unknown"
    assert "not confirmed" in check(broken, "hooks")["evidence"]


# --- PyTorch itself --------------------------------------------------------------------------------------------------------


@pytest.mark.torch
def test_who_is_joinable_is_what_pytorch_says() -> None:
    pytest.importorskip("torch", reason="asks PyTorch")
    from torch.distributed.algorithms.join import Joinable
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    for name, real in (
        (DDP, DistributedDataParallel),
        (ZERO, ZeroRedundancyOptimizer),
        (FSDP[0], FullyShardedDataParallel),
        (FSDP[1], FSDPModule),
    ):
        assert _is_joinable(name, "2.13") is issubclass(real, Joinable)


@pytest.mark.torch
def test_every_collective_of_an_iteration_is_in_the_table() -> None:
    """DDP's and ZeRO's collectives under Join on one process, counted by the tensors that they communicate."""
    pytest.importorskip("torch", reason="runs PyTorch")
    script = """
import os, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
seen = []
for name in ("all_reduce", "broadcast"):
    real = getattr(dist, name)
    def noted(tensor, *args, _real=real, _name=name, **more):
        seen.append((_name, tensor.numel()))
        return _real(tensor, *args, **more)
    setattr(dist, name, noted)
model = DistributedDataParallel(torch.nn.Linear(3, 2))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
for throws in (False, True):
    with Join([model, optimizer], throw_on_early_termination=throws):
        seen.clear()
        model(torch.ones(1, 3)).sum().backward()
        forward = list(seen)
        optimizer.step()
        step = seen[len(forward):]
    print(throws, forward, step)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    drain, throw = out.stdout.splitlines()
    one = "('all_reduce', 1)"
    # Join's own and the agreement to synchronise; a module without buffers broadcasts none, the reducer's buckets go past Python.
    assert drain.startswith(f"False [{one}, {one}]") and throw.startswith(f"True [{one}, {one}, {one}]")
    for exhausted, count in (("drain", 2), ("stop", 3)):
        rows = answer("ddp,zero", on_exhausted=exhausted)["shadowed"]
        single = [row for row in rows if "one element" in row["collective"] and row["joinable"] == DDP]
        assert len(single) == count


@pytest.mark.torch
def test_the_order_of_the_list_matters(tmp_path: Path) -> None:
    """[model, optimizer] finishes with equal replicas; [optimizer, model] does not finish, as the decision says."""
    pytest.importorskip("torch", reason="runs PyTorch")
    script = """
import datetime, os, sys, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def work(rank, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=3))
    for turned in (False, True):
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(1, 1))
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
        try:
            with Join([optimizer, model] if turned else [model, optimizer]):
                for _ in range(3 + rank):
                    model(torch.ones(1, 1)).sum().backward()
                    optimizer.step()
        except RuntimeError:
            os.write(1, f"HUNG {turned}\\n".encode())
            os._exit(0)
        mine = model.module.weight.detach().clone()
        both = [torch.empty_like(mine) for _ in range(2)]
        dist.all_gather(both, mine)
        os.write(1, f"DONE {turned} {bool(torch.equal(*both))}\\n".encode())


if __name__ == "__main__":
    mp.start_processes(work, (sys.argv[1],), 2, start_method="fork")
"""
    file = tmp_path / "order.py"
    file.write_text(script, encoding="utf-8")
    out = subprocess.run(
        [sys.executable, str(file), str(tmp_path / "store")], capture_output=True, text=True, timeout=120
    )
    assert out.stdout.count("DONE False True") == 2, out.stdout + out.stderr
    assert "DONE True" not in out.stdout and "HUNG True" in out.stdout
    assert "It hangs" in decision(answer("ddp,zero"), "order")["instead_of"][0]["why_not"]


# --- the command -------------------------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "shardguide", "join", *arguments, "--torch", "2.13", "--no-input", "--notebook", str(tmp_path / "n.db")],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    missing = run("--with", "ddp", "--json")
    assert missing.returncode == 3 and json.loads(missing.stdout)["workflow"] == "join"
    text = run("--with", "fsdp", "--uneven", "yes", "--on-exhausted", "stop")
    assert text.returncode == 0 and text.stdout.startswith("Uneven inputs: no Join: FSDP is not Joinable")
    refused = run("--with", "nothing")
    assert refused.returncode == 2 and refused.stdout == "" and refused.stderr.count("\n") == 1
