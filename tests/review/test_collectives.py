"""Collectives over control flow: what each side of a test of the rank executes, with verdicts."""

from __future__ import annotations

import textwrap

import pytest

from shardguide.code.review.engine import Result, review
from shardguide.knowledge import rule_store

ALL = frozenset(code for code in rule_store.codes() if code.startswith("FSD2"))
HEAD = "import torch\nimport torch.distributed as dist\n"


def read(tmp_path, body: str, **more: str) -> Result:
    (tmp_path / "train.py").write_text(HEAD + textwrap.dedent(body))
    for name, text in more.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    result = review((str(tmp_path),), "2.13", ALL)
    assert not result.problems
    return result


def found(result: Result) -> list[tuple[int, str, bool]]:
    return [(one.line - 2, one.code, one.certain) for one in result.findings]


def verdicts(result: Result) -> list[tuple[int, str, str, str]]:
    return [(one.line - 2, one.verdict, one.one, one.other) for one in result.collectives]


MATCHED = {
    "sandwich": """
        def f(x):
            if dist.get_rank() > 0:
                dist.barrier()
            print(x)
            if dist.get_rank() == 0:
                dist.barrier()
        """,
    "the pair in a helper that is called many times": """
        def wait():
            dist.barrier()

        def f(x):
            wait(); wait(); wait(); wait(); wait(); wait()
            if dist.get_rank() > 0:
                wait()
            print(x)
            if dist.get_rank() == 0:
                wait()
        """,
    "both ways out": """
        def f(x):
            if dist.get_rank() == 0:
                dist.barrier()
                return 1
            dist.barrier()
            return 2
        """,
    "finally is passed on every way": """
        def f(x):
            try:
                if dist.get_rank() != 0:
                    return
                print(x)
            finally:
                dist.barrier()
        """,
    "the same number of turns": """
        def f(x):
            if dist.get_rank() == 0:
                for _ in range(2):
                    dist.barrier()
            else:
                dist.barrier()
                dist.barrier()
        """,
    "the same loop": """
        def f(x, n):
            if dist.get_rank() == 0:
                for i in range(n):
                    dist.all_reduce(x)
            else:
                for j in range(n):
                    dist.all_reduce(x)
        """,
    "who raises ends the run": """
        def f(x, path):
            if dist.get_rank() == 0:
                if not path:
                    raise ValueError(path)
            dist.barrier()
        """,
    "one class, two methods": """
        class First:
            def __enter__(self):
                if dist.get_rank() != 0:
                    dist.barrier()

            def __exit__(self, *error):
                if dist.get_rank() == 0:
                    dist.barrier()
        """,
    "match": """
        def f(x):
            match dist.get_rank():
                case 0:
                    dist.barrier()
                case _:
                    dist.barrier()
        """,
    "for each rank its own": """
        def f(x):
            if dist.get_rank() == 0:
                dist.barrier()
            if dist.get_rank() == 1:
                dist.barrier()
        """,
    "the same test of something else on both sides": """
        def f(x, flag):
            if dist.get_rank() == 0:
                if flag:
                    dist.barrier()
            else:
                if flag:
                    dist.barrier()
        """,
}
# What reading cannot prove, and says nothing of.
OPEN = ("the same test of something else on both sides", "one class, two methods", "for each rank its own")


@pytest.mark.parametrize("name", MATCHED)
def test_matched(tmp_path, name: str) -> None:
    result = read(tmp_path, MATCHED[name])
    assert found(result) == []
    assert name in OPEN or {one.verdict for one in result.collectives} == {"matched"}


@pytest.mark.parametrize(
    "body, lines",
    [
        # an early way out, under with, in a loop, by exit
        ("def f(x):\n    with open(x):\n        if dist.get_rank() == 0:\n            return\n    dist.barrier()\n", [(5, "FSD201", True)]),
        ("import sys\ndef f(x):\n    if dist.get_rank() == 0:\n        sys.exit(0)\n    dist.barrier()\n", [(5, "FSD201", True)]),
        ("def f(x):\n    for b in x:\n        if dist.get_rank() == 0:\n            continue\n        dist.all_reduce(b)\n", [(5, "FSD201", True)]),
        ("def f(x):\n    for b in x:\n        if dist.get_rank() == 0:\n            break\n        dist.all_reduce(b)\n", [(5, "FSD201", True)]),
        ("def f(x):\n    for b in x:\n        dist.all_reduce(b)\n        if dist.get_rank() == 0:\n            break\n", [(4, "FSD210", False)]),
        # another test decides with it: it need not hold
        ("def f(x, y):\n    if dist.get_rank() == 0 and y:\n        return\n    dist.barrier()\n", [(4, "FSD201", False)]),
        ("def f(x, y):\n    if y:\n        if dist.get_rank() == 0:\n            return\n    dist.barrier()\n", [(5, "FSD201", False)]),
        # other numbers of the same
        ("def f(x):\n    if dist.get_rank() == 0:\n        for _ in range(3):\n            dist.barrier()\n    else:\n        dist.barrier()\n        dist.barrier()\n", [(4, "FSD201", True)]),
        # expressions
        ("def f(x):\n    return dist.all_reduce(x) if dist.get_rank() == 0 else None\n", [(2, "FSD201", True)]),
        ("def f(x):\n    dist.get_rank() == 0 and dist.barrier()\n", [(2, "FSD201", True)]),
        ("def f(x):\n    match dist.get_rank():\n        case 0:\n            dist.barrier()\n        case _:\n            pass\n", [(4, "FSD201", True)]),
        # by a decorator
        ("from lightning.pytorch.utilities import rank_zero_only\n@rank_zero_only\ndef f(x):\n    dist.barrier()\nf(1)\n", [(4, "FSD201", False)]),
        # order
        ("def f(x, g):\n    if dist.get_rank() == 0:\n        dist.all_reduce(x)\n        dist.broadcast(x, 0)\n    else:\n        dist.broadcast(x, 0)\n        dist.all_reduce(x)\n", [(3, "FSD213", True)]),
    ],
)  # fmt: skip
def test_mismatched(tmp_path, body: str, lines: list[tuple[int, str, bool]]) -> None:
    result = read(tmp_path, body)
    assert found(result) == lines
    assert "matched" not in {one.verdict for one in result.collectives}


def test_both_paths_are_said(tmp_path) -> None:
    result = read(
        tmp_path,
        """
        from helper import share

        def f(x, group):
            dist.barrier()
            if dist.get_rank() == 0:
                share(x)
                dist.all_reduce(x, group=group, async_op=True).wait()
            else:
                for _ in range(20):
                    dist.broadcast(x, 0)
            dist.barrier()
        """,
        helper="import torch.distributed as dist\n\ndef share(x):\n    dist.all_gather_object([], x)\n",
    )
    assert verdicts(result) == [
        (6, "mismatched", "all_gather_object, all_reduce (group group, async)", "20 times: (broadcast)")
    ]
    words = dict(result.findings[0].words)
    assert words["one"] == "all_gather_object, all_reduce (group group, async)"
    assert words["others"] == "20 times: (broadcast)"


def test_unknown_with_the_reason(tmp_path) -> None:
    result = read(tmp_path, "from elsewhere import work\n\ndef f(x):\n    if dist.get_rank() == 0:\n        work(x)\n")
    assert [(one.verdict, one.why) for one in result.collectives] == [("unknown", "work() cannot be followed")]
    assert found(result) == []


def test_recursion_is_not_known(tmp_path) -> None:
    body = "def f(x):\n    if dist.get_rank() == 0:\n        f(x)\n    dist.barrier()\n"
    result = read(tmp_path, body)
    assert [one.verdict for one in result.collectives] == ["unknown"] and found(result) == []


LOCAL = """
def train(model, loader, optimizer):
    model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in loader:
        loss = model(batch).sum()
        {before}
        if {test}:
            {way}
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "before, test, way, expected",
    [
        ("", "torch.isnan(loss)", "continue", True),
        ("", "not torch.isfinite(loss).all()", "break", True),
        ("", "loss.isnan()", "return", True),
        ("value = loss.item()", "value > 100 or loss.item() > 5", "continue", True),
        ("broadcast_from_rank0(model)", "loss.item() > 100", "continue", True),
        ("", "torch.isnan(loss)", "print(loss)", False),
        ("", "torch.isnan(loss)", "raise ValueError('nan')", False),
        ("dist.all_reduce(loss.detach())", "torch.isnan(loss)", "continue", False),
        ("loss = gather(loss)", "torch.isnan(loss)", "continue", False),
        ("", "len(batch) == 0", "continue", False),
    ],
)
def test_a_rank_goes_its_own_way(tmp_path, before: str, test: str, way: str, expected: bool) -> None:
    codes = [one.code for one in read(tmp_path, LOCAL.format(before=before, test=test, way=way)).findings]
    assert ("FSD211" in codes) is expected


@pytest.mark.parametrize(
    "over, expected",
    [
        ("range(dist.get_rank())", [True]),
        ("range(0, dist.get_rank() + 1)", [True]),
        ("range(dist.get_rank(), len(x), dist.get_world_size())", [False]),
        ("x[dist.get_rank()::4]", [False]),
        ("range(dist.get_world_size())", []),
        ("range(len(x))", []),
        ("x", []),
    ],
)
def test_loops_over_the_rank(tmp_path, over: str, expected: list[bool]) -> None:
    result = read(tmp_path, f"def f(x):\n    for i in {over}:\n        dist.all_reduce(i)\n")
    assert [(one.code, one.certain) for one in result.findings] == [("FSD210", sure) for sure in expected]


@pytest.mark.parametrize("number, expected", [("2 + dist.get_rank()", 1), ("2", 0), ("len(x)", 0)])
def test_loops_over_a_generator(tmp_path, number: str, expected: int) -> None:
    text = f"""
        def batches(seed, number):
            for _ in range(number):
                yield torch.ones(seed)

        def f(x):
            for y in batches(dist.get_rank(), {number}):
                dist.all_reduce(y)
        """
    assert [(line, code) for line, code, _ in found(read(tmp_path, text))] == [(7, "FSD210")] * expected


def test_a_verdict_stands_in_the_file_of_its_function(tmp_path) -> None:
    """A function of another file that a decorator keeps to rank 0: the place is its own, not its caller's."""
    helper = """
        import torch.distributed as dist
        from accelerate.state import on_main_process


        @on_main_process
        def report(text):
            dist.barrier()
            print(text)
        """
    caller = """
        from helper import report


        def train():
            report("done")
        """
    result = read(tmp_path, caller, helper=helper)
    places = {(one.path.rpartition("/")[2], one.line) for one in result.collectives}
    lines = textwrap.dedent(helper).split("\n")
    assert places == {("helper.py", lines.index("def report(text):") + 1)}
