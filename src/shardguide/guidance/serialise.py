"""Guidance to JSON and to its identity: the same inputs give the same bytes."""

from __future__ import annotations

import json

from shardguide.guidance.hints import Any

from .record import SCHEMA, Answer, Approval, Guidance
from .sha import sha256

# Enough of a SHA-256 that two answers in one notebook never meet, and short enough to type.
ID_LENGTH = 16


_LEAVES = frozenset(
    {str, int, bool, float, type(None)}
)  # most of a record: they need no look at what else they might be


def plain(value: Any) -> Any:
    """Named tuples to dicts, tuples to lists, recursively; everything else as it is."""
    if type(value) in _LEAVES:
        return value
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", None)
        if fields is None:
            return [plain(item) for item in value]
        if isinstance(value, Answer):
            return {"value": plain(value.value), "from": value.source}
        return {name: item if type(item) in _LEAVES else plain(item) for name, item in zip(fields, value, strict=True)}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def to_dict(guidance: Guidance) -> dict[str, Any]:
    """The JSON object of schema ``shardguide/1``; the workflow's own part lies beside the common fields."""
    record: dict[str, Any] = plain(guidance)
    extra: dict[str, Any] = record.pop("extra")
    del record["request"]
    head = {"schema": SCHEMA, "id": record.pop("id"), "workflow": record.pop("workflow")}
    return head | record | extra


def to_json(record: dict[str, Any]) -> str:
    """Deterministic JSON text of a plain object: one line a field of the top level, and a final newline.

    json.dumps(indent=...) would leave the C encoder and take a tenth of the whole command's time.
    """
    lines = (
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}" for key, value in record.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def digest(*parts: Any) -> str:
    """Identity of a request: the first 16 hex digits of the SHA-256 of its canonical JSON."""
    text = json.dumps([plain(part) for part in parts], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(text.encode()).hexdigest()[:ID_LENGTH]


def with_approval(record: dict[str, Any], state: str) -> dict[str, Any]:
    """The same record with the approval state that the notebook holds."""
    return record | {"approval": Approval(state, record["approval"]["asked"])._asdict()}
