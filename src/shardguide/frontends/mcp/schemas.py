"""JSON Schemas of arguments, from the table of fields, and of results, short: the full one is published with the documentation."""

from __future__ import annotations

from shardguide.guidance.hints import Any
from shardguide.guidance.record import SCHEMA
from shardguide.workflows.fields import TORCH, Field

_PATHS = {"type": "array", "items": {"type": "string", "maxLength": 4096}, "maxItems": 1000}
_WORDS = {"type": "array", "items": {"type": "string", "maxLength": 200}, "maxItems": 100}
# Arguments that are no field: how they are given, and what for.
_OTHERS: dict[str, dict[str, Any]] = {
    "paths": {**_PATHS, "description": "files or folders"},
    "from": {**_PATHS, "description": "collect_env, nvidia-smi, topo -m or CSV output, accelerate YAML"},
    "measured": {**_PATHS, "description": "memory_stats JSON, nccl-tests output, step times"},
    "code": {**_PATHS, "description": "the user's scripts: to show the line it is about"},
    "current": {"type": "string", "maxLength": 4096, "description": "file with what runs now: FSDP code or accelerate YAML"},
    "now": {**_WORDS, "description": "current settings: api=fsdp2|fsdp1|ddp, param=DTYPE, reduce=DTYPE, output=DTYPE, offload=yes|no, …"},
    "also": {"type": "array", "items": {"enum": ["fsdp1", "accelerate", "torchtitan"]}, "description": "further forms of the code"},
    "call": {"type": "string", "maxLength": 20000, "description": "an init_process_group(...) call to be checked"},
    "topic": {"type": "string", "maxLength": 200, "description": "id of a topic or words; none lists them"},
    "architecture": {"type": "string", "enum": ["transformer", "moe", "vision", "multi-tower", "tied"]},
    "form": {"type": "string", "enum": ["fsdp2", "fsdp1", "ddp", "c10d"]},
    "full_script": {"type": "boolean", "description": "a whole training script"},
    "question": {"type": "string", "maxLength": 20000, "description": "in words"},
    "text": {"type": "string", "maxLength": 1 << 20, "description": "a pasted log or error message"},
    "anonymise": {"type": "boolean", "description": "replace names of hosts and people"},
    "select": {**_WORDS, "description": "only rules whose code begins so: FSD2"},
    "ignore": {**_WORDS, "description": "all rules but these"},
}  # fmt: skip


def argument(name: str, field: Field | None) -> dict[str, Any]:
    """The schema of one argument. Values of fields are texts or numbers: what they may say, the workflow itself checks."""
    if field is None and name == TORCH.name:
        return {
            "type": "string",
            "maxLength": 40,
            "description": "PyTorch release, e.g. 2.13 (else: the one installed)",
        }
    if field is None:
        return _OTHERS[name]
    words = field.help or field.ask
    if field.choices and not any(one in words for one in field.choices[:2]):
        words = f"{words} ({', '.join(field.choices)})"
    return {"type": ["string", "integer"], "description": words}


def output_schema() -> dict[str, Any]:
    """What every result has; ``docs`` and ``apply`` have their own fields."""
    text, items = {"type": "string"}, {"type": "array", "items": {"type": "object"}}
    texts = {"type": "array", "items": text}
    return {
        "type": "object",
        "description": f"a Guidance ({SCHEMA}; docs/schema/guidance-1.schema.json), the answer first",
        "properties": {
            "summary": text, "schema": text, "id": text, "workflow": text, "torch": {"type": "object"}, "status": text,
            "understood": {"type": "object"}, "answers": {"type": "object"}, "questions": items, "decisions": items,
            "diagnoses": items, "findings": items, "snippets": items, "checks": items, "sources": items, "next": items,
            "done": texts, "not_done": texts, "approval": {"type": "object"}, "page": {"type": "object"},
        },
        "required": ["summary"],
        "additionalProperties": True,
    }  # fmt: skip
