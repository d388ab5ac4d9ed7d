"""Checks ``operations`` and ``build``: does the choice carry what is needed, and does the PyTorch at hand have it."""

from __future__ import annotations

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Check
from shardguide.knowledge import backends
from shardguide.knowledge.backends.table import DEPENDS, NO, NO_COLUMN, YES, Cell

from .choose import Choice, who_has
from .host import Host

_WORDS = {YES: "yes", NO: "no", DEPENDS: "?"}


class Row(NamedTuple):
    """One needed operation."""

    operation: str
    asked_as: str
    backend: str
    tensors: str  # "cpu" or "gpu"
    documented: str  # "yes", "no", "?" (depends on the build), "not read"
    ran: str  # how it was run, "" if it was not
    result: str  # "passed", "failed", "unknown"
    why: str


def _judge(found: Cell, host: Host) -> tuple[str, str]:
    """Result and reason for one cell."""
    if found.mark == YES:
        return "passed", "the table says yes"
    if found.mark == DEPENDS:
        return "unknown", 'the table says "?": it depends on the MPI that PyTorch was built with'
    if found.mark == NO:
        if found.ran and host.release == found.ran_on:
            return "passed", f"the documentation says no, but it runs: {found.ran}"
        if found.beside:
            return "unknown", f"the documentation says no; {found.beside}"
        if found.ran and host.minor > tuple(int(part) for part in found.ran_on.split(".")):
            return "unknown", f"the documentation says no; it ran on an older release ({found.ran})"
        return "failed", "the table says no"
    if found.mark == NO_COLUMN:
        return "unknown", "that release's table has no such backend"
    if found.ran and host.release == found.ran_on:
        return "passed", f"it runs: {found.ran}"
    return "unknown", "the table of that release was not read, and those before and after it differ here"


def _row(asked: str, backend: str, kind: str, host: Host) -> Row:
    name = backends.operation(asked)
    found = backends.cell(name, backend, kind, host.release)
    result, why = _judge(found, host)
    return Row(name, asked, backend, kind, _WORDS.get(found.mark, "not read"), found.ran, result, why)


def rows(host: Host, choice: Choice) -> list[Row]:
    """Every needed operation on the chosen backend, and what CPU tensors need beside it."""
    out = [_row(asked, choice.main, choice.kind, host) for asked in host.needs]
    if choice.beside:
        out.append(_row("all_reduce", choice.beside, "cpu", host))  # the norm of gradient clipping
    return out


def _grouped(rows: list[Row]) -> list[str]:
    """One part for the operations that share backend, tensors and reason."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        groups.setdefault((row.backend, row.tensors, row.why), []).append(row.asked_as)
    return [
        f"{', '.join(names)} by {name} on {tensors.upper()} tensors: {why}"
        for (name, tensors, why), names in groups.items()
    ]


def operations(host: Host, choice: Choice, needed: list[Row]) -> Check:
    """Check ``operations``: each needed operation against the table, one by one."""
    failed = [row for row in needed if row.result == "failed"]
    unknown = [row for row in needed if row.result == "unknown"]
    parts = _grouped([row for row in needed if row.result == "passed"]) + _grouped(unknown) + _grouped(failed)
    own = {"cuda": "nccl", "rocm": "nccl", "xpu": "xccl"}.get(host.device if host.os != "windows" else "", "")
    for name in backends.BACKENDS:
        if name in ("nccl", "xccl") and (name != own or choice.kind == "cpu"):
            continue  # of no use for these tensors
        have = [row.asked_as for row in failed if name in who_has(row.operation, row.tensors, host.release)]
        if have and name != choice.main:
            parts.append(f"{name} has {', '.join(have)}")
    table = backends.table(host.release)
    release = f"PyTorch {host.release}" if host.release else "an unknown release (the newest table)"
    parts.append(f"table of {table.releases}, for {release}")
    result = "failed" if failed else "unknown" if unknown or not host.release else "passed"
    if choice.kind == "cpu" and host.device in ("mps", "xpu") and result == "passed":
        result = "unknown"
        parts.append(
            f"that is for CPU tensors; the table has no column for {host.device.upper()} tensors on {choice.main}"
        )
    return Check("operations", result, f"{'; '.join(parts)}.")


_KINDS = {"cuda": "CUDA", "rocm": "ROCm", "xpu": "XPU", "cpu": "CPU"}


def build(host: Host, choice: Choice, version: str) -> Check:
    """Check ``build``: whether the PyTorch at hand can be the one for this device and backend."""
    if not host.build:
        about = f" of PyTorch {host.release}" if host.release else ""
        return Check(
            "build",
            "unknown",
            f"No installation{about} is at hand to look at; the snippet build asks it where you train.",
        )
    where = f"PyTorch {version} at {host.path} is"
    kind = host.build.partition(" ")[0]
    if kind == "unknown":
        return Check(
            "build", "unknown", f"{where} a source tree that was not built; the snippet build asks the built one."
        )
    named = f"{where} a {_KINDS.get(kind, kind)} build" + (f" ({host.build})" if " " in host.build else "")
    if choice.main == "mpi":
        return Check(
            "build", "unknown", f"{named}; whether it was built with MPI stands in no file: the snippet build asks it."
        )
    if host.device == "mps":
        return Check(
            "build", "unknown", f"{named}; whether that build has mps stands in no file: the snippet build asks it."
        )
    if host.device == "cpu":
        return Check("build", "passed", f"{named}; Gloo is in every one of them that has torch.distributed.")
    if kind != host.device:
        wanted = _KINDS[host.device]
        lacks = f": it has no {choice.main.upper()}, and cannot use the device" if choice.main != "gloo" else ""
        return Check(
            "build",
            "failed",
            f"{named}, and the device needs a {wanted} build{lacks}. Install that one where you train.",
        )
    if choice.main == "xccl":
        return Check(
            "build", "unknown", f"{named}; whether it has XCCL is for torch.distributed.is_xccl_available() to say."
        )
    return Check("build", "passed", f"{named}, as the device needs.")


def shown(host: Host) -> dict[str, Any]:
    """The table of the release, as the record carries it."""
    table = backends.table(host.release)
    words = {"~": "not read", "-": ""} | _WORDS
    at = [backends.BACKENDS.index(name) * 2 + (kind == "gpu") for name, kind in table.columns]
    return {
        "releases": table.releases,
        "read": table.read,
        "url": table.url,
        "columns": [f"{name} {kind}" for name, kind in table.columns],
        "rows": [{"operation": one, "marks": [words[table.rows[one][i]] for i in at]} for one in backends.OPERATIONS],
        "ran": [
            {"operation": one, "column": "gloo cpu", "how": found.ran}
            for one in backends.OPERATIONS
            if (found := backends.cell(one, "gloo", "cpu", host.release)).ran
        ],
    }
