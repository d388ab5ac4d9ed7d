"""List what PyTorch raises about sharded training, and which of it has a diagnosis.

    python scripts/count_errors.py WHEELS [--check] [--missing]

Reads the 2.13.0 sources in WHEELS (the folder that scripts/fetch_wheels.py filled) as syntax trees and imports nothing. Writes
tests/diagnose/raise_sites_2_13.jsonl, one line for each place that raises with a message of its own:

    {"file", "function", "line", "kind", "literal", "pieces", "user_facing", "reason", "diagnosis", "why_not"}

``literal`` is the longest piece of the message that stands in the source as it is printed; ``pieces`` are all of them. The
diagnosis is the one of data/diagnoses.json with a sign that one of the pieces contains; where none has, ``why_not`` says why.

What counts as user-facing (``reason`` says why a place does not):

1. It has words: a message without a literal piece of nine characters cannot be recognised by anybody. Where the message is a
   variable, the literals that the same function assigns to it are its words; helpers that raise what they are given
   (``_p_assert``, ``DistributedDataParallel._log_and_throw``, ...) count where they are called. Exceptions that are known by their
   name alone (errors_rules.NAMED) have that as their words.
2. A ValueError, RuntimeError, TypeError, KeyError, NotImplementedError or an error of PyTorch's own is user-facing, unless
   errors_rules.INTERNAL lists it: then nothing that a user passes reaches it, or only the authors of operators, back ends
   and planners meet it.
3. An AssertionError checks the code's own state and is internal, unless errors_rules.REACHED lists it: then something that a
   user does leads to it.
4. A warning counts only where it announces a wrong result: errors_rules.WARNS.
5. A method that does nothing but raise NotImplementedError waits for a subclass and is internal.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from errors_rules import INTERNAL, NAMED, PACKAGES, REACHED, WARNS, WHY_NOT

RELEASE = "2.13.0"
ROOT = Path(__file__).parent.parent
DIAGNOSES = ROOT / "src" / "shardguide" / "knowledge" / "data" / "diagnoses.json"
TABLE = ROOT / "tests" / "diagnose" / "raise_sites_2_13.jsonl"
# Functions that raise what they are given, and which of their arguments is the message.
HELPERS = {"_p_assert": 1, "_log_and_throw": 1, "_raise_assert_with_print": 0}
# Functions that build the exception, with what they put before the message.
BUILDERS = {"_error": "", "_env_error": "environment variable \0 expected, but not set"}
SHORTEST = 9


def package_of(file: str) -> str:
    """The package a file is counted under; "" for none."""
    return next((name for name, prefixes in PACKAGES if any(file.startswith(one) for one in prefixes)), "")


def text_of(node: ast.AST, names: dict[str, list[str]]) -> str:
    """A message as far as the source shows it, with NUL for what is filled in at run time."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "\0"
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value, names) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        # A name that is filled in keeps the words that it was assigned.
        inner = node.value
        return "".join(names.get(inner.id, ["\0"])) if isinstance(inner, ast.Name) else "\0"
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Mod):
            return text_of(node.left, names).replace("%s", "\0").replace("%d", "\0")
        return text_of(node.left, names) + text_of(node.right, names)
    if isinstance(node, ast.Name):
        return "\0".join(names.get(node.id, ["\0"]))
    if isinstance(node, ast.IfExp):
        return text_of(node.body, names) + "\0" + text_of(node.orelse, names)
    if isinstance(node, ast.Call):
        inside = [text_of(one, names) for one in node.args]
        if isinstance(node.func, ast.Attribute):
            inside.insert(0, text_of(node.func.value, names))
        return "\0".join(inside) or "\0"
    if isinstance(node, (ast.Tuple, ast.List)):
        return "\0".join(text_of(one, names) for one in node.elts)
    return "\0"


def pieces_of(text: str) -> list[str]:
    """The pieces of a message that are printed as they stand, each on one line."""
    text = text.replace("{}", "\0").replace("%s", "\0").replace("%d", "\0")
    pieces = [piece.strip() for line in text.split("\n") for piece in line.split("\0")]
    return [piece for piece in dict.fromkeys(pieces) if len(piece) >= SHORTEST]


def assigned(function: ast.AST) -> dict[str, list[str]]:
    """The literal words that a function (or a module) assigns to each of its names."""
    out: dict[str, list[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.AugAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                words = text_of(node.value, {})
                if isinstance(target, ast.Name) and words.strip("\0 "):
                    out.setdefault(target.id, []).append(words)
    return out


def only_raises(function: ast.AST) -> bool:
    """Whether a method has no body but its raise."""
    body = [
        one
        for one in getattr(function, "body", [])
        if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
    ]
    return len(body) == 1 and isinstance(body[0], ast.Raise)


def sites(tree: ast.Module) -> Iterator[tuple[int, str, str, str, bool]]:
    """Line, function, kind, text and whether it stands for a subclass, for everything that a file raises."""
    outer = assigned(ast.Module(body=[one for one in tree.body if isinstance(one, ast.Assign)], type_ignores=[]))

    def walk(node: ast.AST, name: str, names: dict[str, list[str]], waits: bool) -> Iterator[Any]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inner = {**outer, **(names if names is not outer else {}), **assigned(child)}
                yield from walk(child, f"{name}.{child.name}".strip("."), inner, only_raises(child))
                continue
            if isinstance(child, ast.ClassDef):
                yield from walk(child, f"{name}.{child.name}".strip("."), outer, False)
                continue
            if isinstance(child, ast.Raise) and child.exc is not None:
                kind, text = raised(child.exc, names)
                if name.rpartition(".")[2] not in HELPERS and name.rpartition(".")[2] not in BUILDERS:
                    yield child.lineno, name, kind, text, waits
            elif isinstance(child, ast.Assert) and child.msg is not None:
                yield child.lineno, name, "AssertionError", text_of(child.msg, names), False
            elif isinstance(child, ast.Call):
                called = child.func.attr if isinstance(child.func, ast.Attribute) else getattr(child.func, "id", "")
                if called in HELPERS and len(child.args) > HELPERS[called]:
                    kind = ast.unparse(child.args[0]) if called == "_log_and_throw" else "AssertionError"
                    yield child.lineno, name, kind, text_of(child.args[HELPERS[called]], names), False
                elif called in ("warn", "warning", "warning_once", "warn_once") and child.args:
                    text = "\0".join(text_of(one, names) for one in child.args)
                    yield child.lineno, name, "warning", text, False
            yield from walk(child, name, names, waits)

    yield from walk(tree, "", outer, False)


def raised(exc: ast.expr, names: dict[str, list[str]]) -> tuple[str, str]:
    """Kind and text of what is raised."""
    if not isinstance(exc, ast.Call):
        return ast.unparse(exc), ""
    called = ast.unparse(exc.func)
    short = called.rpartition(".")[2]
    texts = [text_of(one, names) for one in exc.args]
    if short in BUILDERS:
        return "ValueError", BUILDERS[short] + "\0".join(texts)
    return short, "\0".join(texts)


def judged(file: str, function: str, kind: str, pieces: list[str], waits: bool) -> str:
    """Why a place is not user-facing; "" where it is."""
    if not pieces:
        return "without words of its own: what it says is put together or passed on at run time"
    if waits and kind == "NotImplementedError":
        return "waits for a subclass"
    whole = "\n".join(pieces)
    if kind == "warning":
        return "" if any(words in whole for words in WARNS) else "a warning that announces no wrong result"
    if kind == "AssertionError":
        reached = any(file.startswith(prefix) and words in whole for prefix, words in REACHED)
        return "" if reached else "checks the code's own state; nothing that a user passes leads to it"
    for prefix, words, reason in INTERNAL:
        if file.startswith(prefix) and (words in whole or (words.endswith("()") and function.endswith(words[:-2]))):
            return str(reason)
    return ""


def diagnosed(pieces: list[str], signs: list[tuple[str, str, int]]) -> str:
    """The diagnosis with a sign in one of the pieces: of several the one with the longest words and the fewest conditions."""
    found = [(-len(text), conditions, name) for text, name, conditions in signs if any(text in one for one in pieces)]
    return min(found)[2] if found else ""


def signs_of(diagnoses: Path) -> list[tuple[str, str, int]]:
    """Words, diagnosis and number of conditions of every sign in data/diagnoses.json."""
    out = []
    for name, entry in json.loads(diagnoses.read_text(encoding="utf-8")).items():
        if name.startswith("@") or entry["kind"] == "cascade":
            continue
        conditions = len(entry["all"]) + len(entry["unless"])
        out += [(sign["text"], name, conditions + bool(sign["where"])) for sign in entry["signs"]]
    return out


def table(wheels: Path, diagnoses: Path = DIAGNOSES) -> list[dict[str, Any]]:
    """All places, in the order of their files."""
    sources = wheels / RELEASE
    signs = signs_of(diagnoses)
    rows = []
    for path in sorted((sources / "torch").rglob("*.py")):
        file = path.relative_to(sources).as_posix()
        if not package_of(file):
            continue
        seen: set[tuple[int, str]] = set()
        for line, function, kind, text, waits in sorted(sites(ast.parse(path.read_text(encoding="utf-8")))):
            pieces = pieces_of(text) or ([NAMED[kind]] if kind in NAMED else [])
            if (line, kind) in seen:
                continue
            seen.add((line, kind))
            reason = judged(file, function, kind, pieces, waits)
            diagnosis = "" if reason else diagnosed(pieces, signs)
            why = (
                "" if reason or diagnosis else next((w for f, t, w in WHY_NOT if file.startswith(f) and t in text), "")
            )
            rows.append({
                "file": file, "function": function, "line": line, "kind": kind,
                "literal": max(pieces, key=len, default=""), "pieces": pieces, "user_facing": not reason,
                "reason": reason, "diagnosis": diagnosis, "why_not": why,
            })  # fmt: skip
    return rows


def shares(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int, int]]:
    """All places, user-facing ones and those with a diagnosis, for each package."""
    out: dict[str, tuple[int, int, int]] = {}
    for row in rows:
        name = package_of(row["file"])
        places, facing, covered = out.get(name, (0, 0, 0))
        out[name] = (places + 1, facing + row["user_facing"], covered + bool(row["diagnosis"]))
    return out


def main(arguments: list[str]) -> int:
    folders = [Path(one) for one in arguments if not one.startswith("-")]
    if len(folders) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    rows = table(folders[0])
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    for name, (places, facing, covered) in shares(rows).items():
        print(
            f"{name:24} {places:5} places {facing:5} user-facing {covered:5} diagnosed {100 * covered / max(facing, 1):6.1f} %"
        )
    if "--missing" in arguments:
        for row in rows:
            if row["user_facing"] and not row["diagnosis"]:
                print(f"{row['file']}:{row['line']} {row['kind']} {row['pieces']} {row['why_not']}")
    if "--check" in arguments:
        same = TABLE.is_file() and TABLE.read_text(encoding="utf-8") == text
        print("the table is up to date" if same else "the table differs: run scripts/count_errors.py")
        return 0 if same else 1
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
