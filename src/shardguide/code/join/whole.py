"""A project's Joinables and Joins brought together: a class alone, and as the loops use it."""

from __future__ import annotations

import ast

from ..review.project import Definition, File, Project, dotted_text
from .calls import ASSUMPTIONS, BEHIND
from .classes import JOINABLE, Class
from .compare import Comparison
from .loops import look
from .posthook import post
from .results import Issue, Unknowns, Verdict, verdict_of
from .sites import Found, as_path, follow_hosts, narrowed, rounds
from .steps import Loop, Notify, Op, Path, Step, flat, talks
from .structure import announced, is_joinable
from .subject import Subject
from .trace import Tracer
from .values import Value, text
from .world import STATEMENTS, World


def verdicts(project: Project) -> list[Verdict]:
    """Every Joinable, then every Join."""
    world = World(project)
    classes = world.derived(JOINABLE)
    made = {cls.name: _made(world, cls) for cls in classes}
    found = follow_hosts(world, bool(classes))
    if not classes and not found:
        return []
    out: list[Verdict] = []
    asked: dict[str, tuple[dict[str, bool], bool]] = {}
    broken: set[str] = set()
    for cls in classes:
        world.left = STATEMENTS
        subject = Subject(world, cls, made[cls.name])
        try:
            subject.examine()
        except RecursionError:
            out.append(_too_deep(cls))
            continue
        node = cls.find("join_hook") or cls.find("_join_hook")
        names = {one.arg: False for one in node[1].args.args[1:]} if node else {}
        if node is None or any(one.code == "FSD622" for one in subject.issues):
            broken.add(cls.name)
        asked[cls.name] = ({**names, **subject.keywords}, node is None or node[1].args.kwarg is not None)
        if _abstract(cls) or (not made[cls.name] and any(cls in other.order and other is not cls for other in classes)):
            continue
        out.append(_class(world, subject, [one for one in found if _holds(one, cls)]))
    for name in broken:
        asked.pop(name, None)
    seen: dict[tuple[str, int], Verdict] = {}
    for one in found:
        result = _site(one, asked)
        key = (result.path, result.line)
        if key not in seen or _worse(result, seen[key]):
            seen[key] = result
    return [*out, *seen.values()]


def _too_deep(cls: Class) -> Verdict:
    why = ("it nests too deeply to be followed",)
    return Verdict(cls.name, "Joinable", cls.file.path, cls.file.line(cls.node), "unknown", (), (), why, (), "", "")


def _abstract(cls: Class) -> bool:
    """A base on the way that says itself that it is abstract."""
    return any("abstractmethod" in ast.dump(item) for method in cls.methods.values() for item in method.decorator_list)


def _worse(one: Verdict, other: Verdict) -> bool:
    order = ("proven", "unknown", "violated")
    return order.index(one.verdict) > order.index(other.verdict)


def _holds(found: Found, cls: Class) -> bool:
    return any(is_joinable(one) and one.cls is cls for one in found.instances)


def _made(world: World, cls: Class) -> list[tuple[dict[str, Value], File, ast.Call]]:
    """The calls that make a class, with their arguments by name."""
    init = cls.find("__init__")
    if init is None:
        return []
    names = [one.arg for one in (*init[1].args.posonlyargs, *init[1].args.args)][1:]
    out: list[tuple[dict[str, Value], File, ast.Call]] = []
    for file in world.project.files:
        if f"{cls.name}(" not in file.text:
            continue
        for node in ast.walk(file.tree):
            if not isinstance(node, ast.Call) or dotted_text(node.func).rpartition(".")[2] != cls.name:
                continue
            resolved = world.project.resolve(file, dotted_text(node.func))
            if isinstance(resolved, Definition) and resolved.node is not cls.node:
                continue
            tracer = Tracer(world)
            tracer.file = file
            _surroundings(tracer, file, node)
            given = dict(zip(names, (tracer.value(one) for one in node.args), strict=False))
            given.update({one.arg: tracer.value(one.value) for one in node.keywords if one.arg})
            for name, default in zip(
                names[len(names) - len(init[1].args.defaults) :], init[1].args.defaults, strict=True
            ):
                given.setdefault(name, tracer.value(default))
            out.append((given, file, node))
    return out


def _surroundings(tracer: Tracer, file: File, node: ast.Call) -> None:
    """Names of the function around a call that are bound once, to something that can be read by itself."""
    for function in ast.walk(file.tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(
            inner is node for inner in ast.walk(function)
        ):
            for one in (*function.args.args, *function.args.kwonlyargs):
                tracer.env[one.arg] = text(f"the argument {one.arg}")
            bound: dict[str, list[ast.expr]] = {}
            for inner in ast.walk(function):
                if isinstance(inner, ast.Assign) and len(inner.targets) == 1 and isinstance(inner.targets[0], ast.Name):
                    bound.setdefault(inner.targets[0].id, []).append(inner.value)
            for name, values in bound.items():
                single = values[0]
                if len(values) == 1 and isinstance(single, (ast.Constant, ast.Attribute, ast.Call)):
                    plain = isinstance(single, ast.Call) and dotted_text(single.func).rpartition(".")[2] not in (
                        "new_group",
                        "device",
                    )
                    tracer.env[name] = text(f"the name {name}") if plain else tracer.value(single)
                else:
                    tracer.env[name] = text(f"the name {name}")


def _class(world: World, subject: Subject, sites: list[Found]) -> Verdict:
    cls = subject.cls
    unknown = subject.unknown
    issues = list(subject.issues)
    hook_at = (subject.hook.file, _main(subject.hook)) if subject.hook is not None else (cls.file, cls.node)
    comparison = Comparison(cls.name, subject.own)
    comparison.whole = subject.shadowed
    joined = [
        one
        for one in sites
        if one.flag("enable", True) is not False and one.flag("throw_on_early_termination", False) is not True
    ]
    usable = [one for one in joined if _iteration(one, cls) is not None]
    iterations = subject.iterations
    used: list[tuple[list[Path], list[Path], str]] = []
    by_site: dict[int, list[Found]] = {}
    for one in usable:
        by_site.setdefault(id(one.site.node), []).append(one)
    for group in by_site.values():
        instance = next(item for item in group[0].instances if item.cls is cls)
        mine = [as_path(steps, one) for one in group if (steps := _iteration(one, cls)) is not None]
        used.append((mine, _hooks_of(subject, group[0], instance.name), instance.name))
    there = bool(subject.hooks) and not any(one.code == "FSD622" for one in issues)
    if used:
        unknown.said = [
            words
            for words in unknown.said
            if "one iteration calls" not in words and "could not be followed" not in words
        ]
        for mine, hooks, name in used:
            if there:
                inner = Comparison(name, subject.own)
                inner.whole = subject.shadowed
                inner.run(mine, hooks, hook_at)
                _merge(comparison, inner, cls.name, name)
            issues.extend(announced(name, mine, unknown, (cls.file, cls.node)))
    else:
        if there:
            comparison.run(iterations, subject.hooks, hook_at)
        issues.extend(announced(cls.name, iterations, unknown, (cls.file, cls.node)))
    issues.extend(comparison.issues)
    for words in comparison.unknown.said:
        unknown.add(words)
    issues.extend(_again(subject, sites, unknown))
    issues.extend(_elsewhere(subject, iterations, unknown))
    stale = not any(
        path.writes
        or any(isinstance(s, Op) and s.tensor and s.tensor.text.startswith(f"{cls.name}.") for s in flat(path.steps))
        for path in subject.hooks
    )
    issues.extend(post(subject.posts_of(None), stale, unknown))
    assumes = list(ASSUMPTIONS.get(cls.name, ())) if not subject.own else []
    _groups(subject, iterations, issues, unknown, assumes)
    issues = _unique(issues)
    if any(one.code == "FSD634" for one in issues):
        issues = [one for one in issues if one.code != "FSD637"]
    if any(one.code in ("FSD605", "FSD607") for one in issues):
        unknown.said = [words for words in unknown.said if "join_hook" not in words]
    verdict = verdict_of(issues, unknown.said)
    corrected = ""
    if subject.own and issues:
        from .correct import corrected_class

        corrected = corrected_class(subject, issues, _first_used(used) or iterations)
    return Verdict(
        cls.name, "Joinable", cls.file.path, cls.file.line(cls.node), verdict, tuple(comparison.rows), tuple(issues), tuple(unknown.said),
        tuple(assumes), comparison.when, corrected,
    )  # fmt: skip


def _first_used(used: list[tuple[list[Path], list[Path], str]]) -> list[Path]:
    return used[0][0] if used else []


def _main(hook: Class) -> ast.AST:
    found = hook.find("main_hook")
    return found[1] if found is not None and found[0] is hook else hook.node


def _unique(issues: list[Issue]) -> list[Issue]:
    out: list[Issue] = []
    for one in sorted(
        issues, key=lambda issue: (issue.file.path, issue.line, issue.code, not issue.violated, not issue.certain)
    ):
        if not any((one.code, one.line, one.file) == (other.code, other.line, other.file) for other in out):
            out.append(one)
    return out


def _merge(whole: Comparison, part: Comparison, name: str, site_name: str) -> None:
    for issue in part.issues:
        whole.issues.append(issue._replace(what=issue.what.replace(f"{site_name}.", "self.")))
    for words in part.unknown.said:
        whole.unknown.add(words.replace(f"{site_name}.", "self."))
    if not whole.rows or part.issues:
        whole.rows, whole.when = part.rows, part.when


def _iteration(found: Found, cls: Class) -> list[Step] | None:
    """The steps of one iteration that an object of the class makes; None where the loop makes none."""
    steps, _, _ = rounds(found.site.steps)
    names = [one.name for one in found.instances if one.cls is cls]
    if steps is None or len(names) != 1:
        return None
    mine = narrowed(steps, names[0])
    if len(mine) == 1 and isinstance(mine[0], Loop) and any(isinstance(s, Notify) for s in mine[0].items):
        mine = mine[0].items  # for joinable in joinables: joinable()
    return mine if mine else None


def _hooks_of(subject: Subject, found: Found, name: str) -> list[Path]:
    """The hook of the very object that the loop uses, with Join's keywords."""
    instance = next(one for one in found.instances if one.name == name)
    before = subject.joinable
    subject.joinable = lambda: Value("object", name, ref=instance, make=name)  # type: ignore[method-assign]
    try:
        return subject.shadow(found.kwargs, "main_hook", [])
    finally:
        subject.joinable = before  # type: ignore[method-assign]


def _again(subject: Subject, sites: list[Found], unknown: Unknowns) -> list[Issue]:
    """A hook that announces an iteration itself: right only where another joinable stands first."""
    notes = [step for path in subject.hooks for step in flat(path.steps) if isinstance(step, Notify)]
    if not notes or (subject.cls.name in BEHIND and not subject.own):
        return []
    firsts = [found.instances[0].cls is subject.cls for found in sites if found.instances]
    step = notes[0]
    if any(firsts):
        hook = subject.hook
        return [
            Issue(
                "FSD634",
                hook.file if hook is not None else step.file,
                _main(hook) if hook is not None else step.node,
                "",
            )
        ]
    if not firsts:
        unknown.add(
            "main_hook calls notify_join_context: right only where another joinable stands first in Join's list"
        )
    return []


def _elsewhere(subject: Subject, iterations: list[Path], unknown: Unknowns) -> list[Issue]:
    """Nothing was found to compare, and yet the class communicates."""
    if any(talks(path.steps) for path in iterations) or any(talks(path.steps) for path in subject.hooks):
        return []
    names = []
    for one in subject.cls.order:
        if isinstance(one, Class):
            for name, node in one.methods.items():
                if name in ("main_hook", "post_hook", "join_hook", "__init__", "join_process_group", "join_device"):
                    continue
                if subject.tracer.relevant(node) and name not in subject.entries:
                    names.append(name)
    if names:
        unknown.add(f"{', '.join(names[:4])}: may communicate; whether an iteration calls it was not followed")
    if subject.cls.foreign():
        base = subject.cls.foreign()[0].lstrip("? ")
        unknown.add(f"what {base} communicates in an iteration: it was not read")
    return []


def _groups(
    subject: Subject, iterations: list[Path], issues: list[Issue], unknown: Unknowns, assumes: list[str]
) -> None:
    """The collectives' group against join_process_group."""
    mine = subject.group
    own = mine.text
    if own == "?" or "no join_hook" in own:
        return
    for path in iterations:
        for step in flat(path.steps):
            if not isinstance(step, Op) or step.name == "new_group":
                continue
            used = "WORLD" if step.group is None else step.group.text
            if used == own or (mine.make and step.group is not None and step.group.make == mine.make):
                continue
            known = {mine.kind, step.group.kind if step.group is not None else "name"} <= {"name", "object"}
            shown = (
                "the default group"
                if used == "WORLD"
                else (step.group.make or used if step.group else used).replace(f"{subject.cls.name}.", "self.")
            )
            other = (
                "the default group" if own == "WORLD" else (mine.make or own).replace(f"{subject.cls.name}.", "self.")
            )
            words = f"{step.name} is on {shown}, join_process_group names {other}"
            if known:
                issues.append(Issue("FSD625", step.file, step.node, words))
            elif step.group is None:
                unknown.add(
                    f"{step.file.path}:{getattr(step.node, 'lineno', 0)}: {words}: right only where that is the default group"
                )
                issues.append(Issue("FSD625", step.file, step.node, words, False, False))
            else:
                unknown.add(f"{step.file.path}:{getattr(step.node, 'lineno', 0)}: {words}")
    if own == "WORLD" and any(isinstance(s, Op) and s.group is None for p in iterations for s in flat(p.steps)):
        assumes.append(
            "the collectives are on the default group, and that is the group which join_process_group names here"
        )


def _site(found: Found, asked: dict[str, tuple[dict[str, bool], bool]]) -> Verdict:
    unknown = Unknowns()
    issues = _unique(look(found, unknown, asked))
    node = found.site.join.node or found.site.node
    throws = bool(found.flag("throw_on_early_termination", False))
    assumes = ("who calls this catches the RuntimeError on every rank",) if throws else ()
    return Verdict(
        found.site.file.source(node, 60), "Join", found.site.file.path, found.site.file.line(node), verdict_of(issues, unknown.said), (),
        tuple(issues), tuple(unknown.said), assumes, "", "", tuple(dict.fromkeys(one.kind for one in found.instances)), throws,
    )  # fmt: skip
