"""Build data/patterns.json from knowledge/patterns/*.py: the code, and in which releases it can be shown.

    python scripts/build_patterns.py [--check]

Each file starts with a comment block, ``# /// pattern`` to ``# ///``, that holds TOML. The code after it is parsed, and every
name, method and keyword that it uses is compared with the API index of every release (a header's ``since`` says from when on
something works that names alone cannot show). Nothing is executed here: the test
that a header names does that. `--check` compares with what is in the tree and writes nothing.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import tomllib  # type: ignore[import-not-found]

KNOWLEDGE = Path(__file__).parent.parent / "src" / "shardguide" / "knowledge"
sys.path.insert(0, str(KNOWLEDGE.parent.parent))

from shardguide.knowledge import pattern_store, releases  # noqa: E402
from shardguide.knowledge.lines import render  # noqa: E402
from shardguide.knowledge.snippets.verify import problems  # noqa: E402

FIELDS = {
    "id",
    "title",
    "topics",
    "follows",
    "departs",
    "architecture",
    "form",
    "test",
    "processes",
    "not_run",
    "own",
    "since",
    "run",
    "before",
}
FORMS = ("fsdp2", "fsdp1", "ddp", "c10d")
ARCHITECTURES = ("", "transformer", "moe", "vision", "multi-tower", "tied")
RUN_ON = "2.13.0"
LONGEST = 80  # lines of code that are still a snippet


class Wrong(Exception):
    """A pattern that cannot be built."""


def read(path: Path) -> tuple[dict[str, Any], str]:
    """The header and the code of a pattern's file."""
    first, *lines = path.read_text(encoding="utf-8").split("\n")
    if first != "# /// pattern" or "# ///" not in lines:
        raise Wrong("does not start with # /// pattern … # ///")
    end = lines.index("# ///")
    header = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[:end])
    try:
        fields = tomllib.loads(header)
    except tomllib.TOMLDecodeError as error:
        raise Wrong(f"header: {error}") from None
    return fields, "\n".join(lines[end + 1 :]).strip("\n") + "\n"


def spelled(code: str, before: dict[str, dict[str, str]], release: str) -> str:
    """The code as a release spells it, by the product's own rule."""
    changes = tuple((bound, tuple(pairs.items())) for bound, pairs in before.items())
    blank = pattern_store.Pattern("", "", (), "", "", (), "", "", "", "", (), changes, code)
    return pattern_store.code_for(blank, release)


def one(path: Path, topics: set[str]) -> tuple[str, dict[str, Any], list[str]]:
    """Id, entry, and why it is not offered for the reference release (empty if it is)."""
    header, code = read(path)
    name = header.get("id", "")
    if name.replace("-", "_") != path.stem:
        raise Wrong(f"its id {name!r} is not its file's name")
    if set(header) - FIELDS or not {"id", "title", "topics", "follows", "form"} <= set(header):
        raise Wrong(f"fields {sorted(set(header) ^ FIELDS)} are unknown or missing")
    if header["form"] not in FORMS or header.get("architecture", "") not in ARCHITECTURES:
        raise Wrong(f"form or architecture is not one of {FORMS}, {ARCHITECTURES}")
    if bool(header.get("test")) == bool(header.get("not_run")):
        raise Wrong("either a test runs it, or not_run says why none can")
    unknown = sorted(set(header["topics"]) - topics) if topics else []
    if unknown or not header["topics"]:
        raise Wrong(f"there is no topic {unknown}")
    for text in [*header.get("run", {}), *(new for pairs in header.get("before", {}).values() for new in pairs)]:
        if text not in code:
            raise Wrong(f"nothing to replace: {text!r} does not stand in the code")
    if code.count("\n") > LONGEST and not name.endswith(("full-loop", "full-script")):
        raise Wrong(f"{code.count(chr(10))} lines are no snippet any more")
    own = frozenset(header.get("own", ()))
    offered, why = [], []
    for release in releases.known():
        try:
            tree = ast.parse(spelled(code, header.get("before", {}), release))
        except SyntaxError as error:
            raise Wrong(f"does not parse: {error}") from None
        found = problems(tree, release, own)
        if "since" in header and not releases.within(release, f"{header['since']}-{releases.NEWEST}"):
            continue  # what names and keywords cannot show, such as an argument's new form: the header says from when on
        if not found:
            offered.append(release)
        elif release == "2.13":
            why = found
    processes = header.get("processes", 1)
    entry = {
        "title": header["title"],
        "topics": header["topics"],
        "form": header["form"],
        "architecture": header.get("architecture", ""),
        "follows": header["follows"],
        "departs": header.get("departs", ""),
        "releases": releases.ranges(offered) if offered else "",
        "executed": f"{RUN_ON}, {processes} process{'es' if processes > 1 else ''}, Gloo, CPU"
        if header.get("test")
        else "",
        "not_run": header.get("not_run", ""),
        "run": header.get("run", {}),
        "before": header.get("before", {}),
        "code": code,
    }
    return name, entry, why


def build() -> tuple[str, list[str]]:
    """The text of data/patterns.json, and what is wrong."""
    topics = {path.stem for path in (KNOWLEDGE / "topics").glob("*.toml")}
    entries: dict[str, Any] = {}
    wrong: list[str] = []
    for path in sorted((KNOWLEDGE / "patterns").glob("*.py")):
        try:
            name, entry, why = one(path, topics)
        except Wrong as problem:
            wrong.append(f"{path.name}: {problem}")
            continue
        if why:
            wrong.append(f"{path.name}: not offered for 2.13: {'; '.join(why)}")
        entries[name] = entry
    by_topic: dict[str, list[str]] = {}
    by_architecture: dict[str, list[str]] = {}
    for name, entry in sorted(entries.items()):
        for topic in entry["topics"]:
            by_topic.setdefault(topic, []).append(name)
        if entry["architecture"]:
            by_architecture.setdefault(entry["architecture"], []).append(name)
    tables = {"@topics": dict(sorted(by_topic.items())), "@architectures": dict(sorted(by_architecture.items()))}
    return render({**tables, **dict(sorted(entries.items()))}), wrong


def main(arguments: list[str]) -> int:
    target = KNOWLEDGE / "data" / "patterns.json"
    text, wrong = build()
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
    if "--check" in arguments:
        same = target.is_file() and target.read_text(encoding="utf-8") == text
        print(
            "data/patterns.json is up to date" if same else "data/patterns.json differs: run scripts/build_patterns.py"
        )
        return 0 if same and not wrong else 1
    target.write_text(text, encoding="utf-8")
    for name, entry in json.loads(text).items():
        if not name.startswith("@"):
            print(f"{name:<40} {entry['releases']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
