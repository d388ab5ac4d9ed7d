"""What is known while a program is followed, and what the checks do with it."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import NamedTuple

from .project import File, Project
from .records import Condition, Edit, Finding, Mark, Path, Thing, Things, Verdict, compatible, implied
from .trace import Event as Event
from .trace import Item, Unknown

BUDGET = 20_000  # statements for one root; a program that repeats itself through its calls ends here
MARKS = 1_000  # what happened to one thing; more is told by programs that were generated
COPIES = 4_000  # parts of summaries that are put in where a function is called once more


class Note(NamedTuple):
    """Something that happened to the program as a whole, in order."""

    what: str
    node: ast.AST
    path: Path
    at: int
    file: File
    looped: bool
    things: Things


class Frame:
    """A function while it is followed."""

    __slots__ = ("env", "file", "number", "options", "parts", "rest", "returns", "top", "written")

    def __init__(self, file: File, number: int) -> None:
        self.file = file
        self.number = number
        self.env: dict[str, Things] = {}
        self.written: dict[str, ast.expr | None] = {}  # the one expression that a name was bound to
        self.returns: list[Thing] = []
        self.parts: list[Things] | None = None  # what the tuple holds that is returned
        self.rest: tuple[str, tuple[Things, ...]] = ("", ())  # *args, by its name
        self.options: tuple[str, dict[str, Things]] = ("", {})  # **kwargs, by its name
        self.top = False  # a module's own statements: functions see its names


Facts = dict[str, list[tuple[File, ast.AST]]]


class State:
    """Where the walk is, what it has met, and what was found."""

    def __init__(self, project: Project, facts: Facts) -> None:
        self.project = project
        self.facts = facts  # what the whole project does somewhere
        self.told: set[tuple[str, ast.AST]] = set()  # facts
        self.findings: list[Finding] = []
        self.verdicts: list[Verdict] = []
        self.reset()

    def reset(self) -> None:
        """Begin a new root."""
        self.stack: list[ast.AST] = []
        self.path: Path = ()
        self.at = 0
        self.frames = 0
        self.budget = BUDGET
        self.loop_depth = 0
        self.doubt = 0  # calls around that may be of another function
        self.events: list[Event] = []
        self.trace: list[Item] = []  # where the next collective goes
        self.roots: list[list[Item]] = [self.trace]  # what is executed from each way in
        self.copies = COPIES
        self.met = 0  # collectives so far
        self.marks: list[Note] = []
        self.happened: set[str] = set()  # what they say
        self.unknown: list[Path] = []  # calls that could not be followed
        self.made: list[Thing] = []  # in order
        self.tracked: list[Thing] = []
        self.contexts: list[tuple[str, ast.AST, Things]] = []  # with statements around
        self.frame: Frame

    def new_frame(self, file: File) -> Frame:
        """A frame with a number of its own."""
        self.frames += 1
        return Frame(file, self.frames)

    def report(
        self, code: str, node: ast.AST, certain: bool = True, *edits: Edit, guarded: bool = False, **words: str
    ) -> None:
        """A finding at ``node``. Under a test of what an object or a release is nothing is said, unless ``guarded``."""
        if guarded or not any(condition.kind == "guard" for condition in self.path):
            self.report_at(code, self.frame.file, node, certain, *edits, **words)

    def report_at(self, code: str, file: File, node: ast.AST, certain: bool = True, *edits: Edit, **words: str) -> None:
        """A finding in a file, whatever the conditions."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        before = file.lines[line - 1][:column].decode("utf-8", "replace") if line <= len(file.lines) else ""
        self.findings.append(
            Finding(code, file.path, line, len(before) + 1, certain, tuple(sorted(words.items())), edits)
        )

    def mark(self, things: Things, what: str, node: ast.AST) -> None:
        """Note that something happened to things."""
        if things:
            made = Mark(what, node, self.path, self.at)
            for thing in things:
                if thing.kind != "constant" and len(thing.marks) < MARKS:
                    thing.marks.append(made)
                    thing.had.add(what)

    def note(self, what: str, node: ast.AST, things: Things = ()) -> None:
        """Note that something happened."""
        self.happened.add(what)
        self.marks.append(Note(what, node, self.path, self.at, self.frame.file, self.loop_depth > 0, things))

    def noted(self, what: str) -> bool:
        """Whether something happened in this root so far, on whatever branch."""
        return what in self.happened

    def fact(self, what: str, node: ast.AST) -> None:
        """Note that the project does something somewhere."""
        if (what, node) not in self.told:
            self.told.add((what, node))
            self.facts.setdefault(what, []).append((self.frame.file, node))

    def event(self, code: str, what: str, node: ast.AST, sure: bool = True, group: str = "", mode: str = "") -> None:
        """A collective takes place here; one of a group of its own has no code, since only members call it."""
        made = Event(code, what, node, self.frame.file, self.path, sure and not self.doubt, group, mode)
        if code:
            self.events.append(made)
        self.met += 1
        self.trace.append(made)

    def cannot_follow(self, what: str, node: ast.AST) -> None:
        """A call whose body is not known: it may do anything, collectives included."""
        self.unknown.append(self.path)
        trace = self.trace
        if trace and trace[-1].__class__ is Unknown and trace[-1].path is self.path:
            return  # one of a row will do
        trace.append(Unknown(what, node, self.path))

    def inside(self, context: str) -> bool:
        """Whether a with statement of that name is around."""
        return any(name == context for name, _, _ in self.contexts)

    def without_gradients(self) -> bool:
        """Whether gradients are off here, by a with statement or a decorator."""
        if self.inside("torch.no_grad") or self.inside("torch.inference_mode"):
            return True
        return any(
            "no_grad" in ast.dump(item) or "inference_mode" in ast.dump(item)
            for node in self.stack
            for item in getattr(node, "decorator_list", ())
        )

    def source(self, node: ast.AST) -> str:
        """An expression as written."""
        return self.frame.file.source(node)

    def written(self, node: ast.Name) -> ast.expr | None:
        """The expression that a name was bound to in this function, if it was just one."""
        return self.frame.written.get(node.id)

    def escape(self, groups: tuple[Things, ...], node: ast.AST) -> None:
        """These things were given to code that cannot be followed."""
        for things in groups:
            self.mark(things, "escaped", node)
            for thing in things:
                if thing.kind in ("params", "param"):
                    self.mark(thing.of, "escaped", node)

    def made_before(self, thing: Thing) -> bool | None:
        """Whether a thing was surely made on the way to here; None where no run can have done so."""
        mark = next((one for one in thing.marks if one.what == "made"), None)
        if mark is None or not compatible(mark.path, self.path):
            return None
        if _methods(mark.path) - _methods(self.path):
            return None  # another method, which may run before or after
        return implied(mark.path, self.path)

    def file_of(self, node: ast.AST) -> File:
        """The file that a node of this root stands in."""
        for file in self.project.files:
            if file.holds(node):
                return file
        return self.frame.file


def _methods(path: tuple[Condition, ...]) -> set[str]:
    return {condition.key for condition in path if condition.key.startswith("method ")}
