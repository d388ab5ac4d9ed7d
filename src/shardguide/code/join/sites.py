"""``with Join([…])`` and the loop in it: one group, keywords, the order of the list, and what nobody shadows."""

from __future__ import annotations

import ast
import re

from ..review.project import File, Project, dotted_text
from ..review.survey import inner_statements, statements
from .classes import Class, join_name
from .steps import Event, Loop, Notify, Path, Site, Step
from .trace import Tracer
from .values import Function, Instance, Value, constant
from .world import STATEMENTS, World

_RANKED = re.compile(r"\b(local_)?rank\b|get_rank\(")
_FLAGS = ("joinables", "enable", "throw_on_early_termination")
DDP_KEYWORDS = frozenset({"divide_by_initial_world_size"})


class Found:
    """A Join of the project, as it was met on one way."""

    __slots__ = ("choices", "host", "site", "tracer", "writes")

    def __init__(self, site: Site, host: str, tracer: Tracer, path: Path) -> None:
        self.site = site
        self.choices = path.choices
        self.writes = path.writes
        self.host = host
        self.tracer = tracer

    @property
    def joinables(self) -> list[Value] | None:
        """What the list holds; None where that is not known."""
        given = self.site.join.given.get("joinables")
        if given is None or given.kind != "sequence" or not isinstance(given.ref, tuple):
            return None
        return list(given.ref)

    @property
    def instances(self) -> list[Instance]:
        """The objects among them."""
        return [one.ref for one in self.joinables or () if one.kind == "object"]

    def flag(self, name: str, default: bool) -> bool | None:
        """A flag of Join; None where it is no literal."""
        given = self.site.join.given.get(name)
        if given is None:
            return default
        return bool(given.ref) if given.kind == "constant" else None

    @property
    def kwargs(self) -> dict[str, Value]:
        """What is passed on to the hooks."""
        return {key: value for key, value in self.site.join.given.items() if key not in _FLAGS}


def hosts(project: Project) -> list[tuple[File, ast.FunctionDef | ast.AsyncFunctionDef | None]]:
    """Functions with a with statement of a Join in them; None for a module's own code."""
    out: list[tuple[File, ast.FunctionDef | ast.AsyncFunctionDef | None]] = []
    managers = _managers(project)
    for file in project.files:
        if "with " not in file.text:
            continue
        own = ".join(" in file.text and "DistributedDataParallel" in file.text
        if "Join(" not in file.text and not own and not any(name in file.text for name in managers):
            continue
        _functions(file.tree, None, file, project, managers, out)
    return out


def _functions(
    node: ast.AST,
    inside: ast.FunctionDef | ast.AsyncFunctionDef | None,
    file: File,
    project: Project,
    managers: set[str],
    out: list[tuple[File, ast.FunctionDef | ast.AsyncFunctionDef | None]],
) -> None:
    for one in inner_statements(node):
        if (
            isinstance(one, (ast.With, ast.AsyncWith))
            and any(_opens(file, item, project, managers) for item in one.items)
            and (file, inside) not in out
            and not (inside is not None and _manager(inside))
        ):
            out.append((file, inside))
        within = one if inside is None and isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) else inside
        _functions(one, within, file, project, managers, out)


def _opens(file: File, item: ast.withitem, project: Project, managers: set[str]) -> bool:
    for call in ast.walk(item.context_expr):
        if not isinstance(call, ast.Call):
            continue
        name = dotted_text(call.func)
        last = name.rpartition(".")[2]
        if last in managers:
            return True
        if "Join" in last or last in file.imports:
            found = project.resolve(file, name)
            if isinstance(found, str) and join_name(found) == "Join":
                return True
        if isinstance(call.func, ast.Attribute) and call.func.attr == "join" and "DistributedDataParallel" in file.text:
            return not isinstance(call.func.value, ast.Constant)
    return False


def _managers(project: Project) -> set[str]:
    """Names of the project's context managers that open a Join."""
    out = set()
    for file in project.files:
        if "Join(" in file.text and "contextmanager" in file.text:
            for node in file.survey.calls:
                if (
                    isinstance(node, ast.FunctionDef)
                    and _manager(node)
                    and any(
                        isinstance(one, ast.With) and any(_opens(file, item, project, set()) for item in one.items)
                        for one in statements(node)
                    )
                ):
                    out.add(node.name)
    return out


def _manager(node: ast.AST) -> bool:
    """Whether a function is a context manager, whose block stands elsewhere."""
    return any(dotted_text(one).endswith("contextmanager") for one in getattr(node, "decorator_list", ()))


def follow_hosts(world: World, known: bool) -> list[Found]:
    """Every Join that was met, on every way. ``known``: the project has Joinables of its own; else less is followed."""
    out: list[Found] = []
    for file, node in hosts(world.project):
        tracer = Tracer(world)

        def start(
            tracer: Tracer = tracer, file: File = file, node: ast.FunctionDef | ast.AsyncFunctionDef | None = node
        ) -> Value:
            tracer.file = file
            if node is None:
                tracer.block(file.tree.body)
                return constant(None)
            tracer.root = node
            owner = next((c for c in statements(file.tree) if isinstance(c, ast.ClassDef) and node in c.body), None)
            cls = world.of(file, owner) if owner is not None else None
            bound = None
            if cls is not None and node.args.args and node.args.args[0].arg == "self":
                bound = Value("object", "host", ref=Instance("host", "object", cls, node))
            return tracer.enter(Function(file, node, cls, bound), [], _annotated(world, file, node), node)

        world.left = STATEMENTS // (4 if known else 12)
        try:
            paths, _ = tracer.paths(start, 32 if known else 6)
        except RecursionError:
            continue
        for path in paths:
            out.extend(
                Found(site, node.name if node is not None else "the module", tracer, path) for site in path.sites
            )
    return out


def _annotated(world: World, file: File, node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, Value]:
    """Parameters whose class is known: by annotation, or because every caller passes an object made on the spot."""
    out: dict[str, Value] = {}
    for one in (*node.args.args, *node.args.kwonlyargs):
        name = dotted_text(one.annotation) if one.annotation is not None else ""
        if isinstance(one.annotation, ast.Constant) and isinstance(one.annotation.value, str):
            name = one.annotation.value
        cls = _class(world, file, name) if name else None
        if cls is not None:
            from .make import instance

            tracer = Tracer(world)
            tracer.file = file
            out[one.arg] = instance(tracer, one, cls, [], {})
    return out


def _class(world: World, file: File, name: str) -> Class | None:
    found = world.project.resolve(file, name)
    if not isinstance(found, str) and isinstance(found.node, ast.ClassDef):
        cls = world.of(found.file, found.node)
        return cls if cls.is_a("Joinable") else None
    return None


def rounds(steps: tuple[Step, ...]) -> tuple[list[Step] | None, Loop | None, list[Step]]:
    """The steps of one iteration, its loop, and what stands in the block but in no loop."""
    loops = [step for step in steps if isinstance(step, Loop)]
    outside: list[Step] = [
        step for step in steps if not isinstance(step, Loop) and not (isinstance(step, Event) and step.what == "loop")
    ]
    if not loops:
        return None, None, outside
    loop = loops[0]
    while True:
        inner = [step for step in loop.items if isinstance(step, Loop)]
        rest = [
            step
            for step in loop.items
            if not isinstance(step, Loop) and not (isinstance(step, Event) and step.what == "loop")
        ]
        if len(inner) == 1 and not rest and not _over_joinables(inner[0]):
            loop = inner[0]
            continue
        return loop.items, loop, outside


def _over_joinables(loop: Loop) -> bool:
    return not any(isinstance(step, (Event, Notify)) for step in loop.items) and loop.owner is not None


def narrowed(path_steps: tuple[Step, ...] | list[Step], name: str) -> list[Step]:
    """The steps of one joinable."""
    out: list[Step] = []
    for step in path_steps:
        if isinstance(step, Loop):
            inner = narrowed(step.items, name)
            if inner:
                out.append(Loop(step.key, inner, step.node, step.file, step.owner))
        elif (
            step.owner is not None and step.owner.name == name and not (isinstance(step, Event) and step.what == "loop")
        ):
            out.append(step)
    return out


def as_path(steps: list[Step], found: Found) -> Path:
    """The steps of one joinable as a way of their own."""
    return Path(tuple(steps), found.choices, constant(None), found.writes, {})
