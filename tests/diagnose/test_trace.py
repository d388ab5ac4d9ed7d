"""Profiler traces: real ones of two CPU processes over Gloo, and GPU ones that are synthetic (made.py)."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.readers.chrome_trace import collective, read
from shardguide.readers.heads import is_trace
from shardguide.readers.intervals import Intervals
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose
from shardguide.workflows.diagnose.files import kind_of
from shardguide.workflows.diagnose.trace import measured
from tests.diagnose.made import Gpu

REAL = Path(__file__).parent / "traces"


def answer(*paths: Path) -> Any:
    return diagnose(DiagnoseRequest(tuple(str(path) for path in paths), torch="2.13.0"))


def numbers(record: Any) -> dict[str, float]:
    return {fact.id: float(fact.value) for fact in record.facts}


def pairs(count: int, seed: int) -> list[tuple[int, int]]:
    chance = random.Random(seed)
    starts = [chance.randrange(0, 400) for _ in range(count)]
    return [(start, start + chance.randrange(0, 30)) for start in starts]


@pytest.mark.parametrize("seed", range(40))
def test_intervals_against_counting(seed: int) -> None:
    """Against a set of whole microseconds: what a union, a window and a difference are by definition."""
    a, b = pairs(seed, seed), pairs(20, seed + 100)
    points_a = {at for start, end in a for at in range(start, end)}
    points_b = {at for start, end in b for at in range(start, end)}
    one, two = Intervals(a), Intervals(b)
    assert one.length() == len(points_a)
    assert one.minus(two) == len(points_a - points_b)
    assert one.joined(two).length() == len(points_a | points_b)
    assert one.within(50, 300).length() == len([at for at in points_a if 50 <= at < 300])


def test_times_since_1970_lose_nothing() -> None:
    """Up to 2.3 traces have them: 1.66e15 us, of which a double holds quarters."""
    some = Intervals((1_661_938_466_265_032.0 + 10 * at, 1_661_938_466_265_032.0 + 10 * at + 3) for at in range(5000))
    assert some.length() == 15_000 == some.minus(Intervals())


def test_many_intervals_stay_few() -> None:
    some = Intervals()
    for at in range(1_000_000):
        some.add(at, at + 1.5)
    assert len(some) == 1 and some.length() == 1_000_000.5


def gpu() -> Gpu:
    """Two steps of 1000 us. Computation [0, 400) and [600, 900); all-gathers [300, 500), [550, 600), [850, 950): by hand,
    communication 350, computation 700, exposed 100 + 50 + 50 = 200, idle 50 + 50 = 100 per step."""
    made = Gpu(0)
    for number in range(2):
        at = 5_000_000_000.0 + 1000 * number
        made.step(number + 3, at, 1000)
        made.kernel("ampere_bf16_s16816gemm_bf16_128x128", at, 400).kernel(
            "vectorized_elementwise_kernel", at + 600, 300
        )
        made.gather(at + 300, 200).gather(at + 550, 50).gather(at + 850, 100)
    return made


def test_exposed_communication_by_hand(tmp_path: Path) -> None:
    record = answer(gpu().write(tmp_path / "rank0.json.gz"))
    found = numbers(record)
    for step in (3, 4):
        name = f"trace.rank0.gpu0.step{step}"
        assert found[f"{name}.communication"] == 350 and found[f"{name}.computation"] == 700
        assert found[f"{name}.exposed"] == found[f"{name}.exposed.all_gather"] == 200
        assert found[f"{name}.idle"] == 100
    assert found["trace.rank0.gpu0.step4.time"] == 1000
    # 20 % exposed and 10 % idle are not clear enough to be called anything.
    assert record.extra["outcome"] == "no_failure" and not record.extra["diagnoses"]


def test_much_exposed_communication(tmp_path: Path) -> None:
    made = Gpu(2, 4)
    for number in range(4):
        at = 1000.0 * number
        made.step(number, at, 1000).kernel("gemm", at, 500).gather(at + 500, 450)
    record = answer(made.write(tmp_path / "trace.json"))
    (first,) = record.extra["diagnoses"]
    assert (first["id"], first["ranks"]) == ("trace_exposed_communication", [2])
    assert "1800 us of 4000 us in 4 steps (45 %)" in first["evidence"][0]["text"]
    assert "all_gather 1800 us" in first["evidence"][0]["text"]


def test_idle_gpu(tmp_path: Path) -> None:
    made = Gpu(0)
    for number in range(3):
        at = 1000.0 * number
        made.step(number, at, 1000)
        for part in range(10):
            made.kernel("elementwise", at + 100 * part, 30)
    record = answer(made.write(tmp_path / "trace.json"))
    (first,) = record.extra["diagnoses"]
    # The last step ends with its mark, and so do the gaps: 70 us after each of 30 kernels.
    assert first["id"] == "trace_gpu_idle" and "2100 us of 3000 us" in first["evidence"][0]["text"]


def ranks(folder: Path, late: int | None, world: int = 4) -> list[Path]:
    """All-gathers of 20 us each; the others come 150 us before the late rank and wait in theirs."""
    out = []
    for rank in range(world):
        made = Gpu(rank, world)
        for number in range(5):
            at = 1000.0 * number + 7 * rank  # clocks that differ
            made.step(number, at, 1000)
            for part in (0, 500):
                wait = 0 if late is None or rank == late else 150
                busy = 450 if late is None or rank == late else 300
                made.kernel("gemm", at + part, busy).gather(at + part + busy, 20 + wait + rank)
        out.append(made.write(folder / f"rank{rank}.json"))
    return out


def test_late_rank(tmp_path: Path) -> None:
    record = answer(*ranks(tmp_path, 2))
    first = record.extra["diagnoses"][0]
    assert (first["id"], first["confidence"], first["ranks"]) == ("trace_late_rank", "likely", [2])
    assert "rank 2 is the last to arrive at 10 of 10 collectives" in first["evidence"][0]["text"]
    # Ranks 0, 1 and 3 wait 150 - 2, 150 - 1 and 150 + 1 us longer than rank 2 in each of ten all-gathers.
    assert numbers(record)["trace.late.rank2"] == round((1480 + 1490 + 1510) / 3)


def test_no_late_rank(tmp_path: Path) -> None:
    assert answer(*ranks(tmp_path, None)).extra["outcome"] == "no_failure"
    # One rank's trace alone cannot tell waiting for a rank from waiting for the network.
    assert [one["id"] for one in answer(ranks(tmp_path, 2)[0]).extra["diagnoses"]] == ["trace_exposed_communication"]


def events(name: str) -> list[dict[str, Any]]:
    return list(json.loads(gzip.decompress((REAL / name).read_bytes()))["traceEvents"])


@pytest.mark.parametrize("name", ["late", "even"])
def test_real_traces_of_gloo(name: str) -> None:
    """Sums over the file as json reads it: the reader's numbers are those."""
    for rank in range(2):
        file = f"{name}-rank{rank}.json.gz"
        assert kind_of((REAL / file).read_bytes()[:4096]) == "trace"
        trace = read(str(REAL / file))
        assert (trace.rank, trace.world, trace.backend, trace.problem) == (rank, 2, "gloo", "")
        whole = events(file)
        steps = sorted(one["ts"] for one in whole if one["name"].startswith("ProfilerStep"))
        found = measured(trace, -1)
        assert [one.step.number for one in found] == [2, 3, 4]
        assert [one.step.start for one in found] == steps
        gloo = [one for one in whole if one["name"].startswith("gloo:")]
        assert len(trace.collectives[-1]) == len(gloo) > 3
        assert sum(one.duration for one in trace.collectives[-1]) == pytest.approx(sum(one["dur"] for one in gloo))
        assert all(0 <= one.exposed <= one.communication <= one.length for one in found)


def test_real_late_rank() -> None:
    late = answer(REAL / "late-rank0.json.gz", REAL / "late-rank1.json.gz")
    (first,) = late.extra["diagnoses"]
    assert (first["id"], first["ranks"]) == ("trace_late_rank", [1])
    # Rank 1 slept 30 ms in each of three steps.
    assert numbers(late)["trace.late.rank1"] > 0.8 * 3 * 30_000
    even = answer(REAL / "even-rank0.json.gz", REAL / "even-rank1.json.gz")
    assert even.extra["outcome"] == "no_failure"


def test_other_forms(tmp_path: Path) -> None:
    wanted = read(str(gpu().write(tmp_path / "rank0.json")))
    content = json.loads(gpu().text())
    info = content.pop("distributedInfo")
    forms: dict[str, Any] = {
        "list": content["traceEvents"],
        "info_after": {**content, "distributedInfo": info},
        "one_line": {"distributedInfo": info, **content},
    }
    for name, value in forms.items():
        (tmp_path / f"{name}_rank0.json").write_text(json.dumps(value), encoding="utf-8")
        trace = read(str(tmp_path / f"{name}_rank0.json"))
        assert (trace.rank, trace.events) == (0, wanted.events), name
        assert measured(trace, 0) == measured(wanted, 0), name
        assert is_trace((tmp_path / f"{name}_rank0.json").read_bytes()[:4096]) or name == "one_line"


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16>", "all_reduce"),
    ],
)
def test_names_of_kernels(kernel: str, wanted: str, tmp_path: Path) -> None:
    trace = read(str(Gpu(0).kernel(kernel, 1.0, 5.0).kernel("gemm", 1.0, 2.0).write(tmp_path / "rank0.json")))
    assert [(one.name, one.duration) for one in trace.collectives[0]] == [(wanted, 5.0)]
    assert trace.compute[0].length() == 2.0


def test_names_of_collectives() -> None:
    assert collective("_allgather_base") == collective("all_gather") == "all_gather"
    assert collective("reduce_scatter_tensor_coalesced") == "reduce_scatter"


def test_cut_off_trace_is_read_to_its_end(tmp_path: Path) -> None:
    text = gpu().text()
    (tmp_path / "rank0.json").write_text(text[: text.rindex('"ph"')], encoding="utf-8")
    trace = read(str(tmp_path / "rank0.json"))
    assert "cut off" in trace.problem and trace.events == read(str(gpu().write(tmp_path / "whole.json"))).events - 1
    record = answer(tmp_path / "rank0.json")
    assert any("cut off" in line for line in record.not_done)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b'{"traceEvents": []}',
    "no_events": lambda: b'{"schemaVersion": 1, "deviceProperties": []}',
    "deep": lambda: b'{"traceEvents": [' + b"[" * 100_000,
    "deep_object": lambda: b'{"traceEvents": [' + b'{"a":' * 100_000,
    "no_numbers": lambda: b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": NaN, "dur": "1"}, {"ph": "X", "ts": 1e999, "dur": 1, "name": "b"}]}',
    "digits": lambda: b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": ' + b"9" * 5000 + b', "dur": 1}]}',
    "endless_string": lambda: b'{"traceEvents": [{"ph": "' + b"X" * (20 << 20),
    "bomb": lambda: gzip.compress(b'{"traceEvents": [' + b" " * (300 << 20), 1),
    "noise": lambda: bytes(range(256)) * 40,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_traces_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(HOSTILE[name]())
    with pytest.raises(UnusableInput) as refused:
        read(str(tmp_path / "rank0.json"))
    assert "\n" not in str(refused.value)


def test_odd_values_change_nothing(tmp_path: Path) -> None:
    content = json.loads(gpu().text())
    odd: list[Any] = [
        1, None, [], {"ph": "X"}, {"ph": "X", "ts": 1, "dur": -5, "name": "gemm", "cat": "kernel"},
        {"ph": "X", "ts": 1e18, "dur": 5, "name": "gemm", "cat": "kernel"}, {"ph": "X", "ts": True, "name": 3},
        {"ph": "X", "ts": 5e9, "dur": 0, "name": "gemm", "cat": "kernel", "args": "none", "pid": "GPU"},
    ]  # fmt: skip
    wanted = measured(read(str(gpu().write(tmp_path / "rank0.json"))), 0)
    content["traceEvents"] = [*odd, *content["traceEvents"]]
    (tmp_path / "odd_rank0.json").write_text(json.dumps(content), encoding="utf-8")
    assert measured(read(str(tmp_path / "odd_rank0.json")), 0) == wanted


def test_mutated_traces_and_snapshots_never_crash(tmp_path: Path) -> None:
    import pickle

    from shardguide.readers.memory_snapshot import read as read_snapshot
    from tests.diagnose.made import full

    chance = random.Random(7)
    readers: list[tuple[Callable[[str], Any], bytes]] = [
        (read, gpu().text().encode()),
        (read_snapshot, pickle.dumps(full().content())),
    ]
    path = tmp_path / "rank0"
    for reader, good in readers:
        for _ in range(150):
            data = bytearray(good[: chance.randrange(2, len(good))] if chance.random() < 0.3 else good)
            for _ in range(chance.randrange(1, 12)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            path.write_bytes(data)
            try:
                reader(str(path))
            except UnusableInput as refused:
                assert "\n" not in str(refused)
