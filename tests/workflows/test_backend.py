"""Workflow ``backend``: the choice by host, each operation against the table, the build against the device."""

from __future__ import annotations

import ast
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.serialise import to_dict
from shardguide.knowledge import backends, releases
from shardguide.knowledge.snippets.verify import verify
from shardguide.workflows.backend import BackendRequest, backend
from shardguide.workflows.backend.checks import _row
from shardguide.workflows.backend.fields import DEVICES, FSDP, SYSTEMS
from shardguide.workflows.backend.host import Host


def ask(remembered: dict[str, Any] | None = None, site_packages: str | None = None, **given: str) -> dict[str, Any]:
    found: dict[str, Any] = to_dict(
        backend(BackendRequest({"torch": "2.13", **given}, remembered or {}, site_packages))
    )
    return found


def decision(record: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in record["decisions"] if one["id"] == name)


def check(record: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in record["checks"] if one["id"] == name)


# What "Which backend to use?" and "Backends that come with PyTorch" of PyTorch's page say, host by host.
BY_HOST = [
    ({"device": "cuda", "inter": "infiniband", "os": "linux"}, "nccl"),
    ({"device": "cuda", "inter": "ethernet", "os": "linux"}, "nccl"),
    ({"device": "cuda", "inter": "none", "os": "linux"}, "nccl"),
    ({"device": "rocm", "inter": "infiniband", "os": "linux"}, "nccl"),
    ({"device": "xpu", "inter": "ethernet", "os": "linux"}, "xccl"),
    ({"device": "cpu", "inter": "ethernet", "os": "linux"}, "gloo"),
    ({"device": "cpu", "inter": "infiniband", "os": "linux", "ipoib": "yes"}, "gloo"),
    ({"device": "cpu", "inter": "ipoib", "os": "linux"}, "gloo"),
    ({"device": "cpu", "inter": "infiniband", "os": "linux", "ipoib": "no"}, "mpi"),
    ({"device": "cuda", "inter": "ethernet", "os": "windows"}, "gloo"),
    ({"device": "cpu", "inter": "ethernet", "os": "windows"}, "gloo"),
    ({"device": "cpu", "inter": "none", "os": "macos"}, "gloo"),
    ({"device": "mps", "inter": "none", "os": "macos"}, "gloo"),
    ({"device": "cuda", "inter": "ethernet", "os": "linux", "offload": "yes"}, "cpu:gloo,cuda:nccl"),
    ({"device": "rocm", "inter": "ethernet", "os": "linux", "offload": "yes"}, "cpu:gloo,cuda:nccl"),
    ({"device": "xpu", "inter": "ethernet", "os": "linux", "offload": "yes"}, "cpu:gloo,xpu:xccl"),
    ({"device": "cuda", "inter": "none", "os": "windows", "offload": "yes"}, "gloo"),
]


@pytest.mark.parametrize(("given", "choice"), BY_HOST)
def test_the_backend_of_a_host(given: dict[str, str], choice: str) -> None:
    record = ask(**given)
    assert record["status"] == "complete" and record["questions"] == []
    chosen = decision(record, "backend")
    assert chosen["choice"] == choice
    others = {one["choice"] for one in chosen["instead_of"]}
    assert others | {part.rpartition(":")[2] for part in choice.split(",")} == {*backends.BACKENDS, "ucc"}


@pytest.mark.torch
def test_combined_backends_are_what_pytorch_reads() -> None:
    pytest.importorskip("torch", reason="asks PyTorch")
    from torch.distributed.distributed_c10d import Backend, BackendConfig

    for _, choice in BY_HOST:
        if ":" in choice:
            read = BackendConfig(Backend(choice)).get_device_backend_map()
            assert ",".join(f"{device}:{name}" for device, name in read.items()) == choice


@pytest.mark.parametrize("release", ["2.0", "2.5", "2.6", "2.8", "2.13", "2.15"])
def test_every_answer_has_its_sources(release: str) -> None:
    for device, inter, system in itertools.product(DEVICES, ("infiniband", "roce", "ethernet", "efa", "none"), SYSTEMS):
        for more in ({}, {"offload": "yes"}, {"ipoib": "no"}):
            try:
                record = ask(device=device, inter=inter, os=system, torch=release, **more)
            except UnusableInput:
                continue
            listed = {one["id"] for one in record["sources"]}
            for one in record["decisions"]:
                assert one["sources"] and set(one["sources"]) <= listed, (device, inter, system, one["id"])
            assert not any(text.startswith("not confirmed") for text in record["not_done"])
            json.dumps(record)


def test_what_is_missing_is_asked() -> None:
    nothing = ask()
    assert [one["id"] for one in nothing["questions"]] == ["device", "inter", "os"]
    assert nothing["status"] == "needs_answers" and nothing["decisions"] == []
    some = ask(device="cpu", inter="infiniband")
    assert [one["id"] for one in some["questions"]] == ["os", "ipoib"]
    assert decision(some, "backend")["open"]
    assert check(some, "operations")["result"] == "passed"  # what is known is answered


def test_a_release_that_is_not_known_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardguide.workflows.release.installed", lambda path: [])
    record = to_dict(backend(BackendRequest({"device": "cuda", "inter": "none", "os": "linux"})))
    assert [one["id"] for one in record["questions"]] == ["torch"]
    assert check(record, "operations")["result"] == "unknown"


@pytest.mark.parametrize(
    "given",
    [
        {"device": "cuda", "os": "macos"},
        {"device": "xpu", "os": "macos"},
        {"device": "mps", "os": "linux"},
        {"device": "cpu", "offload": "yes"},
        {"device": "tpu"},
        {"os": "beos"},
        {"inter": "carrier pigeons"},
        {"needs": "all_swap"},
        {"needs": ", ,"},
        {"ipoib": "perhaps"},
        {"torch": "9.9"},
    ],
)
def test_what_cannot_be_meant(given: dict[str, str]) -> None:
    with pytest.raises(UnusableInput) as refused:
        ask(**given)
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value)


def test_remembered_answers_are_not_asked_again_and_give_way() -> None:
    known = {"device": "cuda", "inter": "ethernet", "os": "linux", "torch": "2.13"}
    record = ask(remembered=known)
    assert record["status"] == "complete" and record["answers"]["os"] == {"value": "linux", "from": "notebook"}
    moved = ask(remembered=known, os="macos")  # CUDA cannot be what is meant any more
    assert moved["questions"] == [] and decision(moved, "backend")["choice"] == "gloo"  # all there is on macOS
    assert decision(ask(remembered={"gpu": "MI300X"}, inter="ethernet", os="linux"), "backend")["choice"] == "nccl"
    assert ask(remembered={"nodes": 1, "inter": "infiniband"})["answers"]["inter"]["value"] == "none"


# --- operations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "needs", "release", "result", "says"),
    [
        ("cuda linux", "all", "2.13", "passed", "the table says yes"),
        ("cuda linux", "reduce_scatter_tensor", "2.0", "passed", "the table says yes"),
        ("xpu linux", "all", "2.13", "passed", "by xccl on GPU tensors"),
        ("xpu linux", "all_gather", "2.8", "unknown", "was not read"),
        ("cpu linux", "all_to_all", "2.13", "passed", "the documentation says no, but it runs"),
        ("cpu linux", "all_to_all", "2.14", "unknown", "it ran on an older release"),
        ("cpu linux", "all_to_all", "2.11", "failed", "mpi has all_to_all"),
        ("cpu linux", "reduce_scatter", "2.6", "unknown", "reduce_scatter_tensor"),
        ("cpu linux", "reduce_scatter", "2.5", "failed", "the table says no"),
        ("cpu linux", "send,recv,gather", "2.3", "passed", "the table says yes"),
        ("cuda windows", "send,all_reduce", "2.13", "failed", "send by gloo on GPU tensors: the table says no"),
        ("cuda windows", "barrier", "2.13", "failed", "barrier"),
        ("mps macos", "all_reduce", "2.13", "unknown", "no column for MPS"),
    ],
)  # fmt: skip
def test_operations_one_by_one(given: str, needs: str, release: str, result: str, says: str) -> None:
    device, system = given.split()
    found = check(ask(device=device, os=system, inter="ethernet", needs=needs, torch=release), "operations")
    assert found["result"] == result and says in found["evidence"], found


def test_mpi_without_its_reduce_scatter() -> None:
    record = ask(device="cpu", inter="infiniband", ipoib="no", os="linux")
    found = check(record, "operations")
    assert found["result"] == "failed" and "gloo has reduce_scatter" in found["evidence"]


def test_the_question_mark_of_mpi_is_unknown() -> None:
    host = Host("cuda", "none", "linux", "", False, FSDP, False, "2.13", "", "")
    for operation in backends.OPERATIONS:
        row = _row(operation, "mpi", "gpu", host)
        expected = ("failed", "no") if operation == "reduce_scatter" else ("unknown", "?")
        assert (row.result, row.documented) == expected


def test_operations_of_fsdp_are_looked_up_when_none_is_named() -> None:
    record = ask(device="cuda", inter="none", os="linux", offload="yes")
    rows = [(row["operation"], row["backend"], row["tensors"]) for row in record["operations"]]
    assert rows == [*((one, "nccl", "gpu") for one in FSDP), ("all_reduce", "gloo", "cpu")]
    assert any("--needs" in note for note in record["notes"])


def test_the_whole_table_is_in_the_record() -> None:
    table = ask(device="cuda", inter="none", os="linux")["capabilities"]
    assert table["columns"] == [f"{name} {kind}" for name in backends.BACKENDS for kind in ("cpu", "gpu")]
    marks = {row["operation"]: row["marks"] for row in table["rows"]}
    assert marks["barrier"] == ["yes", "no", "yes", "?", "no", "yes", "no", "yes"]
    assert len(ask(device="cuda", torch="2.3")["capabilities"]["columns"]) == 6


# --- the build ----------------------------------------------------------------------------------------------------


def _installed(folder: Path, **values: str) -> str:
    """A site-packages folder with a torch/version.py as the wheels have it, and nothing else."""
    torch = folder / "torch"
    torch.mkdir()
    local = values.pop("local", "")
    lines = [f"__version__ = '2.13.0{local}'", *(f"{name} = {value!r}" for name, value in values.items())]
    (torch / "version.py").write_text("\n".join(lines))
    return str(folder)


@pytest.mark.parametrize(
    ("built", "device", "result", "says"),
    [
        ({"local": "+cpu"}, "cuda", "failed", "a CPU build, and the device needs a CUDA build: it has no NCCL"),
        ({"cuda": "12.6"}, "cuda", "passed", "a CUDA build (cuda 12.6), as the device needs"),
        ({"cuda": "12.6"}, "rocm", "failed", "needs a ROCm build"),
        ({"hip": "6.4.1"}, "rocm", "passed", "a ROCm build"),
        ({"hip": "6.4.1"}, "cuda", "failed", "needs a CUDA build"),
        ({"xpu": "20250301"}, "xpu", "unknown", "is_xccl_available"),
        ({"cuda": "13.0"}, "xpu", "failed", "needs a XPU build"),
        ({"cuda": "12.6"}, "cpu", "passed", "Gloo"),
        ({"local": "+cpu"}, "cpu", "passed", "Gloo"),
    ],
)
def test_the_build_and_the_device(tmp_path: Path, built: dict[str, str], device: str, result: str, says: str) -> None:
    record = ask(site_packages=_installed(tmp_path, **built), device=device, inter="ethernet", os="linux")
    found = check(record, "build")
    assert (found["result"], says in found["evidence"]) == (result, True), found


def test_no_build_at_hand() -> None:
    found = check(ask(device="cuda", inter="none", os="linux", torch="2.3"), "build")
    assert found["result"] == "unknown" and "snippet build" in found["evidence"]


def test_mpi_stands_in_no_file(tmp_path: Path) -> None:
    record = ask(
        site_packages=_installed(tmp_path, local="+cpu"), device="cpu", inter="infiniband", ipoib="no", os="linux"
    )
    assert check(record, "build")["result"] == "unknown"


# --- snippets -----------------------------------------------------------------------------------------------------


def _snippet(record: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in record["snippets"] if one["id"] == name)


@pytest.mark.parametrize("release", releases.known())
def test_the_build_snippet_uses_what_the_release_has(release: str) -> None:
    snippet = _snippet(ask(device="cuda", inter="none", os="linux", torch=release), "build")
    ast.parse(snippet["code"])
    real = verify(snippet["code"], release)
    assert {**snippet["verified"], "executed": ""} == real._asdict() and real.api


@pytest.mark.torch
def test_the_build_snippet_runs() -> None:
    torch = pytest.importorskip("torch", reason="runs the snippet")
    snippet = _snippet(ask(device="cpu", inter="none", os="linux"), "build")
    assert snippet["verified"]["executed"] == "2.13.0, 1 process, CPU"
    done = subprocess.run(
        [sys.executable, "-c", snippet["code"]], capture_output=True, text=True, timeout=120, check=True
    )
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines()[1:5])
    dist = torch.distributed
    real = {"NCCL": dist.is_nccl_available(), "Gloo": dist.is_gloo_available(), "MPI": dist.is_mpi_available()}
    assert said == {name: str(value) for name, value in (real | {"XCCL": dist.is_xccl_available()}).items()}
    assert torch.__version__ in done.stdout


@pytest.mark.parametrize(("given", "choice"), BY_HOST)
def test_the_variables_are_shell(given: dict[str, str], choice: str) -> None:
    names = {one["id"]: one["code"] for one in ask(**given)["snippets"]}
    code = names.get("environment", "")
    subprocess.run(["bash", "-n", "-c", code], check=True)
    uncommented = code.replace("# export", "export")
    subprocess.run(["bash", "-n", "-c", uncommented], check=True)
    many = given["inter"] != "none"
    assert ("NCCL_SOCKET_IFNAME" in code) == ("nccl" in choice and many)
    assert ("GLOO_SOCKET_IFNAME" in code) == ("gloo" in choice and many)
    assert ("NCCL_DEBUG_SUBSYS=COLL" in code) == ("nccl" in choice)


def test_conditions_of_the_network_settings() -> None:
    said = " ".join(decision(ask(device="cpu", inter="ethernet", os="linux"), "network")["because"])
    assert "round-robin" in said and "same number of interfaces" in said
    said = " ".join(decision(ask(device="cuda", inter="ethernet", os="linux"), "network")["because"])
    assert "NCCL_SOCKET_NTHREADS" in said and "NCCL_DEBUG_SUBSYS=GRAPH" in said and "NCCLConfig" in said
    said = " ".join(decision(ask(device="cuda", inter="infiniband", os="linux"), "network")["because"])
    assert "NCCL_SOCKET_NTHREADS" not in said
