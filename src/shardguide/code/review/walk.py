"""Follows a program statement by statement, as far as reading allows: what names stand for, under which conditions, in what order.

Calls into the project are followed with their arguments. Branches are all taken, each with its condition kept, so that a
check can tell what surely happened from what may have. Nothing is run.
"""

from __future__ import annotations

import ast

from .conditions import of_test
from .project import Definition, File, Project, dotted_text
from .records import Call, Condition, Path, Thing, Things
from .state import Facts, State
from .torch_names import short
from .values import value

_DEPTH = 7  # calls into the project, one inside the other
_TIMES, _OFTEN = 4, 20  # how often a function is followed: with nothing known of its arguments, and with something
_NOTABLE = frozenset({"fsdp1", "ddp", "optimizer", "rank", "sampler", "scaler", "modulelist", "params", "module"})
_RANKS = {"rank": "rank", "global_rank": "rank", "local_rank": "local_rank"}


class Walker(State):
    """Follows one root (a module's own code, a function nobody calls, a class) and tells the checks of every call."""

    def __init__(self, project: Project, checks: Checks, facts: Facts, follow: set[ast.AST]) -> None:
        super().__init__(project, facts)
        self.checks = checks
        self.seen: set[ast.AST] = set()  # functions and classes that were followed
        self.globals: dict[int, dict[str, Things]] = {}  # what a module's own code has bound, by file
        self.interesting = follow  # functions that lead to something of interest
        self.cache: dict[int, Things] = {}
        self.times: dict[ast.AST, int] = {}  # how often a function was followed

    # Roots

    def module(self, file: File) -> None:
        """Follow a module's own statements."""
        self.reset()
        self.frame = self.new_frame(file)
        self.block(file.tree.body)
        self.globals[id(file)] = self.frame.env
        self.checks.end(self)

    def function(self, definition: Definition, owner: Thing | None = None) -> None:
        """Follow a function with unknown arguments."""
        self.reset()
        self.frame = self.new_frame(definition.file)
        self.enter(definition, (), {}, owner, root=True)
        self.checks.end(self)

    def whole_class(self, file: File, node: ast.ClassDef) -> None:
        """Follow a class: its constructor, then each method, on one object."""
        self.reset()
        self.frame = self.new_frame(file)
        owner = Thing("instance", node.name, node)
        owner.file = file
        methods = [item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
        methods.sort(key=lambda item: item.name not in ("__init__", "setup"))
        for item in methods:
            first = item.name in ("__init__",)
            # Which methods run, and in what order, only the caller knows.
            self.path = () if first else (Condition(f"method {item.name}", True, ""),)
            if not self.worth(item):
                continue
            self.enter(Definition(file, item, node), (), {}, owner, root=True)
        self.path = ()
        self.checks.end(self)

    def enter(
        self,
        target: Definition,
        args: tuple[Things, ...],
        named: dict[str, Things],
        owner: Thing | None,
        closure: bool = False,
        root: bool = False,
    ) -> Things:
        """Follow a body; returns what it returns. A ``closure`` sees the names around it, a ``root`` has unknown arguments."""
        node = target.node
        if isinstance(node, ast.ClassDef) or node in self.stack or len(self.stack) > _DEPTH or self.budget < 0:
            return ()
        times = self.times[node] = self.times.get(node, 0) + 1
        if times > (_OFTEN if self.notable(args, named, owner) else _TIMES) and self.stack:
            self.escape((*args, *named.values()), node)
            return ()
        self.seen.add(node)
        self.stack.append(node)
        outer, path, contexts = self.frame, self.path, self.contexts
        self.frame = self.new_frame(target.file)
        if closure:
            self.frame.env.update(outer.env)
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        if target.owner is not None and names and not _static(node):
            self.frame.env[names.pop(0)] = (owner,) if owner is not None else (Thing("instance", target.owner.name),)
        flags = {} if root else _flags(node)
        for name, given in zip(names, args, strict=False):
            flags.pop(name, None)
            self.frame.env[name] = given
        for name in (*names, *(argument.arg for argument in node.args.kwonlyargs)):
            if named.get(name):
                self.frame.env[name] = named[name]
            elif name in flags:
                self.frame.env[name] = self.value(flags[name])
            elif not self.frame.env.get(name):
                self.frame.env[name] = (Thing(_RANKS.get(name, "unknown"), name, node, sure=False),)
        self.block(node.body)
        returned = tuple(self.frame.returns)
        self.frame, self.path, self.contexts = outer, path, contexts
        self.stack.pop()
        return returned

    # Statements

    def block(self, body: list[ast.stmt]) -> bool:
        """Follow statements; True where the end is never reached."""
        before = self.path
        ended = False
        for statement in body:
            self.budget -= 1
            if self.budget < 0:
                break
            ended = self.statement(statement)
            if ended:
                break
        self.path = before
        return ended

    def statement(self, node: ast.stmt) -> bool:
        """Follow one statement; True when control does not go on after it."""
        if isinstance(node, ast.Expr):
            value = node.value
            things = self.value(value)
            if isinstance(value, ast.Call):
                self.checks.dropped(self, value, things)
                return _exits(value)
        elif isinstance(node, ast.Assign):
            things = self.value(node.value)
            self.checks.assigned(self, node)
            for target in node.targets:
                self.bind(target, things, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            if node.value is not None:
                things = self.value(node.value)
                if isinstance(node, ast.AnnAssign):
                    self.bind(node.target, things, node.value)
        elif isinstance(node, ast.If):
            return self._if(node)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.bind(node.target, self.elements(self.value(node.iter), node.iter), None)
            self.checks.loop(self, node)
            self.loop_depth += 1
            self.block(node.body)
            self.loop_depth -= 1
            self.block(node.orelse)
        elif isinstance(node, ast.While):
            self.value(node.test)
            self.loop_depth += 1
            self.block(node.body)
            self.loop_depth -= 1
            self.block(node.orelse)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            return self._with(node)
        elif isinstance(node, ast.Try) or node.__class__.__name__ == "TryStar":
            return self._try(node)  # type: ignore[arg-type]  # 3.10 has no TryStar
        elif isinstance(node, ast.Return):
            if node.value is not None:
                self.frame.returns.extend(self.value(node.value))
            return True
        elif isinstance(node, (ast.Raise, ast.Continue, ast.Break)):
            return True
        elif isinstance(node, ast.Match):
            self.value(node.subject)
            for i, case in enumerate(node.cases):
                self._arm((Condition(f"{self.frame.number}:{id(node)}:{i}", True, ""),), case.body)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            made = Thing("function", node.name, node)
            made.file = self.frame.file
            self.frame.env[node.name] = (made,)
        elif isinstance(node, ast.ClassDef):
            pass
        elif isinstance(node, (ast.Assert, ast.Delete)):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.value(child)
        return False

    def _arm(self, conditions: Path, body: list[ast.stmt]) -> bool:
        before = self.path
        self.path = (*before, *conditions)
        ended = self.block(body)
        self.path = before
        return ended

    def _if(self, node: ast.If) -> bool:
        self.value(node.test)
        test = of_test(self, node.test)
        env = dict(self.frame.env)
        if test.always:
            return self.block(node.body)
        first = True if test.never else self._arm(test.holds, node.body)
        after_first = self.frame.env
        self.frame.env = dict(env)
        second = self._arm(test.fails, node.orelse) if node.orelse else False
        after_second = self.frame.env
        if first and not second:
            self.frame.env = after_second
            self.path = (*self.path, *test.fails)
        elif second and not first:
            self.frame.env = after_first
            self.path = (*self.path, *test.holds)
        else:
            self.frame.env = _either(after_first, after_second)
        return first and second and bool(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> bool:
        before = self.contexts
        for item in node.items:
            things = self.value(item.context_expr)
            name = ""
            owner: Things = ()
            if isinstance(item.context_expr, ast.Call):
                name = short(self.full(item.context_expr.func)) or self.full(item.context_expr.func)
                if isinstance(item.context_expr.func, ast.Attribute):
                    name = name or item.context_expr.func.attr
                    owner = things
                if name == "device" and _meta(item.context_expr):
                    name = "meta"
            self.contexts = [*self.contexts, (name, item.context_expr, owner)]
            if item.optional_vars is not None:
                self.bind(item.optional_vars, things, None)
            self.checks.context(self, node, item, name)
        ended = self.block(node.body)
        self.contexts = before
        return ended

    def _try(self, node: ast.Try) -> bool:
        imports = any(
            _catches(handler, ("ImportError", "ModuleNotFoundError", "AttributeError")) for handler in node.handlers
        )
        key = f"{self.frame.number}:{id(node)}"
        if imports:
            self._arm((Condition(key, True, "guard"),), node.body)
            ended = False
        else:
            ended = self.block(node.body)
        for i, handler in enumerate(node.handlers):
            self._arm((Condition(f"{key}:{i}", True, "guard" if imports else "except"),), handler.body)
        ended = self.block(node.orelse) or ended
        return self.block(node.finalbody) or (ended and not node.handlers)

    def bind(self, target: ast.expr, things: Things, value: ast.expr | None) -> None:
        """Give names what an expression stands for. A flag may change in a loop, so what it is bound to says nothing."""
        things = tuple(thing for thing in things if thing.kind != "constant")
        if isinstance(target, ast.Name):
            self.frame.written[target.id] = value if target.id not in self.frame.written else None
            self.frame.env[target.id] = things or (Thing("unknown", target.id, target, sure=False),)
        elif isinstance(target, ast.Attribute):
            for owner in self.value(target.value):
                owner.attrs[target.attr] = things
                if target.attr == "requires_grad" or target.attr == "weight":
                    self.checks.attribute_set(self, owner, target, things)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = (
                value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else []
            )
            if things and not parts and all(thing.kind in ("param", "submodule", "unknown") for thing in things):
                # for name, parameter in model.named_parameters(); for i, block in enumerate(model.blocks)
                for element in target.elts[:-1]:
                    self.bind(element, (), None)
                self.bind(target.elts[-1], things, None)
                return
            for i, element in enumerate(target.elts):
                self.bind(element, self.value(parts[i]) if parts and isinstance(parts[i], ast.Name) else (), None)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, (), None)
        elif isinstance(target, ast.Subscript):
            for owner in self.value(target.value):
                owner.attrs["[]"] = (*owner.attrs.get("[]", ()), *things)

    def elements(self, things: Things, node: ast.expr) -> Things:
        """What a loop over an iterable takes from it."""
        out: list[Thing] = []
        for thing in things:
            if thing.kind in ("params", "modules"):
                one = Thing("param" if thing.kind == "params" else "submodule", thing.name, node)
                one.of = thing.of
                out.append(one)
            elif thing.kind in ("unknown", "module", "modulelist", "fsdp1", "ddp", "submodule"):
                out.append(self.child(thing, "[]"))
        return tuple(out)

    def child(self, thing: Thing, name: str) -> Thing:
        """A part of a thing: ``model.layers``; the same one each time it is asked for."""
        have = thing.attrs.get(name)
        if have:
            return have[0]
        made = Thing("unknown", f"{thing.name}.{name}", thing.node, sure=False)
        made.of = (thing,)
        thing.attrs[name] = (made,)
        return made

    def worth(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether a function leads to anything of interest."""
        return node in self.interesting

    def notable(self, args: tuple[Things, ...], named: dict[str, Things], owner: Thing | None) -> bool:
        """Whether a call hands over anything whose kind is known: such calls are followed more often."""
        groups = (*args, *named.values(), (owner,) if owner is not None else ())
        return any(thing.kind in _NOTABLE or thing.marks for things in groups for thing in things)

    def peek(self, node: ast.expr) -> Things:
        """What an expression that was looked at before stands for, without telling the checks again."""
        if isinstance(node, (ast.Call, ast.Compare, ast.BoolOp)):
            return self.cache.get(id(node), ())
        return self.value(node) if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) else ()

    # Expressions: see values.py

    def value(self, node: ast.expr) -> Things:
        """What an expression stands for; every call in it is told to the checks once."""
        return value(self, node)

    def full(self, node: ast.AST) -> str:
        """The full name of something from outside the project; "" for anything else."""
        text = dotted_text(node)
        if not text:
            return ""
        head = text.partition(".")[0]
        if head in self.frame.env and head not in self.frame.file.imports:
            return ""
        found = self.project.resolve(self.frame.file, text)
        return found if isinstance(found, str) else ""


class Checks:
    """What the walker tells; see checks/__init__.py."""

    def call(self, walker: Walker, call: Call) -> None:
        """Tell of a call."""

    def dropped(self, walker: Walker, node: ast.Call, things: Things) -> None:
        """Tell of a call whose result nobody takes."""

    def loop(self, walker: Walker, node: ast.For | ast.AsyncFor) -> None:
        """Tell of a loop."""

    def context(self, walker: Walker, node: ast.With | ast.AsyncWith, item: ast.withitem, name: str) -> None:
        """Tell of a with statement."""

    def assigned(self, walker: Walker, node: ast.Assign) -> None:
        """Tell of an assignment."""

    def attribute_set(self, walker: Walker, owner: Thing, node: ast.Attribute, things: Things) -> None:
        """Tell of an assignment to an attribute."""

    def end(self, walker: Walker) -> None:
        """Tell that a root was followed to its end."""


def _flags(node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    """Parameters whose default is a plain constant, with it."""
    places = [*node.args.posonlyargs, *node.args.args]
    pairs = [
        *zip(places[len(places) - len(node.args.defaults) :], node.args.defaults, strict=True),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ]
    return {one.arg: value for one, value in pairs if isinstance(value, ast.Constant) and isinstance(value.value, bool)}


def _static(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in node.decorator_list)


def _either(one: dict[str, Things], other: dict[str, Things]) -> dict[str, Things]:
    """What names stand for after two branches."""
    out = dict(one)
    for name, things in other.items():
        have = out.get(name)
        out[name] = things if not have or have is things else tuple(dict.fromkeys((*have, *things)))[:8]
    return out


def _exits(node: ast.Call) -> bool:
    return dotted_text(node.func) in ("sys.exit", "exit", "quit", "os._exit", "os.abort")


def _meta(node: ast.Call) -> bool:
    return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == "meta"


def _catches(handler: ast.ExceptHandler, names: tuple[str, ...]) -> bool:
    if handler.type is None:
        return False
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(dotted_text(item).rpartition(".")[2] in names for item in types)
