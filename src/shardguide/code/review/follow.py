"""Which functions are followed, and from where: a module's own code, functions that nobody calls, classes."""

from __future__ import annotations

import ast
from collections.abc import Callable

from .checks import AllChecks
from .project import Definition, File, Project, dotted_text
from .records import Finding, Problem, Verdict
from .state import Facts
from .torch_names import INTERESTING
from .walk import Walker

# Libraries that give a sampler its epoch themselves,
_EPOCHS = (
    "accelerate.Accelerator",
    "lightning",
    "pytorch_lightning",
    "transformers.Trainer",
    "transformers.Seq2SeqTrainer",
    "composer",
)
# and others that set processes, devices and data up themselves too: what a script lacks, they may do.
_TRAINERS = (*_EPOCHS, "ray")
# DeepSpeed trains where one of these is named; its kernels and tools change nothing.
_DEEPSPEED = ("initialize", "init_distributed", "DeepSpeedEngine", "PipelineEngine", "pipe", "runtime")
_WORST = ("matched", "unknown", "mismatched")


def followed(project: Project) -> tuple[list[Finding], list[Verdict]]:
    """What the checks find, and what is said of the collectives around each test of the rank."""
    facts: Facts = {}
    checks = AllChecks()
    project.helpers()
    follow = _interesting(project)
    walker = Walker(project, checks, facts, follow)
    for file in project.files:
        _helped(file, facts)
        if "__main__" in file.text:
            facts.setdefault("script", []).append((file, file.tree))
        _follow(walker, file, walker.module, file)
    called = set().union(*(file.called for file in project.files)) if project.files else set()
    for late in (False, True):  # functions that nobody calls first: they give the others their arguments
        for file in project.files:
            for node in file.functions.values():
                if node in follow and node not in walker.seen and (late or node.name not in called):
                    _follow(walker, file, walker.function, Definition(file, node))
            for owner in file.classes.values():
                left = [item for item in owner.body if item in follow and item not in walker.seen]
                # Late: the methods of its objects that others call, such as a trainer.
                if left and (late or not (owner in walker.seen or owner.name in called)):
                    _follow(walker, file, walker.whole_class, file, owner)
                    walker.seen.add(owner)
    walker.reset()
    for check in checks.project:
        check(walker)
    return walker.findings, _each_place(walker.verdicts)


def _helped(file: File, facts: Facts) -> None:
    """Note the libraries that train in the place of a file."""
    names = file.imports.values()
    epochs = any(full.startswith(_EPOCHS) or full == "accelerate" for full in names)
    if epochs:
        facts.setdefault("epochs", []).append((file, file.tree))
    if epochs or any(full.startswith(_TRAINERS) for full in names) or _deepspeed(file):
        facts.setdefault("elsewhere", []).append((file, file.tree))
        facts.setdefault("trainer", []).append((file, file.tree))


def _deepspeed(file: File) -> bool:
    """Whether DeepSpeed's engine is used, or its processes."""
    heads = {name for name, full in file.imports.items() if full == "deepspeed"}
    used = {full for full in file.imports.values() if full.startswith("deepspeed.")}
    if heads:
        chains = (dotted_text(chain) for chain in file.survey.chains)
        used |= {f"deepspeed.{chain.partition('.')[2]}" for chain in chains if chain.partition(".")[0] in heads}
    return any(full.split(".")[1] in _DEEPSPEED for full in used)


def _follow(walker: Walker, file: File, root: Callable[..., None], *arguments: object) -> None:
    """Follow one root; one that nests too deeply is said, and the others go on."""
    try:
        root(*arguments)
    except RecursionError:
        problem = Problem(file.path, 0, "nested too deeply to be followed everywhere.")
        if problem not in walker.project.problems:
            walker.project.problems.append(problem)


def _each_place(verdicts: list[Verdict]) -> list[Verdict]:
    """One verdict for each place, the worst of those reached on several ways."""
    best: dict[tuple[str, int, str], Verdict] = {}
    for one in verdicts:
        key = (one.path, one.line, one.test)
        have = best.get(key)
        if have is None or _WORST.index(one.verdict) > _WORST.index(have.verdict):
            best[key] = one
    return [best[key] for key in sorted(best)]


def _interesting(project: Project) -> set[ast.AST]:
    """Functions and methods that lead to something the checks know, by the names that they call."""
    calls: dict[ast.AST, set[str]] = {}
    named: dict[str, list[ast.AST]] = {}
    owner_of: dict[ast.AST, str] = {}
    for file in project.files:
        for function, names in file.calls.items():
            calls[function] = names
            named.setdefault(function.name, []).append(function)
        for name, constructor in file.constructors:
            named.setdefault(name, []).append(constructor)
            owner_of[constructor] = name
    other: dict[str, set[str]] = {}  # what a function is called too, once it was kept under another name
    for file in project.files:
        for alias, name in file.survey.aliases:
            if name in named and alias != name:
                other.setdefault(name, set()).add(alias)
    users: dict[str, list[ast.AST]] = {}
    known = set().union(*other.values())
    for node, names in calls.items():
        for name in names:
            if name in named or name in known:
                users.setdefault(name, []).append(node)
    out = {node for node, names in calls.items() if not names.isdisjoint(INTERESTING)}
    waiting = list(out)
    while waiting:
        node = waiting.pop()
        own = getattr(node, "name", "")
        for name in (own, owner_of.get(node, ""), *other.get(own, ())):
            for user in users.get(name, ()) if name else ():
                if user not in out:
                    out.add(user)
                    waiting.append(user)
    return out
