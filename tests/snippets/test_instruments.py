"""The two snippets that bring facts back, run for real."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from shardguide.knowledge.snippets import TrainingSpec, manifest, measure  # noqa: E402

from . import gloo, harness, models  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("family", ["llama", "gpt2", "t5", "gemma", "own"])
def test_manifest_says_what_the_model_has(family: str, tmp_path: Path) -> None:
    module: Any = harness.load(manifest().code, tmp_path / "manifest_snippet.py")
    module.build_model = lambda: models.build(family)
    module.main(str(tmp_path / "manifest.json"))
    found = json.loads((tmp_path / "manifest.json").read_text())
    model = models.build(family)
    assert found["format"] == "shardguide-manifest/1"
    assert [(p["name"], tuple(p["shape"]), p["dtype"], p["requires_grad"]) for p in found["parameters"]] == [
        (name, tuple(p.shape), "float32", True) for name, p in model.named_parameters()
    ]
    everything = dict(model.named_parameters(remove_duplicate=False))
    for entry in found["parameters"]:
        same = {name for name, p in everything.items() if p is everything[entry["name"]]}
        assert {entry["name"], *entry["aliases"]} == same
    state = model.state_dict()
    assert [(b["name"], tuple(b["shape"]), b["persistent"]) for b in found["buffers"]] == [
        (name, tuple(b.shape), name in state) for name, b in model.named_buffers()
    ]


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
    torch.cuda.max_memory_allocated = lambda: 71
    torch.cuda.max_memory_reserved = lambda: 75
    torch.cuda.memory_stats = lambda: {"num_alloc_retries": 2}
    torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(total_memory=79)


def test_measure_on_the_cpu(tmp_path: Path) -> None:
    found = run_measure("cpu", tmp_path)
    assert found["torch"] == torch.__version__
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
    for rank in found["ranks"]:
        assert len(rank["step_seconds"]) == 4 and all(0 < s < 60 for s in rank["step_seconds"])
        assert rank["host_max_resident"] > 16 << 20 or sys.platform != "linux"
        assert "max_memory_allocated" not in rank


def test_measure_writes_every_ranks_counters(tmp_path: Path) -> None:
    for rank in run_measure("cuda", tmp_path)["ranks"]:
        assert (rank["max_memory_allocated"], rank["max_memory_reserved"], rank["total_memory"]) == (71, 75, 79)
        assert rank["alloc_retries"] == 2
