"""The record that carries every answer to every front end (schema ``shardguide/1``).

Named tuples, because they are immutable, typed and cost a tenth of a millisecond to define: the record is imported by
every command.
"""

from __future__ import annotations

from shardguide.guidance.hints import Any, NamedTuple

SCHEMA = "shardguide/1"


class Release(NamedTuple):
    """The PyTorch release that an answer is for."""

    version: str  # "2.13.0", or "2.13" when only the minor release is known; "" when unknown
    known_from: str  # "user", "installed:PATH", "notebook", "file:PATH" or "unknown"
    path: str = ""  # site-packages folder (or source tree) whose sources were read; "" when none was at hand


class Reopened(NamedTuple):
    """Where a source was found again, in what the user has installed."""

    where: str  # file path relative to site-packages, e.g. "torch/distributed/fsdp/_fully_shard/_fully_shard.py"
    line: int  # 1-based


class Source(NamedTuple):
    """Where a statement comes from."""

    id: str
    title: str
    url: str
    object: str  # dotted PyTorch name, "" for a page
    version: str  # releases for which it holds, e.g. "2.6-2.15", or the version of the page
    reopened: Reopened | None = None


class Claim(NamedTuple):
    """One statement of the knowledge, as looked up for a release."""

    id: str
    text: str
    sources: tuple[Source, ...]
    status: str  # "found" (opened again), "index" (shipped index answers), "page" (documentation page only), "not confirmed"


class Alternative(NamedTuple):
    """A choice that was not taken."""

    choice: str
    why_not: str


class Decision(NamedTuple):
    """One choice of a plan."""

    id: str
    choice: str
    because: tuple[str, ...]
    instead_of: tuple[Alternative, ...] = ()
    sources: tuple[str, ...] = ()  # ids of Guidance.sources
    open: bool = False  # True: open until the user measured; the choice is where to start


class Verified(NamedTuple):
    """Which of the three checks a snippet passed for the release that it is shown for."""

    parses: bool
    api: bool  # every name, method and keyword exists in that release
    executed: str  # "" or how it was run, e.g. "2.13.0, 2 processes, gloo, CPU"


class Snippet(NamedTuple):
    """Text to paste or a file to write."""

    id: str
    title: str
    language: str  # "python", "bash", "yaml", "json"
    code: str
    verified: Verified


# Checks of what is there now (tune's settings, a pasted call, the installed build): what fails there is a finding about the present,
# no reason against the answer.
OF_THE_PRESENT = frozenset({"current", "call", "build"})


class Check(NamedTuple):
    """A program that could have failed, and what it found."""

    id: str
    result: str  # "passed", "failed", "unknown"
    evidence: str

    @property
    def refuses(self) -> bool:
        """Whether it speaks against using the answer: such an answer is not put to the user for approval."""
        return self.result == "failed" and self.id not in OF_THE_PRESENT


class Question(NamedTuple):
    """Something that is neither known nor given."""

    id: str
    ask: str
    why: str
    choices: tuple[str, ...] = ()


class Answer(NamedTuple):
    """Something that is known, and from where."""

    value: Any
    source: str  # "user", "file:NAME", "measured", "notebook"; "from" in JSON


class Fact(NamedTuple):
    """A number worked out exactly."""

    id: str
    value: int | str
    unit: str
    formula: str


class Next(NamedTuple):
    """A command or tool that leads on."""

    tool: str
    arguments: dict[str, Any]
    why: str


class Approval(NamedTuple):
    """Whether the user has confirmed the answer (G4)."""

    state: str  # "draft", "approved", "rejected"
    asked: str  # the question put to the user


class Guidance(NamedTuple):
    """One complete answer. ``extra`` is the workflow's own part (``accounting`` for a plan) and lies at the top of the JSON."""

    workflow: str
    id: str
    torch: Release
    status: str  # "complete", "needs_answers", "partial"
    answers: dict[str, Answer]
    questions: tuple[Question, ...] = ()
    decisions: tuple[Decision, ...] = ()
    facts: tuple[Fact, ...] = ()
    snippets: tuple[Snippet, ...] = ()
    checks: tuple[Check, ...] = ()
    sources: tuple[Source, ...] = ()
    next: tuple[Next, ...] = ()
    done: tuple[str, ...] = ()
    not_done: tuple[str, ...] = ()
    approval: Approval = Approval("draft", "")
    # Digest of workflow and inputs whatever the release and the knowledge: by it the notebook finds a request again. Not in the JSON.
    request: str = ""
    extra: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
