"""Works out what src/shardguide/knowledge/snippets/data/record.json may say; writes it when run as a program.

    python -m tests.snippets.record        # compares
    python -m tests.snippets.record write  # after a change of the snippets, and a passing test_train.py

Ranges come from the API index: the releases in which some snippet with that form uses only what the release has. Bits come from the
lists of scenarios: test_train.py executes every one of them, and fails if one does not train.
"""

from __future__ import annotations

import ast
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge import releases
from shardguide.knowledge.snippets import TrainingSpec, manifest, measure
from shardguide.knowledge.snippets.verify import problems

from .scenarios import MODULES, Scenario, Setting, cover, typical

FILE = Path(__file__).parents[2] / "src/shardguide/knowledge/snippets/data/record.json"
TORCH = "2.13.0"
TRANSFORMERS = {"transformers5": "5.24.0", "transformers4": "4.57.6"}
# Run as they are by test_launch.py and test_instruments.py; (kind, form, first release, processes of the run or 0).
LAUNCHED = (
    ("torchrun", "form=single", "2.0", 2),
    ("torchrun", "form=multi", "2.0", 2),
    ("sbatch", "form=single", "2.0", 2),
    ("sbatch", "form=multi", "2.0", 2),
    ("kubernetes", "form=v2", "2.0", 0),
    ("kubernetes-v1", "form=v1", "2.0", 0),
    ("accelerate", "form=fsdp2", "2.6", 0),
    ("accelerate", "form=ddp", "2.0", 0),
    ("torchtitan", "form=python", "2.13", 0),
    ("torchtitan-toml", "form=toml", "2.10", 0),
)


def runs() -> list[Scenario]:
    """Every execution, in the order of the record's bits."""
    return list(typical()) + [
        scenario
        for implementation in TRANSFORMERS
        for kind in MODULES
        for scenario in cover(kind, Setting(implementation=implementation))
    ]


@cache
def rendered(release: str) -> list[tuple[str, tuple[str, ...], str]]:
    """(kind, forms, code) of combinations that cover every pair, for a release and an accelerator."""
    result = []
    for implementation in TRANSFORMERS:
        for kind, module in MODULES.items():
            scenarios = cover(kind, Setting(release, "cuda", implementation))
            if implementation == "transformers4":  # differs in how the model is built and filled only
                scenarios = scenarios[:12]
            for scenario in scenarios:
                result.append((kind, scenario.forms, module.render(scenario.spec).code))
    for device in ("cuda", "xpu", "cpu"):
        try:
            spec = TrainingSpec(release=release, device_type=device)
            result.append(("measure", (f"device={device}",), measure(spec).code))
        except UnusableInput:
            continue
    result.append(("manifest", ("form=only",), manifest(release).code))
    return result


@cache
def lacking(code: str, release: str) -> tuple[str, ...]:
    """What the release lacks for this code."""
    return tuple(problems(ast.parse(code), release))


def ranges() -> dict[str, dict[str, list[str]]]:
    """kind -> form -> the releases in which a snippet with this form has everything it uses."""
    found: dict[str, dict[str, list[str]]] = {}
    for release in releases.known():
        for kind, forms, code in rendered(release):
            good = not lacking(code, release)
            for form in forms:
                known = found.setdefault(kind, {}).setdefault(form, [])
                if good and release not in known:
                    known.append(release)
    return found


def expected() -> dict[str, Any]:
    """The whole record."""
    forms: dict[str, dict[str, list[Any]]] = {}
    for kind, entries in ranges().items():
        for form, good in entries.items():
            everywhere = list(releases.known())
            first, last = everywhere.index(good[0]), everywhere.index(good[-1])
            assert good == everywhere[first : last + 1], f"{kind} {form}: {good} is not one range"
            forms.setdefault(kind, {})[form] = [good[0], good[-1], 0]
    listed = []
    newest = releases.known()[-1]
    for kind, form, first, world in LAUNCHED:
        forms.setdefault(kind, {})[form] = [first, newest, 0]
        if world:
            forms[kind][form][2] |= 1 << len(listed)
            listed.append({"torch": TORCH, "world": world})
    for form, world in (("device=cpu", 2),):
        forms["measure"][form][2] |= 1 << len(listed)
        listed.append({"torch": TORCH, "world": world})
    forms["manifest"]["form=only"][2] |= 1 << len(listed)
    listed.append({"torch": TORCH, "world": 1})
    for scenario in runs():
        for form in scenario.forms:
            entry = forms[scenario.kind].setdefault(form, ["2.13", "2.13", 0])
            entry[2] |= 1 << len(listed)
        version = TRANSFORMERS[scenario.spec.implementation]
        listed.append({"torch": TORCH, "world": scenario.world, "transformers": version})
    return {
        "runs": listed,
        "forms": {
            kind: {form: [first, last, f"{bits:x}"] for form, (first, last, bits) in sorted(entries.items())}
            for kind, entries in sorted(forms.items())
        },
    }


def text(record: dict[str, Any]) -> str:
    """The file's text: one form a line, so that a change is one line."""
    lines = ["{", ' "runs": [']
    lines.append(",\n".join(f"  {json.dumps(run)}" for run in record["runs"]))
    lines += [" ],", ' "forms": {']
    kinds = []
    for kind, entries in record["forms"].items():
        body = ",\n".join(f"   {json.dumps(form)}: {json.dumps(entry)}" for form, entry in entries.items())
        kinds.append(f"  {json.dumps(kind)}: {{\n{body}\n  }}")
    lines += [",\n".join(kinds), " }", "}", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    content = text(expected())
    if sys.argv[1:] == ["write"]:
        FILE.write_text(content, encoding="utf-8")
    elif FILE.read_text(encoding="utf-8") != content:
        sys.exit("data/record.json differs from what the snippets and the index give; run with: write")
