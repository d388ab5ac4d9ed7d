"""Every workflow by its name and with plain arguments, for front ends that learn only at run time which one is wanted.

The arguments are those that ``Guidance.next`` carries, so that whoever follows it needs no table of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Guidance, Next

from .fields import PLAN, TORCH, Field


class Case(NamedTuple):
    """What a workflow is run with."""

    arguments: dict[str, Any]
    remembered: dict[str, Any]
    site_packages: str | None

    def text(self, name: str) -> str:
        """An argument that is one text; "" where it is absent. Raises UnusableInput for anything but a plain value."""
        value = self.arguments.get(name)
        if value is None:
            return ""
        if isinstance(value, (dict, list)):
            raise UnusableInput(f"{name} must be one value, not several.")
        return str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """An argument that is a list of texts; one text stands for a list of one."""
        value = self.arguments.get(name)
        if value is None:
            return ()
        if isinstance(value, (list, tuple)):
            return tuple(str(one) for one in value)
        return (str(value),)

    def flag(self, name: str) -> bool:
        """An argument that is on or off."""
        return self.arguments.get(name) in (True, "true", "yes")

    def stated(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        """What the arguments state of a workflow's fields, the release among it."""
        names = {field.name for field in fields} | {TORCH.name}
        out = {}
        for name, value in self.arguments.items():
            if name in names and value is not None and value != "":
                out[name] = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        return out


class Task(NamedTuple):
    """One workflow."""

    name: str
    what: str  # one line
    fields: Callable[[], tuple[Field, ...]]  # what it can be told, and may ask for
    more: tuple[str, ...]  # further arguments
    run: Callable[[Case], Guidance]


def _plan_request(case: Case) -> Any:
    from .request import ON_REQUEST, PlanRequest

    also = case.texts("also")
    wrong = [one for one in also if one not in ON_REQUEST]
    if wrong:
        raise UnusableInput(f"also takes {', '.join(ON_REQUEST)}, not {wrong[0][:40]!r}.")
    return PlanRequest(
        given=case.stated(PLAN),
        remembered=case.remembered,
        files=case.texts("from"),
        measured=case.texts("measured"),
        current=case.text("current"),
        site_packages=case.site_packages,
        also=also,
    )


def _plan(case: Case) -> Guidance:
    from .plan import plan

    return plan(_plan_request(case))


def _tune(case: Case) -> Guidance:
    from .tune import TuneRequest, tune

    return tune(TuneRequest(_plan_request(case), case.texts("now")))


def _backend(case: Case) -> Guidance:
    from .backend import BackendRequest, backend
    from .backend.fields import FIELDS

    return backend(BackendRequest(case.stated(FIELDS), case.remembered, case.site_packages))


def _init(case: Case) -> Guidance:
    from .init import InitRequest, init
    from .init.fields import FIELDS

    return init(InitRequest(case.stated(FIELDS), case.remembered, case.site_packages, case.text("call")))


def _join(case: Case) -> Guidance:
    from .join import JoinRequest, join
    from .join.fields import FIELDS

    return join(JoinRequest(case.stated(FIELDS), case.remembered, case.site_packages, case.texts("paths")))


def _fsdp2(case: Case) -> Guidance:
    from .fsdp2 import Fsdp2Request, fsdp2
    from .fsdp2.fields import FIELDS

    return fsdp2(Fsdp2Request(case.stated(FIELDS), case.remembered, case.site_packages))


def _explain(case: Case) -> Guidance:
    from .explain import ExplainRequest, explain

    return explain(
        ExplainRequest(
            case.text("topic"),
            case.text("architecture"),
            case.text("form"),
            case.flag("full_script"),
            case.text("torch") or None,
            case.remembered,
            case.site_packages,
        )
    )


def _ask(case: Case) -> Guidance:
    from .ask import AskRequest, ask

    return ask(AskRequest(case.text("question"), case.text("torch") or None, case.remembered, case.site_packages))


def _diagnose(case: Case) -> Guidance:
    from .diagnose import DiagnoseRequest, diagnose

    return diagnose(
        DiagnoseRequest(
            case.texts("paths"),
            case.text("question"),
            case.texts("code"),
            case.text("torch") or None,
            case.remembered,
            case.site_packages,
            case.flag("anonymise"),
            case.text("text"),
        )
    )


def _review(case: Case) -> Guidance:
    from .review import ReviewRequest, check

    return check(
        ReviewRequest(
            case.texts("paths"),
            case.texts("select"),
            case.texts("ignore"),
            case.text("torch") or None,
            case.remembered,
            case.site_packages,
            text=case.text("text"),
        )
    )


def _migrate(case: Case) -> Guidance:
    from .migrate import MigrateRequest, run

    return run(
        MigrateRequest(
            case.texts("paths"),
            torch=case.text("torch") or None,
            remembered=case.remembered,
            site_packages=case.site_packages,
        )
    )


def _fields_of(module: str) -> Callable[[], tuple[Field, ...]]:
    def fields() -> tuple[Field, ...]:
        from importlib import import_module

        found: tuple[Field, ...] = import_module(f"{__package__}.{module}.fields").FIELDS
        return found

    return fields


def _plan_fields() -> tuple[Field, ...]:
    return PLAN


def _no_fields() -> tuple[Field, ...]:
    return ()


_HANDED = ("from", "measured", "current")

TASKS: dict[str, Task] = {
    one.name: one
    for one in (
        Task("plan", "an FSDP configuration for a model and a cluster", _plan_fields, (*_HANDED, "also"), _plan),
        Task("tune", "mixed precision and CPU offload for what runs now", _plan_fields, (*_HANDED, "now"), _tune),
        Task("backend", "NCCL, XCCL, Gloo or MPI", _fields_of("backend"), (), _backend),
        Task("init", "setting up the process group", _fields_of("init"), ("call",), _init),
        Task("join", "ranks with different numbers of batches", _fields_of("join"), ("paths",), _join),
        Task("fsdp2", "FSDP2 or FSDP1, for a release and a goal", _fields_of("fsdp2"), (), _fsdp2),
        Task("explain", "a subject, and code for it", _no_fields, ("topic", "architecture", "form", "full_script"), _explain),
        Task("ask", "a question in words", _no_fields, ("question",), _ask),
        Task("diagnose", "an error, a hang, logs and dumps", _no_fields, ("paths", "text", "question", "code", "anonymise"), _diagnose),
        Task("review", "your training code, read", _no_fields, ("paths", "text", "select", "ignore"), _review),
        Task("migrate", "FSDP1 code turned into FSDP2 code", _no_fields, ("paths",), _migrate),
    )
}  # fmt: skip


def arguments_of(task: Task) -> tuple[str, ...]:
    """The names of everything that a workflow takes."""
    return tuple(dict.fromkeys((*(field.name for field in task.fields()), TORCH.name, *task.more)))


def run(
    name: str, arguments: dict[str, Any], remembered: dict[str, Any] | None = None, site_packages: str | None = None
) -> Guidance:
    """Run a workflow by its name. What leads back to it in ``next`` carries what was stated, so that it can be called as it is.

    Raises UnusableInput for a name or an argument that does not exist, and as the workflow does.
    """
    task = TASKS.get(name)
    if task is None:
        raise UnusableInput(f"there is no workflow {name[:40]!r}; there are {', '.join(TASKS)}.")
    known = arguments_of(task)
    unknown = [one for one in arguments if one not in known]
    if unknown:
        raise UnusableInput(f"{name} takes no {unknown[0][:40]!r}; it takes {', '.join(known)}.")
    guidance = task.run(Case(arguments, remembered or {}, site_packages))
    said = {one: value for one, value in arguments.items() if value not in (None, "", [], ())}
    steps = tuple(
        _with(said, step) if step.tool == name and name not in ("explain", "ask") else step for step in guidance.next
    )
    return guidance._replace(next=steps)


def _with(said: dict[str, Any], step: Next) -> Next:
    return step._replace(arguments={**said, **step.arguments})
