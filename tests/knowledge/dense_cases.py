"""The configurations that the dense families are tested with, and how a family's answer is compared with the truth."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from family_oracle import Truth, buffers_digest, in_first_layer, lines_digest

from shardguide.guidance.model import Model

HERE = Path(__file__).parent
FAMILIES = {
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gemma3_text", "phi3", "gpt2", "gpt_neox",
    "falcon", "opt", "bloom", "olmo2", "starcoder2",
}  # fmt: skip


def _cases() -> dict[str, dict[str, Any]]:
    files = {path.stem: json.loads(path.read_text()) for path in sorted((HERE / "family_cases").glob("*.json"))}
    return {name: config for name, config in files.items() if config.get("model_type") in FAMILIES}


CASES = _cases()
VARIANTS: dict[str, dict[str, Any]] = json.loads((HERE / "dense_variants.json").read_text())
TRUTH = {
    f"transformers{number}": json.loads((HERE / f"truth_dense_transformers{number}.json").read_text())
    for number in (4, 5)
}
RELEASES = sorted(TRUTH)


# Values that no size can have.
ODD: list[Any] = ["4096", "", -1, 0, 1.5, float("nan"), float("inf"), True, [], [4], {}, {"a": 1}, 1 << 70, -(1 << 70)]
NUMBERS = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"]


def record_model(model: Model) -> dict[str, Any]:
    """The same record that the script makes of the real model."""
    parameters = [(parameter.name, parameter.shape) for parameter in model.parameters]
    buffers = [tuple(buffer) for buffer in model.buffers]
    return {
        "architecture": model.architecture,
        "parameters": len(parameters),
        "size": model.size,
        "digest": lines_digest(parameters),
        "aliases": {p.name: list(p.aliases) for p in model.parameters if p.aliases},
        "buffers": len(buffers),
        "buffers_digest": buffers_digest(buffers),
        "first_layer": {name: ",".join(map(str, shape)) for name, shape in parameters if in_first_layer(name)},
        "first_buffers": {
            name: f"{','.join(map(str, shape))} {dtype} {kept}"
            for name, shape, dtype, kept in buffers
            if in_first_layer(name)
        },
        "tp_plan": dict(model.tp_plan),
    }


def assert_equal(model: Model, truth: Truth) -> None:
    """Everything that a family says, against the real model."""
    assert tuple((p.name, p.shape) for p in model.parameters) == truth.parameters
    assert {p.name: p.aliases for p in model.parameters if p.aliases} == truth.aliases
    assert tuple(tuple(buffer) for buffer in model.buffers) == truth.buffers
    assert model.architecture == truth.architecture
    assert dict(model.tp_plan) == truth.model_tp_plan
    for unit in model.units:
        assert "+".join(truth.classes[module] for module in unit.modules) == unit.module_class
    blocks = {unit.modules[0]: unit.module_class for unit in model.units if unit.role == "block"}
    assert set(blocks.values()) <= set(truth.no_split_modules)
    assert blocks == {module: name for module, name in truth.classes.items() if name in set(blocks.values())}
    owned = [module for unit in model.units for module in unit.modules]
    assert len(owned) == len(set(owned))
    if truth.aliases:  # a tied weight must not be split over two groups: it stays with the root
        assert all(unit.role == "block" for unit in model.units)


def small(family: str) -> dict[str, Any]:
    return copy.deepcopy(VARIANTS["gemma3 plain" if family == "gemma3" else family])
