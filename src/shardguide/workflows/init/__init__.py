"""Workflow W8, the process group: the call, its environment and its end, for a method, a backend and a launcher."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Check, Guidance, Next, Question, Snippet

from ..fields import TORCH
from ..finish import finish
from ..gather import Gathered, ask, gather
from ..release import Resolved, resolve
from . import call, decisions, text
from .case import Case, contradictions
from .fields import ADDRESS, BACKEND, FIELDS, METHOD, PATH

APPROVE = "Is this how the process group is to be set up? It is a draft until you confirm it."


class InitRequest(NamedTuple):
    """Everything a front end hands over; absent is None or empty."""

    given: dict[str, Any]  # by field name, as text or value
    remembered: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    site_packages: str | None = None
    call: str = ""  # a pasted init_process_group(...) call


def _case(gathered: Gathered, release: str, found: call.Found | None) -> Case:
    """What was said; a pasted call says the rest."""
    method = gathered.value("method", "")
    backend = gathered.value("backend", "")
    if found is not None:
        method = method or (found.method if found.method in ("env", "tcp", "file") else "")
        backend = backend or found.backend
    launcher = gathered.value("launcher", "")
    if not launcher:
        launcher = (
            "mpirun"
            if backend == "mpi"
            else "torchrun"
            if method in ("", "env") and not gathered.value("rank")
            else "hand"
        )
    return Case(
        method=method,
        backend=backend,
        launcher=launcher,
        named="launcher" in gathered.answers,
        world_size=gathered.value("world_size"),
        rank=gathered.value("rank"),
        address=gathered.value("address", "") or (found.address if found else ""),
        path=gathered.value("path", "") or (found.path if found else ""),
        os=gathered.value("os", ""),
        release=release,
    )


def _consistent(gathered: Gathered, release: str, found: call.Found | None) -> tuple[Gathered, Case]:
    """The case; a remembered operating system that contradicts what is said now is left aside.

    Raises UnusableInput for what the user states against itself.
    """
    case = _case(gathered, release, found)
    try:
        contradictions(case)
    except UnusableInput:
        known = gathered.answers.get("os")
        if known is None or known.source != "notebook":
            raise
        gathered = gathered._replace(answers={name: one for name, one in gathered.answers.items() if name != "os"})
        case = _case(gathered, release, found)
        contradictions(case)
    return gathered, case


def _questions(case: Case, found: call.Found | None) -> list[Question]:
    open_ = []
    if not case.method:
        open_.append(ask(METHOD))
    if not case.backend:
        open_.append(ask(BACKEND))
    if case.main != "mpi" and (
        found is None or not found.unread
    ):  # what a pasted call has in variables is not asked for
        if case.used == "tcp" and not case.address:
            open_.append(ask(ADDRESS))
        if case.used == "file" and not case.path:
            open_.append(ask(PATH))
    return open_


def _judged(name: str, found: call.Found, good: str) -> Check:
    """A check from what was found about a call."""
    parts = [*found.wrong, *found.unread, *found.advice]
    if found.wrong:
        return Check(name, "failed", f"{'; '.join(parts)}.")
    if found.unread:
        return Check(name, "unknown", f"Not read: {'; '.join(parts)}.")
    return Check(name, "passed", f"{'; '.join([good, *parts])}.")


def _signature(case: Case, snippet: Snippet) -> Check:
    """Check ``signature``: the code that is shown, read back as a user's would be."""
    if not case.complete:
        return Check("signature", "unknown", f"{text.method_url(case)} in the code stands for what is not known yet.")
    found = call.examine(
        call.find(snippet.code, "the code"), case.release, case.used, case.backend, case.os, case.launcher
    )
    good = f"the call in the code has only parameters of PyTorch {case.release}, and what {case.used}:// needs"
    return _judged("signature", found._replace(advice=()), good)


def _combination(case: Case) -> Check:
    """Check ``combination``: method, backend and launcher together."""
    if case.main == "mpi" and case.launcher != "mpirun":
        return Check("combination", "failed", f"The MPI backend gets its ranks from mpirun, not from {case.launcher}.")
    if case.no_store:
        why = "tcp:// would find no store under torchrun, whose agent serves one of its own: the code uses env:// instead."
        return Check("combination", "passed", why)
    where = "" if case.main == "mpi" else f" over {case.used}://"
    how = "started by hand" if case.launcher == "hand" else f"started by {case.launcher}"
    return Check("combination", "passed", f"{case.backend}{where}, {how}: nothing documented speaks against it.")


def _build(case: Case, resolved: Resolved) -> list[Check]:
    """Check ``build``: whether the PyTorch at hand has the backend; none where nothing is at hand, or every build has it."""
    kind = resolved.build.partition(" ")[0]
    wanted = {"nccl": ("cuda", "rocm"), "xccl": ("xpu",)}.get(case.main)
    if wanted is None or kind in ("", "unknown"):
        return []
    where = f"PyTorch {resolved.release.version} at {resolved.release.path} is a {resolved.build} build"
    if kind not in wanted:
        name = case.main.upper()
        return [
            Check(
                "build",
                "failed",
                f"{where}, which has no {name}: the call raises RuntimeError there. Train with a build that has it.",
            )
        ]
    if case.main == "xccl":
        return [
            Check(
                "build", "unknown", f"{where}; whether it has XCCL is for torch.distributed.is_xccl_available() to say."
            )
        ]
    return [Check("build", "passed", f"{where}.")]


def _notes(case: Case, gathered: Gathered) -> list[str]:
    notes = []
    if case.method and not case.named:
        how = {"torchrun": "torchrun", "hand": "processes that are started by hand", "mpirun": "mpirun"}[case.launcher]
        notes.append(f"No launcher was named (--launcher): the code is for {how}.")
    if case.main == "ucc":
        notes.append("The ucc backend is experimental.")
    if ":" in case.backend:
        notes.append("Several backends in one process group are experimental.")
    if case.device and case.launcher in ("torchrun", "slurm"):
        notes.append("For several nodes shardguide plan writes the launch files.")
    return notes


def init(request: InitRequest) -> Guidance:
    """The code, the environment block and the conditions of one way to initialise; and a check of the user's own call.

    Raises UnusableInput for answers that cannot be read or that exclude each other, and for a call that is none.
    """
    stated = {name: value for name, value in request.given.items() if value is not None}
    gathered = gather(FIELDS, stated, {}, request.remembered)
    resolved = resolve(stated.get(TORCH.name), request.site_packages, request.remembered.get(TORCH.name))
    release = f"{resolved.minor[0]}.{resolved.minor[1]}" if resolved.minor != (0, 0) else ""
    found = None
    made: list[Check] = []
    if request.call:
        value = gathered.value
        found = call.examine(
            call.find(request.call),
            release,
            value("method", ""),
            value("backend", ""),
            value("os", ""),
            value("launcher", ""),
        )
        made.append(_judged("call", found, f"every argument is one of PyTorch {release}'s"))
    gathered, case = _consistent(gathered, release, found)
    questions = [*resolved.questions, *gathered.conflicts, *_questions(case, found)]
    inputs = [request.call]
    if not case.method or not case.backend:
        return finish("init", resolved, gathered, questions, [], made, [], approve=APPROVE, inputs=inputs, beside={}, extra={},
                      notes=_notes(case, gathered), next_=())  # fmt: skip
    snippet = text.python(case)
    made += [_signature(case, snippet), _combination(case), *_build(case, resolved)]
    decided = [
        decisions.method(case),
        decisions.ranks(case),
        decisions.device(case),
        decisions.timeout(case),
        decisions.shutdown(case),
    ]
    choose = Next("backend", {}, "check that the backend has the operations that are needed")
    return finish(
        "init", resolved, gathered, questions, decided, made, [snippet, text.environment(case)], approve=APPROVE, inputs=inputs,
        beside={}, extra={}, notes=_notes(case, gathered), next_=(choose,),
    )  # fmt: skip
