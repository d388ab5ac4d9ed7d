"""What people paste is the last line of a traceback, or a piece of one: it is a failure, whatever stands around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardguide.readers.logs.scan import matcher, scan
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose

# A message of no diagnosis: what is recognised is not what is tested here.
KIND, MESSAGE = "FlumoxError", "the gizmo of unit 7 is not greased"
LINE = f"{KIND}: {MESSAGE}"
AROUND = {
    "alone": LINE,
    "no line end": LINE.rstrip("\n"),
    "windows line ends": f"{LINE}\r\n",
    "rank": f"[rank3]: {LINE}",
    "rank and time": f"2026-11-30 10:11:12,345 [rank3]: {LINE}",
    "local rank": f"[default3]:{LINE}",
    "rank as a word": f"Rank 3: {LINE}",
    "srun": f"3: {LINE}",
    "time of day": f"10:11:12 {LINE}",
    "logger": f"2026-11-30 10:11:12,345 - trainer - ERROR - {LINE}",
    "level": f"ERROR:root:{LINE}",
    "syslog": f"Nov 30 10:11:12 node7 train[4711]: {LINE}",
    "kubernetes": f"2026-11-30T10:11:12.345678901Z {LINE}",
    "docker compose": f"worker-1  | {LINE}",
    "ray": f"(TrainWorker pid=4711, ip=10.0.0.2) {LINE}",
    "json of docker": '{"log":"' + LINE + '\\n","stream":"stderr","time":"2026-11-30T10:11:12Z"}',
    "prompt": f"$ python train.py\n{LINE}",
    "long prompt": f"(venv) me@node7:~/proj$ torchrun train.py\n{LINE}\n(venv) me@node7:~/proj$",
    "python prompt": f">>> fully_shard(model)\n{LINE}",
    "fence": f"```\n{LINE}\n```",
    "fence with a language": f"```python-traceback\n{LINE}\n```",
    "inline code": f"`{LINE}`",
    "bold": f"**{LINE}**",
    "quoted in mail": f"> {LINE}",
    "quoted twice": f"> > {LINE}",
    "bullet": f"- {LINE}",
    "number": f"1. {LINE}",
    "quotes": f'"{LINE}"',
    "typographic quotes": f"“{LINE}”",
    "pytest": f"E       {LINE}",
    "rich box": f"│ {LINE} │",
    "colours": f"\x1b[0;31m{KIND}\x1b[0m: {MESSAGE}",
    "colours without their escape": f"[0;31m{KIND}[0m: {MESSAGE}",
    "colours written out": f"^[[0;31m{KIND}^[[0m: {MESSAGE}",
    "entities": LINE.replace(" ", " ") + " &lt;here&gt;",
    "dotted": f"my_pkg.errors.{LINE}",
    "in a sentence": f"since the update I get {LINE}",
    "with a question": f"What does this mean?\n\n{LINE}",
    "with a command above": f"torchrun --nproc-per-node 8 train.py --lr 3e-4\n\n{LINE}\n",
    "wrapped in an error": f"Exception: {LINE}",
    "head without prefix": f"Traceback (most recent call last):\n[rank3]: {LINE}",
    "frames with prefix": f'Traceback (most recent call last):\n[rank3]:   File "/home/u/t.py", line 7, in f\n[rank3]:     g()\n[rank3]: {LINE}',
    "only the head has a prefix": f'[rank3]: Traceback (most recent call last):\n  File "/home/u/t.py", line 7, in f\n    g()\n{LINE}',
    "frames without a head": f'  File "/home/u/t.py", line 7, in f\n    g()\n{LINE}',
    "a head without its colon": f"Traceback (most recent call last)\n{LINE}",
    "notebook": (
        f"\x1b[0;31m{'-' * 75}\x1b[0m\n\x1b[0;31m{KIND}\x1b[0m      Traceback (most recent call last)\n"
        "Cell \x1b[0;32mIn[3], line 5\x1b[0m\n\x1b[1;32m      3\x1b[0m model \x1b[38;5;241m=\x1b[39m build()\n"
        "\x1b[0;32m----> 5\x1b[0m f(model)\n\nFile \x1b[0;32m~/t.py:7\x1b[0m, in \x1b[0;36mf\x1b[0;34m(model)\x1b[0m\n"
        f"\x1b[0;32m      7\x1b[0m g()\n\n\x1b[0;31m{KIND}\x1b[0m: {MESSAGE}"
    ),
}  # fmt: skip
RANKED = {
    "rank",
    "rank and time",
    "rank as a word",
    "srun",
    "head without prefix",
    "frames with prefix",
    "only the head has a prefix",
}
PLACED = {"frames with prefix": 7, "only the head has a prefix": 7, "frames without a head": 7, "notebook": 7}


def told(text: str, **more: Any) -> dict[str, Any]:
    return dict(diagnose(DiagnoseRequest(text=text, torch="2.13", **more)).extra)


@pytest.mark.parametrize("name", AROUND)
def test_an_exception_is_a_failure_whatever_stands_around_it(name: str) -> None:
    found = told(AROUND[name])
    # With a rank, or frames, the others of the job would be asked for; without a known message nothing is diagnosed for sure.
    assert found["outcome"] in ("unrecognised", "diagnosed")
    assert [one["kind"].rpartition(".")[2] for one in found["raised"]] == [KIND]
    assert found["raised"][0]["message"].startswith(MESSAGE)
    assert found["raised"][0]["rank"] == (3 if name in RANKED else None)


@pytest.mark.parametrize("name", PLACED)
def test_the_frames_of_a_piece_of_a_traceback_are_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "pasted.txt"
    path.write_text(AROUND[name], encoding="utf-8")
    (raised,) = scan(str(path), matcher(["gizmo of"]), 1).raised
    assert [(one.line, one.function) for one in raised.frames][-1] == (PLACED[name], "f")


@pytest.mark.parametrize("name", AROUND)
def test_the_diagnosis_comes_through_whatever_stands_around_it(name: str) -> None:
    known = "ValueError: optimizer got an empty parameter list"
    found = told(AROUND[name].replace(f"my_pkg.errors.{LINE}", known).replace(LINE, known)
                 .replace(KIND, "ValueError").replace(MESSAGE, "optimizer got an empty parameter list"))  # fmt: skip
    assert [one["id"] for one in found["diagnoses"]] == ["optimizer_no_parameters"]


@pytest.mark.parametrize("width", [24, 38, 80])
def test_a_message_that_a_terminal_broke(width: int) -> None:
    line = (
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    )
    broken = "\n".join(line[at : at + width] for at in range(0, len(line), width))
    assert [one["id"] for one in told(broken)["diagnoses"]][:1] == ["tensors_on_two_devices"]


@pytest.mark.parametrize(
    "line",
    [
        "[rank0]:[E1130 10:11:12.123456789 ProcessGroupGloo.cpp:12] the gizmo is not greased",
        "E1130 10:11:12.123456 4711 gizmo.cpp:12] not greased",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "fatal error: gizmo.h: No such file or directory",
        "CUDA error: gizmo not greased",
        "srun: error: node7: gizmo not greased",
        "2026-11-30 10:11:12 ERROR gizmo not greased",
        "node1:1:1 [0] gizmo.cc:1 NCCL WARN the gizmo is not greased",
        "Floating point exception (core dumped)",
    ],
)
def test_a_line_that_says_failure_is_one(line: str) -> None:
    found = told(line)
    assert found["outcome"] == "unrecognised" and len(found["raised"]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "step 10 loss 2.31\nstep 20 loss 2.22\n",
        "hello",
        "UserWarning: the gizmo will need grease in the next release",
        "Top-1 error: 23.1 %",
        "errors: 0, warnings: 3",
        "node1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
    ],
)
def test_what_tells_of_no_failure_is_none(text: str) -> None:
    assert told(text)["outcome"] == "no_failure"


def test_an_exception_that_the_program_survived_is_none(tmp_path: Path) -> None:
    """One line of a long log, after which training goes on."""
    log = tmp_path / "train.log"
    steps = "".join(f"step {at} loss {3 - at / 1000:.3f}\n" for at in range(400))
    log.write_text(f"{steps}\nConnectionError: the tracker does not answer\n{steps}", encoding="utf-8")
    assert diagnose(DiagnoseRequest((str(log),), torch="2.13")).extra["outcome"] == "no_failure"
    log.write_text(f"{steps}ConnectionError: the tracker does not answer\n", encoding="utf-8")
    assert diagnose(DiagnoseRequest((str(log),), torch="2.13")).extra["outcome"] == "unrecognised"


def test_what_was_not_recognised_leads_on() -> None:
    record = diagnose(DiagnoseRequest(text=LINE, torch="2.13"))
    assert [one.id for one in record.questions] == ["paths"]
    assert [one.tool for one in record.next] == ["diagnose", "review"]
    record = diagnose(DiagnoseRequest(question="help my training is broken", torch="2.13"))
    assert [one.id for one in record.questions] == ["text"] and record.next
    record = diagnose(DiagnoseRequest(text="step 1 loss 2.1\n", torch="2.13"))
    assert [one.id for one in record.questions] == ["question"] and record.next
