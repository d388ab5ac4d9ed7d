"""Workflow W3, the backend: from device, network and operating system to NCCL, XCCL, Gloo or MPI, checked against the official table."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Answer, Check, Guidance, Next, Question, Source
from shardguide.guidance.serialise import plain

from ..fields import INTER, TORCH
from ..finish import finish
from ..gather import Gathered, ask, gather
from ..release import Resolved, resolve
from . import checks, choose, network
from .fields import DEVICE, FIELDS, FSDP, IPOIB, SYSTEM
from .host import Host, contradictions

APPROVE = "Is this the backend to use? Nothing is used before you confirm it."


class BackendRequest(NamedTuple):
    """Everything a front end hands over; absent is None or empty."""

    given: dict[str, Any]  # by field name, as text or value
    remembered: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    site_packages: str | None = None


def _gathered(request: BackendRequest) -> Gathered:
    """What is known. The device of a remembered GPU is known as well; what a stated device makes doubtful is left aside."""
    stated = {name: value for name, value in request.given.items() if value is not None}
    remembered = dict(request.remembered)
    found = gather(FIELDS, stated, {}, remembered)
    if "device" not in found.answers and remembered.get("gpu"):
        from ..hardware import kind

        device = kind(str(remembered["gpu"]))
        if device:
            return found._replace(answers={**found.answers, "device": Answer(device, "notebook")})
    # The network of another cluster's nodes says nothing about one node.
    if "inter" not in stated and str(remembered.get("nodes")) == "1" and "inter" in found.answers:
        return found._replace(answers={**found.answers, "inter": Answer("none", "notebook")})
    return found


def _host(gathered: Gathered, resolved: Resolved) -> Host:
    minor = resolved.minor
    needs = gathered.value("needs", "")
    device = gathered.value("device", "")
    return Host(
        # On macOS the choice is the same for cpu and mps: that of mps says the more.
        device=device or ("mps" if gathered.value("os", "") == "macos" else ""),
        inter=gathered.value("inter", ""),
        os=gathered.value("os", ""),
        ipoib=gathered.value("ipoib", ""),
        offload=gathered.value("offload", "no") == "yes",
        needs=tuple(needs.split(",")) if needs else FSDP,
        stated=bool(needs),
        release=f"{minor[0]}.{minor[1]}" if minor != (0, 0) else "",
        build=resolved.build,
        path=resolved.release.path,
    )


def _consistent(gathered: Gathered, resolved: Resolved) -> tuple[Gathered, Host]:
    """The host; a remembered answer that contradicts what is said now is left aside, and asked for again.

    Raises UnusableInput for what the user states against itself.
    """
    for name in ("os", "device", ""):
        host = _host(gathered, resolved)
        try:
            contradictions(host)
        except UnusableInput:
            if not name:
                raise
            known = gathered.answers.get(name)
            if known is not None and known.source == "notebook":
                gathered = gathered._replace(answers={key: one for key, one in gathered.answers.items() if key != name})
        else:
            break
    return gathered, host


def _questions(host: Host, gathered: Gathered, resolved: Resolved) -> list[Question]:
    open_ = [*resolved.questions, *gathered.conflicts]
    if not host.device:
        open_.append(ask(DEVICE))
    if not host.inter and host.os != "macos":  # Gloo is all there is, over any network
        question = ask(INTER)
        open_.append(question._replace(why="Which backend uses the network best, and what there is to set, depends on it.",
                                       choices=("infiniband", "ethernet", "roce", "none")))  # fmt: skip
    if not host.os:
        open_.append(ask(SYSTEM))
    if host.device == "cpu" and host.inter == "infiniband" and not host.ipoib:
        open_.append(ask(IPOIB))
    return open_


def _notes(host: Host) -> list[str]:
    notes = []
    if not host.stated:
        notes.append(
            f"No operations were named (--needs): those that FSDP itself calls were looked up: {', '.join(FSDP)}."
        )
    if host.os == "windows":
        notes.append("torch.distributed on Windows is a prototype.")
    return notes


def backend(request: BackendRequest) -> Guidance:
    """The backend for a device, a network and an operating system.

    Raises UnusableInput for answers that cannot be read or that exclude each other.
    """
    gathered = _gathered(request)
    resolved = resolve(request.given.get(TORCH.name), request.site_packages, request.remembered.get(TORCH.name))
    gathered, host = _consistent(gathered, resolved)
    questions = _questions(host, gathered, resolved)
    extra: dict[str, Any] = {"capabilities": checks.shown(host)}
    if not host.device:
        return finish("backend", resolved, gathered, questions, [], [], [network.ask_build(host)], approve=APPROVE,
                      inputs=[], beside={}, extra=extra, notes=_notes(host), next_=())  # fmt: skip
    choice = choose.choose(host)
    needed = checks.rows(host, choice)
    made: list[Check] = [checks.operations(host, choice, needed), checks.build(host, choice, resolved.release.version)]
    snippets = [network.ask_build(host)]
    variables = network.environment(host, choice)
    if variables is not None:
        snippets.append(variables)
    table = extra["capabilities"]
    page = Source(
        f"capabilities:{table['releases']}",
        "PyTorch's table of backends and operations",
        table["url"],
        "",
        table["releases"],
    )
    start = Next("init", {"backend": choice.text}, "set the process group up with this backend")
    return finish(
        "backend", resolved, gathered, questions, [choice.decision, network.network(host, choice)], made, snippets,
        approve=APPROVE, inputs=[], beside={"backend": (page, *choice.sources)},
        extra=extra | {"operations": plain(tuple(needed))}, notes=_notes(host), next_=(start,),
    )  # fmt: skip
