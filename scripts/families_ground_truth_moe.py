"""Write down what the installed transformers builds for the families of tests/knowledge/moe_variants.py.

    python scripts/families_ground_truth_moe.py OUT.json --configs CONFIG.json … --variants 25

Like families_ground_truth.py, but each model is built by the class that ``architectures`` names, since these families
have more than one; the small variants are drawn here, with a fixed seed, and kept in the file. ``saved`` is what
save_pretrained puts into a safetensors file: transformers 5 writes the published layout, not its own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "knowledge"))

SEED = 20260102
SAVED = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2")


def saved_tensors(config: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes in the safetensors file that save_pretrained writes, sorted: for small configurations only."""
    safetensors = importlib.import_module("safetensors")
    model = importlib.import_module("family_oracle_moe").build_named(config, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safetensors.safe_open(Path(folder) / "model.safetensors", framework="pt") as file:
            return sorted((name, tuple(file.get_slice(name).get_shape())) for name in list(file.keys()))


def truth_of(config: dict[str, Any], small: bool) -> dict[str, Any]:
    """The record of one configuration, or why transformers refuses it."""
    oracle = importlib.import_module("family_oracle")
    named = importlib.import_module("family_oracle_moe")
    try:
        model = named.build_named(config)
    except Exception as error:  # whatever transformers raises is its way of refusing
        return {"config": config, "refused": type(error).__name__} if small else {"refused": type(error).__name__}
    truth = oracle.describe(model)
    found: dict[str, Any] = {"config": config} if small else {}
    found |= oracle.record(truth)
    if small and config["model_type"] in SAVED:
        found["saved"] = oracle.lines_digest(saved_tensors(config))
    if not small:
        detail = oracle.detail(truth)
        found |= {key: detail[key] for key in ("first_layer", "first_buffers")}
        found["tp_plan"] = {re.sub(r"\.\d+", ".*", name): style for name, style in named.plan_of(model).items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--configs", nargs="*", default=[], type=Path)
    parser.add_argument("--variants", type=int, default=25, help="small random configurations of each family")
    arguments = parser.parse_args()
    drawn = importlib.import_module("moe_variants")
    random = Random(SEED)
    cases = {path.stem: truth_of(json.loads(path.read_text()), False) for path in arguments.configs}
    variants = {
        f"{family} {i}": truth_of(drawn.draw(random, family), True)
        for family in drawn.FAMILIES
        for i in range(arguments.variants)
    }
    versions = {name: importlib.import_module(name).__version__.split("+")[0] for name in ("transformers", "torch")}
    groups = ",\n".join(
        f'"{name}": {{\n' + ",\n".join(f"{json.dumps(key)}: {json.dumps(item)}" for key, item in group.items()) + "\n}"
        for name, group in (("cases", cases), ("variants", variants))
    )
    head = ",\n".join(f"{json.dumps(name)}: {json.dumps(version)}" for name, version in versions.items())
    arguments.out.write_text(f"{{\n{head},\n{groups}\n}}\n")


if __name__ == "__main__":
    main()
