"""Build data/topics.json from knowledge/topics/*.toml.

    python scripts/build_topics.py [--check]

Fails, naming the topic, when a page names a claim, a topic or a name of the API that does not exist, or when a claim stands
on no page at all. Run it after scripts/build_claims.py. `--check` compares with what is in the tree and writes nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tomllib  # type: ignore[import-not-found]

KNOWLEDGE = Path(__file__).parent.parent / "src" / "shardguide" / "knowledge"
sys.path.insert(0, str(KNOWLEDGE.parent.parent))

from shardguide.knowledge import api, claims_store  # noqa: E402
from shardguide.knowledge.lines import render  # noqa: E402

GROUPS = (
    "FSDP, ideas",
    "FSDP, building it",
    "FSDP1",
    "Checkpoints",
    "DDP and uneven inputs",
    "Process groups",
    "Backends",
    "Launching and debugging",
)
FIELDS = {"id", "title", "group", "subjects", "answer", "see", "api", "workflow", "section"}
WORKFLOWS = ("", "plan", "tune", "join", "backend", "init", "fsdp2", "diagnose", "review", "migrate")


def one(path: Path, have: set[str], claims: set[str]) -> tuple[dict[str, Any], list[str]]:
    """The entry of a topic, and what is wrong with it."""
    source = tomllib.loads(path.read_text(encoding="utf-8"))
    wrong = []
    if source.get("id") != path.stem:
        wrong.append("its id is not its file's name")
    if set(source) - FIELDS or not {"title", "group", "answer"} <= set(source):
        wrong.append(f"fields {sorted(set(source) ^ FIELDS)} are unknown or missing")
    if source.get("group") not in GROUPS or source.get("workflow", "") not in WORKFLOWS:
        wrong.append("unknown group or workflow")
    sections = [[section["title"], section["claims"]] for section in source.get("section", [])]
    named = [*source.get("answer", ()), *(claim for _, of in sections for claim in of)]
    wrong += [f"there is no claim {claim}" for claim in named if claim not in claims]
    wrong += [f"claim {claim} stands twice" for claim in sorted(set(named)) if named.count(claim) > 1]
    wrong += [f"there is no topic {topic}" for topic in source.get("see", ()) if topic not in have]
    wrong += [f"{name} is not in the API index" for name in source.get("api", ()) if name not in api.names()]
    if not 1 <= len(source.get("answer", ())) <= 4:
        wrong.append("an answer is one to four claims")
    entry = {
        "title": source.get("title", ""),
        "group": source.get("group", ""),
        "subjects": source.get("subjects", []),
        "answer": source.get("answer", []),
        "sections": sections,
        "see": source.get("see", []),
        "api": source.get("api", []),
        "workflow": source.get("workflow", ""),
    }
    return entry, wrong


def build() -> tuple[str, list[str]]:
    """The text of data/topics.json, and what is wrong."""
    claims = set(claims_store.ids())
    paths = sorted((KNOWLEDGE / "topics").glob("*.toml"))
    have = {path.stem for path in paths}
    entries: dict[str, Any] = {}
    wrong: list[str] = []
    for path in paths:
        try:
            entries[path.stem], problems = one(path, have, claims)
        except (tomllib.TOMLDecodeError, KeyError) as error:
            problems = [str(error)]
        wrong += [f"{path.name}: {problem}" for problem in problems]
    entries = {name: entry for name, entry in entries.items() if entry["group"] in GROUPS}
    order = sorted(entries, key=lambda name: (GROUPS.index(entries[name]["group"]), entries[name]["title"].lower()))
    pages: dict[str, list[str]] = {}
    for name in order:
        entry = entries[name]
        for claim in [*entry["answer"], *(claim for _, of in entry["sections"] for claim in of)]:
            pages.setdefault(claim, []).append(name)
    wrong += [f"claim {claim} stands on no page" for claim in sorted(claims - set(pages))]
    tables = {
        "@titles": {name: [entries[name]["group"], entries[name]["title"]] for name in order},
        "@claims": dict(sorted(pages.items())),
    }
    return render({**tables, **{name: entries[name] for name in order}}), wrong


def main(arguments: list[str]) -> int:
    target = KNOWLEDGE / "data" / "topics.json"
    text, wrong = build()
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
    if "--check" in arguments:
        same = target.is_file() and target.read_text(encoding="utf-8") == text
        print("data/topics.json is up to date" if same else "data/topics.json differs: run scripts/build_topics.py")
        return 0 if same and not wrong else 1
    target.write_text(text, encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
