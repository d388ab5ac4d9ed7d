"""What goes wrong without an error after a migration is asked for: sums over shards, old optimizer files, ShardedTensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardguide.code.migrate.engine import migrate

HEAD = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


"""
MAIN = """

def main(net, x, path):
    model = FSDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    model(x).sum().backward()
    work(model, optimizer, path)
"""
# name -> (the function, the code that is to be asked for, the line in it)
ASKED = {
    "a norm summed over the ranks": (
        """def work(model, optimizer, path):
    total = torch.zeros(1)
    for p in model.parameters():
        total += p.grad.norm() ** 2
    dist.all_reduce(total)
""",
        "own-arithmetic",
        5,
    ),
    "an average of copies": (
        """def work(model, optimizer, path):
    copies = [p.detach().clone() for p in model.parameters()]
    mine = torch.stack([(one**2).sum() for one in copies]).sum()
    dist.all_reduce(mine)
""",
        "own-arithmetic",
        4,
    ),
    "a file of each rank": (
        """def work(model, optimizer, path):
    torch.save(optimizer.state_dict(), f"{path}-{dist.get_rank()}.pt")
""",
        "optimizer-files",
        2,
    ),
    "pieces of a ShardedTensor": (
        """def work(model, optimizer, path):
    FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    return {name: value.local_tensor() for name, value in model.state_dict().items()}
""",
        "sharded-tensor",
        3,
    ),
    "the largest gradient": (
        """def work(model, optimizer, path):
    model.clip_grad_norm_(1.0, norm_type=float("inf"))
""",
        "infinity-norm",
        2,
    ),
}
NOT_ASKED = {
    "a loss": """def work(model, optimizer, path):
    losses = [batch.sum() for batch in path]
    total = torch.stack(losses).sum()
    dist.all_reduce(total)
""",
    "a norm that stays": """def work(model, optimizer, path):
    return [p.grad.norm() for p in model.parameters()]
""",
    "a whole state": """def work(model, optimizer, path):
    state = FSDP.optim_state_dict(model, optimizer)
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state))
""",
    "its own state, handed over": """def work(model, optimizer, path):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)):
        return FSDP.optim_state_dict(model, optimizer, optimizer.state_dict())
""",
}
CODES = {"own-arithmetic", "optimizer-files", "sharded-tensor", "infinity-norm"}


def _asked(folder: Path, function: str) -> tuple[set[tuple[str, int]], list[str], str]:
    path = folder / "train.py"
    path.write_text(HEAD + function + MAIN)
    result = migrate((str(path),), "2.13")
    first = HEAD.count("\n")
    asked = {(todo.code, todo.line - first) for todo in result.todos if todo.code in CODES}
    return asked, [use.what for use in result.uses if use.status == "left"], result.changes[0].after


@pytest.mark.parametrize("name", ASKED)
def test_asked_for(tmp_path: Path, name: str) -> None:
    function, code, line = ASKED[name]
    asked, left, _ = _asked(tmp_path, function)
    assert asked == {(code, line)} and not left


@pytest.mark.parametrize("name", NOT_ASKED)
def test_not_asked_for(tmp_path: Path, name: str) -> None:
    asked, left, after = _asked(tmp_path, NOT_ASKED[name])
    assert not asked and not left and "FSDP(" not in after


def test_a_context_is_taken_away_with_all_that_stands_in_it_or_not_at_all(tmp_path: Path) -> None:
    function = """def work(model, optimizer, path):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        other = torch.load(path)
        return model.state_dict(), FSDP.optim_state_dict(model, optimizer, other)
"""
    _, left, after = _asked(tmp_path, function)
    assert left and function in after
