"""One Joinable against its hook: what an iteration does, what the hook shadows, and what is wrong with it."""

from __future__ import annotations

import ast

from ..review.project import Definition, File, Project, dotted_text
from .backward import backward
from .calls import ASSUMED, ASSUMPTIONS, BEHIND
from .classes import HOOK, JOINABLE, Class
from .compare import Comparison
from .evaluate import JOINS
from .make import instance
from .posthook import LAST, post
from .results import Issue, Unknowns, Verdict, verdict_of
from .steps import Notify, Path, Step, Unknown, flat, talks
from .structure import announced, hook_methods, members
from .trace import Tracer
from .values import Function, Instance, Value, constant, text
from .world import STATEMENTS, World

_FIRST = ("__call__", "forward")
_LAST = ("step",)
_NEVER = frozenset({"__init__", "join_hook", "join_device", "join_process_group", "main_hook", "post_hook", "join",
                    "_join_hook", "_join_device", "_join_process_group"})  # fmt: skip


class Subject:
    """One Joinable class under examination."""

    def __init__(self, world: World, cls: Class, made: list[tuple[dict[str, Value], File, ast.Call]]) -> None:
        self.world = world
        self.cls = cls
        self.tracer = Tracer(world)
        self.whole = True  # whether the last function was followed on every way
        self.shadowed = True  # whether main_hook was
        self.own = not (cls.name in ASSUMED and cls.is_a(JOINABLE))
        self.given = _agreed(made)
        self.unknown = Unknowns()
        self.issues: list[Issue] = []
        self.iterations: list[Path] = []
        self.hooks: list[Path] = []
        self.posts: list[Path] = []
        self.hook: Class | None = None
        self.hook_holder = ""  # the attribute of the hook that holds the joinable
        self.entries: list[str] = []
        self.keywords: dict[str, bool] = {}
        self.group = Value("text", "?")

    def joinable(self) -> Value:
        """The object, made anew for this way."""
        tracer = self.tracer
        tracer.file = self.cls.file
        given = dict(self.given)
        found = self.cls.find("__init__")
        for one in (*found[1].args.args[1:], *found[1].args.kwonlyargs) if found is not None else ():
            given.setdefault(one.arg, Value("text", f"what {one.arg} was given", flags=frozenset({"config"})))
        return instance(tracer, self.cls.node, self.cls, [], given, self.cls.name)

    def call(self, bound: Value, name: str, args: list[Value], named: dict[str, Value]) -> Value:
        """One of its methods."""
        assert bound.ref.cls is not None
        found = bound.ref.cls.find(name)
        if found is None:
            return text(f"{name}()")
        return self.tracer.enter(Function(found[0].file, found[1], found[0], bound), args, named, found[1])

    def paths(self, start: object) -> list[Path]:
        """Every way; that there are too many is said."""
        found, whole = self.tracer.paths(start)  # type: ignore[arg-type]
        self.whole = whole
        if not whole:
            self.unknown.add("more ways through the code than are told apart")
        return found

    # The hook

    def hooked(self, kwargs: dict[str, Value] | None) -> Value:
        """What join_hook gives, with the keywords of a Join or, with None, with any."""
        bound = self.joinable()
        name = "join_hook" if self.cls.find("join_hook") else "_join_hook"
        found = self.cls.find(name)
        if found is None:
            return text("no join_hook")
        self.tracer.quiet = True
        try:
            named: dict[str, Value] = dict(kwargs) if kwargs is not None else {"**": Value("kwargs", JOINS, ref=None)}
            if found[1].args.kwarg is None:
                named = {key: value for key, value in named.items() if key in [one.arg for one in found[1].args.args]}
            result = self.tracer.enter(Function(found[0].file, found[1], found[0], bound), [], named, found[1])
        finally:
            self.tracer.quiet = False
        self.keywords.update(self.tracer.keywords)
        return result

    def find_hook(self) -> bool:
        """What kind of object join_hook returns; False where there is none to follow."""
        found = self.cls.find("join_hook") or self.cls.find("_join_hook")
        if found is None:
            return False
        results: list[Value] = []

        def start() -> Value:
            results.append(self.hooked(None))
            return constant(None)

        self.paths(start)
        result = results[0] if results else text("?")
        if result.kind == "object" and result.ref.cls is not None:
            self.hook = result.ref.cls
            for key, value in result.ref.attrs.items():
                if value.kind == "object" and value.ref.name == self.cls.name:
                    self.hook_holder = key
            if result.ref.cls is self.cls:
                self.hook_holder = "self"
            elif (
                not self.hook.is_a(HOOK)
                and not (self.hook.find("main_hook") and self.hook.find("post_hook"))
                and not self.hook.foreign()
            ):
                self.issues.append(Issue("FSD622", found[0].file, found[1], f"{self.hook.name} is no JoinHook"))
            self._arguments(result.ref)
            return True
        if result.kind == "class":
            self.issues.append(
                Issue("FSD622", found[0].file, found[1], "join_hook returns the class, not an object of it")
            )
        elif result.kind == "constant":
            empty = not any(isinstance(inner, ast.Raise) for inner in ast.walk(found[1]))
            if empty:
                self.issues.append(Issue("FSD622", found[0].file, found[1], f"join_hook returns {result.text}"))
        elif result.text.startswith("torch.distributed.algorithms.") and "JoinHook(" in result.text:
            return True
        else:
            self.unknown.add(f"what join_hook returns ({result.text}) could not be followed")
        return False

    def _arguments(self, hook: Instance) -> None:
        found = hook.cls.find("__init__") if hook.cls is not None else None
        if found is None or hook.cls is self.cls:
            return
        spec = found[1].args
        if spec.vararg is not None or spec.kwarg is not None or "**" in hook.given:
            return
        names = [one.arg for one in (*spec.posonlyargs, *spec.args)][1:]
        needed = names[: len(names) - len(spec.defaults)]
        positional = [key for key in hook.given if key.isdigit()]
        have = set(names[: len(positional)]) | {key for key in hook.given if not key.isdigit()}
        lacks = [name for name in needed if name not in have]
        if lacks or len(positional) > len(names):
            words = (
                f"{hook.cls.name if hook.cls else 'the hook'} is made without {', '.join(lacks)}"
                if lacks
                else "the hook is made with too many arguments"
            )
            self.issues.append(Issue("FSD622", hook.file or self.cls.file, hook.node or self.cls.node, words))

    def shadow(self, kwargs: dict[str, Value] | None, name: str, args: list[Value]) -> list[Path]:
        """Every way through main_hook or post_hook."""

        def start() -> Value:
            made = self.hooked(kwargs)
            if made.kind != "object" or made.ref.cls is None:
                return constant(None)
            if made.ref.cls.find(name) is None:
                if made.ref.cls.foreign():
                    self.tracer.add(
                        Unknown(f"{name} of a base that was not read", made.ref.cls.node, made.ref.cls.file, None)
                    )
                return constant(None)
            return self.call(made, name, args, {})

        self.world.left = max(self.world.left, STATEMENTS // 4)  # hooks are short, and what they lack must be certain
        found = self.paths(start)
        if name == "main_hook":
            self.shadowed = self.whole
        return found

    # The iteration

    def iterate(self) -> list[Path]:
        """Every way through one iteration, as far as the class tells what that is."""
        self.entries = self._entries()

        def start() -> Value:
            bound = self.joinable()
            for name in self.entries:
                if name in _LAST and self.tracer.registered:
                    backward(self.tracer, self.cls.node)
                    self.tracer.registered = []
                self.call(bound, name, [], self._open(name))
            if self.tracer.registered:
                backward(self.tracer, self.cls.node)
            return constant(None)

        return self.paths(start)

    def _open(self, name: str) -> dict[str, Value]:
        """Arguments that have a default, which a caller may give otherwise."""
        found = self.cls.find(name)
        spec = found[1].args if found is not None else None
        if spec is None:
            return {}
        pairs = [*zip(spec.args[len(spec.args) - len(spec.defaults) :], spec.defaults, strict=True)]
        pairs += [
            (one, value) for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value is not None
        ]
        return {
            one.arg: Value("text", f"the argument {one.arg}", flags=frozenset({"argument"}))
            for one, value in pairs
            if not (isinstance(value, ast.Constant) and value.value is None)
        }

    def _entries(self) -> list[str]:
        talkers: dict[str, tuple[bool, bool]] = {}
        for one in reversed(self.cls.order):
            for name, node in one.methods.items() if isinstance(one, Class) else ():
                kinds = {dotted_text(item).rpartition(".")[2] for item in node.decorator_list}
                if name in _NEVER or kinds & {
                    "property",
                    "staticmethod",
                    "classmethod",
                    "cached_property",
                    "setter",
                    "contextmanager",
                }:
                    continue
                if (not self.own and name not in (*_FIRST, *_LAST)) or not self.tracer.relevant(node):
                    continue
                steps = self._alone(name)
                notes = any(isinstance(step, Notify) for step in flat(steps))
                if notes or talks(steps):
                    talkers[name] = (notes, bool(talks(steps)))
        helpers = self._helpers(set(talkers))
        waited = self._waited()
        usable = {name: what for name, what in talkers.items() if name not in helpers and name not in waited}
        noting = [name for name, what in usable.items() if what[0]]
        usual = [name for name in usable if name in (*_FIRST, *_LAST)]
        if noting or usual:
            chosen = list(dict.fromkeys([*noting, *usual]))
        else:
            by_hook = self._used_by_hook()
            chosen = [name for name in usable if name not in by_hook and not name.startswith("_")] or list(usable)
        chosen.sort(key=lambda name: 0 if name in _FIRST else 2 if name in _LAST else 1)
        if not chosen and waited:
            chosen = [name for name in _FIRST if self.cls.find(name) is not None][:1]
        if "__call__" in chosen and "forward" in chosen:
            chosen.remove("forward")
        loose = [name for name in chosen if name not in (*_FIRST, *_LAST)]
        if len(chosen) > 1 and loose and len([n for n in chosen if talkers[n][1]]) > 1:
            self.unknown.add(
                f"which of {', '.join(chosen)} one iteration calls, and in which order, is not known from the class"
            )
        return chosen

    def _alone(self, name: str) -> tuple[Step, ...]:
        def start() -> Value:
            self.call(self.joinable(), name, [], {})
            return constant(None)

        found, _ = self.tracer.paths(start, 6)
        return tuple(step for path in found for step in path.steps)

    def _helpers(self, names: set[str]) -> set[str]:
        """Methods that another one of the class calls."""
        out = set()
        for one in self.cls.order:
            for name, node in one.methods.items() if isinstance(one, Class) else ():
                if name in ("main_hook", "post_hook", "join_hook"):
                    continue
                for inner in ast.walk(node):
                    if (
                        (
                            isinstance(inner, ast.Attribute)
                            and isinstance(inner.value, ast.Name)
                            and inner.value.id == "self"
                        )
                        and inner.attr in names
                        and inner.attr != name
                    ):
                        out.add(inner.attr)
        return out

    def _waited(self) -> set[str]:
        found: list[Instance] = []

        def start() -> Value:
            found.append(self.joinable().ref)
            return constant(None)

        self.paths(start)
        return {getattr(one[0].node, "name", "") for made in found for one in made.waits}

    def _used_by_hook(self) -> set[str]:
        if self.hook is None:
            return set()
        return {
            inner.attr
            for node in self.hook.methods.values()
            for inner in ast.walk(node)
            if isinstance(inner, ast.Attribute)
        }

    # Together

    def examine(self) -> None:
        """The class by itself: members, hook, iteration, announcement, post hook."""
        self.issues.extend(members(self.cls, self.world, self.unknown))
        there = self.find_hook()
        if self.hook is not None:
            self.issues.extend(hook_methods(self.hook))
        self.iterations = self.iterate()
        if there:
            self.hooks = (
                self.shadow(None, "main_hook", [])
                if self.hook is not None
                else [Path((), (), constant(None), frozenset(), {})]
            )
        for one in self.iterations:
            self._lonely(one)
        self._group()

    def _lonely(self, path: Path) -> None:
        for step in flat(path.steps):
            if isinstance(step, Unknown) and not talks(path.steps):
                self.unknown.add(step.why)

    def _group(self) -> None:
        found: list[Value] = []

        def start() -> Value:
            bound = self.joinable()
            found.append(self.tracer.attribute(bound, "join_process_group"))
            return constant(None)

        self.paths(start)
        self.group = found[0] if found else text("?")

    def posts_of(self, kwargs: dict[str, Value] | None) -> list[Path]:
        """Every way through post_hook."""
        if self.hook is None or self.hook.find("post_hook") is None:
            return []
        return self.shadow(kwargs, "post_hook", [Value("text", LAST, flags=frozenset({"last"}))])


def _agreed(made: list[tuple[dict[str, Value], File, ast.Call]]) -> dict[str, Value]:
    """Arguments of the constructor that are the same wherever it is called, and known."""
    if not made:
        return {}
    first = made[0][0]
    out = {}
    for key, value in first.items():
        known = value.kind in ("constant", "name", "object")
        if known and all(other[0].get(key, value).text == value.text for other in made[1:]):
            out[key] = value
    return out


__all__ = [
    "ASSUMPTIONS",
    "BEHIND",
    "Comparison",
    "Definition",
    "Project",
    "Subject",
    "Verdict",
    "announced",
    "post",
    "verdict_of",
]
