"""Hugging Face ``config.json``: the parsed fields, bounded and checked as JSON, not interpreted.

Whether the fields make sense for a family is judged where shapes are worked out (``knowledge.families``). The only
import besides ours is ``json``: this is the path that nearly every plan takes.
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple

from .files import MIB, check_depth, parse_json, quoted, shown

LIMIT = 4 * MIB  # the largest published ones, with tens of thousands of label names, stay below 2 MiB
VALUES = 400_000

# Files that people hand over instead, by a field that only they have.
_OTHERS: tuple[tuple[str, str], ...] = (
    ("peft_type", "an adapter's configuration (PEFT): hand over the config.json of its base model"),
    ("_diffusers_version", "a diffusers configuration, which names no transformers model: hand over a shape manifest"),
    ("zero_optimization", "a DeepSpeed configuration: hand over the model's own config.json"),
    ("tokenizer_class", "a tokenizer's configuration: hand over the model's config.json"),
    ("n_layers", "a params.json in Meta's own format: hand over the Hugging Face config.json of that model"),
    ("eos_token_id", "a generation configuration: hand over the model's config.json"),
)


class HfConfig(NamedTuple):
    """A configuration as its file has it."""

    where: str  # the file as it may be shown
    config: dict[str, Any]  # every field, unchanged
    model_type: str  # "" when the file has none
    architectures: tuple[str, ...]  # class names, e.g. ("LlamaForCausalLM",); often empty
    dtype: str  # ``dtype`` or ``torch_dtype`` without "torch.", from text_config when only that has it; "" when absent
    quantization: str  # quantization_config's quant_method, "unnamed" when it names none; "" when not quantised
    notes: tuple[str, ...] = ()  # what the user should know about how this file was read


def _text(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) and len(value) <= 200 else ""


def _refers(value: Any) -> bool:
    """Whether any object in ``value`` (already bounded in depth) points to another document with ``$ref``."""
    if isinstance(value, dict):
        return "$ref" in value or any(_refers(v) for v in value.values() if isinstance(v, (dict, list)))
    return any(_refers(v) for v in value if isinstance(v, (dict, list)))


def kind_of(value: Any) -> str:
    """A JSON value that is no object, for a sentence."""
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else quoted(value)


def from_object(config: Any, where: str, notes: tuple[str, ...] = ()) -> HfConfig:
    """The evidence in a parsed ``config.json``. Raises UnusableInput when it is something else."""
    if not isinstance(config, dict):
        raise UnusableInput(f"{where}: a config.json holds one JSON object, not {kind_of(config)}.")
    check_depth(config, where)
    if _refers(config):
        raise UnusableInput(f"{where}: it points elsewhere with $ref, which is not followed; hand over the whole file.")
    if not isinstance(config.get("model_type"), str) and "architectures" not in config:
        for field, what in _OTHERS:
            if field in config:
                raise UnusableInput(f"{where}: this is {what}.")
        raise UnusableInput(f"{where}: not a model's config.json: it has neither model_type nor architectures.")
    inner = config.get("text_config")
    inner = inner if isinstance(inner, dict) else {}
    dtype = next((t for v in (config, inner) for n in ("dtype", "torch_dtype") if (t := _text(v, n))), "")
    classes = config.get("architectures")
    architectures = tuple(c for c in classes[:20] if isinstance(c, str)) if isinstance(classes, list) else ()
    quantised = config.get("quantization_config") or inner.get("quantization_config")
    quantization = ""
    if isinstance(quantised, dict) and quantised:
        quantization = _text(quantised, "quant_method") or "unnamed"
        notes += (
            f"{where} has a quantization_config ({quantization}); the shapes are those of the unquantised model.",
        )
    if "auto_map" in config:
        notes += (
            f"{where} has an auto_map: the model's own code was neither read nor run; the shapes "
            "are those of the transformers class of the same model_type.",
        )
    return HfConfig(
        where,
        config,
        _text(config, "model_type"),
        architectures,
        dtype.removeprefix("torch."),
        quantization,
        notes,
    )


def read_config(text: str, where: str) -> HfConfig:
    """The evidence in the text of a ``config.json``; ``where`` names the file. Raises UnusableInput."""
    repeated: list[str] = []
    config = parse_json(text, where, values=VALUES, repeated=repeated)
    notes = tuple(
        f"{where} gives {shown(key)} twice with different values; the last one counts, as for transformers."
        for key in repeated[:3]
    )
    return from_object(config, where, notes)
