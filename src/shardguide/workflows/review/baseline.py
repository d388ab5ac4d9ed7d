"""Known findings: a fingerprint for each that stays while lines move, and the file that lists those to hide."""

from __future__ import annotations

import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.guidance.sha import sha256
from shardguide.readers.files import parse_json, read_text, shown

LIMIT = 16 << 20
FORMAT = "shardguide-baseline/1"


def fingerprints(findings: list[dict[str, Any]], root: str) -> list[str]:
    """One for each finding, from the rule, the file, the words of the line, and which of the equal ones it is."""
    seen: dict[tuple[str, str, str], int] = {}
    out = []
    for one in findings:
        key = (one["rule"], relative(one["path"], root), " ".join(one["source"].split()))
        number = seen[key] = seen.get(key, 0) + 1
        out.append(sha256("\0".join((*key, str(number))).encode("utf-8", "backslashreplace")).hexdigest()[:16])
    return out


def relative(path: str, root: str) -> str:
    """A path from the root, with / between its parts."""
    full = os.path.abspath(path)  # noqa: PTH100
    return (os.path.relpath(full, root) if root else path).replace(os.sep, "/")


def read(path: str) -> frozenset[str]:
    """The fingerprints of a baseline file. Raises UnusableInput for any other file."""
    where = shown(path)
    loaded = parse_json(read_text(path, LIMIT), where, values=2_000_000)
    known = loaded.get("findings") if isinstance(loaded, dict) and loaded.get("format") == FORMAT else None
    if not isinstance(known, dict):
        raise UnusableInput(f"{where}: this is no baseline; shardguide review PATH --baseline-out > {where} makes one.")
    return frozenset(known)


def render(findings: list[dict[str, Any]]) -> str:
    """The text of a baseline that hides these findings: one line each, in a stable order, so that it can be compared."""
    import json

    rows = sorted((one["path"], one["rule"], one["fingerprint"]) for one in findings)
    lines = [f"    {json.dumps(mark)}: {json.dumps(f'{rule} {path}')}" for path, rule, mark in rows]
    body = "{\n" + ",\n".join(lines) + "\n  }" if lines else "{}"
    return f'{{\n  "format": "{FORMAT}",\n  "findings": {body}\n}}\n'
