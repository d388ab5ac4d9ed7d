"""Puts mistakes into correct programs, has them reviewed, and says which were found.

    python scripts/seed_mistakes.py [--seed 5] [--number 100] [--all] [--public FOLDER] [--misses FILE]

The mistakes are those of tests/review/mistakes.toml; the programs are the FSDP1 programs of tests/migrate, their migrated forms, and
tests/review/seeds. Every kind is put in once, and the rest of the number is drawn at random. A mistake is found if
``review`` names it, by a rule that speaks of this kind, at the place where it was put. With a folder of public repositories
(examples, fms-fsdp) mistakes are put into some of their files as well.
"""

from __future__ import annotations

import argparse
import difflib
import random
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import tomllib  # type: ignore[import-not-found]

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))
TABLE = ROOT / "tests" / "review" / "mistakes.toml"
PROGRAMS = ROOT / "tests" / "migrate" / "programs"
SEEDS = ROOT / "tests" / "review" / "seeds"
RELEASE = "2.13"

Texts = dict[str, str]  # the files of a program by name


class Seeded(NamedTuple):
    """One mistake in one program."""

    row: str
    what: str
    program: str
    codes: tuple[str, ...]  # the rules that speak of this kind
    texts: Texts
    lines: frozenset[tuple[str, int]]  # file and line at which a finding counts
    change: str  # as a diff


class Found(NamedTuple):
    """What review said of one program."""

    code: str
    file: str
    line: int
    certain: bool


def kinds() -> list[dict[str, Any]]:
    """The kinds of mistakes."""
    with TABLE.open("rb") as file:
        return list(tomllib.load(file)["kind"])


def programs(public: Path | None = None) -> dict[str, Texts]:
    """All programs by the names that the table uses."""
    made: dict[str, Texts] = {}
    for path in sorted(PROGRAMS.iterdir()):
        if path.suffix == ".py":
            made[f"programs/{path.stem}"] = {path.name: path.read_text()}
        elif path.is_dir() and (path / "train.py").exists():
            made[f"programs/{path.name}"] = {file.name: file.read_text() for file in sorted(path.glob("*.py"))}
    for name, texts in list(made.items()):
        made[name.replace("programs/", "migrated/")] = migrated(texts)
    for path in sorted(SEEDS.glob("*.py")):
        made[f"seeds/{path.stem}"] = {path.name: path.read_text()}
    for name in {name.partition(":")[0] for *_, name in places() if public and name.startswith("public/")}:
        folder = public / name.removeprefix("public/")  # type: ignore[operator]
        if folder.is_dir():
            files = sorted(folder.rglob("*.py"))
            made[name] = {str(file.relative_to(folder)): file.read_text(errors="replace") for file in files}
    return made


def places(correct: dict[str, Texts] | None = None) -> list[tuple[dict[str, Any], dict[str, Any], str]]:
    """Every mistake with every program that the table names for it (and that is there)."""
    return [
        (kind, seed, name)
        for kind in kinds()
        for seed in kind["seed"]
        for name in seed["in"]
        if correct is None or fits(seed, name, correct)
    ]


def fits(seed: dict[str, Any], name: str, correct: dict[str, Texts]) -> bool:
    """Whether the program is there and, for what a migration wrote (which may change), whether the places to change are."""
    program, _, file = name.partition(":")
    if program not in correct or not name.startswith("migrated/"):
        return program in correct
    texts = correct[program]
    text = texts[f"{file}.py" if file else next(iter(texts))]
    return all(re.search(find, text, re.MULTILINE) for find, _ in seed["change"])


def migrated(texts: Texts) -> Texts:
    """A program in its FSDP2 form."""
    from shardguide.code.migrate.engine import migrate

    with tempfile.TemporaryDirectory() as folder:
        written(texts, folder)
        changes = {Path(one.path).name: one.after for one in migrate((folder,), RELEASE).changes}
    return texts | changes


def reviewed(texts: Texts) -> list[Found]:
    """The findings in a program."""
    from shardguide.code.review.engine import review
    from shardguide.knowledge import rule_store

    with tempfile.TemporaryDirectory() as folder:
        written(texts, folder)
        result = review((folder,), RELEASE, frozenset(rule_store.codes()))
        found = [(one, str(Path(one.path).relative_to(folder))) for one in result.findings]
    if result.problems:
        raise SystemExit(f"review could not read {result.problems}")
    return [Found(one.code, file, one.line, one.certain) for one, file in found]


def written(texts: Texts, folder: str) -> None:
    """The files of a program, written into a folder."""
    for name, text in texts.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def put(kind: dict[str, Any], seed: dict[str, Any], name: str, correct: dict[str, Texts]) -> Seeded:
    """One mistake put into one program."""
    program, _, file = name.partition(":")
    texts = correct[program]
    file = f"{file}.py" if file else next(iter(texts))
    before = text = texts[file]
    for find, replace in seed["change"]:
        text, count = re.subn(find, replace, text, count=1, flags=re.MULTILINE)
        if not count:
            raise SystemExit(f"{kind['row']}: {find!r} is not in {name}")
    compile(text, file, "exec")
    lines = {(file, line) for line in changed(before, text)}
    new = texts | {file: text}
    for pattern in seed.get("also", ()):
        hits = {
            (one, number)
            for one, body in new.items()
            for number, line in enumerate(body.split("\n"), 1)
            if re.search(pattern, line)
        }
        if not hits:
            raise SystemExit(f"{kind['row']}: nothing like {pattern!r} in {name}")
        lines |= hits
    diff = "\n".join(difflib.unified_diff(before.split("\n"), text.split("\n"), lineterm="", n=2))
    return Seeded(kind["row"], kind["what"], name, tuple(kind.get("codes", ())), new, frozenset(lines), diff)


def changed(before: str, after: str) -> set[int]:
    """The lines of ``after`` that are new, and those on both sides of lines that are gone."""
    old, new = before.split("\n"), after.split("\n")
    lines: set[int] = set()
    for kind, _, _, first, last in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind in ("insert", "replace"):
            lines.update(range(first + 1, last + 1))
        elif kind == "delete":
            lines.update((first, first + 1))
    return lines


def draw(number: int, seed: int, correct: dict[str, Texts]) -> list[Seeded]:
    """``number`` mistakes: one of every kind, the others at random."""
    chance = random.Random(seed)
    first, others = [], []
    all_places = places(correct)
    for what in dict.fromkeys(kind["what"] for kind, *_ in all_places):
        mine = [one for one in all_places if one[0]["what"] == what]
        chance.shuffle(mine)
        first.append(mine[0])
        others.extend(mine[1:])
    chance.shuffle(others)
    if number < len(first):
        first = chance.sample(first, number)
    return [put(*one, correct) for one in first + others[: number - len(first)]]


def found(one: Seeded) -> tuple[bool, list[Found]]:
    """Whether a mistake is found, and everything that review says of the program."""
    findings = reviewed(one.texts)
    hit = any(finding.code in one.codes and (finding.file, finding.line) in one.lines for finding in findings)
    return hit, findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--all", action="store_true", help="every mistake in every program that the table names")
    parser.add_argument("--public", type=Path, help="a folder that holds public repositories")
    parser.add_argument("--misses", type=Path, help="write what was missed to this file, with the diffs")
    args = parser.parse_args()
    correct = programs(args.public)
    ours = {name: texts for name, texts in correct.items() if not name.startswith("public/")}
    wrong = {name: findings for name, texts in ours.items() if (findings := reviewed(texts))}
    whole = args.all
    mistakes = [put(*one, correct) for one in places(correct)] if whole else draw(args.number, args.seed, correct)
    table: dict[tuple[str, str], list[bool]] = {}
    missed = []
    for one in mistakes:
        hit, findings = found(one)
        table.setdefault((one.row, one.what), []).append(hit)
        if not hit:
            missed.append((one, findings))
    for (row, what), hits in table.items():
        print(f"{row}  {sum(hits)}/{len(hits)}  {what}")
    print(f"{len(mistakes)} mistakes of {len(table)} kinds, {len(mistakes) - len(missed)} found")
    for name, findings in wrong.items():
        print(f"correct, but: {name}: {', '.join(f'{one.file}:{one.line} {one.code}' for one in findings)}")
    if args.misses:
        with args.misses.open("w") as file:
            for one, findings in missed:
                said = ", ".join(f"{finding.file}:{finding.line} {finding.code}" for finding in findings) or "nothing"
                file.write(f"## {one.row} in {one.program}: {one.what} (rules: {', '.join(one.codes) or 'none'})\n")
                file.write(f"review says: {said}\n{one.change}\n\n")
            for name, findings in wrong.items():
                for finding in findings:
                    file.write(f"## false alarm: {name}: {finding.file}:{finding.line} {finding.code}\n")
    return 1 if missed or wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
