"""The Join check's verdicts: right programs proven, PyTorch's own Joinables too, broken variants violated at the place."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from shardguide.code.join import Verdict, check

from . import forms, programs


def verdicts(text: str, tmp_path) -> list[Verdict]:
    path = tmp_path / "train.py"
    path.write_text(text)
    result = check((str(path),))
    assert not result.problems
    return list(result.verdicts)


def codes(found: list[Verdict], suspicions: bool = False) -> set[str]:
    return {issue.code for one in found for issue in one.issues if issue.violated or suspicions}


@pytest.mark.parametrize("name", sorted(programs.RIGHT))
def test_right_programs_are_proven(name: str, tmp_path) -> None:
    found = verdicts(programs.RIGHT[name], tmp_path)
    assert [one.kind for one in found] == ["Joinable", "Join"]
    assert [one.verdict for one in found] == ["proven", "proven"], [(one.issues, one.unknown) for one in found]
    assert all(row.result == "matched" for one in found for row in one.rows) and found[0].rows


@pytest.mark.parametrize("variant", programs.VARIANTS, ids=lambda one: one.name)
def test_broken_variants_are_found(variant: programs.Variant, tmp_path) -> None:
    found = verdicts(programs.text(variant), tmp_path)
    assert variant.code in codes(found, variant.code == "FSD637"), [
        (one.verdict, one.issues, one.unknown) for one in found
    ]
    assert any(one.verdict != "proven" for one in found)


def test_there_are_enough_variants() -> None:
    """Forty are wanted, fifteen of them run for real."""
    assert len(programs.VARIANTS) >= 70 and sum(bool(one.runs) for one in programs.VARIANTS) >= 40
    assert len({one.code for one in programs.VARIANTS}) >= 28


COUNTER = (
    programs.HEAD
    + """

class Count(Joinable):
    def __init__(self, device, process_group):
        super(Count, self).__init__()
        self.device = device
        self.process_group = process_group
        self.count = torch.tensor([0], device=device).float()

    def __call__(self):
        Join.notify_join_context(self)
        one = torch.ones(1, device=self.device).float()
        dist.all_reduce(one)
        self.count += one

    def join_hook(self, **kwargs):
        return CountHook(self)

    @property
    def join_device(self):
        return self.device

    @property
    def join_process_group(self):
        return self.process_group


class CountHook(JoinHook):
    def __init__(self, count):
        self.count = count

    def main_hook(self):
        dist.all_reduce(torch.zeros(1, device=self.count.device))
"""
)


def test_the_default_group_without_a_word(tmp_path) -> None:
    """As in the official tutorial: right where the default group is what join_process_group names, and else not."""
    loop = "\n\ndef train(inputs):\n    count = Count(torch.device('cpu'), {})\n    with Join([count]):\n        for _ in inputs:\n            count()\n"
    alone = verdicts(COUNTER, tmp_path)[0]
    assert alone.verdict == "unknown" and "right only where that is the default group" in alone.unknown[0]
    world = verdicts(COUNTER + loop.format("dist.group.WORLD"), tmp_path)[0]
    assert world.verdict == "proven" and "default group" in world.assumes[0]
    other = verdicts(COUNTER + loop.format("dist.new_group([0, 1])"), tmp_path)[0]
    assert other.verdict == "violated" and codes([other]) == {"FSD625"}


def test_what_cannot_be_followed_is_not_proven(tmp_path) -> None:
    """A callable that the user gives may do anything."""
    text = COUNTER.replace("        self.count += one\n", "        self.count += one\n        self.fn(one)\n")
    text = text.replace("device, process_group):", "device, process_group, fn):").replace(
        "self.device = device\n", "self.device = device\n        self.fn = fn\n", 1
    )
    text += "\n\ndef train(inputs, fn):\n    count = Count('cpu', dist.group.WORLD, fn)\n    with Join([count]):\n        for _ in inputs:\n            count()\n"
    found = verdicts(text, tmp_path)[0]
    assert found.verdict == "unknown" and any("self.fn" in why for why in found.unknown)


def test_a_base_that_was_not_read_is_unknown(tmp_path) -> None:
    text = COUNTER.replace("class Count(Joinable)", "from trainer import Loop\n\n\nclass Count(Loop, Joinable)")
    found = verdicts(text, tmp_path)[0]
    assert found.verdict == "unknown" and any("trainer.Loop" in why for why in found.unknown)


def test_over_several_files(tmp_path) -> None:
    """The hook in another module, the joinable behind an alias and a class in between."""
    parts = programs.METER.split("\n\nclass MeterHook")
    hook, _, loop = ("\n\nclass MeterHook" + parts[1]).partition("\n\ndef train")
    (tmp_path / "hooks.py").write_text(programs.HEAD + hook.replace("torch.zeros(1,", "torch.zeros(3,"))
    (tmp_path / "base.py").write_text(
        parts[0]
        .replace(programs.HEAD, programs.HEAD + "from hooks import MeterHook as Shadow\n")
        .replace("return MeterHook(", "return Shadow(")
    )
    (tmp_path / "train.py").write_text(
        programs.HEAD
        + "import base as b\n\n\nclass Mine(b.Meter):\n    pass\n\n\ndef train"
        + loop.replace("Meter(", "Mine(")
    )
    found = {one.name: one for one in check((str(tmp_path),)).verdicts}
    assert found["Mine"].verdict == "violated" and {i.file.path.rpartition("/")[2] for i in found["Mine"].issues} == {
        "hooks.py"
    }


def test_rounds_that_join_and_the_iteration_are_given(tmp_path) -> None:
    """As in PyTorch's own tests: the number of all-reduces comes by an argument here and by Join's keyword there."""
    text = COUNTER.replace("def __call__(self):", "def __call__(self, rounds=1):")
    text = text.replace(
        "        dist.all_reduce(one)\n", "        for _ in range(rounds):\n            dist.all_reduce(one)\n"
    )
    text = text.replace("CountHook(self)", 'CountHook(self, kwargs.get("rounds", 1))').replace(
        "(self, count):", "(self, count, rounds):"
    )
    text = text.replace("self.count = count\n", "self.count = count\n        self.rounds = rounds\n")
    text = text.replace(
        "        dist.all_reduce(torch.zeros",
        "        for _ in range(self.rounds):\n            dist.all_reduce(torch.zeros",
    )
    loop = "\n\ndef train(inputs, n):\n    count = Count('cpu', dist.group.WORLD)\n    with Join([count], rounds={}):\n        for _ in inputs:\n            count({})\n"
    assert verdicts(text, tmp_path)[0].verdict == "unknown"
    assert verdicts(text + loop.format("n", "n"), tmp_path)[0].verdict == "proven"
    assert verdicts(text + loop.format("2", "2"), tmp_path)[0].verdict == "proven"
    assert verdicts(text + loop.format("3", "2"), tmp_path)[0].verdict == "violated"


@pytest.mark.torch
def test_pytorchs_own_joinables_are_proven() -> None:
    """Read as text from the installed release."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("PyTorch is not installed")
    home = Path(spec.origin).parent
    files = (home / "nn/parallel/distributed.py", home / "distributed/optim/zero_redundancy_optimizer.py")
    found = check(tuple(str(file) for file in files)).verdicts
    assert {one.name: one.verdict for one in found} == {
        "DistributedDataParallel": "proven",
        "ZeroRedundancyOptimizer": "proven",
    }
    assert not any(one.issues for one in found) and all(one.rows and one.assumes for one in found)
    sides = {one.name: [row.iteration.partition(" on ")[0] for row in one.rows] for one in found}
    assert any("all_reduce of shape (1,)" in row for row in sides["DistributedDataParallel"])
    assert any("reduction of a bucket" in row for row in sides["DistributedDataParallel"])
    assert any("broadcast" in row for row in sides["ZeroRedundancyOptimizer"])


# What is right, but not to be proven: whether every rank has the same gradients, and the order in which autograd makes them.
OPEN = {"filter", "accum"}


@pytest.mark.parametrize("name", sorted(forms.RIGHT))
def test_other_right_forms(name: str, tmp_path) -> None:
    found = verdicts(forms.RIGHT[name], tmp_path)[0]
    assert found.verdict == ("unknown" if name in OPEN else "proven"), (found.issues, found.unknown)
    assert not found.issues


@pytest.mark.parametrize("name", sorted(forms.BROKEN))
def test_mistakes_in_other_forms(name: str, tmp_path) -> None:
    found = verdicts(forms.BROKEN[name], tmp_path)[0]
    assert found.verdict == ("unknown" if name == "gather-cond" else "violated"), (found.issues, found.unknown)
