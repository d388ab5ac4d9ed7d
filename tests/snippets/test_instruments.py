"""The measuring snippet in two processes; test_instruments_files.py has its files, and the manifest's, read back."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from shardguide.knowledge.snippets import TrainingSpec, measure  # noqa: E402
from shardguide.readers.measured import read_measured  # noqa: E402

from . import gloo, harness  # noqa: E402

pytestmark = pytest.mark.torch


def run_measure(device: str, folder: Path) -> dict[str, Any]:
    """The snippet in two processes, with a step that keeps memory and takes time."""
    code = measure(TrainingSpec(device_type=device)).code

    def body(rank: int) -> None:
        if device != "cpu":
            pretend_gpu()
        gloo.init()
        module: Any = harness.load(code, folder / f"measure_{rank}.py")
        kept = []
        os.chdir(folder)
        module.measure(lambda: kept.append(torch.ones(1 << 20)), steps=4)

    gloo.run(2, body)
    result: dict[str, Any] = json.loads((folder / "measured.json").read_text())
    return result


def pretend_gpu() -> None:
    """Stands in for the accelerator's counters, which no CPU has: the shape of the file is what is tested."""
    import types

    torch.cuda.synchronize = lambda: None
    torch.cuda.current_device = lambda: 0
    torch.cuda.max_memory_allocated = lambda: 71 << 30
    torch.cuda.max_memory_reserved = lambda: 75 << 30
    torch.cuda.memory_stats = lambda: {"num_alloc_retries": 2, "num_ooms": 1, "segment.all.current": 5}
    torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(total_memory=79 << 30)


def test_measure_on_the_cpu(tmp_path: Path) -> None:
    found = run_measure("cpu", tmp_path)
    assert found["torch"] == torch.__version__
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
    for rank in found["ranks"]:
        assert len(rank["step_seconds"]) == 4 and all(0 < s < 60 for s in rank["step_seconds"])
        assert rank["host_max_resident"] > 16 << 20 or sys.platform != "linux"
        assert set(rank) == {"rank", "host_max_resident", "step_seconds"}  # the CPU has no such counters


def test_measured_counters_arrive(tmp_path: Path) -> None:
    written = run_measure("cuda", tmp_path)
    found = read_measured(str(tmp_path / "measured.json"))
    assert found.kinds == ("memory", "steps") and found.torch == torch.__version__
    assert [memory.rank for memory in found.memory] == [0, 1]
    for memory in found.memory:
        assert (memory.peak_allocated, memory.peak_reserved, memory.total_memory) == (71 << 30, 75 << 30, 79 << 30)
        assert (memory.alloc_retries, memory.ooms) == (2, 1)
    assert [(step.rank, step.time) for step in found.steps] == [
        (rank["rank"], repr(seconds)) for rank in written["ranks"] for seconds in rank["step_seconds"]
    ]
