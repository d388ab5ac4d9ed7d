"""Findings as SARIF 2.1.0, for code scanning: rules with their pages, places relative to the working folder, fixes."""

from __future__ import annotations

import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.knowledge import rule_store

from .safe import lines, one_line

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LIMIT = 4 << 20


def render(record: dict[str, Any], version: str) -> str:
    """The text of a log with one run."""
    import json

    codes = sorted({one["rule"] for one in record["findings"]})
    urls = {source["id"]: source["url"] for source in record["sources"]}
    pages = {
        one["rule"]: next((urls[name] for name in one["sources"] if name in urls), "") for one in record["findings"]
    }
    texts: dict[str, list[str] | None] = {}
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "Shardguide",
                "semanticVersion": version,
                "rules": [_rule(rule_store.get(code), pages[code]) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, codes, texts) for one in record["findings"]],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [_notification(one) for one in record["problems"]],
            }
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(rule: rule_store.Rule, page: str) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": rule.code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {
            "text": f"{rule.why}\n\n{rule.fix}",
            "markdown": f"{rule.why}\n\n{rule.fix}\n\n```\n{rule.wrong.strip()}\n```\n\n```\n{rule.right.strip()}\n```",
        },
        "defaultConfiguration": {"level": "error" if rule.certain else "warning"},
        "properties": {"precision": "very-high" if rule.certain else "medium", "tags": ["pytorch", "distributed"]},
    }
    page = page or (rule.see[0] if rule.see else "")
    if page:
        out["helpUri"] = page
    return out


def _result(one: dict[str, Any], codes: list[str], texts: dict[str, list[str] | None]) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": one.get("file_line", one["line"])}
    if "cell" not in one:
        region["startColumn"] = one["column"]
        region["snippet"] = {"text": lines(one["source"])}
    where = f"Cell {one['cell']}, line {one['line']}: " if "cell" in one else ""
    out: dict[str, Any] = {
        "ruleId": one["rule"],
        "ruleIndex": codes.index(one["rule"]),
        "level": "error" if one["certain"] else "warning",
        "message": {"text": one_line(f"{where}{one['message']}. {one['why']}", 4000)},
        "locations": [{"physicalLocation": {"artifactLocation": _artifact(one["path"]), "region": region}}],
        "partialFingerprints": {"shardguide/v1": one["fingerprint"]},
    }
    fix = _fix(one, texts) if one["edits"] and "cell" not in one else None
    if fix is not None:
        out["fixes"] = [fix]
    return out


def _artifact(path: str) -> dict[str, str]:
    """Relative to the working folder with its parts percent-encoded; a path elsewhere as a file URI."""
    from urllib.parse import quote

    full = os.path.abspath(path)  # noqa: PTH100
    below = os.path.relpath(full, os.path.abspath(os.curdir)).replace(os.sep, "/")  # noqa: PTH100
    if below.startswith("../"):
        return {"uri": "file://" + quote(full.replace(os.sep, "/"))}
    return {"uri": quote(below), "uriBaseId": "%SRCROOT%"}


def _fix(one: dict[str, Any], texts: dict[str, list[str] | None]) -> dict[str, Any] | None:
    path = one["path"]
    if path not in texts:
        from shardguide.readers.files import read_text

        try:
            texts[path] = read_text(path, LIMIT).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        except UnusableInput:
            texts[path] = None
    source = texts[path]
    if source is None or any(edit["end_line"] > len(source) for edit in one["edits"]):
        return None
    replacements = [
        {
            "deletedRegion": {
                "startLine": edit["line"],
                "startColumn": _column(source[edit["line"] - 1], edit["column"]),
                "endLine": edit["end_line"],
                "endColumn": _column(source[edit["end_line"] - 1], edit["end_column"]),
            },
            "insertedContent": {"text": edit["text"]},
        }
        for edit in one["edits"]
    ]
    return {
        "description": {"text": one_line(one["fix"], 4000)},
        "artifactChanges": [{"artifactLocation": _artifact(path), "replacements": replacements}],
    }


def _column(line: str, column: int) -> int:
    """A column in characters from 1, of one in UTF-8 bytes from 0."""
    return len(line.encode("utf-8")[:column].decode("utf-8", "replace")) + 1


def _notification(one: dict[str, Any]) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": _artifact(one["path"])}
    if one["line"]:
        place["region"] = {"startLine": one["line"]}
    return {
        "level": "warning",
        "message": {"text": one_line(one["why"], 4000)},
        "locations": [{"physicalLocation": place}],
    }
