"""Every snippet trains as its reader would train with it, and the losses are those of training without parallelism."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from .harness import execute  # noqa: E402
from .scenarios import Scenario, Setting, cover, typical  # noqa: E402

pytestmark = pytest.mark.torch


def tolerance(scenario: Scenario) -> float:
    """float32 differs by the order of additions only; 16-bit computation and states round at other places."""
    spec = scenario.spec
    if spec.mp_param in ("bfloat16", "float16") or spec.param_dtype == "bfloat16" or spec.optimizer == "muon":
        return 2e-2
    return 2e-4


def here() -> str:
    """The implementation that the installed transformers gives."""
    return f"transformers{transformers.__version__.split('.')[0]}"


def scenarios(implementation: str) -> list[Scenario]:
    """Every pair of forms, for all kinds."""
    return [s for kind in ("fsdp2", "fsdp1", "ddp") for s in cover(kind, Setting(implementation=implementation))]


def compare(scenario: Scenario, folder: Path) -> None:
    """Runs the snippet, and training without parallelism from the same weights on the same data; the losses must agree."""
    result = execute(scenario, folder)
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
    assert abs(last - first) > 0.1 * limit * abs(first), "a comparison of weights that do not move would mean nothing"


@pytest.mark.parametrize("scenario", scenarios("transformers5"), ids=lambda s: s.name)
def test_losses_equal_training_without_parallelism(scenario: Scenario, tmp_path: Path) -> None:
    if here() != "transformers5":
        pytest.skip("these snippets are for transformers 5")
    compare(scenario, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", typical(), ids=lambda s: s.name)
def test_typical_plans_as_a_whole(scenario: Scenario, tmp_path: Path) -> None:
    if here() != "transformers5":
        pytest.skip("these snippets are for transformers 5")
    compare(scenario, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", scenarios("transformers4"), ids=lambda s: s.name)
def test_losses_with_transformers_4(scenario: Scenario, tmp_path: Path) -> None:
    if here() != "transformers4":
        pytest.skip("these snippets are for transformers 4; run in an environment that has 4.57")
    compare(scenario, tmp_path)
