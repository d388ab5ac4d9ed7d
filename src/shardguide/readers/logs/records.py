"""What is found in logs. Plain named tuples, so that what one process found travels to another."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple


class Event(NamedTuple):
    """A line in which known words stand."""

    sign: int  # index of the words in the list that was looked for
    file: str
    line: int  # 1-based
    rank: int | None
    local: int | None
    text: str


class Frame(NamedTuple):
    """One frame of a traceback."""

    file: str
    line: int
    function: str
    text: str = ""  # the source line that Python shows under it


class Raised(NamedTuple):
    """An exception that ended a traceback."""

    file: str
    line: int  # of the exception's own line
    rank: int | None
    local: int | None
    kind: str  # "ValueError", "torch.OutOfMemoryError"
    message: str  # its first lines
    frames: tuple[Frame, ...]  # outermost first; the innermost are kept when there are many
    time: str = ""  # the time stamp in front of its head, as it stands there


class Failed(NamedTuple):
    """A row of torchrun's table of failures."""

    file: str
    line: int
    rank: int
    local: int
    exitcode: int  # negative: killed by that signal
    host: str
    time: str
    root: bool  # "Root Cause (first observed failure)"


class Evidence(NamedTuple):
    """What one file says."""

    file: str
    rank: int | None  # by the file's name or folder
    size: int  # bytes read, decompressed
    lines: int
    events: tuple[Event, ...]
    counts: tuple[tuple[int, int], ...]  # (sign, lines in which it stands), also beyond those kept
    raised: tuple[Raised, ...]
    failed: tuple[Failed, ...]
    last: str  # the last line that is not empty
    problem: str = ""  # why it could not be read to its end
    digest: str = ""  # of the bytes that were read
    fatal: tuple[Raised, ...] = ()  # the line that says something failed, where a few lines hold no exception
