"""Projects with FSDP1 and FSDP2 side by side: the FSDP1 branch is converted in place where the model's type decides, and left where a
setting does; for FSDP2's models nothing changes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from . import parity

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NAME = "both_strategies"


def _migrated(folder: Path) -> tuple[Path, Path, object]:
    before = parity.place(NAME, folder / "before")
    texts, result = parity.migrate(parity.source(NAME))
    return before, parity.place(NAME, folder / "after", texts), result


def test_both_branches_train_as_before(tmp_path: Path) -> None:
    before, after, _ = _migrated(tmp_path)
    old = parity.train(before, ("--strategy", "fsdp"))
    new = parity.train(before, ("--strategy", "fsdp2"))
    assert parity.difference(old, new) < 1e-6  # the project's own two ways agree, or this would show nothing
    assert parity.difference(old, parity.train(after, ("--strategy", "fsdp"))) < 1e-6
    assert parity.train(after, ("--strategy", "fsdp2")) == new  # to the last bit


@pytest.mark.parametrize("strategy", ["fsdp", "fsdp2"])
def test_checkpoints_of_before_are_resumed(tmp_path: Path, strategy: str) -> None:
    before, after, _ = _migrated(tmp_path)
    saved = str(tmp_path / "state.pt")
    parity.train(before, ("--strategy", strategy, "--save", saved))
    expected = parity.train(before, ("--strategy", strategy, "--resume", saved))
    assert parity.difference(expected, parity.train(after, ("--strategy", "fsdp", "--resume", saved))) < 1e-6
    again = str(tmp_path / "again.pt")
    parity.train(after, ("--strategy", "fsdp", "--save", again))
    assert parity.difference(expected, parity.train(before, ("--strategy", strategy, "--resume", again))) < 1e-6


def test_what_asks_for_the_type_stays(tmp_path: Path) -> None:
    _, after, result = _migrated(tmp_path)
    source = parity.source(NAME)
    assert (after / "strategies.py").read_text() == (source / "strategies.py").read_text()
    old, new = (source / "train.py").read_text(), (after / "train.py").read_text()
    ast.parse(new)
    twin = old[old.index('elif strategy == "fsdp2"') : old.index("self.optimizer =")]
    assert twin in new and "FSDP(" not in new
    status = {(use.kind, use.what, use.status, use.reason) for use in result.uses}  # type: ignore[attr-defined]
    assert ("constructor", "FSDP", "converted", "") in status
    assert ("method", "clip_grad_norm_", "converted", "") in status  # behind the setting, of the converted model
    assert ("method", "clip_grad_norm_", "kept", "behind-type-test") in status
    assert ("state dict", "state_dict_type", "kept", "behind-type-test") in status
    assert not [use for use in result.uses if use.status == "left"]  # type: ignore[attr-defined]
    assert "twin" in {todo.code for todo in result.todos}  # type: ignore[attr-defined]


def test_a_second_migration_changes_nothing(tmp_path: Path) -> None:
    _, after, _ = _migrated(tmp_path)
    texts, _ = parity.migrate(after)
    assert not texts


# Everything else of the project: what keeps a constructor as it is.
HEAD = """
import torch
from torch.distributed.fsdp import FSDPModule, StateDictType, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net, strategy):
    if strategy == "fsdp":
        model = FSDP(net)
    else:
        fully_shard(net)
        model = net
    return model

"""
LEFT = {
    "a setting decides over the state dict": """
def save(model, strategy):
    if strategy == "fsdp":
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            return model.state_dict()
    return model.state_dict()


def main(net, strategy):
    return save(build(net, strategy), strategy)
""",
    "nothing decides": """
def main(net, strategy):
    model = build(net, strategy)
    with FSDP.summon_full_params(model):
        return [p.sum() for p in model.parameters()]
""",
    "the test is for another model": """
def main(net, other, strategy):
    model = build(net, strategy)
    if isinstance(other, FSDP):
        with FSDP.summon_full_params(model):
            return [p.sum() for p in model.parameters()]
""",
    "the model is put where it cannot be followed": """
def wrap(owner, net):
    new = FSDP(net)
    setattr(owner, "model", new)


def save(owner):
    with FSDP.state_dict_type(owner.model, StateDictType.FULL_STATE_DICT):
        return owner.model.state_dict()


def main(owner, net, strategy):
    wrap(owner, build(net, strategy))
    return save(owner)
""",
}
CONVERTED = {
    "a test around": """
def main(net, strategy):
    model = build(net, strategy)
    if isinstance(model, FSDP):
        with FSDP.summon_full_params(model):
            return [p.sum() for p in model.parameters()]
""",
    "a test that goes away": """
def main(net, strategy):
    model = build(net, strategy)
    if isinstance(model, FSDPModule):
        return None
    assert isinstance(model, FSDP)
    with FSDP.summon_full_params(model):
        return [p.sum() for p in model.parameters()]
""",
    "both kinds go there": """
def main(net, strategy):
    model = build(net, strategy)
    if isinstance(model, (FSDP, FSDPModule)):
        with FSDP.summon_full_params(model):
            return [p.sum() for p in model.parameters()]
""",
    "a function that says whether": """
def is_old(model):
    return isinstance(model, FSDP)


def main(net, strategy):
    model = build(net, strategy)
    if not is_old(model):
        return None
    with FSDP.summon_full_params(model):
        return [p.sum() for p in model.parameters()]
""",
}


def _constructors(folder: Path, code: str) -> tuple[list[str], str]:
    path = folder / "program.py"
    path.write_text(HEAD + code)
    texts, result = parity.migrate(path)
    found = [use.status for use in result.uses if use.kind == "constructor"]
    return found, texts.get(str(path), HEAD + code)


@pytest.mark.parametrize("name", LEFT)
def test_a_constructor_that_stays(tmp_path: Path, name: str) -> None:
    found, text = _constructors(tmp_path, LEFT[name])
    assert set(found) == {"left"}
    assert text == HEAD + LEFT[name]


@pytest.mark.parametrize("name", CONVERTED)
def test_a_constructor_that_goes(tmp_path: Path, name: str) -> None:
    found, text = _constructors(tmp_path, CONVERTED[name])
    assert found == ["converted"]
    assert text.endswith(CONVERTED[name]) and "model = fully_shard(net" in text


EARLY = """
def make(net):
    return net, torch.optim.AdamW(net.parameters(), lr=0.01)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = Model()
    {lines}
    history = []
    for step in range(4):
        x, y = batch(step)
        loss = (model(x) - y).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(0.5)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history
"""
FORMS = {
    "an optimizer from a function": """model, optimizer = make(net)
    model = FSDP(model, use_orig_params=True, device_id=CPU)""",
    "parameters read before": """model, optimizer = make(net)
    named = {name: p for name, p in model.named_parameters()}
    model = FSDP(model, use_orig_params=True, device_id=CPU)
    for group in optimizer.param_groups:
        group["params"] = list(named.values())""",
}


@pytest.mark.parametrize("name", FORMS)
def test_optimizers_from_elsewhere(tmp_path: Path, name: str) -> None:
    from .test_run_forms import HEAD as PARTS

    path = tmp_path / "program.py"
    path.write_text(PARTS + EARLY.replace("{lines}", FORMS[name]))
    before = parity.train(path, None)
    texts, result = parity.migrate(path)
    assert not [use for use in result.uses if use.status == "left"]
    path.write_text(texts[str(path)])
    assert parity.difference(before, parity.train(path, None)) < 1e-6
