"""Write down what the installed transformers builds from configurations, for tests that run without it.

    python scripts/families_ground_truth.py OUT.json --configs CONFIG.json … --variants VARIANTS.json --saved

Run it once with transformers 4.57 and once with transformers 5 (each beside the PyTorch that it needs): the tests
compare the families with both. A configuration that transformers refuses is written down as refused. ``--saved`` also
writes down what save_pretrained puts into a safetensors file, for the variants, which are small.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ORACLE = ROOT / "tests" / "knowledge"


def oracle() -> Any:
    """The module that asks transformers, which the tests use too."""
    sys.path.insert(0, str(ORACLE))
    return importlib.import_module("family_oracle")


def truth_of(config: dict[str, Any], auto: str, detail: bool, saved: bool) -> dict[str, Any]:
    """The record of one configuration, or why transformers refuses it."""
    ask = oracle()
    try:
        truth = ask.real_truth(config, auto)
    except Exception as error:  # whatever transformers raises is its way of refusing
        return {"refused": type(error).__name__}
    found: dict[str, Any] = ask.record(truth)
    if detail:
        found |= ask.detail(truth)
    if saved:
        tensors = ask.saved_tensors(config, auto)
        found["saved"] = len(tensors)
        found["saved_digest"] = ask.lines_digest(tensors)
    return found


def ground_truth(
    configs: dict[str, dict[str, Any]], variants: dict[str, dict[str, Any]], autos: dict[str, str], saved: bool
) -> dict[str, Any]:
    """Everything that goes into the file."""
    transformers = importlib.import_module("transformers")
    torch = importlib.import_module("torch")

    def records(group: dict[str, dict[str, Any]], detail: bool, saved: bool) -> dict[str, Any]:
        return {
            name: truth_of(config, autos.get(config["model_type"], "AutoModelForCausalLM"), detail, saved)
            for name, config in group.items()
        }

    return {
        "transformers": transformers.__version__,
        "torch": torch.__version__.split("+")[0],
        "cases": records(configs, True, False),
        "variants": records(variants, False, saved),
    }


def one_line_each(truth: dict[str, Any]) -> str:
    """JSON with one record on a line, so that a change shows which model it is about."""
    head = [f'"{key}": {json.dumps(truth[key])}' for key in ("transformers", "torch")]
    groups = [
        f'"{key}": {{\n'
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(item)}" for name, item in truth[key].items())
        + "\n}"
        for key in ("cases", "variants")
    ]
    return "{\n" + ",\n".join(head + groups) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--configs", nargs="*", default=[], type=Path)
    parser.add_argument("--variants", type=Path)
    parser.add_argument("--auto", action="append", default=[], metavar="MODEL_TYPE=CLASS")
    parser.add_argument("--saved", action="store_true")
    arguments = parser.parse_args()
    configs = {path.stem: json.loads(path.read_text()) for path in arguments.configs}
    variants = json.loads(arguments.variants.read_text()) if arguments.variants else {}
    autos = dict(pair.split("=", 1) for pair in arguments.auto)
    truth = ground_truth(configs, variants, autos, arguments.saved)
    arguments.out.write_text(one_line_each(truth))


if __name__ == "__main__":
    main()
