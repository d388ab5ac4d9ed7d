"""The forms of init_process_group, started the way they will be: by torchrun, by spawn, by forked workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

from tests.patterns.load import load, text  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from tests.snippets.ports import free_port  # noqa: E402

pytestmark = pytest.mark.torch


def outside(command: list[str], folder: Path) -> str:
    """What a program prints that runs in an interpreter of its own, which finds the modules of ``folder``."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """``mp.spawn`` forks instead: the same launcher code of PyTorch without three imports of it."""

    def spawn(worker: Callable[..., None], args: tuple[Any, ...], nprocs: int) -> None:
        mp.start_processes(worker, args=args, nprocs=nprocs, start_method="fork")

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(mp, "spawn", spawn)


def reporter(folder: Path) -> Callable[[int, int], None]:
    """A ``train`` that sums the ranks over all processes and leaves the result in a file of its own."""

    def train(rank: int, world_size: int) -> None:
        total = torch.tensor([float(rank + 1)])
        dist.all_reduce(total)
        (folder / f"rank{rank}").write_text(f"{dist.get_rank()}/{dist.get_world_size()}/{world_size}: {total.item()}")

    return train


def said(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("rank*"))}


BOTH = {"rank0": "0/2/2: 3.0", "rank1": "1/2/2: 3.0"}  # 1 + 2


def test_torchrun_gives_both_forms_their_ranks(tmp_path: Path) -> None:
    (tmp_path / "by_env.py").write_text(text("init-env-torchrun"))
    (tmp_path / "by_file.py").write_text(text("init-file-torchrun"))
    (tmp_path / "train.py").write_text(
        "import os, sys, torch, torch.distributed as dist, by_env, by_file\n"
        "total = by_env.main()\n"
        "assert not dist.is_initialized()\n"
        "path = by_file.start('.')\n"
        "there = os.path.exists(path)\n"
        "sum = torch.tensor([dist.get_rank() + 1.0]); dist.all_reduce(sum)\n"
        "rank = dist.get_rank(); dist.barrier(); dist.destroy_process_group()\n"
        "open(f'rank{rank}', 'w').write(f'{total} {sum.item()} {there} {os.path.basename(path)}')\n"
    )
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    outside(run, tmp_path)
    words = [line.split() for line in said(tmp_path).values()]
    assert [line[:3] for line in words] == [["2.0", "3.0", "True"]] * 2
    assert words[0][3] == words[1][3]  # one file for both ranks, named after the job and the attempt
    assert words[0][3].startswith("store-")
    assert words[0][3].endswith("-0")


def test_spawn_starts_real_processes(tmp_path: Path) -> None:
    (tmp_path / "form.py").write_text(text("init-env-spawn"))
    (tmp_path / "job.py").write_text(
        "import torch, torch.distributed as dist, form\n"
        "def train(rank, world_size):\n"
        "    total = torch.tensor([rank + 1.0]); dist.all_reduce(total)\n"
        "    open(f'rank{rank}', 'w').write(f'{dist.get_rank()}/{dist.get_world_size()}/{world_size}: {total.item()}')\n"
        "if __name__ == '__main__':\n"
        "    form.launch(train, 2)\n"
    )
    outside([sys.executable, "job.py"], tmp_path)
    assert said(tmp_path) == BOTH


@pytest.mark.usefixtures("forked")
def test_tcp_with_ranks_by_hand(tmp_path: Path) -> None:
    load("init-tcp-spawn")["launch"](reporter(tmp_path), 2, f"127.0.0.1:{free_port()}")
    assert said(tmp_path) == BOTH


def test_a_store_of_ones_own() -> None:
    start = load("init-store")["start"]

    port = free_port()

    def body(rank: int) -> tuple[str, float, bool]:
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):  # nothing of it is read
            del os.environ[name]
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
        store = start("127.0.0.1", port, rank, 2)
        total = torch.tensor([rank + 1.0])
        dist.all_reduce(total)
        return store.get("note").decode(), total.item(), dist.is_initialized()

    assert gloo.run(2, body) == [("from rank 0", 3.0, True)] * 2


@pytest.mark.usefixtures("forked")
def test_file_with_spawn_leaves_nothing_behind(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    launch = load("init-file-spawn")["launch"]
    launch(reporter(tmp_path), 2, shared)
    assert said(tmp_path) == BOTH
    launch(reporter(tmp_path), 2, shared)  # a second start meets no file of the first
    assert list(shared.iterdir()) == []

    def crash(rank: int, world_size: int) -> None:
        assert any(shared.glob("*/store"))
        os._exit(7)

    with pytest.raises(mp.ProcessExitedException, match="exit code 7"):
        launch(crash, 2, shared)
    assert list(shared.iterdir()) == []


def test_the_long_group_waits_where_the_short_one_gives_up() -> None:
    pattern = load("init-timeouts")

    given_up = gloo.event()

    def body(rank: int) -> tuple[float, float, str]:
        waiting = pattern["start"](timeout=timedelta(seconds=4), patience=timedelta(seconds=120))
        dist.barrier(group=waiting)
        started = time.monotonic()
        pattern["rank_zero_first"](lambda: time.sleep(5), waiting)  # longer than the short group waits
        patient = time.monotonic() - started
        started, error = time.monotonic(), ""
        try:
            pattern["rank_zero_first"](
                lambda: given_up.wait(120), None
            )  # the default group; rank 0 is there all the time
        except RuntimeError as problem:
            error = str(problem)
        waited = time.monotonic() - started
        given_up.set()
        return patient, waited, error

    (_, _, _), (patient, waited, error) = gloo.run(2, body)
    assert patient > 4.5
    assert "Timed out waiting 4000ms" in error
    assert waited > 3.5


def test_combined_backends_serve_cpu_tensors() -> None:
    pattern = load("init-combined-backend")

    def body(rank: int) -> float:
        pattern["start"]()
        samples = torch.arange(3.0) if rank == 0 else torch.tensor([10.0])
        return pattern["mean_loss"](samples.mean(), len(samples)).item()

    expected = (0.0 + 1.0 + 2.0 + 10.0) / 4
    assert gloo.run(2, body) == pytest.approx([expected, expected])


def test_groups_are_destroyed_after_a_clean_end_only() -> None:
    main = load("destroy-groups")["main"]

    def body(rank: int) -> tuple[bool, bool, str]:
        seen = []
        main(lambda: (dist.new_group(), seen.append(dist.is_initialized()), dist.barrier()))
        after = dist.is_initialized()
        os.environ["MASTER_PORT"] = os.environ["SECOND_PORT"]

        def fail() -> None:
            raise ValueError("my own error")

        try:
            main(fail)
        except ValueError as error:
            return seen[0], after, f"{error}, group there: {dist.is_initialized()}"
        return seen[0], after, "no error"

    second = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ["SECOND_PORT"] = str(second.port)
    try:
        results = gloo.run(2, body)
    finally:
        del os.environ["SECOND_PORT"]
    assert results == [(True, False, "my own error, group there: True")] * 2
