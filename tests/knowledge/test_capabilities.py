"""The capability table against PyTorch's page, and gloo's CPU column against Gloo itself."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge import api, backends, releases
from shardguide.knowledge.backends.table import DEPENDS, NO, NO_COLUMN, NOT_READ, YES

sys.path.insert(0, str(Path(__file__).parents[2]))  # this folder is no package, the harness lies in one
from tests.snippets import gloo

FILE = Path(backends.__file__).parent / "capabilities.json"
DATA = json.loads(FILE.read_text(encoding="utf-8"))
# The rows as they stand on the pages: of PyTorch 2.6.0 (docs/source/distributed.rst), and of the stable page of 2026-02-14.
OF_2_6 = """
| send           | ✓   | ✘   | ✓   | ?   | ✘   | ✓   |
| recv           | ✓   | ✘   | ✓   | ?   | ✘   | ✓   |
| broadcast      | ✓   | ✓   | ✓   | ?   | ✘   | ✓   |
| all_reduce     | ✓   | ✓   | ✓   | ?   | ✘   | ✓   |
| reduce         | ✓   | ✘   | ✓   | ?   | ✘   | ✓   |
| all_gather     | ✓   | ✘   | ✓   | ?   | ✘   | ✓   |
| gather         | ✓   | ✘   | ✓   | ?   | ✘   | ✓   |
| scatter        | ✓   | ✘   | ✓   | ?   | ✘   | ✓   |
| reduce_scatter | ✘   | ✘   | ✘   | ✘   | ✘   | ✓   |
| all_to_all     | ✘   | ✘   | ✓   | ?   | ✘   | ✓   |
| barrier        | ✓   | ✘   | ✓   | ?   | ✘   | ✓   |
"""
OF_2_14 = """
| send           | ✓   | ✘   | ✓   | ?   | ✘   | ✓   | ✘   | ✓   |
| recv           | ✓   | ✘   | ✓   | ?   | ✘   | ✓   | ✘   | ✓   |
| broadcast      | ✓   | ✓   | ✓   | ?   | ✘   | ✓   | ✘   | ✓   |
| all_reduce     | ✓   | ✓   | ✓   | ?   | ✘   | ✓   | ✘   | ✓   |
| reduce         | ✓   | ✓   | ✓   | ?   | ✘   | ✓   | ✘   | ✓   |
| all_gather     | ✓   | ✓   | ✓   | ?   | ✘   | ✓   | ✘   | ✓   |
| gather         | ✓   | ✓   | ✓   | ?   | ✘   | ✓   | ✘   | ✓   |
| scatter        | ✓   | ✓   | ✓   | ?   | ✘   | ✓   | ✘   | ✓   |
| reduce_scatter | ✓   | ✓   | ✘   | ✘   | ✘   | ✓   | ✘   | ✓   |
| all_to_all     | ✘   | ✘   | ✓   | ?   | ✘   | ✓   | ✘   | ✓   |
| barrier        | ✓   | ✘   | ✓   | ?   | ✘   | ✓   | ✘   | ✓   |
"""
MARKS = {"✓": YES, "✘": NO, "?": DEPENDS}


def _rows(page: str) -> dict[str, tuple[str, str]]:
    """Operation to the marks of its row and the row's text, white space normalised."""
    rows = [" ".join(line.split()) for line in page.strip().splitlines()]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {one[0]: ("".join(MARKS[mark] for mark in one[1:]), row) for one, row in zip(cells, rows, strict=True)}


@pytest.mark.parametrize(("release", "page"), [("2.6", OF_2_6), ("2.14", OF_2_14)])
def test_the_table_is_the_page(release: str, page: str) -> None:
    table = backends.table(release)
    rows = _rows(page)
    assert set(rows) == set(backends.OPERATIONS) == set(table.rows) == set(table.digests)
    for operation, (marks, text) in rows.items():
        assert table.rows[operation].rstrip(NO_COLUMN) == marks
        assert table.digests[operation] == hashlib.sha256(text.encode()).hexdigest()
        assert len(marks) == len(table.columns)


def test_every_release_has_one_table() -> None:
    for release in releases.known():
        assert sum(releases.within(release, one["releases"]) for one in DATA["tables"]) == 1
        for row in backends.table(release).rows.values():
            assert len(row) == 8


def test_between_two_tables_only_what_both_say_is_said() -> None:
    before, after, between = (backends.table(release).rows for release in ("2.6", "2.10", "2.8"))
    for operation, marks in between.items():
        for i, mark in enumerate(marks):
            if mark != NOT_READ:
                assert mark == before[operation][i] == after[operation][i]
    assert backends.cell("all_to_all", "gloo", "cpu", "2.8").mark == NOT_READ  # the page said yes for a while


def test_what_guides_with_four_columns_get_wrong() -> None:
    for release in ("2.3", "2.8", "2.13"):
        for operation in backends.OPERATIONS:
            assert backends.cell(operation, "nccl", "gpu", release).mark == YES
            assert backends.cell(operation, "nccl", "cpu", release).mark == NO
    assert [one for one in backends.OPERATIONS if backends.cell(one, "mpi", "gpu", "2.13").mark != DEPENDS] == [
        "reduce_scatter"
    ]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("dist.all_gather_into_tensor", "all_gather"),
        ("reduce_scatter_tensor", "reduce_scatter"),
        ("all_to_all_single", "all_to_all"),
        ("isend", "send"),
        ("broadcast_object_list", "broadcast"),
        (" All-Reduce ", "all_reduce"),
    ],
)
def test_forms_of_an_operation(name: str, operation: str) -> None:
    assert backends.operation(name) == operation


def test_an_operation_that_is_none() -> None:
    with pytest.raises(UnusableInput, match="'all_swap' is not an operation"):
        backends.operation("all_swap")


def test_operations_are_functions_of_every_release() -> None:
    for release in releases.known():
        assert all(api.exists(f"torch.distributed.{one}", release) for one in backends.OPERATIONS)


def _all(rank: int) -> dict[str, list[float]]:
    """What each operation gives on this rank of two; rank r brings the values 10 r + i."""
    import torch
    import torch.distributed as dist

    gloo.init()

    def own(count: int = 4) -> torch.Tensor:
        return torch.tensor([10.0 * rank + i for i in range(count)])

    def empty(count: int = 4) -> torch.Tensor:
        return torch.full((count,), -1.0)

    out: dict[str, list[float]] = {}
    got = empty()
    if rank == 0:
        dist.send(own(), 1)
    else:
        dist.recv(got, 0)
    out["send"] = out["recv"] = got.tolist()
    value = own()
    dist.broadcast(value, 1)
    out["broadcast"] = value.tolist()
    value = own()
    dist.all_reduce(value)
    out["all_reduce"] = value.tolist()
    value = own()
    dist.reduce(value, 0)
    out["reduce"] = value.tolist() if rank == 0 else []
    parts = [empty(), empty()]
    dist.all_gather(parts, own())
    out["all_gather"] = torch.cat(parts).tolist()
    parts = [empty(), empty()]
    dist.gather(own(), parts if rank == 0 else None)
    out["gather"] = torch.cat(parts).tolist() if rank == 0 else []
    got = empty()
    dist.scatter(got, [own(), own() + 100] if rank == 0 else None)
    out["scatter"] = got.tolist()
    got = empty(2)
    dist.reduce_scatter(got, list(own().chunk(2)))
    out["reduce_scatter"] = got.tolist()
    parts = [empty(2), empty(2)]
    dist.all_to_all(parts, list(own().chunk(2)))
    out["all_to_all"] = torch.cat(parts).tolist()
    dist.barrier()
    out["barrier"] = []
    return out


@pytest.mark.torch
def test_gloo_on_cpu_runs_every_operation() -> None:
    torch = pytest.importorskip("torch", reason="runs Gloo")
    assert ".".join(torch.__version__.split(".")[:2]) == DATA["ran"]["torch"]
    first, second = [0.0, 1.0, 2.0, 3.0], [10.0, 11.0, 12.0, 13.0]
    total = [10.0, 12.0, 14.0, 16.0]
    expected = [
        {"send": [-1.0] * 4, "reduce": total, "gather": first + second, "scatter": first, "reduce_scatter": total[:2],
         "all_to_all": first[:2] + second[:2]},
        {"send": first, "reduce": [], "gather": [], "scatter": [100.0, 101.0, 102.0, 103.0], "reduce_scatter": total[2:],
         "all_to_all": first[2:] + second[2:]},
    ]  # fmt: skip
    both = {"broadcast": second, "all_reduce": total, "all_gather": first + second, "barrier": []}
    for rank, got in enumerate(gloo.run(2, _all)):
        assert got == {**expected[rank], **both, "recv": expected[rank]["send"]}
        assert set(got) == set(DATA["ran"]["operations"]) == set(backends.OPERATIONS)


def test_where_page_and_run_differ_both_are_known() -> None:
    cell = backends.cell("all_to_all", "gloo", "cpu", "2.13")
    assert cell.mark == NO and cell.ran_on == "2.13" and cell.ran


@pytest.mark.torch
def test_no_yes_outside_the_devices_that_a_backend_is_registered_for() -> None:
    pytest.importorskip("torch", reason="asks PyTorch")
    from torch.distributed import Backend

    for operation in backends.OPERATIONS:
        for name in backends.BACKENDS:
            for kind, device in (("cpu", "cpu"), ("gpu", "xpu" if name == "xccl" else "cuda")):
                if backends.cell(operation, name, kind, "2.13").mark == YES:
                    assert device in Backend.backend_capability[name]
