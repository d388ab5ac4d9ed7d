"""The check ``hooks`` on the user's own code: the Join check's verdicts as part of the record, and what the code answers by itself."""

from __future__ import annotations

from shardguide.code.join import Result, Verdict, check
from shardguide.guidance.hints import Any
from shardguide.guidance.record import Check, Snippet, Verified
from shardguide.knowledge import rule_store

from ..gather import FileFact

_MEMBERS = frozenset({"FSD605", "FSD607", "FSD621", "FSD622"})


def read(paths: tuple[str, ...]) -> Result | None:
    """Check files and folders; None where none were handed over."""
    return check(paths) if paths else None


def plain(result: Result | None) -> list[dict[str, Any]]:
    """The verdicts for the record."""
    return [_plain(one) for one in result.verdicts] if result is not None else []


def _plain(one: Verdict) -> dict[str, Any]:
    issues = []
    for issue in one.issues:
        rule = rule_store.get(issue.code)
        message = rule.message.replace("{what}", issue.what).replace("{lacks}", issue.what).replace("{name}", one.name)
        issues.append(
            {
                "rule": issue.code, "path": issue.file.path, "line": issue.line, "message": message.strip(), "why": rule.why,
                "fix": rule.fix, "certain": issue.certain and issue.violated,
            }
        )  # fmt: skip
    return {
        "name": one.name,
        "kind": one.kind,
        "path": one.path,
        "line": one.line,
        "verdict": one.verdict,
        "when": one.when,
        "rows": [row._asdict() for row in one.rows],
        "issues": issues,
        "unknown": list(one.unknown),
        "assumes": list(one.assumes),
        "corrected": one.corrected,
    }


def hooks(result: Result) -> Check:
    """Check ``hooks``: failed where something is violated, passed only where all is proven."""
    verdicts = [one.verdict for one in result.verdicts]
    if not verdicts:
        return Check("hooks", "unknown", f"There is no Joinable and no Join in {result.files} files.")
    said = ", ".join(f"{one.name} ({one.path}:{one.line}): {one.verdict}" for one in result.verdicts)
    unread = f"; not read: {', '.join(one.path for one in result.problems)}" if result.problems else ""
    outcome = (
        "failed" if "violated" in verdicts else "unknown" if "unknown" in verdicts or result.problems else "passed"
    )
    return Check("hooks", outcome, f"{said}{unread}.")


def joinable(result: Result | None, otherwise: Check) -> Check:
    """Check ``joinable`` where the user's classes were read: constructor, members and hooks of each."""
    own = [one for one in (result.verdicts if result is not None else ()) if one.kind == "Joinable"]
    if not own or otherwise.result == "failed":
        return otherwise
    wrong = [
        f"{one.name} is not complete ({issue.code})" for one in own for issue in one.issues if issue.code in _MEMBERS
    ]
    if wrong:
        return Check("joinable", "failed", f"{'; '.join(wrong)}.")
    if otherwise.result == "unknown" and all(one.verdict != "unknown" for one in own):
        said = otherwise.evidence.replace(
            "your own class was not read", f"{', '.join(one.name for one in own)}: complete"
        )
        return Check("joinable", "passed", said)
    return otherwise


def snippets(result: Result | None) -> list[Snippet]:
    """The corrected classes, as drafts."""
    out: list[Snippet] = []
    for one in result.verdicts if result is not None else ():
        name = f"corrected-{one.name.lower().strip('_').replace('_', '-')}"
        if one.corrected and name.isascii() and all(other.id != name for other in out):
            out.append(
                Snippet(name, f"{one.name}, corrected: a draft", "python", one.corrected, Verified(True, False, ""))
            )
    return out


def facts(result: Result | None) -> dict[str, FileFact]:
    """What the code says of the loop: its parts, and what a rank does that has run out."""
    joins = [one for one in (result.verdicts if result is not None else ()) if one.kind == "Join"]
    own = [one for one in (result.verdicts if result is not None else ()) if one.kind == "Joinable"]
    out: dict[str, FileFact] = {}
    if joins:
        where = f"file:{joins[0].path}:{joins[0].line}"
        parts = [kind for kind in ("ddp", "zero", "own") if any(kind in one.parts for one in joins)]
        if parts:
            out["with"] = FileFact(",".join(parts), where)
        out["on_exhausted"] = FileFact("stop" if any(one.throws for one in joins) else "drain", where)
        free = any(issue.code in ("FSD627", "FSD628") for one in joins for issue in one.issues)
        if free or all(one.verdict != "unknown" for one in joins):
            out["collectives"] = FileFact("yes" if free else "no", where)
        out["uneven"] = FileFact("unknown", where)
    elif own:
        out["with"] = FileFact("own", f"file:{own[0].path}:{own[0].line}")
    return out
