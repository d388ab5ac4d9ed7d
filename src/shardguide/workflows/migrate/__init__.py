"""Workflow ``migrate``: FSDP1 code as FSDP2 code, as one diff, and what a person must decide."""

from __future__ import annotations

from shardguide.code.migrate.engine import migrate
from shardguide.code.migrate.records import Result, Todo
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Answer, Approval, Check, Guidance, Next
from shardguide.guidance.serialise import digest
from shardguide.knowledge import releases
from shardguide.workflows.release import resolve
from shardguide.workflows.sources import knowledge_version, of_claims

from .diff import unified


class MigrateRequest(NamedTuple):
    """What is to be migrated."""

    paths: tuple[str, ...]
    to: str = "fsdp2"
    torch: str | None = None
    remembered: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    site_packages: str | None = None


def run(request: MigrateRequest) -> Guidance:
    """Migrate files and folders, without writing them. Raises UnusableInput for what cannot be read at all."""
    if not request.paths:
        raise UnusableInput("migrate needs files or folders: shardguide migrate train.py")
    if request.to != "fsdp2":
        raise UnusableInput(f"migrate goes to fsdp2, not to {request.to[:20]!r}.")
    resolved = resolve(request.torch, request.site_packages, request.remembered.get("torch"))
    release = resolved.release
    minor = releases.nearest(release.version) if release.version else releases.NEWEST
    if not releases.fsdp2_path(minor):
        raise UnusableInput(f"PyTorch {minor} has no fully_shard; FSDP2 came with 2.3, and is public from 2.6 on.")
    result = migrate(request.paths, minor)
    by_claim, sources = of_claims((claim for todo in result.todos for claim in todo.claims), release)
    diff, digests, odd = unified(result.changes)
    todo = [_todo(one, by_claim) for one in result.todos]
    uses = [use._asdict() for use in result.uses]
    problems = [{"path": path, "line": line, "why": why} for path, line, why in (*result.problems, *odd)]
    counts = _counts(result)
    notes = []
    if not release.version:
        notes.append(f"The release is not known, so the code is for PyTorch {minor}: --torch X.")
    identity = digest("migrate", diff, digests, result.contents, todo, uses, minor, knowledge_version())
    return Guidance(
        workflow="migrate",
        id=identity,
        torch=release,
        status="partial" if problems else "complete",
        answers={"torch": Answer(release.version, release.known_from)} if release.version else {},
        checks=_checks(result, counts),
        sources=sources,
        next=(Next("review", {}, "read the code again once the diff is applied"),) if diff else (),
        done=(
            f"{result.files} file{'s' * (result.files != 1)}, {result.lines} lines, {len(result.changes)} of them to be changed",
        ),
        not_done=tuple(f"{one['path']}: {one['why']}" for one in problems),
        approval=Approval("draft", ""),
        request=digest("migrate", result.contents),
        extra={
            "diff": diff,
            "digests": digests,
            "todo": todo,
            "uses": uses,
            "counts": counts,
            "problems": problems,
            "notes": notes,
        },
    )


def _counts(result: Result) -> dict[str, dict[str, int]]:
    """How many uses were converted, kept and left: of constructors, and of everything else."""
    counts = {name: {"converted": 0, "kept": 0, "left": 0} for name in ("constructors", "others")}
    for use in result.uses:
        counts["constructors" if use.kind == "constructor" else "others"][use.status] += 1
    return counts


def _checks(result: Result, counts: dict[str, dict[str, int]]) -> tuple[Check, ...]:
    left = sum(one["left"] for one in counts.values())
    total = sum(sum(one.values()) for one in counts.values())
    words = f"{total - left} of {total} uses of FSDP1 are dealt with, {left} are left as they are"
    return (Check("complete", "failed" if left else "passed", words),)


def _todo(one: Todo, by_claim: dict[str, list[str]]) -> dict[str, Any]:
    out = {key: value for key, value in one._asdict().items() if key != "claims"}
    out["place"] = f"{one.path}:{one.line}:{one.column}"
    out["sources"] = list(dict.fromkeys(source for claim in one.claims for source in by_claim.get(claim, ())))
    return out
