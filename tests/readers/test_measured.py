"""Measurements: read exactly as given, with unit and place; nothing else is made of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.readers.measured import Measured, RankMemory, read_measured
from shardguide.readers.nccl_tests import BandwidthTest, Device, Row, Timing

DATA = Path(__file__).parent / "data" / "measured"


def read(tmp_path: Path, content: Any, name: str = "measured.json") -> Measured:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_measured(str(path))


def refused(tmp_path: Path, content: Any) -> str:
    with pytest.raises(UnusableInput) as caught:
        read(tmp_path, content)
    sentence = str(caught.value)
    assert sentence.endswith((".", ")")) and sentence.isprintable() and len(sentence) < 600
    return sentence


def test_snippet_json(tmp_path: Path) -> None:
    measured = read(
        tmp_path,
        {
            "torch": "2.13.0",
            "ranks": [
                {
                    "rank": 0,
                    "max_memory_allocated": 71_300_000_256,
                    "max_memory_reserved": 76_558_630_912,
                    "total_memory": 84_974_239_744,
                    "step_seconds": [1.5, 0.5234, 2],
                },
                {"rank": 1, "max_memory_allocated": 1024, "max_memory_reserved": 2048},
            ],
        },
    )
    where = measured.where
    assert measured.kinds == ("memory", "steps") and measured.torch == "2.13.0" and measured.notes == ()
    assert measured.memory == (
        RankMemory(0, 71_300_000_256, 76_558_630_912, total_memory=84_974_239_744, where=f"{where}, entry 0"),
        RankMemory(1, 1024, 2048, where=f"{where}, entry 1"),
    )
    assert [(s.rank, s.step, s.time, s.unit, s.seconds) for s in measured.steps] == [
        (0, 0, "1.5", "s", 1.5),
        (0, 1, "0.5234", "s", 0.5234),
        (0, 2, "2", "s", 2.0),
    ]


# The keys of torch.cuda.memory_stats() with the values of one rank.
STATS = {
    "allocated_bytes.all.current": 512,
    "allocated_bytes.all.peak": 4096,
    "allocated_bytes.small_pool.peak": 1024,
    "reserved_bytes.all.current": 2097152,
    "reserved_bytes.all.peak": 4194304,
    "active_bytes.all.peak": 5120,
    "num_alloc_retries": 3,
    "num_ooms": 0,
    "max_split_size": -1,
}
READ = {
    "peak_allocated": 4096,
    "peak_reserved": 4194304,
    "peak_active": 5120,
    "allocated": 512,
    "reserved": 2097152,
    "alloc_retries": 3,
    "ooms": 0,
}
NESTED = {
    "allocated_bytes": {"all": {"current": 512, "peak": 4096}, "small_pool": {"peak": 1024}},
    "reserved_bytes": {"all": {"current": 2097152, "peak": 4194304}},
    "active_bytes": {"all": {"peak": 5120}},
    "num_alloc_retries": 3,
    "num_ooms": 0,
}


@pytest.mark.parametrize(
    ("value", "ranks"),
    [
        (STATS, [None]),
        (NESTED, [None]),  # torch.cuda.memory_stats_as_nested_dict()
        ([STATS, NESTED], [0, 1]),
        ([{**STATS, "rank": 5}, STATS], [5, 1]),
        ({"0": STATS, "3": STATS}, [0, 3]),
        ({"rank0": STATS, "rank_7": NESTED}, [0, 7]),
        ({"ranks": {"0": STATS}}, [0]),
    ],
)
def test_memory_stats(tmp_path: Path, value: Any, ranks: list[int | None]) -> None:
    measured = read(tmp_path, value)
    assert [entry.rank for entry in measured.memory] == ranks
    for entry in measured.memory:
        values = {key: value for key, value in entry._asdict().items() if key not in ("rank", "where")}
        assert values == {**READ, "total_memory": None}


@pytest.mark.torch
def test_keys_are_those_of_the_release() -> None:
    """Every dotted key that is read stands in the documentation of torch.cuda.memory_stats."""
    import re

    import torch

    from shardguide.readers.measured import _FIELDS

    doc = torch.cuda.memory_stats.__doc__ or ""
    documented: set[str] = set()
    for name in re.findall(r'``"([a-z_.{},]+)"``', doc):
        options = [[""]]
        for part in re.split(r"(\{[^}]*\})", name):
            options.append(part[1:-1].split(",") if part.startswith("{") else [part])
        made = [""]
        for choice in options:
            made = [left + right for left in made for right in choice]
        documented.update(made)
    functions = {"max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"}
    assert all(hasattr(torch.cuda, name) for name in functions)
    assert {key for keys in _FIELDS.values() for key in keys} - functions - {"total_memory"} <= documented


def test_single_value(tmp_path: Path) -> None:
    assert read(tmp_path, {"max_memory_allocated": 76_558_630_912}).memory[0].peak_allocated == 76_558_630_912


def test_contradictions_are_shown(tmp_path: Path) -> None:
    notes = read(tmp_path, {"max_memory_allocated": 4096, "max_memory_reserved": 2048, "total_memory": 1024}).notes
    assert len(notes) == 3 and all("bytes" in note for note in notes)
    assert any("cudaMallocAsync" in note for note in read(tmp_path, {"max_memory_allocated": 0}).notes)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "empty"),
        ({}, "none of the values"),
        ([], "none of the values"),
        ({"a": 1}, "none of the values"),
        ([1], "object"),
        ({"max_memory_allocated": 71.3}, "whole number of bytes"),
        ({"max_memory_allocated": "71 GiB"}, "whole number of bytes"),
        ({"max_memory_allocated": True}, "whole number of bytes"),
        ({"max_memory_allocated": -512}, "whole number of bytes"),
        ({"max_memory_allocated": 2**70}, "whole number of bytes"),
        ({"max_memory_allocated": 71}, "cannot be bytes"),
        ({"num_ooms": 1.5}, "a count"),
        ({"max_memory_allocated": 1024, "allocated_bytes.all.peak": 2048}, "differ"),
        ([{**STATS, "rank": 1}, STATS], "twice"),
        ([{**STATS, "rank": -1}], "not a rank"),
        ([{**STATS, "rank": "first"}], "not a rank"),
        ({"step_seconds": "fast"}, "list of seconds"),
        ({"step_seconds": [0]}, "not a time"),
        ({"step_seconds": [-1.0]}, "not a time"),
        ({"step_seconds": [True]}, "not a time"),
        ('{"step_seconds": [NaN]}', "NaN"),
        ('{"max_memory_allocated": 1024', "cut off"),
        ('{"a":' * 100 + "1" + "}" * 100, "nested"),
        ("[" * 100_000, "nested"),
        ("OrderedDict([('allocated_bytes.all.peak', 4096)])", "json.dump"),
        ("|   PyTorch CUDA memory summary, device ID 0   |", "json.dump"),
        ('{"nccl_version": 22809, "results": []}', "prints"),
        ("step,time\n1,2\n", "unit"),
        ("step,seconds\n1,fast\n", "line 2"),
        ("step,seconds\n1,2,3\n", "line 2"),
        ("step 1 step time: 0.5\nstep 2 step time: 0.6\n", "no unit"),
        ("hello\n", "no measurement"),
        ("a\n" * 1_100_000, "lines"),
        ("\x00\x01", "binary"),
    ],
)
def test_unusable(tmp_path: Path, value: Any, says: str) -> None:
    assert says in refused(tmp_path, value)


def one(name: str) -> BandwidthTest:
    measured = read_measured(str(DATA / name))
    assert measured.kinds == ("bandwidth",) and len(measured.bandwidth) == 1
    return measured.bandwidth[0]


def test_two_nodes_of_a100() -> None:
    run = one("all_reduce-2x8-a100.txt")
    assert run.rows == (
        Row(
            10737418240,
            2684354560,
            "float",
            "sum",
            Timing("90330", "118.87", "222.88", "0"),
            Timing("91945", "116.78", "218.96", "0"),
            24,
        ),
    )
    assert (run.average_busbw, run.out_of_bounds, run.line) == ("220.921", 0, 24)
    assert len(run.devices) == 16 and len({device.host for device in run.devices}) == 2
    assert run.devices[9] == Device(9, "inst-yyyyy-gpu4-ol89", 1, "0x15", "NVIDIA A100-SXM4-40GB")
    # That version does not print which test it is.
    assert run.collective == "" and any("which collective" in note for note in run.notes)


def test_two_runs_in_one_log() -> None:
    first, second = read_measured(str(DATA / "all_gather-two-runs-gb10.txt")).bandwidth
    assert (first.collective, first.average_busbw, len(first.rows), first.devices[0].bus) == (
        "all_gather",
        "21.4033",
        3,
        "000f:01:00",
    )
    assert (second.collective, second.average_busbw, second.rows[0].out_of_place) == (
        "all_gather",
        "2.82151",
        Timing("191408", "5.61", "2.80", "0"),
    )
    assert first.notes == second.notes == ()


@pytest.mark.parametrize(
    ("name", "collective", "rows", "average"),
    [
        ("all_reduce-gh200-srun.txt", "all_reduce", 8, "14.9966"),
        ("all_gather-tagged-mpirun.txt", "all_gather", 8, "1.54321"),
        ("reduce_scatter-edited-notes.txt", "reduce_scatter", 8, "1.73537"),
        ("all_gather-2020-no-redop.txt", "all_gather", 4, "6.6972"),
    ],
)
def test_other_layouts(name: str, collective: str, rows: int, average: str) -> None:
    run = one(name)
    assert (run.collective, len(run.rows), run.average_busbw) == (collective, rows, average)
    assert not any("could not be read" in note for note in run.notes)


def test_columns_fit_each_other() -> None:
    """busbw = algbw × factor and algbw = size / time, as nccl-tests' doc/PERFORMANCE.md defines them."""
    factors = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "": 2.0}
    rows = 0
    for path in sorted(DATA.glob("*.txt")):
        for run in read_measured(str(path)).bandwidth:
            ranks = len(run.devices)
            if ranks < 2 or "without-mpi" in path.name:
                continue
            for row in run.rows:
                for half in (row.out_of_place, row.in_place):
                    assert half is not None
                    algbw, busbw = float(half.algbw), float(half.busbw)
                    assert busbw == pytest.approx(algbw * factors[run.collective] * (ranks - 1) / ranks, abs=0.012)
                    assert algbw == pytest.approx(row.size / float(half.time) / 1e3, abs=0.006, rel=2e-3)
                    rows += 1
    assert rows >= 60


def test_hosts_that_did_not_talk_to_each_other() -> None:
    assert any("without MPI" in note for note in one("two-hosts-built-without-mpi.txt").notes)


def test_current_layout_with_per_iteration_columns_and_time_stamps(tmp_path: Path) -> None:
    """The columns of writeResultHeader in nccl-tests 2.19.6, src/util.cu; an in-place-only row as its trace replay."""
    half = "time algbw busbw #wrong i_min i_max i_p99 i_cv%"
    text = (
        "# Collective test starting: reduce_scatter_perf\n"
        f"#  size  count  type  redop  root  {half}  {half}  timestamp\n"
        "  1073741824  33554432  bfloat16  sum  -1  5123.45  209.57  183.38  N/A  5100.00  5200.00  5190.00  0.51"
        "  5120.00  209.71  183.50  0  5100.00  5200.00  5190.00  0.51  2026-07-09 16:03:21\n"
    )
    run = read(tmp_path, text, "log.txt").bandwidth[0]
    assert run.rows[0].out_of_place == Timing("5123.45", "209.57", "183.38", "N/A")
    assert run.rows[0].in_place == Timing("5120.00", "209.71", "183.50", "0")
    assert run.collective == "reduce_scatter" and any("not have ended" in note for note in run.notes)
    half = "time algbw busbw #wrong"
    plain = (
        f"#  size  count  type  redop  root  {half}  {half}\n"
        f"  1073741824  33554432  bfloat16  sum  -1{' ' * 32}  5120.00  209.71  183.50  0\n"
        "  1073741824  33554432  bfloat16  sum  -1   torn\n"
    )
    run = read(tmp_path, plain, "log.txt").bandwidth[0]
    assert run.rows[0].out_of_place is None and run.rows[0].in_place == Timing("5120.00", "209.71", "183.50", "0")
    assert any("line 3" in note for note in run.notes)


def test_prefixes_colours_and_windows_files(tmp_path: Path) -> None:
    text = (DATA / "all_reduce-gh200-srun.txt").read_text()
    rows = one("all_reduce-gh200-srun.txt").rows
    for changed in (
        "\n".join(f"x1000c0s0b0n0 0: {line}" for line in text.split("\n")),
        "\n".join(f"\x1b[32m{line}\x1b[0m" for line in text.split("\n")),
        text.replace("\n", "\r\n"),
        text.replace("#", ""),
    ):
        assert read(tmp_path, changed, "log.txt").bandwidth[0].rows == rows
    (tmp_path / "utf16.txt").write_bytes(text.encode("utf-16"))
    assert read_measured(str(tmp_path / "utf16.txt")).bandwidth[0].rows == rows


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("step,seconds\n1,0.53\n2,0.51\n", [(1, "0.53", "s", None), (2, "0.51", "s", None)]),
        ("rank\tstep\tstep_time_ms\n0\t7\t530\n", [(7, "530", "ms", 0)]),
        ('"iteration";"duration (us)"\n"1";"530000"\n', [(1, "530000", "us", None)]),
        ("seconds\n0.5\n\n0.6\n", [(None, "0.5", "s", None), (None, "0.6", "s", None)]),
        ("step 10 | loss 2.3 | step time: 0.53 s\n", [(10, "0.53", "s", None)]),
        ("[rank0] Step 3 step_time=512ms tokens/s 9\n", [(3, "512", "ms", None)]),
        ("step: 4, step time (ms): 512.25\n", [(4, "512.25", "ms", None)]),
        (  # Megatron-LM
            " iteration       10/     100 | elapsed time per iteration (ms): 25789.5 | loss: 1\n",
            [(10, "25789.5", "ms", None)],
        ),
        ("step time limit 30 minutes\nstep 1 step time 1.5 seconds\n", [(1, "1.5", "s", None)]),
    ],
)
def test_step_times(tmp_path: Path, text: str, steps: list[tuple[int | None, str, str, int | None]]) -> None:
    measured = read(tmp_path, text, "steps.txt")
    assert measured.kinds == ("steps",)
    assert [(s.step, s.time, s.unit, s.rank) for s in measured.steps] == steps


def test_step_lines_keep_their_place(tmp_path: Path) -> None:
    steps = read(tmp_path, "hello\n\nstep 1 step time 90 ms\n", "log").steps
    assert (steps[0].line, steps[0].seconds) == (3, 0.09)


def test_mutations_end_in_a_sentence(tmp_path: Path) -> None:
    rng = random.Random(7)
    seeds = [path.read_bytes() for path in sorted(DATA.glob("*.txt"))]
    seeds += [
        json.dumps({"torch": "2.13.0", "ranks": [{**STATS, "rank": 0}]}).encode(),
        b"step,seconds\n1,0.5\n2,0.6\n",
    ]
    pieces = [
        b"\x00",
        b"\xff",
        b"9" * 60,
        b"[",
        b"{",
        b",",
        b"# size count type\n",
        b"\t",
        b"\n",
        b"Avg bus bandwidth : nan",
    ]
    path = tmp_path / "measured"
    accepted = 0
    for i in range(600):
        data = bytearray(seeds[i % len(seeds)])
        for _ in range(rng.choice((1, 3, 9))):
            at = rng.randrange(len(data) + 1)
            if rng.random() < 0.5:
                data[at:at] = rng.choice(pieces)
            else:
                del data[at : at + rng.choice((1, 9, 90))]
        path.write_bytes(data)
        try:
            read_measured(str(path))
            accepted += 1
        except UnusableInput as error:
            assert str(error).isprintable()
    assert 0 < accepted < 600
