"""Workflow ``review``: what in the user's code will hang, fail or be wrong, with why, fix and sources."""

from __future__ import annotations

from shardguide.code.review.engine import Result, review
from shardguide.code.review.records import Finding
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Answer, Approval, Check, Guidance, Next, Release, Source
from shardguide.guidance.serialise import digest
from shardguide.installed.verify import claims
from shardguide.knowledge import releases, rule_store
from shardguide.workflows.release import resolve
from shardguide.workflows.sources import about, knowledge_version


class ReviewRequest(NamedTuple):
    """What is to be reviewed."""

    paths: tuple[str, ...]
    select: tuple[str, ...] = ()  # beginnings of codes: FSD2 is all of the area
    ignore: tuple[str, ...] = ()
    torch: str | None = None
    remembered: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    site_packages: str | None = None


def check(request: ReviewRequest) -> Guidance:
    """Review files and folders. Raises UnusableInput for what cannot be read at all."""
    if not request.paths:
        raise UnusableInput("review needs files or folders: shardguide review train.py")
    resolved = resolve(request.torch, request.site_packages, request.remembered.get("torch"))
    release = resolved.release
    minor = releases.nearest(release.version) if release.version else ""
    wanted = _wanted(request.select, request.ignore) & rule_store.applying(minor)
    result = review(request.paths, minor, frozenset(wanted))
    rules = {code: rule_store.get(code) for code in {finding.code for finding in result.findings}}
    by_claim, sources = _sources(rules, release)
    findings = [_plain(finding, rules[finding.code], by_claim) for finding in result.findings]
    problems = [problem._asdict() for problem in result.problems]
    identity = digest("review", findings, problems, result.lines, minor, rule_store.digest(), knowledge_version())
    notes = []
    if not minor:
        notes.append("The release is not known, so names and keywords were not compared with it: --torch X.")
    if result.suppressed:
        notes.append(f"{result.suppressed} findings are switched off in the source (# shardguide: ignore).")
    return Guidance(
        workflow="review",
        id=identity,
        torch=release,
        status="partial" if problems else "complete",
        answers={"torch": Answer(release.version, release.known_from)} if release.version else {},
        checks=(_summary(result),),
        sources=sources,
        next=(Next("review", {}, "read it again once the code is changed"),) if findings else (),
        done=(f"{result.files} files, {result.lines} lines, {len(wanted)} rules",),
        not_done=tuple(f"{problem.path}: {problem.why}" for problem in result.problems),
        approval=Approval("draft", ""),
        extra={"findings": findings, "problems": problems, "notes": notes},
    )


def _summary(result: Result) -> Check:
    certain = sum(finding.certain for finding in result.findings)
    words = f"{certain} certain, {len(result.findings) - certain} suspicions, in {result.files} files"
    return Check("current", "failed" if result.findings else "unknown" if result.problems else "passed", words)


def _wanted(select: tuple[str, ...], ignore: tuple[str, ...]) -> frozenset[str]:
    codes = rule_store.codes()
    for given in (*select, *ignore):
        if not any(code.startswith(given) for code in codes):
            raise UnusableInput(
                f"no rule begins with {given[:20]!r}; rules are FSD and three digits, such as {codes[0]}."
            )
    return frozenset(
        code for code in codes if (not select or code.startswith(select)) and not (ignore and code.startswith(ignore))
    )


def _sources(rules: dict[str, rule_store.Rule], release: Release) -> tuple[dict[str, list[str]], tuple[Source, ...]]:
    """The sources of each claim that a rule rests on, looked up for the release; none where that is not known."""
    ids = list(dict.fromkeys(claim for rule in rules.values() for claim in rule.claims))
    if not release.version:
        return {}, ()
    looked_up = claims([claim for claim in ids if about(claim, release)], release)
    by_claim: dict[str, list[str]] = {}
    found: dict[str, Source] = {}
    for name, claim in looked_up.items():
        if claim.status != "not confirmed":
            by_claim[name] = [source.id for source in claim.sources]
            found.update((source.id, source) for source in claim.sources)
    return by_claim, tuple(found.values())


class _Known(dict[str, str]):
    """Words for a message; one that a check did not give stays as it is."""

    def __missing__(self, key: str) -> str:
        return f"{{{key}}}"


def _plain(finding: Finding, rule: rule_store.Rule, by_claim: dict[str, list[str]]) -> dict[str, Any]:
    words = _Known(finding.words)
    return {
        "rule": finding.code,
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "title": rule.title,
        "message": rule.message.format_map(words),
        "why": rule.why,
        "certain": finding.certain and rule.certain,
        "fix": rule.fix.format_map(words),
        "edits": [edit._asdict() for edit in finding.edits],
        "sources": list(dict.fromkeys(source for claim in rule.claims for source in by_claim.get(claim, ()))),
    }
