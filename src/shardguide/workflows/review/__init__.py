"""Workflow ``review``: what in the user's code will hang, fail or be wrong, with why, fix and sources."""

from __future__ import annotations

import os

from shardguide.code.review.engine import Result, review
from shardguide.code.review.records import Finding
from shardguide.code.review.suppress import line_of
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Answer, Approval, Check, Guidance, Next
from shardguide.guidance.serialise import digest
from shardguide.knowledge import releases, rule_store
from shardguide.readers.files import noted
from shardguide.workflows.release import resolve
from shardguide.workflows.sources import knowledge_version, of_claims

from .baseline import fingerprints

_LINE = 400  # characters of a source line that are kept
_SIZE = 32 << 20  # bytes of a file; nothing larger was read


class ReviewRequest(NamedTuple):
    """What is to be reviewed."""

    paths: tuple[str, ...] = ()
    select: tuple[str, ...] = ()  # beginnings of codes: FSD2 is all of the area
    ignore: tuple[str, ...] = ()
    torch: str | None = None
    remembered: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    site_packages: str | None = None
    per_file: tuple[tuple[str, tuple[str, ...]], ...] = ()  # pattern of paths, and the rules that are off there
    exclude: tuple[str, ...] = ()  # patterns of paths that are passed over in folders
    root: str = ""  # where patterns and fingerprints start from; "" for the working folder
    baseline: frozenset[str] = frozenset()  # fingerprints of findings that are known
    text: str = ""  # Python code that was pasted


PASTED = "pasted.py"  # what pasted code is called


def check(request: ReviewRequest) -> Guidance:
    """Review files and folders. Raises UnusableInput for what cannot be read at all."""
    if request.text:
        return _pasted(request)
    if not request.paths:
        raise UnusableInput("review needs files or folders: shardguide review train.py")
    resolved = resolve(request.torch, request.site_packages, request.remembered.get("torch"))
    release = resolved.release
    minor = releases.nearest(release.version) if release.version else ""
    wanted = _wanted(request.select, request.ignore) & rule_store.applying(minor)
    root = request.root or os.path.abspath(os.curdir)  # noqa: PTH100
    with noted() as read:
        result = review(request.paths, minor, frozenset(wanted), request.exclude, root)
    contents = sorted({(_printable(path), content) for path, content in read})
    kept = _allowed(result.findings, request.per_file, root)
    rules = {code: rule_store.get(code) for code in {finding.code for finding in kept}}
    by_claim, sources = of_claims((claim for rule in rules.values() for claim in rule.claims), release)
    findings = [_plain(finding, rules[finding.code], by_claim, result) for finding in kept]
    for one, mark in zip(findings, fingerprints(findings, root), strict=True):
        one["fingerprint"] = mark
    every = len(findings)
    if request.baseline:
        findings = [one for one in findings if one["fingerprint"] not in request.baseline]
    problems = [problem._replace(path=_printable(problem.path))._asdict() for problem in result.problems]
    identity = digest("review", contents, findings, problems, minor, rule_store.digest(), knowledge_version())
    notes = []
    if not minor:
        notes.append("The release is not known, so names and keywords were not compared with it: --torch X.")
    if result.suppressed:
        notes.append(f"{result.suppressed} findings are switched off in the source (# shardguide: ignore).")
    if every > len(findings):
        notes.append(f"{every - len(findings)} findings are in the baseline and not shown.")
    if request.baseline and len(request.baseline) > every - len(findings):
        gone = len(request.baseline) - every + len(findings)
        notes.append(f"{gone} findings of the baseline are not found any more; --baseline-out makes a shorter one.")
    return Guidance(
        workflow="review",
        id=identity,
        torch=release,
        status="partial" if problems else "complete",
        answers={"torch": Answer(release.version, release.known_from)} if release.version else {},
        checks=(_summary(findings, result),),
        sources=sources,
        next=(Next("review", {}, "read it again once the code is changed"),) if findings else (),
        done=(f"{result.files} file{'s' * (result.files != 1)}, {result.lines} lines, {len(wanted)} rules",),
        not_done=tuple(f"{problem['path']}: {problem['why']}" for problem in problems),
        approval=Approval("draft", ""),
        request=digest("review", request.select, request.ignore, request.per_file, sorted(request.baseline), contents),
        extra={
            "findings": findings,
            "problems": problems,
            "collectives": _collectives(result),
            "digests": _digests(findings),
            "notes": notes,
        },
    )


def _pasted(request: ReviewRequest) -> Guidance:
    """Pasted code is read as a file of its own would be; its fixes are words and edits, for there is no file to change."""
    from shardguide.readers.files import HANDED

    before = HANDED.set({**HANDED.get(), PASTED: request.text.encode("utf-8", "replace")})
    try:
        return check(request._replace(paths=(*request.paths, PASTED), text=""))
    finally:
        HANDED.reset(before)


def _summary(findings: list[dict[str, Any]], result: Result) -> Check:
    certain = sum(one["certain"] for one in findings)
    words = f"{certain} certain, {len(findings) - certain} suspicions, in {result.files} files"
    return Check("current", "failed" if findings else "unknown" if result.problems else "passed", words)


def _allowed(
    findings: tuple[Finding, ...], per_file: tuple[tuple[str, tuple[str, ...]], ...], root: str
) -> tuple[Finding, ...]:
    """Without those that are off for their file."""
    if not per_file:
        return findings
    from shardguide.code.review.inputs import matches

    off = {
        path: tuple(code for pattern, codes in per_file if matches(path, (pattern,), root) for code in codes)
        for path in {finding.path for finding in findings}
    }
    return tuple(one for one in findings if not (off[one.path] and one.code.startswith(off[one.path])))


def _collectives(result: Result) -> list[dict[str, Any]]:
    """What is said of each test of the rank, but for those that have nothing to do with collectives."""
    books = result.notebooks
    return [
        {
            **one._asdict(),
            "path": _printable(one.path),
            "line": books[one.path].file_line(one.line) if one.path in books else one.line,
        }
        for one in result.collectives
        if one.verdict != "matched" or (one.one, one.other) != ("none", "none")
    ]


def _digests(findings: list[dict[str, Any]]) -> dict[str, str]:
    """What identifies the files that edits are for, so that whoever makes them sees whether a file has changed."""
    from shardguide.guidance.sha import sha256
    from shardguide.readers.files import read_bytes

    paths = dict.fromkeys(one["path"] for one in findings if one["edits"])
    return {path: sha256(read_bytes(path, _SIZE)).hexdigest() for path in paths}


def _printable(path: str) -> str:
    """A path that can be written out: names that are no UTF-8 have their bytes as escapes."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


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


class _Known(dict[str, str]):
    """Words for a message; one that a check did not give stays as it is."""

    def __missing__(self, key: str) -> str:
        return f"{{{key}}}"


def _plain(finding: Finding, rule: rule_store.Rule, by_claim: dict[str, list[str]], result: Result) -> dict[str, Any]:
    words = _Known(finding.words)
    path = _printable(finding.path)
    out: dict[str, Any] = {
        "rule": finding.code,
        "path": path,
        "line": finding.line,
        "column": finding.column,
        "title": rule.title,
        "message": rule.message.format_map(words),
        "why": rule.why,
        "certain": finding.certain and rule.certain,
        "fix": rule.fix.format_map(words),
        "edits": [edit._asdict() for edit in finding.edits] if path == finding.path else [],
        "sources": list(dict.fromkeys(source for claim in rule.claims for source in by_claim.get(claim, ()))),
        "source": line_of(result.texts[finding.path], finding.line)[:_LINE],
    }
    notebook = result.notebooks.get(finding.path)
    if notebook is not None:
        out["cell"], out["line"] = notebook.place(finding.line)
        out["file_line"] = notebook.file_line(finding.line)
        for edit in out["edits"]:
            edit["line"], edit["end_line"] = (notebook.place(edit[name])[1] for name in ("line", "end_line"))
    return out
