"""Which rank failed first, from several ranks' lines: NCCL's watchdog (formats of public logs), exit codes, restarts, places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.readers.logs.records import Frame, Raised
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose
from shardguide.workflows.diagnose.code_lines import calls_of
from shardguide.workflows.diagnose.ranks import kind_of, place_of

STACK = """[rank0]:[E606 09:09:08.170255835 ProcessGroupNCCL.cpp:801] Stack trace of the failed collective:
#0 all_gather_into_tensor from /opt/venv/lib/python3.13/site-packages/torch/distributed/distributed_c10d.py:4394
#1 get_model_state_dict from /opt/venv/lib/python3.13/site-packages/torch/distributed/checkpoint/state_dict.py:1180
#2 save from /home/user/train/train.py:692
#3 <module> from /home/user/train/train.py:1647

"""


def wait(rank: int, seq: int, op: str = "ALLREDUCE", numel: int = 4096) -> str:
    """A line of the watchdog of a rank that waits."""
    return (
        f"[rank{rank}]:[E901 05:20:03.118859045 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for 600020 milliseconds before "
        "timing out.\n"
    )


def status(rank: int, seq: int, enqueued: int, completed: int) -> str:
    """What the watchdog adds since 2.5."""
    return (
        f"[rank{rank}]:[E901 05:20:03.124073319 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by "
        f"watchdog at work sequence id: {seq} PG status: last enqueued work: {enqueued}, last completed work: {completed}\n"
    )


def heard(rank: int, of: int, enqueued: int, completed: int) -> str:
    """What a rank says that only heard of a timeout."""
    return (
        f"[rank{rank}]:[E901 05:20:03.118859045 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump signal "
        f"due to a collective timeout from  rank {of} and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, "
        f"last completed NCCL work: {completed}.This is most likely caused by incorrect usages of collectives\n"
    )


def first(tmp_path: Path, text: str | dict[str, str], **more: Any) -> dict[str, Any]:
    """The first diagnosis of a log, or of a folder of logs."""
    for name, content in (text if isinstance(text, dict) else {"train.log": text}).items():
        path = tmp_path / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    record = diagnose(DiagnoseRequest((str(tmp_path / "logs"),), torch="2.13", **more))
    return record.extra["diagnoses"][0] if record.extra["diagnoses"] else {"id": record.extra["outcome"], "ranks": []}


def test_the_rank_without_a_timeout_is_the_one_that_never_came(tmp_path: Path) -> None:
    found = first(tmp_path, "".join(wait(rank, 512) for rank in (0, 1, 3)))
    assert (found["id"], found["ranks"], found["confidence"]) == ("uneven_batches", [2], "likely")


def test_a_rank_whose_work_is_all_done_never_entered(tmp_path: Path) -> None:
    # Rank 1 heard of it as rank 2 did; of the two only rank 1 has nothing open.
    log = wait(0, 78) + status(0, 78, 78, 77) + heard(1, 0, 77, 77) + heard(2, 0, 78, 77)
    found = first(tmp_path, log)
    assert (found["id"], found["ranks"]) == ("uneven_batches", [1])
    assert any("Last enqueued NCCL work: 77" in line["text"] for line in found["evidence"])


def test_numbers_of_another_group_accuse_nobody(tmp_path: Path) -> None:
    # The default group of every rank is idle: the timeout is in another group, so its numbers say nothing about it.
    log = wait(1, 9000) + heard(0, 1, 233659, 233659) + heard(2, 1, 233659, 233659)
    assert first(tmp_path, log)["id"] == "collective_timeout"


def test_different_operations_at_once_are_a_branch(tmp_path: Path) -> None:
    log = "".join(wait(rank, 41, "_ALLGATHER_BASE", 1 << 20) for rank in (0, 1, 3)) + wait(2, 41, "ALLREDUCE", 1)
    found = first(tmp_path, log)
    assert (found["id"], found["ranks"]) == ("rank_divergent_branch", [2])


def test_an_error_of_a_rank_comes_before_the_timeouts_of_the_others(tmp_path: Path) -> None:
    log = "".join(wait(rank, 512) for rank in (0, 1, 3)) + (
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "/home/user/train/train.py", line 90, in step\n'
        "[rank2]:     loss = losses[name]\n"
        "[rank2]: KeyError: 'aux'\n"
    )
    found = first(tmp_path, log)
    assert (found["id"], found["ranks"]) == ("script_raised", [2])
    assert found["place"] == "/home/user/train/train.py:90 in step"


def test_a_flag_among_the_first_collectives_beside_a_progress_bar_is_a_slow_start(tmp_path: Path) -> None:
    log = "[rank0]: Map:  41%|####      | 41000/100000 [09:58<14:21, 68.5 examples/s]\n" + "".join(
        wait(rank, 2, "ALLREDUCE", 1) for rank in (1, 2, 3)
    )
    found = first(tmp_path, log)
    assert (found["id"], found["ranks"]) == ("rank0_preprocess_exceeds_timeout", [0])


def test_the_stack_that_nccl_prints_gives_the_line_of_the_script(tmp_path: Path) -> None:
    found = first(tmp_path, wait(0, 517, "_ALLGATHER_BASE", 1 << 20) + STACK)
    assert (found["id"], found["ranks"]) == ("rank0_only_state_dict", [0])
    assert found["place"] == "/home/user/train/train.py:692 in save"


def test_with_restarts_the_first_attempt_counts(tmp_path: Path) -> None:
    log = (
        "E0105 10:00:02.000000 4001 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 3 (pid: 4005) of binary: python3\n"
        "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:40002$1\n"
        "E0105 10:00:09.000000 4001 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 4008) of binary: python3\n"
    )
    found = first(tmp_path, log)
    assert (found["id"], found["ranks"]) == ("killed_from_outside", [3])


def test_of_two_exceptions_the_earlier_by_its_time_stamp_is_the_first(tmp_path: Path) -> None:
    def log(rank: int, at: str, error: str) -> str:
        lines = (
            "Traceback (most recent call last):",
            f'  File "/home/user/train/part{rank}.py", line 7, in step',
            "    run()",
            error,
        )
        return "".join(f"2026-01-05T10:00:{at}Z [rank{rank}]: {line}\n" for line in lines)

    lost = log(2, "09.100000000", "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.2]:28319 (gloo)")
    lost = lost.replace("/home/user/train/part2.py", "/opt/venv/lib/python3.11/site-packages/torch/distributed/x.py")
    one, two = (
        log(0, "05.200000000", "ValueError: cannot write the summary"),
        log(1, "04.900000000", "LookupError: no such shard"),
    )
    for number, logs in enumerate(
        ({"a.log": one + two + lost}, {"rank0.log": one, "rank1.log": two, "rank2.log": lost})
    ):
        found = first(tmp_path / str(number), logs)
        assert (found["id"], found["place"]) == ("script_raised", "/home/user/train/part1.py:7 in step")


def table(root: tuple[int, int, int], *others: tuple[int, int, int]) -> str:
    """torchrun's table of one node: (rank, local rank, exit code)."""

    def row(rank: int, local: int, code: int) -> str:
        return (
            f"  time      : 2026-01-05_10:00:02\n  host      : node{rank // 4}\n  rank      : {rank} (local_rank: {local})\n"
            f"  exitcode  : {code} (pid: {4000 + rank})\n  error_file: <N/A>\n  traceback : none\n"
        )

    rows = "".join(f"[{number}]:\n{row(*one)}" for number, one in enumerate(others, 1))
    return f"====\ntrain.py FAILED\n----\nFailures:\n{rows}----\nRoot Cause (first observed failure):\n[0]:\n{row(*root)}====\n"


def test_of_two_nodes_the_one_whose_rank_was_killed_failed_first(tmp_path: Path) -> None:
    # Each agent names a root cause of its own; that of node 0 lost its connection to the rank that was killed on node 1.
    lost = (
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252, in all_reduce\n'
        "[rank2]: RuntimeError: [pair.cc:537] Read error [10.0.0.2]:36251: Connection reset by peer. gloo\n"
    )
    logs = {
        "node0.log": lost + table((2, 2, 1), (0, 0, -15), (1, 1, -15), (3, 3, -15)),
        "node1.log": "E1129 15:38:34.084000 19204 api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 4005) of binary: python3\n"
        + table((5, 1, -9), (4, 0, -15), (6, 2, -15), (7, 3, -15)),
    }
    found = first(tmp_path, logs)
    assert (found["id"], found["ranks"]) == ("killed_from_outside", [5])


def test_a_file_without_a_word_is_evidence(tmp_path: Path) -> None:
    closed = (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/home/user/train/train.py", line 12, in <module>\n'
        "[rank0]:     dist.barrier()\n"
        '[rank0]:   File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 5356, in barrier\n'
        "[rank0]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:40001. This is typically caused by gloo\n"
    )
    logs = {f"attempt_0/{rank}/stderr.log": "" for rank in range(4)} | {"attempt_0/0/stderr.log": closed}
    found = first(tmp_path, logs)
    assert (found["id"], found["ranks"]) == ("rank0_only_collective", [0])
    # Without the empty files nothing is known of the others, and a lost connection alone is no cause.
    for rank in (1, 2, 3):
        (tmp_path / "logs" / f"attempt_0/{rank}/stderr.log").unlink()
    assert first(tmp_path, {})["id"] == "consequence"


def test_two_ranks_leave_two_causes(tmp_path: Path) -> None:
    closed = (
        "Traceback (most recent call last):\n"
        '  File "/home/user/train/train.py", line 12, in <module>\n'
        "    dist.barrier()\n"
        '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 5356, in barrier\n'
        "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:40001. This is typically caused by gloo\n"
    )
    for name, text in {"rank0.log": closed, "rank1.log": "done\n"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    record = diagnose(DiagnoseRequest((str(tmp_path),), torch="2.13"))
    told = [(one["id"], one["ranks"], one["confidence"]) for one in record.extra["diagnoses"]]
    assert told == [("rank_ended_early", [1], "possible"), ("rank0_only_collective", [0], "possible")]


def test_what_only_notices_is_no_error_of_its_own() -> None:
    def raised(message: str) -> Raised:
        return Raised("r", 1, 0, None, "RuntimeError", message, ())

    for message in (
        "[pair.cc:553] Connection closed by peer [10.0.0.2]:28319",
        "[2] is setting up NCCL communicator and retrieving ncclUniqueId from [0]: recvValue failed, got 0 bytes. Broken pipe",
        "NCCL communicator was aborted on rank 3.",
        "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0.",
    ):
        assert kind_of(raised(message)) == "noticed"
    assert kind_of(raised("Timed out waiting 4000ms for recv operation to complete")) == "waited"
    assert kind_of(raised("CUDA out of memory. Tried to allocate 2.00 GiB")) == "own"


CAUGHT = """step 10 loss 2.31
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/user/train/upload.py", line 12, in push
[rank0]:     table[key]
[rank0]: KeyError: 'run'
[rank0]: could not upload, going on
step 20 loss 2.11
[rank1]: step 20 done
"""
RETRIED = """Traceback (most recent call last):
  File "/home/user/train/data.py", line 30, in fetch
    return session.get(url)
  File "/opt/venv/lib/python3.11/site-packages/requests/adapters.py", line 501, in send
    raise ConnectionError(err, request=request)
requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))
retrying in 1 s
step 20 loss 2.11
"""


def test_an_exception_that_was_caught_is_no_diagnosis(tmp_path: Path) -> None:
    assert first(tmp_path, CAUGHT)["id"] == "unrecognised"


def test_a_download_that_was_repeated_says_nothing_about_peers(tmp_path: Path) -> None:
    assert first(tmp_path, {"rank0.log": RETRIED, "rank1.log": "step 20 loss 2.11\n"})["id"] == "unrecognised"


def test_the_place_is_the_innermost_line_of_the_users_own_code() -> None:
    frames = (
        Frame("/opt/venv/bin/torchrun", 8, "<module>"),
        Frame("/home/user/train/train.py", 80, "<module>"),
        Frame("/home/user/train/model/block.py", 12, "forward"),
        Frame("/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 134, "forward"),
        Frame("/usr/lib/python3.11/copy.py", 153, "deepcopy"),
    )
    one = Raised("r", 1, 0, None, "ValueError", "", frames)
    assert place_of(one) == "/home/user/train/model/block.py:12 in forward"
    assert place_of(one._replace(frames=frames[:1])) == ""


SCRIPT = """import torch.distributed as dist

def evaluate(model, rank):
    if rank == 0:
        total = (
            model(1)
            .sum()
        )
        dist.all_reduce(total)
    for step in range(3):
        dist.all_reduce(step)
    return dist.barrier() if dist.get_rank() == 0 else None
"""


def test_calls_with_their_lines_and_conditions() -> None:
    calls = [(one.name, one.line, one.by_rank) for one in calls_of("eval.py", SCRIPT)]
    assert ("sum", 7, True) in calls
    assert ("all_reduce", 9, True) in calls
    assert ("all_reduce", 11, False) in calls
    assert ("barrier", 12, True) in calls
    assert ("get_rank", 12, False) in calls
    reduced = next(one for one in calls_of("eval.py", SCRIPT) if one.line == 9)
    assert reduced.conditions == ("if rank == 0 (line 4)", "def evaluate (line 3)")


def test_an_operation_leads_to_the_call_under_a_condition_on_the_rank(tmp_path: Path) -> None:
    script = tmp_path / "eval.py"
    script.write_text(SCRIPT, encoding="utf-8")
    log = "".join(wait(rank, 512) for rank in (0, 1, 3))
    found = first(tmp_path, log, code=(str(script),))
    shown = [line for line in found["evidence"] if line["file"] == str(script)]
    assert shown[0]["line"] == 9
    assert "under if rank == 0 (line 4)" in shown[0]["text"]


@pytest.mark.parametrize("text", ["def (:\n", "\x00", "(" * 5000, "x = " + "-" * 100_000 + "1"])
def test_a_script_that_does_not_parse_only_lacks_calls(text: str) -> None:
    assert calls_of("broken.py", text) == []


def test_a_script_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="cannot be read"):
        first(tmp_path, wait(0, 5), code=(str(tmp_path / "none.py"),))


def test_scripts_are_never_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    first(tmp_path, wait(0, 5), code=(str(script),))
    assert not (tmp_path / "ran").exists()
