"""One review: files in, findings out."""

from __future__ import annotations

import ast
from collections.abc import Callable

from shardguide.guidance.hints import NamedTuple

from .checks import AllChecks
from .checks.api import api_findings
from .project import Definition, File, Project, collect
from .records import Finding, Problem
from .state import Facts
from .torch_names import INTERESTING
from .walk import Walker

# Libraries that set processes, devices and samplers up themselves: what a script lacks, they may do.
_TRAINERS = (
    "accelerate.Accelerator",
    "lightning",
    "pytorch_lightning",
    "deepspeed",
    "transformers.Trainer",
    "composer",
    "ray",
)


class Result(NamedTuple):
    """What a review found."""

    findings: tuple[Finding, ...]  # by path, line, column and code
    problems: tuple[Problem, ...]
    files: int
    lines: int
    suppressed: int


def review(paths: tuple[str, ...], release: str, applies: frozenset[str]) -> Result:
    """Read files and folders as one project. ``applies``: codes of the rules that are wanted; ``release``: "" if unknown."""
    names, problems = collect(paths)
    project = Project()
    for name in names:
        project.add(name)
    found = _followed(project)
    if release:
        found.extend(api_findings(project, release))
    kept, suppressed = _kept(project, found, applies)
    return Result(tuple(kept), (*problems, *project.problems), len(names), project.read, suppressed)


def _followed(project: Project) -> list[Finding]:
    facts: Facts = {}
    checks = AllChecks()
    follow = _interesting(project)
    walker = Walker(project, checks, facts, follow)
    for file in project.files:
        if any(full.startswith(_TRAINERS) or full == "accelerate" for full in file.imports.values()):
            facts.setdefault("elsewhere", []).append((file, file.tree))
            facts.setdefault("trainer", []).append((file, file.tree))
        if "__main__" in file.text:
            facts.setdefault("script", []).append((file, file.tree))
        _follow(walker, file, walker.module, file)
    called = _called(project)
    for late in (False, True):  # functions that nobody calls first: they give the others their arguments
        for file in project.files:
            for node in file.functions.values():
                if node in follow and node not in walker.seen and (late or node.name not in called):
                    _follow(walker, file, walker.function, Definition(file, node))
            for owner in file.classes.values():
                if owner in walker.seen or not (late or owner.name not in called):
                    continue
                if any(item in follow for item in owner.body):
                    _follow(walker, file, walker.whole_class, file, owner)
                    walker.seen.add(owner)
    walker.reset()
    for check in checks.project:
        check(walker)
    return walker.findings


def _follow(walker: Walker, file: File, root: Callable[..., None], *arguments: object) -> None:
    """Follow one root; one that nests too deeply is said, and the others go on."""
    try:
        root(*arguments)
    except RecursionError:
        problem = Problem(file.path, 0, "nested too deeply to be followed everywhere.")
        if problem not in walker.project.problems:
            walker.project.problems.append(problem)


def _interesting(project: Project) -> set[ast.AST]:
    """Functions and methods that lead to something the checks know, by the names that they call."""
    calls: dict[ast.AST, set[str]] = {}
    named: dict[str, list[ast.AST]] = {}
    for file in project.files:
        for node in ast.walk(file.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                calls[node] = _names(node, file)
                named.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                for item in node.body:
                    if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                        named.setdefault(node.name, []).append(item)
    users: dict[str, list[ast.AST]] = {}
    for node, names in calls.items():
        for name in names:
            if name in named:
                users.setdefault(name, []).append(node)
    out = {node for node, names in calls.items() if not names.isdisjoint(INTERESTING)}
    waiting = list(out)
    owner_of = {
        id(item): name for name, items in named.items() for item in items if getattr(item, "name", "") == "__init__"
    }
    while waiting:
        node = waiting.pop()
        for name in (getattr(node, "name", ""), owner_of.get(id(node), "")):
            for user in users.get(name, ()) if name else ():
                if user not in out:
                    out.add(user)
                    waiting.append(user)
    return out


def _names(node: ast.AST, file: File) -> set[str]:
    """What a function calls, under its own name too where it was imported under another."""
    out: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            function = inner.func
            if isinstance(function, ast.Attribute):
                out.add(function.attr)
            elif isinstance(function, ast.Name):
                out.add(function.id)
                out.add(file.imports.get(function.id, "").rpartition(".")[2])
        elif isinstance(inner, ast.Attribute) and inner.attr == "environ":
            out.add("environ")
    return out


def _called(project: Project) -> set[str]:
    out: set[str] = set()
    for file in project.files:
        out |= _names(file.tree, file)
    return out


def _kept(project: Project, found: list[Finding], applies: frozenset[str]) -> tuple[list[Finding], int]:
    """Each finding once, the certain one before the suspicion, without those that the source says to ignore."""
    files: dict[str, File] = {file.path: file for file in project.files}
    best: dict[tuple[str, int, int, str], Finding] = {}
    suppressed = 0
    for finding in found:
        key = (finding.path, finding.line, finding.column, finding.code)
        if finding.code in applies and (key not in best or finding.certain > best[key].certain):
            best[key] = finding
    kept = []
    for key in sorted(best):
        if ignored(files[key[0]], key[1], key[3]):
            suppressed += 1
        else:
            kept.append(best[key])
    return kept, suppressed


def ignored(file: File, line: int, code: str) -> bool:
    """Whether the line says ``# shardguide: ignore`` or ``# shardguide: ignore[FSD201, FSD202]`` with this code."""
    text = file.lines[line - 1].decode("utf-8", "replace") if line <= len(file.lines) else ""
    _, mark, rest = text.partition("# shardguide: ignore")
    if not mark:
        return False
    rest = rest.strip()
    return not rest.startswith("[") or code in [part.strip() for part in rest[1:].partition("]")[0].split(",")]
