"""Workflow ``init``: the code runs, its conditions are PyTorch's, and a pasted call is judged as PyTorch judges it."""

from __future__ import annotations

import datetime
import itertools
import json
import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.serialise import to_dict
from shardguide.knowledge import releases
from shardguide.knowledge.snippets.verify import verify
from shardguide.workflows.init import InitRequest, init
from shardguide.workflows.init.fields import LAUNCHERS, METHODS, multicast, split_address

from ..snippets.ports import free_port

URLS = {"env": {}, "tcp": {"address": "node0:29500"}, "file": {"path": "/shared/run"}}


def ask(call: str = "", remembered: dict[str, Any] | None = None, **given: str) -> dict[str, Any]:
    found: dict[str, Any] = to_dict(init(InitRequest({"torch": "2.13", **given}, remembered or {}, None, call)))
    return found


def part(record: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    return next(one for one in record[kind] if one["id"] == name)


def code(record: dict[str, Any], name: str = "init") -> str:
    return str(part(record, "snippets", name)["code"])


# --- what is offered, for every release ---------------------------------------------------------------------------


@pytest.mark.parametrize("release", releases.known())
def test_the_code_uses_what_the_release_has(release: str) -> None:
    for method, backend, launcher in itertools.product(
        METHODS, ("gloo", "nccl", "xccl", "mpi", "cpu:gloo,cuda:nccl"), LAUNCHERS
    ):
        try:
            record = ask(method=method, backend=backend, launcher=launcher, torch=release, **URLS[method])
        except UnusableInput:
            assert backend == "xccl" and release in ("2.0", "2.1", "2.2", "2.3", "2.4", "2.5")
            continue
        snippet = part(record, "snippets", "init")
        real = verify(snippet["code"], release)
        assert {**snippet["verified"], "executed": ""} == real._asdict() and real.api, (method, backend, launcher)
        assert part(record, "checks", "signature")["result"] == "passed", part(record, "checks", "signature")
        subprocess.run(["bash", "-n", "-c", code(record, "environment")], check=True)
        listed = {one["id"] for one in record["sources"]}
        assert [one["id"] for one in record["decisions"]] == ["method", "ranks", "device", "timeout", "shutdown"]
        for one in record["decisions"]:
            assert one["sources"] and set(one["sources"]) <= listed, one["id"]
        assert not any(text.startswith("not confirmed") for text in record["not_done"])


@pytest.mark.torch
def test_spawn_is_called_as_pytorch_has_it() -> None:
    mp = pytest.importorskip("torch.multiprocessing", reason="reads PyTorch's signature")
    import inspect

    assert list(inspect.signature(mp.spawn).parameters)[:3] == ["fn", "args", "nprocs"]


def test_device_id_by_release() -> None:
    def has(backend: str, release: str) -> bool:
        return "device_id=device" in code(ask(method="env", backend=backend, torch=release))

    assert [has("nccl", one) for one in ("2.2", "2.3", "2.13")] == [False, True, True]
    assert [has("xccl", one) for one in ("2.6", "2.7")] == [False, True]  # 2.6 takes CUDA devices only
    assert not has("gloo", "2.13")


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:Attempted to get default timeout")
def test_the_timeout_is_the_default() -> None:
    pytest.importorskip("torch", reason="asks PyTorch")
    from torch.distributed import distributed_c10d as c10d

    real = {
        name: c10d._get_default_timeout(c10d.Backend(name)) for name in ("gloo", "xccl", "mpi", "cpu:gloo,cuda:nccl")
    }
    for name, timeout in real.items():
        assert (
            part(ask(method="env", backend=name), "decisions", "timeout")["choice"]
            == f"timedelta(minutes={timeout.seconds // 60})"
        )
    # A CPU build does not know NCCL's own; the docstring does.
    assert "10 minutes for NCCL and 30 minutes for other backends" in (c10d.init_process_group.__doc__ or "")
    assert "minutes=10" in code(ask(method="env", backend="nccl"))
    assert "minutes=30" in code(ask(method="env", backend="nccl", torch="2.1"))


# --- what is offered, run -----------------------------------------------------------------------------------------


def _start(folder: Path, record: dict[str, Any], **environment: str) -> subprocess.Popen[str]:
    """The launch block, as it is shown, with the code beside it as train.py."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    for name, text in {"python": f'exec {shlex.quote(sys.executable)} "$@"',
                       "torchrun": f'exec {shlex.quote(sys.executable)} -m torch.distributed.run "$@"'}.items():  # fmt: skip
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    (folder / "train.py").write_text(code(record))
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")
    }
    return subprocess.Popen(
        ["bash", "-c", code(record, "environment")], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**clean, "PATH": path, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


def _ready(*processes: subprocess.Popen[str]) -> list[str]:
    said = [process.communicate(timeout=300)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(said)[-4000:]
    return sorted(re.findall(r"rank \d of \d is ready", "".join(said)))  # two processes may write on one line


BOTH = ["rank 0 of 2 is ready", "rank 1 of 2 is ready"]


def _given(method: str, folder: Path) -> dict[str, str]:
    if method == "file":
        return {"path": str(folder / "store")}
    return {"address": f"127.0.0.1:{free_port()}"}


@pytest.mark.torch
@pytest.mark.parametrize("method", METHODS)
def test_started_by_hand(tmp_path: Path, method: str) -> None:
    """Two processes of this one's fork run the code under the variables that the block sets."""
    pytest.importorskip("torch", reason="runs the code")
    given = _given(method, tmp_path)
    shown = [
        ask(method=method, backend="gloo", launcher="hand", world_size="2", rank=str(rank), **given)
        for rank in range(2)
    ]
    assert part(shown[0], "snippets", "init")["verified"]["executed"] == "2.13.0, 2 processes, Gloo, CPU"
    assert code(shown[0]) == code(shown[1])
    script = "env -i bash -c {} | tr '\\0' '\\n'"
    runs = []
    for record in shown:
        block = code(record, "environment").replace("python train.py", "env -0")
        found = subprocess.run(
            ["bash", "-c", script.format(shlex.quote(block))], capture_output=True, text=True, check=True
        ).stdout
        runs.append(dict(line.split("=", 1) for line in found.splitlines() if "=" in line))
    assert [run["RANK"] for run in runs] == ["0", "1"]
    said = _forked([lambda run=run: _execute(code(shown[0]), run) for run in runs])
    assert said == [(True, f"rank {rank} of 2 is ready") for rank in range(2)]


def _execute(text: str, environment: dict[str, str]) -> str:
    """Runs our own snippet in a forked child, as the main program; returns what it prints."""
    import contextlib
    import io

    os.environ.update(environment)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own snippet
    return said.getvalue().strip()


def _forked(bodies: list[Any], wait: float = 300.0) -> list[Any]:
    """(True, result) or (False, error) of each body in a forked process; None where one is still busy after ``wait`` seconds."""
    import torch

    context = multiprocessing.get_context("fork")

    def child(body: Any, pipe: Any) -> None:
        torch.set_num_threads(1)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
        try:
            pipe.send((True, body()))
        except BaseException as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))
        pipe.close()
        os._exit(0)  # as a forked worker ends; no pytest teardown in it

    children, pipes = [], []
    for body in bodies:
        ours, theirs = context.Pipe()
        children.append(context.Process(target=child, args=(body, theirs)))
        children[-1].start()
        theirs.close()
        pipes.append(ours)
    end = time.monotonic() + wait
    out = [pipe.recv() if pipe.poll(max(0.0, end - time.monotonic())) else None for pipe in pipes]
    for process in children:
        process.join(1.0)
        if process.is_alive():
            process.kill()
            process.join()
    return out


@pytest.mark.torch
@pytest.mark.parametrize("method", METHODS)
def test_spawned(tmp_path: Path, method: str) -> None:
    pytest.importorskip("torch", reason="runs the code")
    record = ask(method=method, backend="gloo", launcher="spawn", world_size="2", **_given(method, tmp_path))
    assert part(record, "snippets", "init")["verified"]["executed"] == "2.13.0, 2 processes, Gloo, CPU"
    assert _ready(_start(tmp_path, record)) == BOTH


@pytest.mark.torch
def test_started_by_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="runs the code")
    record = ask(method="env", backend="gloo", world_size="2")
    assert "torchrun --standalone --nproc-per-node=2" in code(record, "environment")
    assert _ready(_start(tmp_path, record)) == BOTH


@pytest.mark.torch
@pytest.mark.parametrize("launcher", ["slurm", "mpirun"])
def test_what_other_launchers_hand_on(tmp_path: Path, launcher: str) -> None:
    """Stand-ins for srun and mpirun set a task's variables; the block must turn them into those that the code reads."""
    names = {"slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
             "mpirun": tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK"))}[launcher]  # fmt: skip
    record = ask(method="env", backend="gloo", launcher=launcher, world_size="4")
    tools = tmp_path / "bin"
    tools.mkdir()
    sets = f"{names[0]}=3 {names[1]}=4 {names[2]}=1"
    for name, text in {
        "srun": f'{sets} exec "$@"',
        "mpirun": f'test "$1 $2 $3 $4 $5 $6" = "-np 4 -x MASTER_ADDR -x MASTER_PORT" && shift 6 && {sets} exec "$@"',
        "scontrol": "printf 'node1\\nnode2\\n'",
        "python": "echo $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT",
    }.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    environment = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "MASTER_PORT": "29511",
    }
    if launcher == "mpirun":
        environment["MASTER_ADDR"] = "node1"
    block = code(record, "environment")
    done = subprocess.run(["bash", "-c", block], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "4", "1", "node1", "29511"]


# --- conditions that the answer states, run ------------------------------------------------------------------------


@pytest.mark.torch
def test_when_the_file_is_removed(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="runs PyTorch")
    program = "import os, sys, torch.distributed as d; d.init_process_group('gloo', init_method=sys.argv[1], rank=0, world_size=1){}"
    running = {
        end: subprocess.Popen([sys.executable, "-c", program.format(last), f"file://{tmp_path}/{end}"],
                              env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}, stderr=subprocess.DEVNULL)
        for end, last in (("normal", ""), ("killed", f"; os.kill(os.getpid(), {int(signal.SIGKILL)})"))
    }  # fmt: skip
    codes = {end: process.wait(300) for end, process in running.items()}
    assert codes == {"normal": 0, "killed": -signal.SIGKILL}
    assert not (tmp_path / "normal").exists() and (tmp_path / "killed").exists()

    def worker(rank: int) -> None:
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/forked", rank=rank, world_size=2)
        dist.barrier()

    assert _forked([lambda rank=rank: worker(rank) for rank in range(2)]) == [(True, None)] * 2
    assert (tmp_path / "forked").exists()


@pytest.mark.torch
def test_a_missing_folder_is_not_reported(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="runs PyTorch")

    def body() -> None:
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/none/x", rank=0, world_size=1,
                                timeout=datetime.timedelta(seconds=2))  # fmt: skip

    assert _forked([body], wait=6.0) == [None]


@pytest.mark.torch
def test_a_rank_out_of_range_and_rank_0_without_address(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="runs PyTorch")

    def body(rank: int) -> None:
        import torch.distributed as dist

        dist.init_process_group(
            "gloo", init_method=f"file://{tmp_path}/x", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=4)
        )

    first, second = _forked([lambda: body(0), lambda: body(2)])
    assert not second[0] and "rank < size" in second[1]
    assert not first[0] and "imeout" in first[1]

    def without() -> None:
        import torch.distributed as dist

        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_PORT=str(free_port()))
        os.environ.pop("MASTER_ADDR", None)
        dist.init_process_group("gloo")

    ((good, why),) = _forked([without])
    assert not good and why.startswith("ValueError") and "MASTER_ADDR expected" in why


@pytest.mark.torch
@pytest.mark.slow
def test_a_file_that_was_left_behind(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="runs PyTorch")

    def body(rank: int) -> None:
        import torch.distributed as dist

        dist.init_process_group(
            "gloo", init_method=f"file://{tmp_path}/x", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=8)
        )
        dist.barrier()

    assert [one[0] for one in _forked([lambda rank=rank: body(rank) for rank in range(2)])] == [True, True]
    assert (tmp_path / "x").exists()
    # A rank that comes alone does not wait for the other: it finds the dead one's address in the file, and tries to connect.
    ((good, stale),) = _forked([lambda: body(0)])
    assert not good and "connect" in stale.lower()
    (tmp_path / "x").unlink()
    ((good, fresh),) = _forked([lambda: body(0)])
    assert not good and "connect" not in fresh.lower() and "timeout" in fresh.lower()


@pytest.mark.torch
@pytest.mark.slow
def test_tcp_under_torchrun_finds_no_store(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="runs PyTorch")
    record = ask(method="tcp", backend="gloo", launcher="torchrun", world_size="2", address=f"127.0.0.1:{free_port()}")
    assert "the code uses env:// instead" in part(record, "checks", "combination")["evidence"]
    assert 'init_method="env://"' in code(record)
    assert _ready(_start(tmp_path, record)) == BOTH
    by_hand = ask(method="tcp", backend="gloo", launcher="hand", address=f"127.0.0.1:{free_port()}")
    text = code(by_hand).replace("minutes=30", "seconds=5")
    part(record, "snippets", "init")["code"] = text
    process = _start(tmp_path, record)
    said = process.communicate(timeout=300)[0]
    assert process.returncode != 0 and "timed out" in said


def test_tcp_under_torchrun_by_release() -> None:
    """From 2.14 on ``_create_c10d_store`` asks whether the agent serves that very address; 2.13's asks only whether it serves one."""
    old, new = (
        ask(method="tcp", backend="gloo", launcher="torchrun", address="node0:29500", torch=release)
        for release in ("2.13", "2.14")
    )
    assert 'init_method="env://"' in code(old) and 'init_method="tcp://node0:29500"' in code(new)
    assert "init.tcp.under_torchrun" in part(old, "decisions", "method")["sources"]
    assert part(new, "snippets", "init")["verified"]["executed"] == ""
    call = 'init_process_group("gloo", init_method="tcp://node0:29500", rank=r, world_size=4)'
    assert part(ask(call, launcher="torchrun"), "checks", "call")["result"] == "failed"
    assert part(ask(call, launcher="torchrun", torch="2.14"), "checks", "call")["result"] == "passed"


# --- a pasted call ------------------------------------------------------------------------------------------------

# The call, the release, the result, words of the evidence, and what a real PyTorch 2.13 does with it: the error, "" for none, None
# where that cannot be tried on one CPU process.
CALLS: list[tuple[str, str, str, str, str | None]] = [
    ('dist.init_process_group("gloo", init_method="tcp://127.0.0.1:PORT", rank=0, world_size=1)', "2.13", "passed", "of one machine only", ""),
    ('init_process_group("gloo", "file:///FOLDER/a", rank=0, world_size=1)', "2.13", "passed", "must not exist yet", ""),
    ('init_process_group("gloo", init_method="tcp://127.0.0.1:PORT?rank=0&world_size=1")', "2.13", "passed", "argument", ""),
    ('init_process_group(Backend.GLOO, rank=0, world_size=1, init_method="tcp://127.0.0.1:PORT")', "2.13", "passed", "argument", ""),
    ('init_process_group("GLOO", rank=0, world_size=1, init_method="tcp://127.0.0.1:PORT")', "2.13", "passed", "argument", ""),
    ('init_process_group("gloo", rank=0, world_size=1, init_method="tcp://127.0.0.1:PORT", group_name="x")', "2.13", "passed", "deprecated and ignored", ""),
    ('init_process_group("gloo", init_method="tcp://127.0.0.1:PORT", world_size=1)', "2.13", "failed", "rank must be passed", "ValueError"),
    ('init_process_group("gloo", init_method="tcp://127.0.0.1:PORT")', "2.13", "failed", "rank and world_size must be passed", "ValueError"),
    ('init_process_group("gloo", init_method="file:///FOLDER/b", rank=0)', "2.13", "failed", "world_size must be passed", "ValueError"),
    ('init_process_group("gloo", init_method="tcp://127.0.0.1", rank=0, world_size=1)', "2.13", "failed", "needs a port", "ValueError"),
    ('init_process_group("gloo", init_method="tcp://127.0.0.1:70000", rank=0, world_size=1)', "2.13", "failed", "needs a port", "ValueError"),
    ('init_process_group("gloo", init_method="file://", rank=0, world_size=1)', "2.13", "failed", "without a path", "ValueError"),
    ('init_process_group("gloo", init_method="file://folder", rank=0, world_size=1)', "2.13", "failed", "no path at all", "ValueError"),
    ('init_process_group("gloo", init_method="file://tmp/x", rank=0, world_size=1)', "2.13", "failed", "only /x of it counts", None),
    ('init_process_group("gloo", init_method="udp://127.0.0.1:PORT", rank=0, world_size=1)', "2.13", "failed", "no scheme that PyTorch knows", "RuntimeError"),
    ('init_process_group("gloo", init_method="env", rank=0, world_size=1)', "2.13", "failed", "no scheme", "RuntimeError"),
    ('init_process_group("gloo", init_method="tcp://127.0.0.1:PORT?rank=0", rank=0, world_size=1)', "2.13", "failed", "as well", "AssertionError"),
    ('init_process_group("gloo", store=dist.HashStore())', "2.13", "failed", "rank and world_size must be passed", "AssertionError"),
    ('init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)', "2.13", "passed", "argument", ""),
    ('init_process_group("gloo", "env://", store=dist.HashStore(), rank=0, world_size=1)', "2.13", "failed", "exclude each other", "AssertionError"),
    ('init_process_group("gloo", timeout=60, rank=0, world_size=1, init_method="tcp://127.0.0.1:PORT")', "2.13", "failed", "timedelta", "TypeError"),
    ('init_process_group("gloo", ranks=2)', "2.13", "failed", "no parameter ranks", "TypeError"),
    ('init_process_group("gloo", "env://", init_method="env://")', "2.13", "failed", "given twice", "TypeError"),
    ('init_process_group("gloo", None, None, -1, -1, None, "", None, None, None, 1)', "2.13", "failed", "11 positional", "TypeError"),
    ('init_process_group("gloo", rank=3, world_size=2, init_method="file:///FOLDER/c")', "2.13", "failed", "rank 3 of 2", "RuntimeError"),
    ('init_process_group("gloo", rank=1, world_size=4)', "2.13", "passed", "each needs its own", None),
    ('init_process_group("gloo", device_id=torch.device("cpu"), rank=0, world_size=1, init_method="tcp://127.0.0.1:PORT")', "2.13", "failed", "leave it out", "ValueError"),
    ('init_process_group("nccl", device_id=torch.device("cuda"))', "2.13", "failed", "no index", "ValueError"),
    ('init_process_group("gloo", device_id=torch.device("cpu"), rank=0, world_size=1)', "2.15", "failed", "no index", None),
    ('init_process_group("gloo", device_id=torch.device("cpu:0"), rank=0, world_size=1)', "2.15", "passed", "argument", None),
    ('init_process_group("nccl", device_id=0)', "2.6", "failed", "came with 2.8", None),
    ('init_process_group("nccl", device_id=torch.device("cuda", n))', "2.2", "failed", "it is in 2.3-2.15", None),
    ('init_process_group("nccl", device_id=torch.device("cuda", n))', "2.3", "passed", "MASTER_ADDR", None),
    ('init_process_group("nccl", enable_reconfigure=True)', "2.13", "failed", "it is in 2.14-2.15", "TypeError"),
    ('init_process_group("nccl", enable_reconfigure=True)', "2.14", "passed", "argument", None),
    ('init_process_group("gloo", init_method="tcp://239.1.1.1:23456", rank=r, world_size=4)', "2.13", "failed", "multicast", None),
    ('init_process_group("gloo", init_method="tcp://[ff15::1]:23456", rank=r, world_size=4)', "2.13", "failed", "multicast", None),
    ('init_process_group("gloo", init_method=f"tcp://{host}:1", rank=r, world_size=4)', "2.13", "unknown", "Not read", None),
    ('init_process_group(**options)', "2.13", "unknown", "Not read", None),
    ('init_process_group("mine")', "2.13", "unknown", "none that Shardguide knows", None),
    ('init_process_group("mpi", rank=0, world_size=2)', "2.13", "passed", "MPI ignores rank and world_size", None),
    ('init_process_group()', "2.13", "passed", "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT must be in the environment", "ValueError"),
    ('if ready:\n    pg = dist.init_process_group("nccl",\n        rank=args.rank, world_size=args.world)', "2.13", "passed", "MASTER_ADDR", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "release", "result", "says"), [one[:4] for one in CALLS])
def test_a_call(text: str, release: str, result: str, says: str) -> None:
    shown = text.replace("PORT", "29500").replace("FOLDER", "shared")
    found = part(ask(shown, torch=release), "checks", "call")
    assert (found["result"], says in found["evidence"]) == (result, True), found


@pytest.mark.torch
def test_pytorch_judges_the_calls_alike(tmp_path: Path) -> None:
    """Each call that one process can try, for real: what fails there was called failed, or wants variables that are not set."""
    pytest.importorskip("torch", reason="runs PyTorch")

    def body(text: str) -> Any:
        def run() -> None:
            import torch
            import torch.distributed as dist

            for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                os.environ.pop(name, None)
            names = {
                "dist": dist,
                "torch": torch,
                "init_process_group": dist.init_process_group,
                "Backend": dist.Backend,
            }
            exec(compile(text, "call", "exec"), names)  # noqa: S102 - our own text

        return run

    tried = [(text, error) for text, _, _, _, error in CALLS if error is not None]
    texts = [text.replace("PORT", str(free_port())).replace("FOLDER", str(tmp_path).strip("/")) for text, _ in tried]
    outcomes = [
        one for start in range(0, len(texts), 6) for one in _forked([body(text) for text in texts[start : start + 6]])
    ]
    for (text, error), outcome in zip(tried, outcomes, strict=True):
        assert outcome is not None, text
        assert (outcome[0], outcome[0] or outcome[1].partition(":")[0]) == (not error, error or True), (text, outcome)


def test_the_call_against_what_is_said_beside_it() -> None:
    text = 'init_process_group("nccl", init_method="tcp://node0:29500", rank=r, world_size=n)'
    assert part(ask(text), "checks", "call")["result"] == "passed"
    for more, says in ((({"backend": "gloo"}), "--backend says gloo"), ({"method": "env"}, "--method says env")):
        found = part(ask(text, **more), "checks", "call")
        assert found["result"] == "failed" and says in found["evidence"]
    found = part(ask(text, launcher="torchrun"), "checks", "call")
    assert found["result"] == "failed" and "use env://" in found["evidence"]
    record = ask(text)
    assert record["status"] == "complete" and 'init_method="tcp://node0:29500"' in code(record)


@pytest.mark.parametrize(
    "text", ["print(1)", "init_process_group(", "f(); init_process_group(); init_process_group()", "\x00", "x" * 30_000]
)
def test_what_is_no_call(text: str) -> None:
    with pytest.raises(UnusableInput):
        ask(text)


# --- questions and contradictions ---------------------------------------------------------------------------------


def test_what_is_missing_is_asked() -> None:
    assert [one["id"] for one in ask()["questions"]] == ["method", "backend"]
    for method, name in (("tcp", "address"), ("file", "path")):
        record = ask(method=method, backend="gloo")
        assert [one["id"] for one in record["questions"]] == [name]
        assert part(record, "checks", "signature")["result"] == "unknown"
        assert part(record, "snippets", "init")["verified"]["executed"] == ""


@pytest.mark.parametrize(
    "given",
    [
        {"method": "udp"},
        {"backend": "nccl,gloo"},
        {"backend": "cpu:gloo,cpu:mpi"},
        {"launcher": "kubectl"},
        {"world_size": "0"},
        {"world_size": "two"},
        {"method": "tcp", "backend": "gloo", "world_size": "4", "rank": "4"},
        {"method": "tcp", "backend": "gloo", "address": "node0"},
        {"method": "tcp", "backend": "gloo", "address": "node0:0"},
        {"method": "tcp", "backend": "gloo", "address": 'a";x:1'},
        {"method": "tcp", "backend": "gloo", "address": "239.0.0.1:29500"},
        {"method": "file", "backend": "gloo", "path": "relative/x"},
        {"method": "file", "backend": "gloo", "path": '/x"; import os'},
        {"method": "file", "backend": "gloo", "path": "/x", "os": "windows"},
        {"method": "env", "backend": "gloo", "path": "/x"},
        {"method": "file", "backend": "gloo", "path": "/x", "address": "a:1"},
        {"method": "env", "backend": "nccl", "os": "windows"},
        {"method": "env", "backend": "nccl", "os": "macos"},
        {"method": "env", "backend": "nccl", "launcher": "torchrun", "rank": "0"},
        {"method": "env", "backend": "xccl", "torch": "2.5"},
    ],
)
def test_what_cannot_be_meant(given: dict[str, str]) -> None:
    with pytest.raises(UnusableInput) as refused:
        ask(**given)
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value)


def test_mpi_is_started_by_mpirun() -> None:
    assert part(ask(method="env", backend="mpi"), "checks", "combination")["result"] == "passed"
    record = ask(method="env", backend="mpi", launcher="torchrun")
    assert part(record, "checks", "combination")["result"] == "failed" and record["approval"]["asked"] == ""


def test_a_remembered_system_gives_way() -> None:
    record = ask(method="env", backend="nccl", remembered={"os": "windows"})
    assert record["status"] == "complete" and "os" not in record["answers"]


@pytest.mark.parametrize(
    ("path", "url"),
    [
        (r"d:\tmp\some_file", "file:///d:/tmp/some_file"),
        ("d:/tmp/some_file", "file:///d:/tmp/some_file"),
        (r"\\machine\share\some_file", "file://////machine/share/some_file"),
        ("file://////machine/share/some_file", "file://////machine/share/some_file"),
    ],
)
def test_windows_urls_are_those_of_the_page(path: str, url: str) -> None:
    record = ask(method="file", backend="gloo", path=path, os="windows")
    assert part(record, "decisions", "method")["choice"] == url
    assert part(record, "snippets", "init")["verified"]["executed"] == ""


def test_addresses() -> None:
    assert split_address("10.1.1.20:23456") == ("10.1.1.20", 23456)
    assert split_address("[fd00::1]:29500") == ("[fd00::1]", 29500)
    assert split_address("fd00::1")[1] == -1 and split_address("node0")[1] == -1
    import ipaddress

    for text in (
        "224.0.0.1",
        "239.255.255.255",
        "223.255.255.255",
        "240.0.0.1",
        "10.0.0.1",
        "ff15::1",
        "fe80::1",
        "fd00::1",
    ):
        assert multicast(text) == ipaddress.ip_address(text).is_multicast, text


@pytest.mark.parametrize(("method", "words"), [
    ("env", ["rank 0", "MASTER_PORT", "one thread", "TORCH_GLOO_LAZY_INIT", "all-to-all"]),
    ("tcp", ["reachable", "multicast", "group_name", "own rank"]),
    ("file", ["fcntl", "must not exist", "own rank", "new or empty", "hard exit", "always stays", "Three slashes"]),
])  # fmt: skip
def test_conditions_of_the_method(method: str, words: list[str]) -> None:
    record = ask(method=method, backend="gloo", launcher="hand", **URLS[method])
    said = " ".join(part(record, "decisions", "method")["because"])
    assert [word for word in words if word not in said] == []
    end = " ".join(part(record, "decisions", "shutdown")["because"])
    assert "Every process" in end and "order" in end


def test_the_installed_build_has_the_backend(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    results = {}
    for line in ("", "cuda = '12.6'", "hip = '6.4'", "xpu = '2025'"):
        (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2.13.0'\n{line}\n")
        for backend in ("nccl", "xccl", "gloo"):
            record = to_dict(init(InitRequest({"method": "env", "backend": backend}, {}, str(tmp_path))))
            results[line[:3], backend] = [one["result"] for one in record["checks"] if one["id"] == "build"]
    assert [results[built, "nccl"] for built in ("", "cud", "hip", "xpu")] == [
        ["failed"],
        ["passed"],
        ["passed"],
        ["failed"],
    ]
    assert [results[built, "xccl"] for built in ("", "cud", "xpu")] == [["failed"], ["failed"], ["unknown"]]
    assert results["", "gloo"] == []


HOSTILE = [
    'init_process_group("gloo", init_method="file:///x\\"; import os #", rank=0, world_size=1)',
    "init_process_group('gloo', init_method='tcp://a\\n:1?rank=\u00b2&world_size=x', timeout=None)",
    "init_process_group(b'gloo', b'tcp://x:1', rank=True, world_size=1.5, device_id='cuda:0', store=print)",
    "init_process_group(*a, **b, rank=-7)",
    "init_process_group('gloo', init_method=f'{x}', rank=" + "9" * 4000 + ")",
    "init_process_group(" + "(" * 300 + ")" * 300 + ")",
    "x = lambda: dist . init_process_group ( 'nccl' )",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_calls_are_only_read(text: str) -> None:
    try:
        record = ask(text, os="windows" if "gloo" in text else "linux")
    except UnusableInput as refused:
        assert "\n" not in str(refused)
        return
    assert part(record, "checks", "call")["result"] in ("passed", "failed", "unknown")
    for snippet in record["snippets"]:
        assert "import os #" not in snippet["code"]
        if snippet["language"] == "python":
            compile(snippet["code"], "snippet", "exec")


def _command(*arguments: str, text: str = "", folder: Path) -> tuple[int, Any]:
    command = [
        sys.executable,
        "-m",
        "shardguide",
        *arguments,
        "--json",
        "--notebook",
        str(folder / "n.db"),
        "--torch",
        "2.13",
    ]
    done = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def test_the_command(tmp_path: Path) -> None:
    status, record = _command("init", folder=tmp_path)
    assert status == 3 and [one["id"] for one in record["questions"]] == ["method", "backend"]
    status, record = _command("init", "--call", "-", text='init_process_group("gloo")', folder=tmp_path)
    assert status == 0 and part(record, "checks", "call")["result"] == "passed"
    status, said = _command("init", "--call", "import os", folder=tmp_path)
    assert status == 2 and said.count("\n") == 1
    status, record = _command("backend", "--device", "cuda", "--os", "linux", folder=tmp_path)
    assert status == 3 and [one["id"] for one in record["questions"]] == ["inter"]
    status, record = _command("backend", "--interconnect", "ethernet", folder=tmp_path)  # device and os are remembered
    assert status == 0 and record["answers"]["os"] == {"value": "linux", "from": "notebook"}
    status, record = _command("backend", "--device", "mps", "--os", "macos", "--interconnect", "none", folder=tmp_path)
    assert status == 0
    status, record = _command("plan", "7b", "--gpus", "8", folder=tmp_path)  # plan knows no mps, and is not told of one
    assert status == 3 and "device" not in record["answers"]
    status, snippet = _command("init", "--method", "env", "--backend", "gloo", "--show", "init", folder=tmp_path)
    assert status == 0 and snippet["id"] == "init"
