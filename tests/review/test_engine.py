"""The engine: names over files, ranks and their branches, guards, suppression, hostile files, fixes."""

from __future__ import annotations

import ast
import textwrap
import time

import pytest

from shardguide.code.review.engine import review
from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge import rule_store
from shardguide.workflows.review import ReviewRequest, check
from shardguide.workflows.review.fixes import applied, unified

ALL = frozenset(rule_store.codes())


def look(
    tmp_path, release: str = "", more: dict[str, str] | None = None, **files: str
) -> list[tuple[str, int, str, bool]]:
    for name, text in (files | (more or {})).items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    result = review((str(tmp_path),), release, ALL)
    assert not result.problems
    return [(one.path.rpartition("/")[2], one.line, one.code, one.certain) for one in result.findings]


RANK = "import os\nimport torch.distributed as dist\nrank = int(os.environ['RANK'])\n"


@pytest.mark.parametrize(
    "body, lines",
    [
        ("if rank == 0:\n    dist.barrier()\n", [5]),
        ("if rank != 0:\n    dist.barrier()\n", [5]),
        ("if rank:\n    pass\nelse:\n    dist.barrier()\n", [7]),
        ("if not rank == 0:\n    dist.barrier()\n", [5]),
        ("main = rank == 0\nif main:\n    dist.barrier()\n", [6]),
        # the same on both sides, in whatever shape
        ("if rank == 0:\n    dist.barrier()\nelse:\n    dist.barrier()\n", []),
        ("if rank != 0:\n    dist.barrier()\nprint()\nif rank == 0:\n    dist.barrier()\n", []),
        ("if rank > 0:\n    dist.barrier()\nprint()\nif rank == 0:\n    dist.barrier()\n", []),
        # another operation on the other side
        ("if rank == 0:\n    dist.barrier()\nelse:\n    dist.all_reduce(x)\n", [5, 7]),
        # a group of one's own is for its members
        ("if rank in (0, 1):\n    dist.barrier(group=pair)\n", []),
        # every rank or none
        ("if rank >= 0:\n    dist.barrier()\n", []),
        ("if rank == -1:\n    dist.barrier()\n", []),
        ("if enabled:\n    dist.barrier()\n", []),
    ],
)
def test_branches_of_a_rank(tmp_path, body: str, lines: list[int]) -> None:
    assert [(line, code) for _, line, code, _ in look(tmp_path, train=RANK + body)] == [(n, "FSD201") for n in lines]


def test_early_return(tmp_path) -> None:
    text = """
        import torch.distributed as dist

        def save(state):
            if dist.get_rank() != 0:
                return
            print(state)
            dist.barrier()
        """
    assert look(tmp_path, train=text) == [("train.py", 8, "FSD201", True)]


def test_a_rank_by_its_name_alone_is_a_suspicion(tmp_path) -> None:
    text = "import torch.distributed as dist\ndef f(rank):\n    if rank == 0:\n        dist.barrier()\n"
    assert look(tmp_path, train=text) == [("train.py", 4, "FSD201", False)]


def test_what_the_other_side_may_call_makes_it_a_suspicion(tmp_path) -> None:
    text = RANK + "from elsewhere import work\nif rank == 0:\n    dist.barrier()\nelse:\n    work()\n"
    assert look(tmp_path, train=text) == [("train.py", 6, "FSD201", False)]


def test_through_calls_and_files(tmp_path) -> None:
    found = look(
        tmp_path,
        more={
            "pkg/__init__": "from .sharding import shard\n",
            "pkg/sharding": """
            from torch.distributed.fsdp import fully_shard as fs

            def shard(model):
                for block in model.blocks:
                    fs(block)
                fs(model)
                return model
            """,
            "pkg/ranks": """
            import torch.distributed as dist

            def is_main():
                return dist.get_rank() == 0
            """,
        },
        train="""
            import torch
            import torch.distributed as dist
            from pkg import shard
            from pkg.ranks import is_main

            def main(model, batch):
                optimizer = torch.optim.AdamW(model.parameters())
                model = shard(model)
                model.forward(batch)
                if is_main():
                    dist.barrier()
            """,
    )
    assert found == [
        ("train.py", 8, "FSD401", True),
        ("train.py", 10, "FSD405", True),
        ("train.py", 12, "FSD201", True),
    ]


def test_what_happens_in_one_branch_is_nothing_to_the_other(tmp_path) -> None:
    text = """
        import torch
        from torch.distributed.fsdp import fully_shard

        def build(model, shard):
            optimizer = torch.optim.AdamW(model.parameters())
            if shard:
                for block in model.blocks:
                    fully_shard(block)
                fully_shard(model)
            else:
                model.forward(1)
            return optimizer
        """
    assert look(tmp_path, train=text) == [("train.py", 6, "FSD401", True)]


def test_guarded_by_type(tmp_path) -> None:
    text = """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        def clip(module, policy):
            model = FSDP(module, auto_wrap_policy=policy)
            if isinstance(model, FSDP):
                model.clip_grad_norm_(1.0)
            else:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        """
    assert look(tmp_path, train=text) == []


def test_the_same_words_of_another_library(tmp_path) -> None:
    text = """
        from fairscale.nn import FullyShardedDataParallel as FSDP
        from mylib import dist, fully_shard
        import torch

        def f(model):
            optimizer = torch.optim.SGD(model.parameters())
            fully_shard(model)
            model = FSDP(model)
            if dist.get_rank() == 0:
                dist.barrier()
            model.forward(1)
        """
    assert look(tmp_path, train=text) == []


def test_a_release_that_has_it_elsewhere(tmp_path) -> None:
    text = """
        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError:
            from torch.distributed._composable.fsdp import fully_shard
        from torch.distributed.fsdp import FSDPModule
        """
    assert look(tmp_path, "2.5", train=text) == [("train.py", 6, "FSD901", True)]
    assert look(tmp_path, "2.6", train=text) == []


def test_suppressed(tmp_path) -> None:
    lines = ["dist.barrier()  # shardguide: ignore[FSD201]", "dist.barrier()  # shardguide: ignore[FSD202]"]
    text = RANK + "if rank == 0:\n    " + "\n    ".join(lines) + "\n"
    assert look(tmp_path, train=text) == [("train.py", 6, "FSD201", True), ("train.py", 6, "FSD049", True)]


HOSTILE = {
    "syntax": b"import torch\nprint 'x'\n",
    "deep": b"import torch\nx = " + b"(" * 5000 + b")" * 5000 + b"\n",
    "chain": b"import torch\nx = " + b"-" * 3000 + b"1\n",
    "sum": b"import torch\nx = " + b"+".join([b"1"] * 20_000) + b"\n",
    "null": b"import torch\nx = '\x00'\n",
    "latin": b"import torch\nx = '\xe9'\n",
    "long": b"import torch\n" + b"x = [1, 2, 3]\n" * 200_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_read_is_said_and_the_rest_goes_on(tmp_path, name: str) -> None:
    (tmp_path / "bad.py").write_bytes(HOSTILE[name])
    (tmp_path / "good.py").write_text(RANK + "if rank == 0:\n    dist.barrier()\n")
    start = time.process_time()
    result = review((str(tmp_path),), "2.13", ALL)
    assert [one.code for one in result.findings] == ["FSD201"]
    assert [one.path.endswith("bad.py") and bool(one.why) for one in result.problems] == [True]
    assert time.process_time() - start < 5


def test_recursion_and_growth_end(tmp_path) -> None:
    calls = "".join(f"def f{i}(m):\n    f{i + 1}(m); f{i + 1}(m); f{i + 1}(m)\n" for i in range(40))
    text = RANK + calls + "def f40(m):\n    f0(m)\n    dist.barrier()\nf0(1)\n"
    start = time.process_time()
    assert look(tmp_path, train=text) == []
    assert time.process_time() - start < 5


def test_nothing_to_read(tmp_path) -> None:
    with pytest.raises(UnusableInput, match="no Python file"):
        review((str(tmp_path),), "", ALL)
    with pytest.raises(UnusableInput, match="no such file"):
        review((str(tmp_path / "none.py"),), "", ALL)
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(UnusableInput, match="no rule begins with"):
        check(ReviewRequest((str(tmp_path),), select=("XYZ",), torch="2.13"))


@pytest.mark.parametrize("code", rule_store.codes())
def test_fixes_parse_and_take_the_finding_away(code: str, tmp_path) -> None:
    rule = rule_store.get(code)
    path = tmp_path / "train.py"
    path.write_text(rule.wrong)
    release = rule.torch or (rule.releases.split("-")[0] if rule.releases else "")
    edits = [edit._asdict() for one in review((str(path),), release, ALL).findings for edit in one.edits]
    if not edits:
        return  # this rule has no safe fix
    after = applied(rule.wrong, edits, "train.py")
    ast.parse(after)
    path.write_text(after)
    assert code not in [one.code for one in review((str(path),), release, ALL).findings]


@pytest.mark.parametrize("given, lines", [("", []), ("True", [6]), ("flag=True", [6]), ("False", []), ("unknown", [6])])
def test_a_flag_decides_the_branches_of_the_function_it_is_handed_to(tmp_path, given: str, lines: list[int]) -> None:
    text = f"""
        import torch.distributed as dist

        def work(flag=False):
            if flag:
                dist.barrier()

        if dist.get_rank() == 0:
            work({given})
        """
    assert [line for _, line, code, _ in look(tmp_path, train=text) if code == "FSD201"] == lines


def test_a_fix_as_a_diff_keeps_the_rest(tmp_path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        'import datetime, torch.distributed as dist\n\n# é ü: bytes\ns = "é"; dist.init_process_group("gloo", timeout=60)  # minutes\n'
    )
    found = check(ReviewRequest((str(path),), torch="2.13", select=("FSD111",))).extra["findings"]
    diff = unified(found)
    assert found[0]["column"] == 50 and found[0]["certain"]
    assert '-s = "é"; dist.init_process_group("gloo", timeout=60)  # minutes\n' in diff
    assert '+s = "é"; dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))  # minutes\n' in diff
