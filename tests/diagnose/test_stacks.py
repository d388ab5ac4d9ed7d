"""Stacks of running processes: real dumps of py-spy and faulthandler of Gloo processes that hang (make_stacks.py), and made ones.

The truth of a case is what its program does (stacks/train.py), not what the reader says.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.readers import pyspy
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose
from shardguide.workflows.diagnose.files import kind_of

HERE = Path(__file__).parent / "stacks"
PROGRAM = (HERE / "train.py").read_text("utf-8").splitlines()


def answer(*paths: Path | str, **more: Any) -> Any:
    return diagnose(DiagnoseRequest(tuple(str(path) for path in paths), torch="2.13", **more))


def told(*paths: Path | str) -> list[dict[str, Any]]:
    return list(answer(*paths).extra["diagnoses"])


def first(*paths: Path | str) -> tuple[str, str, list[int]]:
    found = told(*paths)[0]
    return found["id"], found["confidence"], found["ranks"]


# Each case of train.py: who stands elsewhere there, and the text of the line at which it stands.
CASES = [
    ("sleep", "stack_rank_elsewhere", "likely", [2], "time.sleep(3600)"),
    ("faulthandler", "stack_rank_elsewhere", "likely", [2], "time.sleep(3600)"),
    ("same", "stack_rank_elsewhere", "likely", [3], "time.sleep(3600) if rank == world - 1 else synchronise(t)"),
    ("fsdp2", "stack_rank_elsewhere", "likely", [2], "time.sleep(3600)"),
    ("setup", "stack_rank_elsewhere", "likely", [2], "time.sleep(3600)"),
    ("wait", "stack_rank_elsewhere", "likely", [0], "work.wait()"),
    # DDP waits in C++: the stack of the others does not say that it is a collective.
    ("ddp", "stack_rank_elsewhere", "possible", [2], "time.sleep(3600)"),
    ("different", "stack_different_collectives", "likely", [1], "dist.barrier()"),
    ("loader", "stack_data_loader", "likely", [1], "next(batches) if rank == 1 else synchronise(t)"),
    ("loader_inline", "stack_data_loader", "likely", [1], "time.sleep(3600)"),
    ("saving", "stack_saving", "likely", [0], "torch.save(state, path)"),
    ("compiling", "stack_compiling", "likely", [0], "time.sleep(3600)"),
    ("debugger", "stack_debugger", "certain", [0], "pdb.set_trace()"),
    ("ended", "stack_rank_ended", "likely", [1], ""),
    ("gil", "stack_gil", "possible", [1], "threading.Thread(target=hold, daemon=True).start()"),
]


@pytest.mark.parametrize(("case", "name", "level", "ranks", "text"), CASES, ids=[case[0] for case in CASES])
def test_processes_that_hang(case: str, name: str, level: str, ranks: list[int], text: str) -> None:
    found = told(HERE / case)
    assert (found[0]["id"], found[0]["confidence"], found[0]["ranks"]) == (name, level, ranks)
    assert [one["id"] for one in found] == [name]
    place = found[0]["place"]
    line = int(place.split(" in ")[0].rpartition(":")[2]) if place else 0
    shown = PROGRAM[line - 1].strip() if line else ""
    # The debugger stops at the line after the call.
    assert text in (shown, PROGRAM[line - 2].strip() if line and case == "debugger" else shown) or (
        case == "debugger" and "pdb" in "".join(PROGRAM[line - 4 : line])
    )


@pytest.mark.parametrize("form", ["rank*.json", "process*.dump"])
def test_other_forms_of_the_same_dump(form: str) -> None:
    """JSON names no line of a file; with --locals the rank is read from the variables, whatever the file is called."""
    assert first(*sorted((HERE / "sleep").glob(form))) == ("stack_rank_elsewhere", "likely", [2])


def test_every_frame_is_read() -> None:
    text = (HERE / "loader" / "worker1_0.txt").read_text("utf-8")
    expected = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    (process,) = pyspy.read(str(HERE / "loader" / "worker1_0.txt"))
    frames = [f"{one.function} ({one.file}:{one.line})" for thread in process.threads for one in thread.frames]
    assert frames == expected
    assert process.pid == text.split()[1].rstrip(":")
    for number, thread in enumerate(process.threads):
        assert (
            text.splitlines()[thread.line - 1].strip()
            == f"{thread.frames[0].function} ({thread.frames[0].file}:{thread.frames[0].line})"
        ), number


def test_text_and_json_agree() -> None:
    for rank in range(3):
        (text,) = pyspy.read(str(HERE / "sleep" / f"rank{rank}.txt"))
        (data,) = pyspy.read(str(HERE / "sleep" / f"rank{rank}.json"))
        plain = [(one.name, one.state, [(each.function, each.line) for each in one.frames]) for one in text.threads]
        assert plain == [
            (one.name, one.state, [(each.function, each.line) for each in one.frames]) for one in data.threads
        ]
        assert (text.pid, text.rank) == (data.pid, rank)


def test_workers_of_a_loader_are_no_ranks_and_show_what_is_slow() -> None:
    found = told(HERE / "loader")[0]
    assert any(
        "worker process" in line["text"] and "Slow.__getitem__ (train.py:23)" in line["text"]
        for line in found["evidence"]
    )


def one_file(case: str, folder: Path, heading: str = "", prefix: str = "") -> Path:
    """The dumps of a case in one file, each below a heading, every line with a prefix."""
    out = []
    for path in sorted((HERE / case).glob("rank*.[lt]*")):
        rank = path.stem.removeprefix("rank")
        lines = path.read_text("utf-8").splitlines()
        out += [heading.format(rank=rank)] if heading else []
        out += [f"{prefix.format(rank=rank)}{line}" for line in lines]
    file = folder / "dumps.out"
    file.write_text("\n".join(out) + "\n", encoding="utf-8")
    return file


def test_several_dumps_in_one_file(tmp_path: Path) -> None:
    assert first(one_file("sleep", tmp_path, "===== rank {rank} =====")) == ("stack_rank_elsewhere", "likely", [2])


def test_without_ranks_processes_are_named_by_their_numbers(tmp_path: Path) -> None:
    found = told(one_file("sleep", tmp_path))[0]
    pid = (HERE / "sleep" / "rank2.txt").read_text("utf-8").split()[1].rstrip(":")
    assert (found["id"], found["ranks"]) == ("stack_rank_elsewhere", [])
    assert found["evidence"][0]["text"].startswith(f"process {pid} stands in preprocess (train.py:32)")


def test_other_programs_of_a_host_are_left_out(tmp_path: Path) -> None:
    file = one_file("sleep", tmp_path)
    agent = (
        'Process 7: /opt/venv/bin/python /opt/venv/bin/torchrun train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread 7 (idle): "MainThread"\n'
        "    _invoke_run (torch/distributed/elastic/agent/server/api.py:906)\n    run (torch/distributed/elastic/agent/server/api.py:715)\n    <module> (torchrun:10)\n"
        'Process 8: /usr/bin/python3 /usr/bin/monitor.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread 8 (idle): "MainThread"\n    loop (monitor.py:9)\n    <module> (monitor.py:20)\n'
    )
    file.write_text(agent + file.read_text("utf-8"), encoding="utf-8")
    found = told(file)[0]
    assert found["id"] == "stack_rank_elsewhere"
    assert all("process 7 " not in line["text"] and "process 8 " not in line["text"] for line in found["evidence"])


@pytest.mark.parametrize("case", ["sleep", "faulthandler", "different"])
def test_inside_a_merged_log(tmp_path: Path, case: str) -> None:
    """With the prefixes of torchrun, after and before other lines."""
    file = one_file(case, tmp_path, prefix="[rank{rank}]:")
    steps = "".join(f"[rank0]:step {n} loss 2.{n}\n" for n in range(900))
    lines = steps + file.read_text("utf-8") + steps
    file.write_text(lines, encoding="utf-8")
    name, ranks = {"different": ("stack_different_collectives", [1])}.get(case, ("stack_rank_elsewhere", [2]))
    found = told(file)[0]
    assert (found["id"], found["ranks"]) == (name, ranks)
    at = found["evidence"][0]
    inner = lines.splitlines()[at["line"] - 1]
    assert f"[rank{ranks[0]}]:" in inner and ("preprocess" in inner or "barrier" in inner)


def test_compressed(tmp_path: Path) -> None:
    for path in (HERE / "sleep").glob("rank*.txt"):
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert first(tmp_path) == ("stack_rank_elsewhere", "likely", [2])


def test_all_that_were_dumped_wait_in_one_collective(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank{rank}.txt").write_text((HERE / "same" / f"rank{rank}.txt").read_text("utf-8"))
    assert first(tmp_path)[:2] == ("stack_all_in_same_collective", "possible")
    (tmp_path / "rank1.txt").unlink()
    assert first(tmp_path) == ("stack_rank_not_dumped", "possible", [1])


def test_one_stack_alone_says_only_that_it_waits(tmp_path: Path) -> None:
    found = told(HERE / "sleep" / "rank0.txt")
    assert [(one["id"], one["confidence"]) for one in found] == [("rank_waits_in_collective", "possible")]
    assert answer(HERE / "sleep" / "rank2.txt").extra["outcome"] == "no_failure"


def test_healthy_processes_that_compute(tmp_path: Path) -> None:
    """Stacks of a job that runs: nobody waits."""
    for rank in range(4):
        text = (HERE / "sleep" / "rank2.txt").read_text("utf-8").replace("train.py:32", f"train.py:{rank + 30}")
        (tmp_path / f"rank{rank}.txt").write_text(text)
    assert answer(tmp_path).extra["outcome"] == "no_failure"


def test_who_moves_between_two_dumps_is_only_slow(tmp_path: Path) -> None:
    for rank in range(3):
        text = (HERE / "sleep" / f"rank{rank}.txt").read_text("utf-8")
        (tmp_path / f"rank{rank}.txt").write_text(text + "\n" + text)
    found = told(tmp_path)[0]
    assert (found["confidence"], "in the dump before as well" in found["evidence"][0]["text"]) == ("likely", True)
    again = (tmp_path / "rank2.txt").read_text().replace("(train.py:32)", "(train.py:31)", 1)
    (tmp_path / "rank2.txt").write_text(again)
    found = told(tmp_path)[0]
    assert (found["confidence"], "in the dump before at train.py:31" in found["evidence"][0]["text"]) == (
        "possible",
        True,
    )


def test_most_ranks_elsewhere_leave_open_who_is_wrong(tmp_path: Path) -> None:
    for rank in range(5):
        source = HERE / "sleep" / ("rank0.txt" if rank == 0 else "rank2.txt")
        (tmp_path / f"rank{rank}.txt").write_text(source.read_text("utf-8"))
    found = told(tmp_path)
    assert [(one["id"], one["confidence"], one["ranks"]) for one in found] == [
        ("stack_one_rank_waits", "possible", [0]),
        ("stack_rank_elsewhere", "possible", [1, 2, 3, 4]),
    ]


def test_sends_and_receives_of_a_pipeline_differ_by_right(tmp_path: Path) -> None:
    for rank, call in enumerate(("send", "recv", "recv")):
        text = (HERE / "sleep" / "rank0.txt").read_text("utf-8").replace("all_reduce (", f"{call} (")
        (tmp_path / f"rank{rank}.txt").write_text(text)
    assert first(tmp_path)[0] == "stack_all_in_same_collective"


def test_crash_of_faulthandler_is_no_hang(tmp_path: Path) -> None:
    """A fatal error prints stacks in the same form; the process is gone, and its stack is no place where it waits."""
    for rank in range(3):
        text = (HERE / "faulthandler" / f"rank{rank}.log").read_text("utf-8")
        (tmp_path / f"rank{rank}.log").write_text(
            text.replace("Timeout (0:00:04)!", "Fatal Python error: Segmentation fault\n")
        )
    assert not any(one["id"].startswith("stack_") for one in told(tmp_path))


def test_hooks_of_backward_run_in_other_threads(tmp_path: Path) -> None:
    """Synthetic, in py-spy's form: on GPUs FSDP's hooks run in the autograd engine's threads."""
    head = (
        'Process {pid}: python train.py\nPython v3.12.4 (/usr/bin/python3.12)\n\nThread {pid} (active): "MainThread"\n'
    )
    backward = "    _engine_run_backward (torch/autograd/graph.py:824)\n    backward (torch/autograd/__init__.py:347)\n    <module> (train.py:9)\n"
    hook = "Thread 99 (idle)\n    reduce_scatter_tensor (torch/distributed/distributed_c10d.py:4360)\n    wrapper (torch/distributed/c10d_logger.py:83)\n    foreach_reduce (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py:470)\n"
    for rank in range(3):
        body = backward + hook if rank != 1 else "    read_batch (data.py:4)\n    <module> (train.py:7)\n"
        (tmp_path / f"rank{rank}.txt").write_text(head.format(pid=rank + 10) + body)
    found = told(tmp_path)[0]
    assert (found["id"], found["ranks"], found["place"]) == ("stack_rank_elsewhere", [1], "data.py:4 in read_batch")
    assert "reduce_scatter_tensor for FSDP (foreach_reduce)" in found["evidence"][1]["text"]


def test_public_dump_of_a_hang_in_backward(tmp_path: Path) -> None:
    """https://github.com/huggingface/accelerate/issues/3104, shortened: the collective stands in a thread without a name."""
    text = (
        'Thread 46 (idle): "MainThread"\n    backward (torch/autograd/__init__.py:266)\n    backward (torch/_tensor.py:522)\n'
        "    backward (deepspeed/runtime/engine.py:1976)\n    backward (accelerate/accelerator.py:2126)\n"
        "    training_loop (src/model/fine_tune_accelerate.py:410)\n    <module> (src/model/fine_tune_accelerate.py:587)\n"
        'Thread 931 (idle): "Thread-1"\n    wait (threading.py:324)\n    run (tqdm/_monitor.py:60)\n'
        "Thread 4060 (idle)\nThread 4061 (idle)\nThread 4068 (active)\n    all_gather_into_tensor (torch/distributed/distributed_c10d.py:2709)\n"
        "    wrapper (torch/distributed/c10d_logger.py:72)\n    all_gather_into_tensor (deepspeed/comm/torch.py:219)\n"
    )
    (tmp_path / "dump.txt").write_text(text)
    (found,) = told(tmp_path / "dump.txt")
    assert found["id"] == "rank_waits_in_collective"
    assert "waits in all_gather_into_tensor" in found["evidence"][0]["text"]
    assert found["place"] == "src/model/fine_tune_accelerate.py:410 in training_loop"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (
            b'Process 7: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread 7 (idle): "MainThread"\n',
            "stacks",
        ),
        (b"Timeout (0:00:04)!\nThread 0x00007f0ff35deb80 (most recent call first):\n", "stacks"),
        (b"Fatal Python error: Aborted\n\nThread 0x00007f0ff35deb80 (most recent call first):\n", "log"),
        (b'[\n {"pid": 1, "thread_id": 2, "frames": []}]', "stacks"),
        (b"Process 0: starting\nstep 1 loss 2.0\n", "log"),
        (b"Thread pool started with 8 workers\n", "log"),
        (b"Collecting environment information...\nPyTorch version: 2.8.0+cu128\n", "report"),
        (
            b"Tue Jul 14 08:12:38 2026\n+---+\n| NVIDIA-SMI 590.48.01   Driver Version: 590.48.01   CUDA Version: 13.1 |\n",
            "report",
        ),
        (b"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-11\n", "report"),
        (b"# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor)\n", "report"),
        (b"index, name, memory.total [MiB]\n0, NVIDIA A100, 81920 MiB\n", "report"),
        (b"GPU0 is idle\nstep 1\n", "log"),
    ],
)
def test_kinds(head: bytes, kind: str) -> None:
    assert kind_of(head) == kind


def test_damaged_dumps(tmp_path: Path) -> None:
    """Cut off, nested, or endless: read as far as they go, or refused in one sentence."""
    whole = (HERE / "sleep" / "rank0.json").read_bytes()
    for cut in range(0, len(whole), 97):
        (tmp_path / "cut.json").write_bytes(whole[:cut] or b" ")
        try:
            answer(tmp_path / "cut.json")
        except UnusableInput as error:
            assert "\n" not in str(error)
    deep = '[{"thread_id": 1, "frames": ' + "[" * 50_000 + "]" * 50_000 + "}]"
    (tmp_path / "deep.json").write_text(deep)
    with pytest.raises(UnusableInput, match="nested"):
        answer(tmp_path / "deep.json")
    (tmp_path / "odd.json").write_text(
        json.dumps([{"thread_id": [], "frames": [1, None, {"name": {}, "line": "x"}], "pid": {}}])
    )
    assert answer(tmp_path / "odd.json").extra["outcome"] == "no_failure"
    threads = "".join(f'Thread {n} (idle): "t"\n' + "    f (a.py:1)\n" * 50 for n in range(5_000))
    (tmp_path / "many.txt").write_text("Process 1: python a.py\nPython v3.11.7 (x)\n" + threads)
    (process,) = pyspy.read(str(tmp_path / "many.txt"))
    assert len(process.threads) <= pyspy.THREADS
    (tmp_path / "many.txt").write_text("Process 1: python a.py\nThread 1 (idle)\n" + "    f (a.py:1)\n" * 100_000)
    (process,) = pyspy.read(str(tmp_path / "many.txt"))
    assert len(process.threads[0].frames) <= pyspy.FRAMES
