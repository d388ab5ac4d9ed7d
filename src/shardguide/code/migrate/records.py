"""What a migration says of the code: each use of FSDP1 with what became of it, and what a person must decide."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple


class Use(NamedTuple):
    """One use of FSDP1 (or of FSDP2's old form) at one place."""

    path: str
    line: int
    column: int  # from 1, in characters
    kind: str  # "constructor", "method", "state dict", "context", "isinstance", "class", "import", …
    what: str  # as it is called: "FSDP", "clip_grad_norm_"
    status: str  # "converted", "kept" (valid as it is: the new code reads it), "left"
    reason: str  # for "left" and "kept": why


class Todo(NamedTuple):
    """Something that a person must decide or check."""

    path: str
    line: int
    column: int
    code: str  # stable name of the reason: see todos.py
    what: str
    why: str
    claims: tuple[str, ...]


class Change(NamedTuple):
    """One file before and after."""

    path: str
    before: str
    after: str


class Result(NamedTuple):
    """What a migration gives."""

    changes: tuple[Change, ...]
    uses: tuple[Use, ...]
    todos: tuple[Todo, ...]
    problems: tuple[tuple[str, int, str], ...]  # path, line, why
    files: int
    lines: int
    contents: str  # digest of everything that was read
