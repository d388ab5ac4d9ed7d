"""What spans several lines of a log: tracebacks, the stacks that ProcessGroupNCCL prints, and torchrun's table of failures."""

from __future__ import annotations

import re

from .records import Failed, Frame, Raised

FRAMES = 60
# One of these stands in the line of every exception.
RAISES = (b"Error", b"Exception", b"Timeout", b"timeout", b"Interrupt", b"error", b"Iteration", b"xceptions.")
# The words by which the structures below are found; they come after the caller's own.
TRACEBACK = b"Traceback (most recent call last):"
ROOT = b"Root Cause (first observed failure):"
OTHERS = b"Failures:"
# ProcessGroupNCCL's, of the collective that timed out, where the Flight Recorder is on.
STACK = b"Stack trace of the failed collective:"
TIMED_OUT = "CollectiveTimeout"  # what such a stack is kept as

FRAME = re.compile(r'\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,7})(?:, in (?P<function>.{1,200}))?')
_STACK_FRAME = re.compile(r"#\d+ (?P<function>.{1,200}?) from (?P<file>.{1,400}):(?P<line>\d{1,7})\s*$")
# An exception's own line: a dotted name that ends in a capitalised class (or socket.gaierror), alone or before a colon.
RAISED = re.compile(
    r"(?P<kind>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*|(?<=\.)[a-z_]+(?:error|timeout)))(?:: ?(?P<message>.*))?$"
)
_ROW = re.compile(r"\s*(?P<name>time|host|rank|exitcode|error_file|traceback)\s*:\s*(?P<value>.*)")


class Traceback:
    """The lines of one traceback, from its head to the exception and the lines of its message."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.rank: int | None = None  # by the line of its head
        self.time = ""
        self.frames: list[Frame] = []
        self.kind = ""
        self.number = 0
        self.message: list[str] = []
        self.read = 0

    def take(self, text: str, number: int) -> bool:
        """Whether it ends with (or before) this line."""
        self.read += 1
        if self.kind:  # lines after the exception: its message goes on until something else starts
            more = text.strip()
            if not more or len(self.message) > 12 or _starts_anew(text):
                return True
            self.message.append(text)
            return False
        if TRACEBACK.decode() in text:
            self.frames = []
            return False
        frame = FRAME.match(text)
        if frame:
            if len(self.frames) >= FRAMES:
                del self.frames[FRAMES // 2]
            self.frames.append(Frame(frame["file"], int(frame["line"]), frame["function"] or ""))
            return False
        if text.startswith("    ") and self.frames and not self.frames[-1].text and text.strip(" ^~"):
            self.frames[-1] = self.frames[-1]._replace(text=text.strip()[:200])
            return False
        if text[:1] in (" ", "\t", "") or text.startswith(("During handling", "The above exception", "[Previous line")):
            return self.read > 600
        raised = RAISED.match(text)
        if raised:
            self.kind, self.number = raised["kind"], number
            self.message = [raised["message"] or ""]
            return False
        return self.read > 600

    def raised(self, file: str, rank: int | None, local: int | None) -> Raised:
        """The record."""
        message = "\n".join(self.message)[:2000]
        return Raised(file, self.number, rank, local, self.kind, message, tuple(self.frames), self.time)


class Stack(Traceback):
    """The frames that ProcessGroupNCCL prints of a collective that timed out, innermost first."""

    def take(self, text: str, number: int) -> bool:
        """Whether it ends before this line."""
        found = _STACK_FRAME.match(text.strip())
        if found is None or len(self.frames) >= FRAMES:
            return True
        if not self.kind:
            self.kind, self.number = TIMED_OUT, number - 1
            self.message = ["collective operation timeout: WorkNCCL"]
        self.frames.insert(0, Frame(found["file"], int(found["line"]), found["function"]))
        return False


def _starts_anew(text: str) -> bool:
    return bool(
        TRACEBACK.decode() in text or RAISED.match(text) or text.startswith(("[W", "[E", "[I", "W1", "E1", "I1"))
    )


class Table:
    """torchrun's table of failures: one block of named values for each failed process."""

    def __init__(self, file: str, root: bool) -> None:
        self.file, self.root, self.at = file, root, 0
        self.rows: list[Failed] = []
        self.values: dict[str, str] = {}
        self.line = self.read = 0

    def take(self, text: str, number: int) -> bool:
        """Whether the table ends with this line."""
        self.read += 1
        if ROOT.decode() in text:
            self.close()
            self.root = True
            return False
        found = _ROW.match(text)
        if found:
            if found["name"] == "time" and self.values:
                self.close()
            if not self.values:
                self.line = number
            self.values[found["name"]] = found["value"].strip()
            return False
        ends = text.startswith("====") and bool(self.rows or self.values)
        if ends or self.read > 4000:
            self.close()
            return True
        return False

    def close(self) -> None:
        """Keep the block that was read."""
        values, self.values = self.values, {}
        rank = re.match(r"(\d+)\s*\(local_rank:\s*(\d+)\)", values.get("rank", ""))
        code = re.match(r"(-?\d+)", values.get("exitcode", ""))
        if rank and code and len(self.rows) < 20_000:
            self.rows.append(
                Failed(
                    self.file,
                    self.line,
                    int(rank[1]),
                    int(rank[2]),
                    int(code[1]),
                    values.get("host", ""),
                    values.get("time", ""),
                    self.root,
                )
            )
