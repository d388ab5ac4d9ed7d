"""One line of a log as the program wrote it: without colours, redrawn progress bars and what launchers put in front."""

from __future__ import annotations

import re

from shardguide.guidance.hints import NamedTuple

# Colours and cursor movements (ECMA-48), and the terminal titles that some tools set.
_ESCAPES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
# What stands in front of a line, with the rank in it: torchrun ([rank3]:, [default3]:), srun --label (3: ), Lightning and DeepSpeed.
_RANKED = (
    re.compile(r"\[rank\s?(?P<rank>\d{1,6})\]:\s?"),
    re.compile(r"\[(?:default|\$\{role_name\}|[A-Za-z_]{1,20})(?P<local>\d{1,4})\]:\s?"),
    re.compile(r"\[Rank (?P<rank>\d{1,6})\]\s"),
    re.compile(r"(?P<rank>\d{1,5}):\s"),
)
_BESIDE = (
    # Time stamps of loggers, kubectl --timestamps and container runtimes.
    re.compile(r"\[?(?P<time>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)\]?:?\s+"),
    re.compile(r"\(\w+ pid=\d+(?:, ip=[\d.]+)?\)\s"),  # Ray
    re.compile(r"(?!File\b)[\w.-]{1,80} \|\s"),  # docker compose
    re.compile(r"\[[\w.-]{1,80}/[\w./-]{1,120}\]\s"),  # kubectl logs --prefix
    re.compile(r"\[\d+,(?P<rank>\d{1,6})\]<std(?:out|err)>:\s?"),  # mpirun --tag-output
)
# [E ProcessGroupNCCL.cpp:916] [Rank 1] …: of the default group; with [PG …] before it the number is the group's own.
_WATCHDOG = re.compile(r"\[[EWI][\d: .]*ProcessGroupNCCL\.cpp:\d+\] \[Rank (?P<rank>\d{1,6})\]")
LONGEST = 1000  # characters of a line that are kept


class Line(NamedTuple):
    """A cleaned line."""

    text: str
    rank: int | None  # global rank, where the line itself says it
    local: int | None  # local rank, where it says only that
    time: str = ""  # the time stamp in front of it, as it stands there


def text_of(raw: bytes) -> str:
    """What is left on the screen of a line: after the last carriage return, without escape sequences and control characters."""
    if b"\x1b" in raw:
        raw = _ESCAPES.sub(b"", raw)
    raw = raw.rstrip(b"\r\n")
    if b"\r" in raw:
        raw = max(raw.split(b"\r"), key=_weight)
    text = raw[: 4 * LONGEST].decode("utf-8", "replace")
    return "".join(char if char.isprintable() or char == "\t" else " " for char in text)[:LONGEST]


def _weight(part: bytes) -> tuple[bool, int]:
    """A progress bar is redrawn many times before a message ends the line: the message is what is not a bar."""
    return (b"it/s" not in part and b"%|" not in part and bool(part.strip()), len(part))


def line_of(raw: bytes) -> Line:
    """A line without its prefixes, and the rank that they name."""
    text = text_of(raw)
    rank: int | None = None
    local: int | None = None
    time = ""
    for _ in range(6):
        start = text.lstrip(" ") if not text.startswith("    ") else text
        for pattern in (*_RANKED, *_BESIDE):
            found = pattern.match(start)
            if found is None:
                continue
            groups = found.groupdict()
            if groups.get("rank") is not None and rank is None:
                rank = int(groups["rank"])
            if groups.get("local") is not None and local is None:
                local = int(groups["local"])
            time = time or groups.get("time") or ""
            text = start[found.end() :]
            break
        else:
            break
    if rank is None and "ProcessGroupNCCL" in text and (found := _WATCHDOG.match(text)) is not None:
        rank = int(found["rank"])  # before 2.4 the watchdog's lines have no other sign of it
    return Line(text, rank, local, time)
