"""What names stand for: imports, attributes of known objects, arguments; and tests that can be decided."""

from __future__ import annotations

import ast

from ..review.project import Definition, File, dotted_text
from .calls import ASSUMED, BUILTINS
from .classes import JOINABLE, Class, Classes
from .expressions import Expressions
from .known import certain, code, of_torch, works
from .steps import Choice, Site, Step
from .values import Function, Instance, Value, constant, flags, like, shape_of, text
from .world import World

_NOT = {"!=": "==", "is not": "is", "not in": "in"}
JOINS = "Join's keywords"  # what a join_hook takes as **kwargs
UNROLL = 16  # rounds of a loop that are followed one by one
_SAME = frozenset({"data", "grad"})


class Evaluator(Expressions):
    """The state of one way, and the values of expressions on it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.classes: Classes = world
        self.begin([])

    def begin(self, decisions: list[bool]) -> None:
        """Start a way; the first tests are decided as given, later ones hold."""
        self.decisions = list(decisions)
        self.turn = 0
        self.items: list[Step] = []
        self.choices: list[Choice] = []
        self.taken: dict[str, bool] = {}
        self.attrs: dict[tuple[str, str], Value] = {}
        self.writes: set[str] = set()
        self.env: dict[str, Value] = {}
        self.last_env: dict[str, Value] = {}
        self.around: dict[str, Value] = {}
        self.cls: Class | None = None
        self.owner: Instance | None = None
        self.file: File = self.world.project.files[0]
        self.stack: list[ast.AST] = []
        self.root: ast.AST | None = None  # followed whatever it calls
        self.budget = 4000
        self.depth = 0
        self.cut = False  # whether something was left out since it was too much
        self.told = 0
        self.quiet = False
        self.joins: list[Instance] = []
        self.sites: list[Site] = []
        self.keywords: dict[str, bool] = {}  # looked for by hooks, and whether they must be there
        self.handlers: list[ast.Try] = []
        self.yields: list[
            tuple[
                ast.With | ast.AsyncWith, tuple[File, dict[str, Value], dict[str, Value], Class | None, Instance | None]
            ]
        ] = []
        self.registered: list[Instance] = []

    def add(self, step: Step) -> None:
        """One more step."""
        if not self.quiet:
            self.items.append(step)

    def relevant(self, node: ast.AST) -> bool:
        """Whether a piece of code may come to a collective, by the names that it calls."""
        return self.world.leads_on(node)

    def words(self, node: ast.AST) -> str:
        """An expression, shortened."""
        found = self.world.written.get(node)
        if found is None:
            found = self.world.written[node] = ast.unparse(node)[:60]
        return found

    # Tests

    def truth(self, node: ast.expr) -> bool:
        """Whether a test holds on this way."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not self.truth(node.operand)
        if isinstance(node, ast.BoolOp):
            every = isinstance(node.op, ast.And)
            for part in node.values:
                if self.truth(part) is not every:
                    return not every
            return every
        found = self.value(node)
        known = certain(found)
        return known if known is not None else self.decide(found, node)

    def known(self, node: ast.expr) -> bool | None:
        """Whether a test holds, where that can be told."""
        return certain(self.value(node))

    def decide(self, found: Value, node: ast.AST) -> bool:
        """Take a branch, the same for the same test."""
        key, turned = found.text, False
        for many, one in _NOT.items():
            if f" {many} " in key:
                key, turned = key.replace(f" {many} ", f" {one} "), True
                break
        if key not in self.taken:
            arm = self.decisions[self.turn] if self.turn < len(self.decisions) else True
            if self.turn >= len(self.decisions):
                self.decisions.append(True)
            self.turn += 1
            self.taken[key] = arm
            written = code(found)
            if turned and written:
                written = f"not ({written})"
            self.choices.append(Choice(key, arm, found.flags, node, len(self.items), self.file, written))
        return self.taken[key] is not turned

    # Expressions

    def value(self, node: ast.expr | None) -> Value:
        """What an expression stands for."""
        if node is None:
            return constant(None)
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            return text(self.words(node))
        found: Value = method(node)
        return found

    def _constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _name(self, node: ast.Name) -> Value:
        for names in (self.env, self.around):
            if node.id in names:
                return names[node.id]
        return self.everywhere(node.id)

    def everywhere(self, dotted: str) -> Value:
        """A name of the module, or of something imported."""
        head = dotted.partition(".")[0]
        if dotted == head and head in self.file.values and head not in self.file.imports:
            given = self.file.values[head]
            if isinstance(given, (ast.Constant, ast.Tuple, ast.UnaryOp)):
                return self.value(given)
        found = self.world.project.resolve(self.file, dotted)
        if isinstance(found, Definition):
            if isinstance(found.node, ast.ClassDef):
                return Value("class", found.node.name, ref=self.world.of(found.file, found.node))
            return Value("function", found.node.name, ref=Function(found.file, found.node, None))
        if found:
            last = found.rpartition(".")[2]
            if found.startswith("torch.distributed.") and last == "WORLD":
                return Value("name", "WORLD")
            return Value("name", found)
        local = self.world.local(self.file, dotted) if "." not in dotted and dotted[:1].isupper() else None
        if local is not None:
            return Value("class", dotted, ref=self.world.of(self.file, local))
        return Value("name" if dotted in BUILTINS else "text", dotted)

    def _attribute(self, node: ast.Attribute) -> Value:
        dotted = dotted_text(node)
        head = dotted.partition(".")[0]
        if dotted and head not in self.env and head not in self.around and head in self.file.imports:
            return self.everywhere(dotted)
        return self.attribute(self.value(node.value), node.attr)

    def attribute(self, base: Value, name: str) -> Value:
        """An attribute of what is known of an object, or its words."""
        if base.kind == "object":
            return self._of_object(base, name)
        if base.kind == "name" and base.text.startswith("torch"):
            return Value("name", f"{base.text}.{name}")
        if name in _SAME and base.kind in ("tensor", "text"):
            return like(base)._replace(text=f"{base.text}.{name}")
        if name == "shape":
            return text(f"shape({shape_of(base).removeprefix('like ')})", base)
        if name == "dtype":
            return text(f"dtype({base.dtype or base.text})", base)
        make = f"{base.make}.{name}" if base.make else ""
        return Value("text", f"{base.text}.{name}", flags=base.flags, make=make)

    def _of_object(self, base: Value, name: str) -> Value:
        instance: Instance = base.ref
        full = f"{instance.name}.{name}"
        key = (instance.name, name)
        if key in self.attrs:
            return self.attrs[key]
        if name == "_join_config" and instance.cls is not None and instance.cls.is_a(JOINABLE):
            return Value("text", "join config", flags=frozenset({"config"}))
        assumed = ASSUMED.get(instance.cls.name, {}) if instance.cls is not None and of_torch(instance.cls) else {}
        if name in assumed:
            return constant(assumed[name])
        cls = instance.cls
        found = cls.find(name) if cls is not None else None
        if found is not None:
            owner, node = found
            function = Function(owner.file, node, owner, base)
            if any(dotted_text(one).endswith(("property", "cached_property")) for one in node.decorator_list):
                return self.enter(function, [], {}, node)
            if any(dotted_text(one) == "staticmethod" for one in node.decorator_list):
                function = function._replace(bound=None)
            return Value("function", full, ref=function)
        plain, counted = self.world.changed(cls.file) if cls is not None else (frozenset(), frozenset())
        held = instance.attrs.get(name)
        make = full
        if held is not None and name not in plain:
            if held.kind == "tensor":
                return held._replace(text=full, make=make, fill="")
            if name not in counted:
                return (
                    held
                    if held.kind in ("object", "constant", "class", "function", "name")
                    else held._replace(make=make)
                )
        if held is None and cls is not None and name not in plain and name not in counted:
            known = cls.value(name)
            if known is not None:
                return self.value(known[1])
        if held is not None and held.kind == "object":
            return held
        state = frozenset({"state"}) if name in plain or name in counted else frozenset()
        kind = "tensor" if held is not None and held.kind == "tensor" else "text"
        return Value(kind, full, flags=state, make=make)

    def keyword(self, kwargs: Value, name: Value, default: Value | None, node: ast.AST) -> Value:
        """What a keyword argument of Join is for the hook."""
        key = str(name.ref)
        given: dict[str, Value] | None = kwargs.ref
        if kwargs.text == JOINS:
            self.asked(key, default is None, node)
        if given is not None and key in given:
            return given[key]
        if given is not None and default is not None:
            return default
        words = f"Join's keyword {key}" + (f" (default {default.text})" if default is not None else "")
        return Value("text", words, flags=frozenset({"keyword"}), ref=default)

    def asked(self, key: str, needed: bool, node: ast.AST) -> None:
        """A hook looks for a keyword."""
        self.keywords[key] = self.keywords.get(key, False) or needed

    def joined(self, a: Value, b: Value) -> Value:
        """Two lists as one; where works are in it, all of them."""
        first = a.ref if isinstance(a.ref, tuple) else ()
        second = b.ref if isinstance(b.ref, tuple) else ()
        if a.kind == "work" or b.kind == "work":
            ops = [*works(a), *works(b)]
            return Value("work", "works", ref=tuple(ops))
        return Value("sequence", f"{a.text} + {b.text}", ref=(*first, *second), flags=flags(a, b))

    # Binding

    def assign(self, target: ast.expr, found: Value) -> None:
        """Bind a target."""
        if isinstance(target, ast.Name):
            self.env[target.id] = found
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if owner.kind == "object":
                if self.quiet:
                    owner.ref.attrs[target.attr] = found
                else:
                    self.attrs[(owner.ref.name, target.attr)] = found
                    self.writes.add(f"{owner.ref.name}.{target.attr}")
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = found.ref if found.kind == "sequence" and isinstance(found.ref, tuple) else None
            for i, one in enumerate(target.elts):
                if parts is not None and len(parts) == len(target.elts):
                    self.assign(one, parts[i])
                else:
                    inner = one.value if isinstance(one, ast.Starred) else one
                    self.assign(inner, Value("text", f"{found.text}[{i}]", flags=found.flags))

    def elements(self, over: Value) -> list[Value] | None:
        """The elements of a short sequence that is known."""
        if over.kind == "sequence" and isinstance(over.ref, tuple) and len(over.ref) <= UNROLL:
            return list(over.ref)
        if over.kind == "iter":
            how, inner = over.ref[0], over.ref[1]
            if how == "range" and inner.kind == "constant" and isinstance(inner.ref, int) and 0 <= inner.ref <= UNROLL:
                return [constant(i) for i in range(inner.ref)]
            below = self.elements(inner) if how in ("enumerate", "reversed") else None
            if below is not None:
                if how == "reversed":
                    return below[::-1]
                return [Value("sequence", "pair", ref=(constant(i), one)) for i, one in enumerate(below)]
        return None

    def each(self, over: Value) -> tuple[Value, Value]:
        """What a loop goes over, and what each of it is."""
        if over.kind == "work":
            return over, over
        if over.kind == "iter":
            how, inner = over.ref[0], over.ref[1]
            if how == "range":
                return inner._replace(kind="range"), Value("text", "the round", flags=frozenset({"|int"}))
            if how == "zip":
                parts = [self.each(one) for one in over.ref[1:]]
                return parts[0][0], Value("sequence", "zip", ref=tuple(one[1] for one in parts))
            key, element = self.each(inner)
            if how == "enumerate":
                return key, Value(
                    "sequence", "pair", ref=(Value("text", "the round", flags=frozenset({"|int"})), element)
                )
            if how == "items":
                return key, Value("sequence", "pair", ref=(text(f"key of {key.text}"), element))
            if how == "reversed":
                turned = f"reversed({key.text})"
                return key._replace(
                    text=turned, make=f"reversed(list({key.make}))" if key.make else ""
                ), element._replace(text=f"each of {turned}")
            return key, element
        if (
            over.kind == "sequence"
            and isinstance(over.ref, tuple)
            and over.ref
            and all(one.kind == "work" for one in over.ref)
        ):
            return over, Value("work", "work", ref=tuple(op for one in over.ref for op in one.ref))
        return over, Value("text", f"each of {over.text}", flags=over.flags)

    # Calls are followed in the class below.

    def _call(self, node: ast.Call) -> Value:
        from .follow import called

        return called(self, node)

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        from .builtin import comprehension

        return comprehension(self, node)

    _generatorexp = _listcomp
    _setcomp = _listcomp

    def enter(self, function: Function, args: list[Value], named: dict[str, Value], node: ast.AST) -> Value:
        """Follow a function of the project."""
        from .enter import enter

        return enter(self, function, args, named, node)

    def block(self, body: list[ast.stmt]) -> None:
        """Follow statements."""
        raise NotImplementedError
