"""JSON Schemas of arguments, from the table of fields, and of results, short: the full one is published with the documentation."""

from __future__ import annotations

import re

from shardguide.guidance.errors import UnusableInput
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
    "also": {"type": "array", "items": {"type": "string", "enum": ["fsdp1", "accelerate", "torchtitan"]},
             "description": "further forms of the code"},
    "call": {"type": "string", "maxLength": 20000, "description": "an init_process_group(...) call to be checked"},
    "topic": {"type": "string", "maxLength": 200, "description": "id of a topic or words; none lists them"},
    "architecture": {"type": "string", "enum": ["transformer", "moe", "vision", "multi-tower", "tied"], "description": "of the model"},
    "form": {"type": "string", "enum": ["fsdp2", "fsdp1", "ddp", "c10d"], "description": "which API the code is to show"},
    "full_script": {"type": "boolean", "description": "a whole training script"},
    "question": {"type": "string", "maxLength": 20000, "description": "in words"},
    "text": {"type": "string", "maxLength": 1 << 20, "description": "a pasted log or error message"},
    "anonymise": {"type": "boolean", "description": "replace names of hosts and people"},
    "select": {**_WORDS, "description": "only rules whose code begins so: FSD2"},
    "ignore": {**_WORDS, "description": "all rules but these"},
}  # fmt: skip


_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")
# Where the option's line says too little to somebody who only sees this.
_WORDS_OF = {
    "model": "a model's folder, its config.json, safetensors files or their index, a shape manifest, or a size such as 7b; the name of a "
    "model on a hub gives no more than the size in it, for nothing is fetched",
}  # fmt: skip


_CLOSED = "must be one of "


def closed(field: Field) -> tuple[str, ...]:
    """The words that a field takes, where it takes no others; () else. The field's own reader says which, and takes each of them."""
    try:
        field.parse("no such word")
    except UnusableInput as error:
        _, said, rest = str(error).partition(_CLOSED)
        words = tuple(rest.partition(", not ")[0].split(", ")) if said else ()
    else:
        return ()
    return words if words and all(_takes(field, word) for word in words) else ()


def _takes(field: Field, word: str) -> bool:
    try:
        return bool(field.parse(word) == word)
    except UnusableInput:
        return False


def _counts(field: Field) -> bool:
    try:
        return isinstance(field.parse("1"), int)
    except UnusableInput:
        return False


def argument(name: str, field: Field | None) -> dict[str, Any]:
    """The schema of one argument: a number, a word of a closed list, or a text, which the workflow itself reads."""
    if name == TORCH.name:
        return {
            "type": "string",
            "maxLength": 40,
            "description": "PyTorch release, e.g. 2.13 (else: the one installed)",
        }
    if field is None:
        return _OTHERS[name]
    words = _WORDS_OF.get(name) or _OPTION.sub(lambda one: one[1].replace("-", "_"), field.help or field.ask)
    if _counts(field):
        return {"type": "integer", "minimum": 0 if _takes_zero(field) else 1, "description": words}
    listed = closed(field)
    if listed:
        return {"type": "string", "enum": list(listed), "description": words}
    if field.choices and not any(one in words for one in field.choices[:2]):
        words = f"{words} ({', '.join(field.choices)})"
    return {"type": "string", "maxLength": 4096, "description": words}


def _takes_zero(field: Field) -> bool:
    try:
        return bool(field.parse("0") == 0)
    except UnusableInput:
        return False


def refusal(properties: dict[str, Any], name: str, value: Any) -> str:
    """Why a value cannot be an argument, in a sentence; "" where it can. Numbers may come as text and text as numbers."""
    kind = properties[name]["type"]
    if kind == "boolean":
        return "" if isinstance(value, bool) else f"{name} is true or false."
    if kind == "array":
        many = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str) for one in many):
            return f'{name} is a list of texts, for example ["{"train.py" if name in ("paths", "files", "code", "from") else "…"}"].'
        return "" if len(many) <= properties[name].get("maxItems", 1000) else f"{name} holds too many entries."
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        listed = isinstance(value, list) and value and all(isinstance(one, str) for one in value)
        return (
            ""
            if listed and "enum" not in properties[name] and name not in SINGLE
            else _wanted(properties[name], name, value)
        )
    if isinstance(value, str) and len(value) > properties[name].get("maxLength", 4096):
        return f"{name} is longer than {properties[name].get('maxLength', 4096):,} characters."
    return ""


def _wanted(schema: dict[str, Any], name: str, value: Any) -> str:
    said = f", not {str(value)[:40].lower() if isinstance(value, (bool, float)) else type(value).__name__}"
    if schema["type"] == "integer":
        return f"{name} is a whole number{said}."
    if "enum" in schema:
        return f"{name} is one of {', '.join(schema['enum'])}{said}."
    return f"{name} is one text{said}."


SINGLE = ("model", "current", "tp_plan", "text", "words", "question", "topic", "call", "path")  # never a list


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
