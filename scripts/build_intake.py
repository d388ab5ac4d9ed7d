"""Builds ``knowledge/data/intake.json`` from ``knowledge/intake/*.toml``: how words lead to a workflow and what they state.

usage: build_intake.py [--check]
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import tomllib  # type: ignore[import-not-found]

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge.hardware.links import inter_link, intra_link
from shardguide.knowledge.hardware.memory import parse_memory
from shardguide.knowledge.hardware.table import find, narrow
from shardguide.workflows import catalogue

ROOT = Path(__file__).resolve().parents[1] / "src" / "shardguide" / "knowledge"
TARGET = ROOT / "data" / "intake.json"


def build() -> str:
    """The file's text. Raises ValueError, with the entry, for one that cannot be used."""
    cues: list[list[object]] = []
    states: list[list[object]] = []
    notes: list[list[object]] = []
    found = {
        path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "intake").glob("*.toml"))
    }
    for one in found["cues"]["cue"]:
        _known(one["task"])
        re.compile(one["pattern"])
        cues.append([one["task"], one["weight"], one["pattern"], bool(one.get("case", False))])
    for one in found["cues"]["state"]:
        _state(one)
        states.append([one["task"], one["field"], one["value"], one["pattern"], bool(one.get("many", False))])
    for one in found["cues"].get("note", ()):
        for task in one["tasks"]:
            _known(task)
        re.compile(one["pattern"])
        notes.append([one["tasks"], one["pattern"], one["text"]])
    hardware = _hardware(found["hardware"], found["machines"])
    families = found["models"]["families"]
    re.compile(families)
    data = {"cues": cues, "states": states, "notes": notes, "hardware": hardware, "families": families}
    return json.dumps(data, indent=0, ensure_ascii=False) + "\n"


def _known(task: str) -> None:
    if task not in catalogue.TASKS:
        raise ValueError(f"there is no workflow {task!r}")


def _state(one: dict[str, Any]) -> None:
    """A value must be one that the field itself takes; one with groups, for the example."""
    task, name, value = one["task"], one["field"], one["value"]
    pattern = re.compile(one["pattern"], re.IGNORECASE)
    if "\\g<" in value:
        match = pattern.search(one["example"])
        if match is None:
            raise ValueError(f"the pattern of {task}.{name} does not fit its example {one['example']!r}")
        value = match.expand(value)
    _known(task)
    fields = {field.name: field for field in catalogue.TASKS[task].fields()}
    if name in fields:
        fields[name].parse(value)
    elif name not in catalogue.TASKS[task].more:
        raise ValueError(f"{task} has no field {name!r}")


def _hardware(words: dict[str, Any], machines: dict[str, Any]) -> dict[str, Any]:
    for one in words["word"]:
        re.compile(one["pattern"])
    rows = []
    seen: set[str] = set()
    for one in machines["machine"]:
        name = one["names"][0]
        if seen & set(one["names"]):
            raise ValueError(f"{name} stands there twice")
        seen |= set(one["names"])
        _machine(name, one)
        source = machines["source"][one["source"]]
        machines["source"][one.get("intra_source", one["source"])]  # it must be there
        kept = {key: one[key] for key in ("names", "gpu", "memory", "gpus", "nodes", "inter", "intra") if key in one}
        rows.append({**kept, "title": source["title"], "url": source["url"]})
    return {
        "numbers": words["numbers"],
        "signs": words["signs"],
        "words": [
            {"kind": one["kind"], "joined": one.get("joined", False), "pattern": one["pattern"]}
            for one in words["word"]
        ],
        "forms": _forms(words),
        "gpus": words["gpus"],
        "plain": words["plain"]["words"],
        "machines": rows,
    }


def _forms(words: dict[str, Any]) -> list[list[object]]:
    forms: list[list[object]] = []
    for one in words["form"]:
        if re.compile(one["form"]).groups != len(one["means"]) or not set(one["means"]) <= set(words["counts"]):
            raise ValueError(
                f"the form {one['form']!r} has not as many groups as meanings, or other ones than [counts]"
            )
        forms.append([one["form"], one["means"]])
    return forms


def _machine(name: str, one: dict[str, Any]) -> None:
    """Its GPU, link and network must be known by these names, and the memory be one that the GPU has."""
    rows = find(one["gpu"], every=True)
    if not rows:
        raise ValueError(f"{name}: no GPU {one['gpu']!r} is in the table")
    if "memory" in one and not narrow(rows, parse_memory(one["memory"])):
        raise ValueError(f"{name}: {one['gpu']} has no {one['memory']}")
    if not one["says"] or not 1 <= one["gpus"] <= 1024:
        raise ValueError(f"{name}: what its source says is missing")
    try:
        inter_link(one.get("inter", "none"))
        intra_link(one.get("intra", "none"))
    except UnusableInput as error:
        raise ValueError(f"{name}: {error}") from None


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
