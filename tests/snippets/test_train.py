"""Every snippet trains as its reader would train with it, and the losses are those of training without parallelism."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("transformers", reason="needs transformers")

from .harness import execute  # noqa: E402
from .scenarios import Scenario, cover  # noqa: E402

pytestmark = pytest.mark.torch


def tolerance(scenario: Scenario) -> float:
    """float32 differs by the order of additions only; 16-bit computation and states round at other places."""
    spec = scenario.spec
    if spec.mp_param in ("bfloat16", "float16") or spec.param_dtype == "bfloat16" or spec.optimizer == "muon":
        return 2e-2
    return 2e-4


@pytest.mark.parametrize(
    "scenario", [s for kind in ("fsdp2", "fsdp1", "ddp") for s in cover(kind)], ids=lambda s: s.name
)
def test_losses_equal_training_without_parallelism(scenario: Scenario, tmp_path: Path) -> None:
    result = execute(scenario, tmp_path)
    limit = tolerance(scenario)
    for step, (losses, norm) in enumerate(result["reference"]):
        for rank, history in enumerate(result["ranks"]):
            loss, measured = history[step]
            assert loss == pytest.approx(losses[rank // result["tp"]], rel=limit), f"step {step}, rank {rank}"
            if math.isfinite(norm):
                assert measured == pytest.approx(norm, rel=3 * limit), f"step {step}, rank {rank}"
            else:  # the scale was too large: every rank has to see it, and skips the step
                assert not math.isfinite(measured), f"step {step}, rank {rank}"
    first, last = sum(result["reference"][0][0]), sum(result["reference"][-1][0])
    assert abs(last - first) > 10 * limit * 1e-2 * abs(first), (
        "a comparison of weights that do not move would mean nothing"
    )
