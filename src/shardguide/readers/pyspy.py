"""Stacks of running processes: ``py-spy dump`` (its text and ``--json``, with ``--locals``, ``--native``) and Python's faulthandler.

Formats: src/dump.rs and src/stack_trace.rs of https://github.com/benfred/py-spy; Python/traceback.c (``_Py_DumpTracebackThreads``) and
Modules/faulthandler.c of CPython. A file may hold the dumps of several processes, also in the middle of a log and with the
prefixes of its lines. What is kept is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple

from .files import check_depth
from .logs.clean import Line, line_of
from .logs.scan import rank_of_file
from .logs.source import chunks

MOST = 1 << 25  # bytes of a file that are read
MOST_LINES = 400_000
PROCESSES = 20_000
THREADS = 128  # of a process: the main thread is the first or the last
FRAMES = 120  # of a thread
VALUES = 2_000_000  # of JSON
NEAR = 6  # lines between what stands above a dump and the dump


class StackFrame(NamedTuple):
    """One call that has not returned."""

    function: str  # "_MapDatasetFetcher.fetch" where the tool qualifies names
    file: str  # as the tool writes it: py-spy leaves out the folder above the outermost package
    line: int  # 0 where it is not known


class Thread(NamedTuple):
    """One thread, the innermost frame first."""

    name: str
    state: str  # "idle", "active", "active+gil"; "" where the tool does not say
    frames: tuple[StackFrame, ...]
    line: int  # of the dump, where its first frame stands; 0 in JSON


class Process(NamedTuple):
    """One process."""

    file: str
    line: int
    tool: str  # "py-spy" or "faulthandler"
    pid: str  # "" where the tool does not say
    command: str
    rank: int | None
    threads: tuple[Thread, ...]
    crashed: bool  # faulthandler printed it because the process was about to end

    @property
    def main(self) -> Thread | None:
        """The main thread: by its name, else the one that began with the program's own file."""
        named = [one for one in self.threads if one.name == "MainThread"]
        begun = [one for one in self.threads if one.frames and one.frames[-1].function == "<module>"]
        return next(iter((*named, *begun, *self.threads[-1:])), None)


_PROCESS = re.compile(r"Process (?P<pid>\d{1,10}): ?(?P<command>.{0,600})$")
_PARENT = re.compile(r"(?:Parent )?Process \d{1,10}: |Python v\d")
_THREAD = re.compile(
    r'Thread (?:0x[0-9A-Fa-f]{1,16}|\d{1,20}) \((?P<state>idle|active|[\w+]{1,20})\)(?:: "(?P<name>[^"]{0,200})")?$'
)
_FRAME = re.compile(r"(?P<function>\S.{0,300}?) \((?P<file>[^()]{1,400}?)(?::(?P<line>\d{1,8}))?\)$")
_LOCALS = re.compile(r"(?P<name>global_rank|rank|RANK): (?P<rank>\d{1,6})$")
_FAULT = re.compile(
    r"(?P<current>Current thread|Thread) 0x[0-9A-Fa-f]{1,16}(?: \[(?P<name>[^\]]{1,200})\])? \(most recent call first\):"
)
_FAULT_FRAME = re.compile(r'File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,8}) in (?P<function>.{1,300})$')
# What people print above each dump.
_HEADING = re.compile(r"(?<![A-Za-z])(?:global[ _-]?)?rank[ =:#_-]{0,3}(?P<rank>\d{1,6})\b", re.IGNORECASE)


def read(path: str) -> list[Process]:
    """Every process whose stack stands in a file. Raises UnusableInput for a file that cannot be read."""
    data = bytearray()
    for chunk in chunks(path):
        data += chunk
        if len(data) > MOST:
            break
    if data[:1000].lstrip()[:1] == b"[" and b'"frames"' in data:
        return from_json(bytes(data), path)
    raw = bytes(data).split(b"\n", MOST_LINES)[:MOST_LINES]
    return from_lines(((number, line_of(one)) for number, one in enumerate(raw, 1)), path)


def from_lines(lines: Iterable[tuple[int, Line]], path: str) -> list[Process]:
    """Every process whose stack stands in these lines, numbered as in their file."""
    open_: dict[tuple[int | None, int | None], _Open] = {}
    done: list[Process] = []
    heading: int | None = None
    said = 0  # the line of it
    for number, line in lines:
        if heading is not None and number - said > NEAR:
            heading = None
        key = (line.rank, line.local)
        one = open_.get(key)
        if one is None:
            if len(open_) >= PROCESSES:
                break
            one = open_[key] = _Open(path, line.rank)
        ended = one.take(number, line.text, heading)
        if ended is not None:
            done.append(ended)
            if len(done) >= PROCESSES:
                break
        if one.used:
            heading, one.used = None, False
        found = _HEADING.search(line.text) if not one.threads and len(line.text) < 120 else None
        if found and not _PROCESS.match(line.text):
            heading, said = int(found["rank"]), number
    done += [last for one in open_.values() if (last := one.closed()) is not None]
    return _ranked(done, path)


def _ranked(found: list[Process], path: str) -> list[Process]:
    """A file's name says the rank where the file holds the dump of one process, or several of that one."""
    rank = rank_of_file(path)
    if rank is None or any(one.rank is not None for one in found) or len({one.pid for one in found}) > 1:
        return found
    return [one._replace(rank=rank) for one in found]


class _Open:
    """The dump that is being read from the lines with one prefix."""

    def __init__(self, path: str, rank: int | None) -> None:
        self.path, self.prefix = path, rank
        self.used = False
        self.crash = False  # a fatal error was announced: the stacks below it are of a process that ends
        self._begin(0, "", "", None)

    def _begin(self, number: int, pid: str, command: str, heading: int | None) -> None:
        self.line, self.pid, self.command = number, pid, command
        self.rank = heading
        self.tool = "py-spy"
        self.threads: list[Thread] = []
        self.locals: set[int] = set()
        self.name = self.state = ""
        self.inside = False
        self.frames: list[StackFrame] = []
        self.at = 0

    def closed(self) -> Process | None:
        """The process that was read so far; None where there is none."""
        self._thread()
        if not any(one.frames for one in self.threads):
            self.threads = []
            return None
        rank = self.prefix if self.prefix is not None else self.rank
        if rank is None and len(self.locals) == 1:
            rank = next(iter(self.locals))
        crashed = self.crash and self.tool == "faulthandler"
        found = Process(self.path, self.line, self.tool, self.pid, self.command, rank, tuple(self.threads), crashed)
        self.threads = []
        return found

    def _thread(self) -> None:
        if not self.inside:
            return
        self.inside = False
        if len(self.threads) >= THREADS:
            del self.threads[THREADS // 2]
        self.threads.append(Thread(self.name, self.state, tuple(self.frames), self.at))

    def take(self, number: int, text: str, heading: int | None) -> Process | None:
        """The process that ends before this line; None while there is none."""
        ended: Process | None = None
        bare = text.strip()
        process = _PROCESS.match(bare)
        if process:
            ended = self.closed()
            self._begin(number, process["pid"], process["command"], heading)
            self.used = True
            return ended
        thread = _THREAD.match(bare)
        fault = _FAULT.match(bare) if thread is None else None
        if thread or fault:
            self._thread()
            if self.threads and fault and self.tool == "py-spy":
                ended = self.closed()
                self._begin(number, "", "", None)
            if not self.threads and not self.pid:
                self._begin(number, "", "", heading)
                self.used = True
            self.tool = "faulthandler" if fault else "py-spy"
            self.name = ((thread or fault) or {"name": ""})["name"] or ""
            self.state = thread["state"] if thread else ""
            self.inside, self.frames, self.at = True, [], number + 1
            return ended
        if self.inside:
            if self._frame(text, bare):
                return None
            self._thread()
        if bare.startswith(("Fatal Python error", "Timeout (")):
            ended = self.closed()
            self._begin(number, "", "", None)
            self.crash = bare.startswith("Fatal")
        elif bare and not _PARENT.match(bare) and self.threads:
            ended = self.closed()
            self._begin(number, "", "", None)
            self.crash = False
        return ended

    def _frame(self, text: str, bare: str) -> bool:
        """Whether the line belongs to the open thread."""
        if self.tool == "faulthandler":
            found = _FAULT_FRAME.match(bare)
            if found is None:
                return bare in ("...", "<no Python frame>")
        else:
            if text.startswith("        "):  # the arguments and variables of the frame above
                local = _LOCALS.match(bare)
                if local and self.name in ("MainThread", ""):
                    self.locals.add(int(local["rank"]))
                return True
            found = _FRAME.match(bare)
            if found is None or (text[:1] not in " \t" and not found["file"].endswith(".py")):
                return False
        if len(self.frames) >= FRAMES:
            del self.frames[FRAMES // 2]
        self.frames.append(StackFrame(found["function"], found["file"], int(found["line"] or 0)))
        return True


def from_json(data: bytes, path: str) -> list[Process]:
    """The processes in the output of ``py-spy dump --json``, also of several calls one after the other."""
    import json

    if sum(map(data.count, (b"[", b"{", b","))) > VALUES:
        raise UnusableInput(f"{path} holds more values than are read; dump fewer processes into one file.")
    text = data.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    by_pid: dict[str, list[Thread]] = {}
    commands: dict[str, str] = {}
    ranks: dict[str, set[int]] = {}
    at = 0
    while at < len(text) and len(by_pid) < PROCESSES:
        start = text.find("[", at)
        if start < 0:
            break
        try:
            value, at = decoder.raw_decode(text, start)
        except ValueError:
            break
        check_depth(value, path)
        for pid, thread, command, rank in _json_threads(value):
            threads = by_pid.setdefault(pid, [])
            if len(threads) < THREADS:
                threads.append(thread)
            commands.setdefault(pid, command)
            if rank is not None and thread.name in ("MainThread", ""):
                ranks.setdefault(pid, set()).add(rank)
    if not by_pid:
        raise UnusableInput(f"{path} is JSON, but no output of py-spy dump --json.")
    found = [
        Process(path, 0, "py-spy", pid, commands[pid], next(iter(said)) if len(said := ranks.get(pid, set())) == 1 else None,
                tuple(threads), False)
        for pid, threads in by_pid.items()
    ]  # fmt: skip
    return _ranked(found, path)


def _json_threads(value: Any) -> Iterator[tuple[str, Thread, str, int | None]]:
    for one in value if isinstance(value, list) else ():
        frames = one.get("frames") if isinstance(one, dict) else None
        if not isinstance(frames, list):
            continue
        kept = [_json_frame(frame) for frame in frames[:FRAMES] if isinstance(frame, dict)]
        state = ("active+gil" if one.get("owns_gil") else "active") if one.get("active") else "idle"
        info = one.get("process_info")
        command = str(info.get("command_line") or "")[:600] if isinstance(info, dict) else ""
        rank = next((found for frame in frames[:FRAMES] if (found := _json_rank(frame)) is not None), None)
        yield (
            str(one.get("pid") or "")[:12],
            Thread(str(one.get("thread_name") or "")[:200], state, tuple(kept), 0),
            command,
            rank,
        )


def _json_frame(frame: dict[str, Any]) -> StackFrame:
    line = frame.get("line")
    name = str(frame.get("short_filename") or frame.get("filename") or "")
    return StackFrame(str(frame.get("name") or "")[:300], name[:400], line if type(line) is int else 0)


def _json_rank(frame: Any) -> int | None:
    local = frame.get("locals") if isinstance(frame, dict) else None
    for one in local if isinstance(local, list) else ():
        if isinstance(one, dict):
            found = _LOCALS.match(f"{one.get('name')}: {str(one.get('repr'))[:20]}")
            if found:
                return int(found["rank"])
    return None
