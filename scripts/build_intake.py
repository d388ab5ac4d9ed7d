"""Builds ``knowledge/data/intake.json`` from ``knowledge/intake/*.toml``: how words lead to a workflow and what they state.

usage: build_intake.py [--check]
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import tomllib  # type: ignore[import-not-found]

from shardguide.workflows import catalogue

ROOT = Path(__file__).resolve().parents[1] / "src" / "shardguide" / "knowledge"
TARGET = ROOT / "data" / "intake.json"


def build() -> str:
    """The file's text. Raises ValueError, with the entry, for one that cannot be used."""
    cues: list[list[object]] = []
    states: list[list[object]] = []
    for path in sorted((ROOT / "intake").glob("*.toml")):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        for one in data.get("cue", ()):
            _known(one["task"])
            re.compile(one["pattern"])
            cues.append([one["task"], one["weight"], one["pattern"], bool(one.get("case", False))])
        for one in data.get("state", ()):
            _field(one["task"], one["field"], one["value"])
            re.compile(one["pattern"])
            states.append([one["task"], one["field"], one["value"], one["pattern"], bool(one.get("many", False))])
    return json.dumps({"cues": cues, "states": states}, indent=0, ensure_ascii=False) + "\n"


def _known(task: str) -> None:
    if task not in catalogue.TASKS:
        raise ValueError(f"there is no workflow {task!r}")


def _field(task: str, name: str, value: str) -> None:
    """A value must be one that the field itself takes."""
    _known(task)
    fields = {field.name: field for field in catalogue.TASKS[task].fields()}
    if name in fields:
        fields[name].parse(value)
    elif name not in catalogue.TASKS[task].more:
        raise ValueError(f"{task} has no field {name!r}")


def main() -> int:
    text = build()
    if "--check" in sys.argv:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
            print(f"{TARGET.name} is out of date: run scripts/build_intake.py", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
