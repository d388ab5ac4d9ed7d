"""Build data/rules.json and the table in docs/review.md from knowledge/rules/*.toml.

    python scripts/build_rules.py [--check]

Fails, naming the rule, when a field is missing or unknown, a claim does not exist, or the wrong example marks no line.
`--check` compares with what is in the tree and writes nothing.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import tomllib  # type: ignore[import-not-found]

KNOWLEDGE = Path(__file__).parent.parent / "src" / "shardguide" / "knowledge"
sys.path.insert(0, str(KNOWLEDGE.parent.parent))

from shardguide.knowledge import claims_store, releases  # noqa: E402
from shardguide.knowledge.lines import render  # noqa: E402
from shardguide.workflows.review.rules import AREAS  # noqa: E402

PAGE = KNOWLEDGE.parent.parent.parent / "docs" / "review.md"
START = "<!-- rules: written by scripts/build_rules.py -->"
END = "<!-- /rules -->"

FIELDS = {"code", "title", "message", "why", "fix", "certain", "releases", "claims", "wrong", "right"}
# file: what the examples are saved as; beside: other files of the examples; see: pages besides PyTorch's that bear it out.
# not_run: why no test makes the mistake for real.
OPTIONAL: dict[str, Any] = {"torch": "", "file": "train.py", "beside": {}, "see": [], "not_run": ""}


def one(path: Path, claims: set[str]) -> tuple[dict[str, Any], list[str]]:
    """The entry of a rule, and what is wrong with it."""
    source = tomllib.loads(path.read_text(encoding="utf-8"))
    wrong = []
    if set(source) - set(OPTIONAL) != FIELDS:
        wrong.append(f"fields {sorted((set(source) - set(OPTIONAL)) ^ FIELDS)} are unknown or missing")
        return {}, wrong
    if source["code"] != path.stem:
        wrong.append("its code is not its file's name")
    wrong += [f"there is no claim {claim}" for claim in source["claims"] if claim not in claims]
    if not source["claims"]:
        wrong.append("it rests on no claim")
    if f"# {path.stem}\n" not in source["wrong"] or f"# {path.stem}" in source["right"]:
        wrong.append("the wrong example marks the lines that are found, the right one none")
    if source["releases"] and not any(releases.within(name, source["releases"]) for name in releases.known()):
        wrong.append("releases name none that is known")
    wrong += [f"{field} is empty" for field in ("title", "message", "why", "fix") if not source[field].strip()]
    for example in ("wrong", "right") if source.get("file", "train.py").endswith(".py") else ():
        ast.parse(source[example])
    entry = {name: source.get(name, OPTIONAL.get(name)) for name in sorted({*FIELDS, *OPTIONAL} - {"code"})}
    return entry, wrong


def build() -> tuple[str, list[str]]:
    """The text of data/rules.json, and what is wrong."""
    claims = set(claims_store.ids())
    entries: dict[str, Any] = {}
    wrong: list[str] = []
    for path in sorted((KNOWLEDGE / "rules").glob("*.toml")):
        try:
            entries[path.stem], problems = one(path, claims)
        except (tomllib.TOMLDecodeError, SyntaxError) as error:
            problems = [str(error)]
        wrong += [f"{path.name}: {problem}" for problem in problems]
    # Which rules apply is asked before any of them is looked at.
    limited = {code: entry["releases"] for code, entry in entries.items() if entry.get("releases")}
    return render(entries | {"@releases": limited}), wrong


def page() -> str:
    """docs/review.md with its table of rules, as the rules of the tree give it."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(START)
    tail = rest.partition(END)[2]
    rows: list[str] = []
    for digit, title in AREAS.items():
        rules = [
            tomllib.loads(path.read_text(encoding="utf-8"))
            for path in sorted((KNOWLEDGE / "rules").glob(f"FSD{digit}*.toml"))
        ]
        if rules:
            rows += ["", f"### {title}", "", "| code | finds | releases | |", "|---|---|---|---|"]
        for rule in rules:
            kind = "" if rule["certain"] else "*suspicion*"
            name = rule["title"].replace("|", "\\|").replace("_", "\\_").replace("*", "\\*")
            rows.append(f"| {rule['code']} | {name} | {rule['releases'] or 'all'} | {kind} |")
    return f"{head}{START}\n" + "\n".join(rows).strip("\n") + f"\n\n{END}{tail}"


def main() -> int:
    """Build or compare."""
    text, wrong = build()
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    for target, made in ((KNOWLEDGE / "data" / "rules.json", text), (PAGE, page())):
        if "--check" not in sys.argv:
            target.write_text(made, encoding="utf-8")
        elif not target.exists() or target.read_text(encoding="utf-8") != made:
            print(f"{target.name} is not what the rules give; run scripts/build_rules.py", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
