"""What is asked for, and what leads on, where nothing was diagnosed: evidence, from the rank that has it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardguide.guidance.record import Next, Question

from .match import Candidate
from .ranks import names

# Who a rank lost, where the line says it: a number, or the address of its socket.
_RANK = re.compile(
    r"(?:from|with|of|to|connection with) rank \[?(?P<rank>\d{1,6})|from remote rank (?P<remote>\d{1,6})"
)
_ADDRESS = re.compile(r"(?:peer|remote=|connecting to|Broken pipe).{0,40}?[\w.-]+(?:\]?:\d{2,5}|<\d{2,5}>)")
FIRST = (
    "Find the rank that ended first: torchrun's table names it under Root Cause, the time stamps at the end of each rank's log compare, "
    "and a process that was killed left no traceback (its exit code is negative; dmesg and sacct -j JOB --format=JobID,State,ExitCode "
    "say so)."
)
HAND_OVER = (
    "Hand over the logs of all ranks: shardguide diagnose FOLDER. Where no rank says why, set TORCH_FR_BUFFER_SIZE=2000 (before 2.9: "
    "TORCH_NCCL_TRACE_BUFFER_SIZE) and TORCH_NCCL_DUMP_ON_TIMEOUT=1 for the next run and hand over the Flight Recorder dumps of all ranks."
)
_LOGS = Question(
    "paths",
    "Where are the logs of all ranks, or the Flight Recorder dumps?",
    "What was read holds only consequences; the cause stands in the output of the rank that ended first.",
)
_MORE = Question(
    "paths",
    "Where is the whole output of the job: the log of every rank, or torchrun's --log-dir?",
    "No diagnosis is known for what was read; the first error of any rank, with its traceback, says most.",
)
_WORDS = Question(
    "text",
    "What did it print? Paste the first error of any rank with its traceback, or name the logs (paths).",
    "The words alone fit no diagnosis. For a hang without an error: py-spy dump --pid PID of every rank, and since when it hangs.",
)
_NOTHING = Question(
    "question",
    "What happens, in your words: an error, a hang, wrong numbers, too slow; since when, and on which ranks?",
    "Nothing in what was read says that anything failed.",
)


def questions(outcome: str, read: bool) -> tuple[Question, ...]:
    """What would lead to a diagnosis. ``read`` says whether there was a log at all."""
    if outcome == "consequence":
        return (_LOGS,)
    if outcome == "unrecognised":
        return (_MORE,) if read else (_WORDS,)
    return (_NOTHING,) if outcome == "no_failure" else ()


def leads(outcome: str, raised: bool, read: bool) -> tuple[Next, ...]:
    """The calls that lead on."""
    again = Next("diagnose", {"paths": "PATH"}, "with the logs of all ranks, as files or a folder")
    hang = Next(
        "explain",
        {"topic": "debugging-hangs"},
        "what to set and collect when a job hangs or ranks end one after the other",
    )
    if outcome == "consequence":
        return (again, hang)
    if outcome == "unrecognised":
        review = Next(
            "review", {"paths": "PATH"}, "look through the code for what is known to fail so, or to fail silently"
        )
        return (again, review) if raised or read else (again, hang, review)
    if outcome == "no_failure":
        return (
            Next(
                "diagnose", {"paths": "PATH"}, "with what happens in words (question), or the logs of the other ranks"
            ),
            hang,
        )
    return ()


def consequence(found: Sequence[Candidate]) -> list[str]:
    """What those say that only noticed the failure of another: whom they lost, and the way to the cause."""
    lines = [shown.text for one in found for shown in one.evidence]
    ranks = sorted({int(said[1] or said[2]) for text in lines for said in _RANK.finditer(text)})
    out = []
    if ranks:
        out.append(f"Lost from here: {names(ranks)}. Begin with its output.")
    elif any(_ADDRESS.search(text) for text in lines):
        out.append(
            "The line names the address of the process that was lost: begin with the output of the rank that ran there."
        )
    return [*out, FIRST, HAND_OVER]
