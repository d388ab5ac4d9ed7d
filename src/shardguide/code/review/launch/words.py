"""The records of launch files: words of a command, commands, what the job was given, and files with their lines."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple

UNKNOWN = "\x00"  # stands in a word for what only a run tells
EARLY = "\x01"  # the same, for Slurm's own numbers of a task where the batch script's shell fills them in


class Text:
    """A file of lines that findings can point into."""

    __slots__ = ("_lines", "path", "text")

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self._lines: list[bytes] | None = None

    @property
    def lines(self) -> list[bytes]:
        """The lines in UTF-8."""
        if self._lines is None:
            self._lines = [line.encode("utf-8", "replace") for line in self.text.split("\n")]
        return self._lines


class Word(NamedTuple):
    """One word of a command, with variables of the file filled in."""

    text: str  # with UNKNOWN or EARLY where a part is not known
    line: int  # from 1
    column: int  # from 1
    quoted: bool = False
    raw: str = ""  # the script of bash -c "…" before its variables were filled in

    @property
    def known(self) -> bool:
        """Whether all of it is known."""
        return UNKNOWN not in self.text and EARLY not in self.text

    @property
    def open(self) -> bool:
        """Whether it may stand for several words, or for an option."""
        return self.text[:1] in (UNKNOWN, EARLY)


class Setting(NamedTuple):
    """An environment variable as a file sets it."""

    name: str
    value: Word
    exported: bool


class Command(NamedTuple):
    """One simple command."""

    words: tuple[Word, ...]
    before: tuple[Setting, ...]  # VAR=value in front of it
    background: bool  # ends with &
    depth: int  # of if, for, while, case and functions around it
    through: tuple[Word, ...] = ()  # the words in front of bash -c, where it stands in such a script


class Job(NamedTuple):
    """What the job as a whole has; None for what the file does not say."""

    nodes: int | None = None
    gpus: int | None = None  # on each node
    tasks: int | None = None  # on each node
    cpus: int | None = None  # for each task
    slurm: bool = False  # a batch file of Slurm
    kind: str = ""  # "Slurm's --nodes", … as the sentence names it


class Script(NamedTuple):
    """A shell script as read."""

    commands: tuple[Command, ...]
    settings: tuple[Setting, ...]  # every assignment, in order
    directives: tuple[Word, ...]  # the lines #SBATCH, without that word
    first: int  # line of the first command, 0 if there is none
