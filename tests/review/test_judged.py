"""Rules where they would go too far: what PyTorch allows, and what is a suspicion only."""

from __future__ import annotations

import pytest
from tests.review.test_engine import look

from shardguide.knowledge import rule_store

GROUP = """
import torch.distributed as dist

def build(quick, **options):
    if dist.get_rank() in (0, 1):
        return dist.new_group({given})
"""


@pytest.mark.parametrize(
    "given, expected",
    [
        ("[0, 1]", [True]),
        ("[0, 1], None, None, None, False", [True]),
        ("[0, 1], use_local_synchronization=True", []),
        ("[0, 1], None, None, None, True", []),
        ("[0, 1], use_local_synchronization=quick", []),
        ("[0, 1], **options", [False]),
    ],
)
def test_groups_that_only_members_make(tmp_path, given: str, expected: list[bool]) -> None:
    found = look(tmp_path, release="2.13", train=GROUP.format(given=given))
    assert [sure for _, _, code, sure in found if code == "FSD116"] == expected


@pytest.mark.parametrize(
    "given, expected",
    [
        ("{}, checkpoint_id=path", [True]),
        ("{}, checkpoint_id=path, planner=Planner()", []),  # torch's own _EmptyStateDictLoadPlanner fills it
    ],
)
def test_loading_into_nothing(tmp_path, given: str, expected: list[bool]) -> None:
    text = f"import torch.distributed.checkpoint as dcp\nfrom own import Planner\n\ndef load(path):\n    dcp.load({given})\n"
    assert [sure for _, _, code, sure in look(tmp_path, train=text) if code == "FSD706"] == expected


@pytest.mark.parametrize(
    "reduce, divide, expected",
    [
        ("dist.all_reduce(x, op=dist.ReduceOp.AVG)", "x /= dist.get_world_size()", [True]),
        ("dist.all_reduce(x, op=dist.ReduceOp.AVG, group=rows)", "x /= world_size", [False]),
        ("dist.all_reduce(x, op=dist.ReduceOp.AVG)", "x /= pipe_world_size", [False]),
        ("dist.all_reduce(x, op=dist.ReduceOp.AVG)", "x /= dist.get_world_size(rows)", [False]),
        ("dist.all_reduce(x, op=dist.ReduceOp.AVG)", "x /= batch_size", []),
    ],
)
def test_divided_twice(tmp_path, reduce: str, divide: str, expected: list[bool]) -> None:
    text = f"import torch.distributed as dist\n\ndef mean(x, rows):\n    {reduce}\n    {divide}\n    return x\n"
    assert [sure for _, _, code, sure in look(tmp_path, train=text) if code == "FSD222"] == expected


@pytest.mark.parametrize("trained", [False, True])
def test_a_head_that_is_replaced(tmp_path, trained: bool) -> None:
    """After training it may be meant for what comes then, such as an export."""
    text = f"""\
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        def build(module, batch):
            model = DDP(module)
            {"model(batch).sum().backward()" if trained else "print(model)"}
            model.module.head = torch.nn.Linear(4, 2)
            return model
        """
    assert [sure for _, _, code, sure in look(tmp_path, train=text) if code == "FSD508"] == [not trained]


def test_no_shard_is_deprecated_from_2_3_on() -> None:
    """The warning stands in fsdp/_init_utils.py of 2.3.1, and not in that of 2.2.2."""
    for code in ("FSD031", "FSD305"):
        assert code in rule_store.applying("2.3") and code not in rule_store.applying("2.2")


@pytest.mark.parametrize(
    "main, args, expected",
    [
        ("def main(index, a, b=1): ...", "args=(2,), ", False),
        ("def main(*given): ...", "args=(2, 3), ", False),
        ("def main(*given): ...", "", False),
        ("def main(index, **options): ...", "", False),
        ("def main(index, a, b=1): ...", "args=(1, 2, 3), ", True),
        ("def main(index, **options): ...", "args=(1,), ", True),
        ("def main(): ...", "", True),
    ],
)
def test_what_spawn_hands_over(tmp_path, main: str, args: str, expected: bool) -> None:
    text = f"import torch.multiprocessing as mp\n\n{main}\n\nif __name__ == '__main__':\n    mp.spawn(main, {args}nprocs=2)\n"
    assert any(code == "FSD136" for _, _, code, _ in look(tmp_path, train=text)) is expected
