"""One or two sentences that stand first in a result, taken from its own parts: hosts may show nothing else."""

from __future__ import annotations

from shardguide.guidance.hints import Any

_CHOICES = 4


def summary(record: dict[str, Any]) -> str:
    """What the record says, in a line."""
    said = _said(record)
    open_ = [question["id"] for question in record.get("questions", ())]
    if open_:
        said = f"{said} Still to be answered: {', '.join(open_)}."
    bad = [check["id"] for check in record.get("checks", ()) if check["result"] == "failed"]
    if bad and record.get("workflow") not in ("review",):
        said = f"{said} Checks that failed: {', '.join(bad)}."
    return said.strip()


def _said(record: dict[str, Any]) -> str:
    workflow = record.get("workflow", "")
    if workflow == "diagnose":
        found = record["diagnoses"]
        if not found:
            return "No failure was found." if record["outcome"] == "no_failure" else "No known failure was recognised."
        first = found[0]
        ranks = f", rank {', '.join(map(str, first['ranks'][:8]))}" if first["ranks"] else ""
        return f"{first['title']} ({first['confidence']}{ranks})."
    if workflow == "review":
        found = record["findings"]
        if not found:
            return "Nothing was found."
        certain = sum(one["certain"] for one in found)
        return f"{certain} certain findings and {len(found) - certain} suspicions; the first: {found[0]['message']}."
    if workflow == "migrate":
        return f"{len(record.get('todo', ()))} points need a person; the diff is in diff."
    if workflow == "docs":
        if "name" in record:
            return f"{record['name']}: {record.get('kind') or 'not known'}."
        return f"What changed from {record['from']} to {record['to']}."
    if workflow == "explain" and "groups" in record:
        return "The topics that can be explained."
    if record.get("decisions"):
        return "; ".join(f"{one['id']}: {one['choice']}" for one in record["decisions"][:_CHOICES]) + "."
    if record.get("statements"):
        return str(record["statements"][0]["text"])
    if workflow == "explain":
        topic = record.get("topic") or {}
        return str(topic.get("title") or "A whole training script.")
    if workflow == "ask":
        return "Not known: the sources that Shardguide has do not say it."
    return "Too little is known for an answer."
