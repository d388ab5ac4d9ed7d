"""Exceptions without their traceback: the one line that people paste, and what a log's end says where nothing else told of it.

A line that begins with the name of an exception is one, whatever was put in front of it: prompts, quotes, bullets, fences, levels
of loggers, colours whose escape character was lost. Only the end of a log is looked at, for what the program went on after was caught.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shardguide.guidance.hints import NamedTuple

from .blocks import FRAME, RAISES
from .clean import Line, line_of
from .records import Frame, Raised

TAIL = 1 << 15  # bytes of the end of a log
PASTED = 60  # lines: a log of no more is what somebody copied out of one
FEW = 8  # lines that are not empty: all of them are about the failure
ALONE = 3  # lines that are not empty: nobody copies a line that says nothing
# Stands in front of such a line where signs are looked for; a sign that begins with it means what a whole log need not be about.
PASTED_ALONE = "pasted alone: "
AFTER = 40  # lines that may follow in a longer log: the launcher's
MESSAGE = 12  # lines
FRAMES = 40  # lines above an exception in which its frames are looked for
MOST = 32  # lines of a long log that are looked at for exceptions

# Text that mail programs, chats and word processors make of quotes, and colours without their escape character.
_TYPED = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " "})
_ENTITIES = (("&#39;", "'"), ("&#x27;", "'"), ("&quot;", '"'), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))
_COLOUR = re.compile(r"(?:\^\[|\\x1b|\\033|\\u001b|\\e)?\[\d{1,3}(?:;\d{1,3})*m")
_FRONT = (
    re.compile(r"[>|│┃║*+#•❌✗]+\s*"),
    re.compile(r"[-–—]+\s+"),
    re.compile(r"\d{1,3}[.)]\s+"),
    re.compile(r"[`'\"]+(?=[\w\[])"),
    re.compile(r"(?:\([\w.-]+\) )?(?:[\w.-]+@[\w.-]+:?[^$#>\s]*)?\s?[$%#❯>]+\s+"),  # a shell's prompt
    re.compile(r"(?:In|Out) ?\[\d*\]:\s*"),
    re.compile(r"E\s{2,}"),  # pytest
    re.compile(r"\[?\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\]?\s*"),
    re.compile(r"[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d (?:[\w.-]+ )?(?:[\w./-]+(?:\[\d+\])?: )?"),  # syslog
    re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d\S*\s*"),
    re.compile(r"\[?(?:ERROR|FATAL|CRITICAL|WARNING|INFO|error|stderr|ERR)\]?(?::\w[\w.]*:|\s*[-:|]?\s+|:)"),
    re.compile(r"\[[EF]\d{0,4}[ :][^\]]*\]:?\s*"),
    re.compile(r"[EF]\d{4} [\d:.]+ +\d+ [^\]]{1,80}\] ?"),
    re.compile(r"\[?[Rr]ank[ =]?(?P<rank>\d{1,6})\]?(?: of \d+)?(?::| \||>|\)| -)\s*"),
    re.compile(r"\[[\w.:/ -]{1,40}\]:?\s*"),
    re.compile(r"(?:worker|node|gpu|proc(?:ess)?|pid|host)[-_ =]?\d{1,7}(?::| \||>|\))\s*", re.IGNORECASE),
    re.compile(r"\{\"(?:log|message|msg|text)\": ?\""),
    re.compile(r"(?:Uncaught|Unhandled|Caught|Got|Original) (?:an |a )?(?:error|exception)?:?\s*", re.IGNORECASE),
)  # fmt: skip
# An exception in the words of whoever caught it.
_WRAPPED = re.compile(
    r"(?:Exception|Error|Fehler|Erreur|error message):\s+(?=(?:\w+\.)*[A-Z]\w*(?:Error|Exception):)", re.IGNORECASE
)
_NAME = (
    r"(?:[A-Za-z_]\w*(?:\.|::))*"
    r"(?:[A-Z]\w*(?:Error|Exception|Timeout|Interrupt|Iteration|Fault)|Error|Exception|(?<=socket\.)(?:error|timeout|gaierror)"
    r"|(?:(?<=exceptions\.)|(?<=exc\.)|(?<=errors\.)|(?<=error\.)|(?<=exception\.))[A-Z]\w*(?<!Warning))"
)
# A program that says this went on.
_HANDLED = re.compile(r"\b(?:[Rr]etry|[Rr]etrying|[Ii]gnored|[Ii]gnoring|[Ff]all(?:ing)? back|[Ss]kipp(?:ed|ing))\b")
_RAISED = re.compile(rf"(?P<kind>{_NAME})(?:\s*:\s*(?P<message>\S.*)|\((?P<repr>['\"].*)\)['\"`]*|\s*:?\s*)$")
_INSIDE = re.compile(
    rf"(?<![\w./(-])(?<!except )(?!Error\b|Exception\b)(?P<kind>{_NAME}): (?P<message>\S.*)$|(?<=[:|] )(?P<alone>{_NAME})$"
)
# Frames as IPython and rich write them.
_FRAME = re.compile(
    r"File (?P<file>[^\s\"][^:\"]{0,300}):(?P<line>\d{1,7}),? in (?P<function>[\w.<>]+)"
    r"|(?P<path>\S{1,300}\.py):(?P<at>\d{1,7}) in (?P<name>[\w.<>]+)|(?P<cell>Cell In ?\[\d+\]), line (?P<row>\d{1,7})"
)
# What is fatal and no exception of Python, at the start of a line: who looks only at a few lines need not ask what came before.
_FATAL = re.compile(
    r"(?P<kind>terminate called|Fatal Python error|FATAL|fatal error|Segmentation fault|Bus error|Illegal instruction"
    r"|Floating point exception|Aborted|Killed|(?:NCCL|CUDA|HIP|cuDNN|CUBLAS|MPI|OSError|torchrun|srun|slurmstepd|mpirun)? ?"
    r"(?:ERROR|[Ee]rror)|nccl\w+Error|ABORT\w*|(?:Assertion|Check) .{0,200}failed|RuntimeError|ImportError)\b(?P<message>.*)"
)
_LEVEL = re.compile(r"^\[?[EF]\d{4}[ :\d.]|^\[[EF] |\b(?:ERROR|FATAL|CRITICAL)\b|:\s*(?:error|fatal):\s", re.MULTILINE)


class Text(NamedTuple):
    """A line of the end, as its program wrote it."""

    number: int
    text: str
    rank: int | None
    local: int | None
    time: str
    raw: str  # with all that stands in front of it


class Loose(NamedTuple):
    """What the end of a log says without a traceback."""

    raised: tuple[Raised, ...]
    fatal: tuple[Raised, ...]  # a line that is no exception, where a few lines hold nothing else
    said: tuple[
        tuple[int, str], ...
    ]  # line and the message as one line, where it was wrapped or typed otherwise than programs print it


def end_of(tail: bytes, lines: int, pasted: bool) -> list[Text]:
    """The lines of a log's end: all where it was pasted, else those around its exceptions. ``lines`` is how many the whole log has."""
    pieces = tail.split(b"\n")
    if pieces and not pieces[-1]:
        pieces.pop()
    first = lines - len(pieces) + 1
    wanted: set[int] = set(range(len(pieces)))
    if not pasted:
        told = [at for at, piece in enumerate(pieces) if any(word in piece for word in RAISES)][-MOST:]
        wanted = {near for at in told for near in range(at - FRAMES, at + MESSAGE)}
    return [_text(first + at, line_of(piece)) for at, piece in enumerate(pieces) if at in wanted]


def _text(number: int, line: Line) -> Text:
    text, rank = _bared(line.text)
    return Text(number, text, rank if line.rank is None else line.rank, line.local, line.time, line.text)


def _bared(text: str) -> tuple[str, int | None]:
    """A line without what people and tools put around it, and the rank that this named."""
    if "m" in text and "[" in text:
        text = _COLOUR.sub("", text)
    text = text.translate(_TYPED)
    if "&" in text:
        for one, other in _ENTITIES:
            text = text.replace(one, other)
    rank = None
    for _ in range(8):
        start = text.lstrip()
        wrapped = _WRAPPED.match(start)
        if wrapped is None and _RAISED.match(start):
            text = start
            break
        found = wrapped or next((match for pattern in _FRONT if (match := pattern.match(start)) and match.end()), None)
        if found is None:
            break
        if found.groupdict().get("rank") and rank is None:
            rank = int(found["rank"])
        rest = start[found.end() :]
        if rest[:1] != "" and found[0].startswith('{"'):
            rest = rest.split('\\n"', 1)[0].replace('\\"', '"')
        # The frame lines of a traceback keep their indent: what follows them is no exception.
        text = rest
    return text.rstrip(), rank


def read(
    texts: Sequence[Text], file: str, known: Sequence[Raised], lines: int, rank: int | None, pasted: bool
) -> Loose:
    """The exceptions of these lines that no traceback told of. ``known`` are those that one did; ``rank`` is the file's."""
    covered = {number for one in known for number in range(one.line, one.line + 1 + one.message.count("\n"))}
    short = lines <= PASTED
    few = pasted and short and sum(bool(one.text.strip("`")) for one in texts) <= FEW
    raised: list[Raised] = []
    said: list[tuple[int, str]] = []
    frames: list[Frame] = []
    last = 0
    for at, one in enumerate(texts):
        frame = _frame(one, frames)
        if frame is not None:
            frames.append(frame)
        if one.number in covered or one.number <= last:
            continue
        found = _RAISED.match(one.text) or (_INSIDE.search(one.text) if few else None)
        if found is None or not (short or lines - one.number <= AFTER):
            continue
        if not few and _HANDLED.search(one.text):
            continue
        kind = found["kind"] or found["alone"]
        message = list(_message(found, texts, at))
        last = one.number + len(message) - 1
        who = one.rank if one.rank is not None else rank
        text = "\n".join(message)[:2000]
        raised.append(Raised(file, one.number, who, one.local, kind, text, tuple(frames[-60:]), one.time))
        frames = []
        said.append((one.number, f"{kind}: {' '.join(part.strip() for part in message)}"[:4000]))
        if len(message) > 1:  # a terminal breaks lines within words as well
            first = one.raw[max(one.raw.find(kind), 0) :]
            said.append(
                (one.number, "".join([first, *(more.raw for more in texts[at + 1 : at + len(message)])])[:4000])
            )
    if few:
        alone = PASTED_ALONE if sum(bool(one.text.strip("`")) for one in texts) <= ALONE else ""
        said += [(one.number, alone + one.text) for one in texts if one.text]
        said.append((texts[0].number, " ".join(one.text.strip() for one in texts)[:8000]))
    fatal = _fatal(texts, file, rank) if few and not raised and not known else []
    return Loose(tuple(raised), tuple(fatal), tuple(said))


def printed(text: str) -> bool:
    """Whether words that somebody says hold what a program printed: an exception, or a line that is fatal by its beginning."""
    bare = [_bared(line)[0] for line in text.splitlines()[:FEW]]
    return any(_RAISED.match(one) or _INSIDE.search(one) or _FATAL.match(one) for one in bare)


def _frame(one: Text, frames: list[Frame]) -> Frame | None:
    """The frame that a line is; the source line below one is added to it."""
    found = FRAME.match(one.raw)
    if found:
        return Frame(found["file"], int(found["line"]), found["function"] or "")
    if frames and not frames[-1].text and one.raw.startswith("    ") and one.raw.strip(" ^~"):
        frames[-1] = frames[-1]._replace(text=one.raw.strip()[:200])
        return None
    found = _FRAME.search(one.text) if "in " in one.text or "Cell In" in one.text else None
    if found is None:
        return None
    if found["cell"]:
        return Frame(found["cell"], int(found["row"]), "<module>")
    if found["path"]:
        return Frame(found["path"], int(found["at"]), found["name"])
    return Frame(found["file"], int(found["line"]), found["function"])


def _message(found: re.Match[str], texts: Sequence[Text], at: int) -> Iterator[str]:
    """The lines of the message, without the quotes and fences that close it."""
    one = texts[at]
    first = found["message"] or (found.groupdict().get("repr") or "").strip("'\"),")
    yield _closed(first)
    for more in texts[at + 1 : at + MESSAGE]:
        if not more.text.strip("` ") or more.rank != one.rank or more.number - one.number >= MESSAGE:
            return
        if _RAISED.match(more.text) or more.text.startswith(
            ("Traceback", "During handling", "The above exception", "File ", "====")
        ):
            return
        yield _closed(more.text)


def _closed(text: str) -> str:
    return text.strip().rstrip("`*│┃|").rstrip()


def _fatal(texts: Sequence[Text], file: str, rank: int | None) -> list[Raised]:
    """The first line of a few that says by its own words that something failed. NCCL warns of what it does without, too."""
    alone = sum(bool(one.text) for one in texts) <= ALONE
    for one in texts:
        found = _FATAL.match(one.text)
        if found or _LEVEL.search(one.raw) or (alone and "NCCL WARN" in one.raw):
            kind = " ".join(found["kind"].split()) if found else "error"
            message = (found["message"] if found else one.text).strip(" :")
            who = one.rank if one.rank is not None else rank
            return [Raised(file, one.number, who, one.local, kind, message[:2000], (), one.time)]
    return []
