"""What PyTorch 2.13.0 really raises, on two processes over Gloo: the diagnosis is that of the mistake, and its fix works."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardguide.workflows.diagnose import from_words, order, read
from shardguide.workflows.diagnose.files import collect
from shardguide.workflows.diagnose.numbers import decided
from tests.snippets import gloo

pytest.importorskip("torch")  # its cases import PyTorch

from tests.diagnose.raised import CASES, outcome

pytestmark = pytest.mark.torch

# On one of the two ranks nothing is wrong (it is a member of the group), or something else is (it holds all of the weight).
ONE_RANK = {"group_not_member": (0,), "sharded_shape_used": (1,)}


def _everything(rank: int) -> dict[str, tuple[str, str]]:
    import torch

    torch.set_num_threads(1)
    gloo.init()
    return {name: (outcome(name, False), outcome(name, True)) for name in CASES}


@pytest.fixture(scope="module")
def outcomes() -> list[dict[str, tuple[str, str]]]:
    """What every case printed on each rank, with the mistake and with its fix; one pair of processes runs them all."""
    return gloo.run(2, _everything, timeout=300)


def _first(path: Path) -> str:
    logs, _ = read(collect([str(path)])[0])
    found = order.ranked(decided(from_words(logs)[0], logs), order.first(logs))
    return found[0].diagnosis.id if found else ""


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_error_of_a_mistake_gets_its_diagnosis(name, outcomes, tmp_path):
    for rank in ONE_RANK.get(name, (0, 1)):
        text = outcomes[rank][name][0]
        assert text, f"{name} went through on rank {rank}"
        log = tmp_path / f"rank{rank}.log"
        log.write_text("".join(f"[rank{rank}]: {line}\n" for line in text.splitlines()), encoding="utf-8")
        assert _first(log) == name, text


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_fix_of_a_mistake_works(name, outcomes):
    assert [outcomes[rank][name][1] for rank in (0, 1)] == ["", ""]
