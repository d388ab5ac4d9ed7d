"""Follows a program statement by statement, as far as reading allows: what names stand for, under which conditions, in what order.

Calls into the project are followed with their arguments. Branches are all taken, each with its condition kept, so that a
check can tell what surely happened from what may have. Nothing is run.
"""

from __future__ import annotations

import ast

from .calls import BUILTINS, PLAIN, QUIET
from .flow import Checks as Checks
from .flow import Flow
from .project import Definition, File, Project, dotted_text
from .records import Condition, Thing, Things
from .state import Facts
from .trace import Scope, quiet

_DEPTH = 7  # calls into the project, one inside the other
_TIMES, _OFTEN = 2, 4  # how often a function is followed: with nothing known of its arguments, and with something
_NOTABLE = frozenset(
    {"constant", "fsdp1", "ddp", "optimizer", "rank", "sampler", "scaler", "modulelist", "params", "module"}
)
_SLIGHT = frozenset({"escaped", "called", "looped over", "filled"})  # marks that make nothing of a thing
RANKS = {"rank": "rank", "global_rank": "rank", "local_rank": "local_rank"}


class Walker(Flow):
    """Follows one root (a module's own code, a function nobody calls, a class) and tells the checks of every call."""

    def __init__(self, project: Project, checks: Checks, facts: Facts, follow: set[ast.AST]) -> None:
        super().__init__(project, facts)
        self.checks = checks
        self.seen: set[ast.AST] = set()  # functions and classes that were followed
        self.globals: dict[int, dict[str, Things]] = {}  # what a module's own code has bound, by file
        self.interesting = follow  # functions that lead to something of interest
        self.cache: dict[int, Things] = {}
        self.parts: list[Things] | None = None  # what the tuple holds that the last function returned
        self.tuples: dict[int, list[Things]] = {}  # the same by call
        self.tests: dict[ast.expr, str] = {}  # what tests ask; see conditions.about
        self.placed: set[ast.AST] = set()  # tests of the rank that decide about no collective, each said once
        self.summaries: dict[ast.AST, tuple[Scope, int, int, Things]] = {}  # what functions execute and return
        self.times: dict[ast.AST, int] = {}  # how often a function was followed
        self.calm: dict[ast.AST, bool] = {}  # functions that do nothing of interest; see harmless()

    # Roots

    def module(self, file: File) -> None:
        """Follow a module's own statements."""
        self.reset()
        self.frame = self.new_frame(file)
        self.frame.top = True
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
        """Follow a class: its constructor, then each method that none of the others calls, on one object."""
        self.reset()
        self.frame = self.new_frame(file)
        owner = Thing("instance", node.name, node)
        owner.file = file
        owner.attrs["class"] = (Thing("class", node.name, node),)
        owner.attrs["class"][0].file = file
        methods = [
            item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and self.worth(item)
        ]
        called = _methods_called(file, methods)
        methods.sort(key=lambda item: (item.name not in ("__init__", "setup"), item.name in called))
        begun = node in self.seen  # on an object that the project makes
        for item in methods:
            if item in self.seen and (begun or item.name in called) and item.name != "__init__":
                continue  # it was followed from where it is called
            # Which methods run, and in what order, only the caller knows.
            self.path = () if item.name == "__init__" else (Condition(f"method {item.name}", True, ""),)
            self.trace = []
            self.roots.append(self.trace)
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
        bound: dict[str, Things] | None = None,
    ) -> Things:
        """Follow a body; returns what it returns. A ``closure`` sees the names around it, a ``root`` has unknown arguments."""
        node = target.node
        if isinstance(node, ast.ClassDef):
            return ()
        if node in self.stack or len(self.stack) > _DEPTH or self.budget < 0:
            self.cannot_follow(f"{node.name}()", node)
            return ()
        times = self.times[node] = self.times.get(node, 0) + 1
        if times > (_OFTEN if self.notable(args, named, owner) else _TIMES) and self.stack:
            self.escape((*args, *named.values()), node)
            return self._again(node)
        self.seen.add(node)
        self.stack.append(node)
        outer, path, contexts, trace = self.frame, self.path, self.contexts, self.trace
        if outer.top:
            self.globals[id(outer.file)] = outer.env
        self.frame = self.new_frame(target.file)
        if closure:
            self.frame.env.update(outer.env)
        if bound:
            self.frame.env.update(bound)
        self._arguments(target, args, named, owner, root)
        scope = Scope(node.name, node)
        self.trace = scope.body
        met = self.met
        self.block(node.body)
        returned = (
            tuple(dict.fromkeys(self.frame.returns)) if len(self.frame.returns) > 1 else tuple(self.frame.returns)
        )
        self.parts = self.frame.parts
        self.frame, self.path, self.contexts, self.trace = outer, path, contexts, trace
        self.stack.pop()
        if self.met == met and scope.body:
            scope.body = quiet(scope.body, self.verdicts, self.placed)
            trace.extend(scope.body)
        elif scope.body:
            trace.append(scope)
        self.summaries[node] = (scope, len(path), scope.seen.parts, returned)
        return returned

    def _again(self, node: ast.AST) -> Things:
        """A function that has been followed often enough: what it executes and whether it returns a rank are known."""
        known = self.summaries.get(node)
        if known is None or known[2] > self.copies:
            self.cannot_follow(f"{getattr(node, 'name', '')}()", node)
            return ()
        scope, cut, parts, returned = known
        if parts:
            self.copies -= parts
            copy = scope.again(cut, self.path)
            self.trace.append(copy)
            met = copy.events
            self.met += len(met)
            self.events.extend(event for event in met if event.code)
        return tuple(thing for thing in returned if thing.kind in ("rank", "local_rank", "rank_test"))

    def _arguments(
        self, target: Definition, args: tuple[Things, ...], named: dict[str, Things], owner: Thing | None, root: bool
    ) -> None:
        """Give a function's parameters what the call hands over."""
        node, env = target.node, self.frame.env
        assert not isinstance(node, ast.ClassDef)
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        if target.owner is not None and names and not _static(node):
            env[names.pop(0)] = (owner,) if owner is not None else (Thing("instance", target.owner.name),)
        flags = {} if root else _flags(node)
        for name, given in zip(names, args, strict=False):
            flags.pop(name, None)
            env[name] = given
        keywords = [*names, *(argument.arg for argument in node.args.kwonlyargs)]
        for name in keywords:
            if named.get(name):
                env[name] = named[name]
            elif name in flags:
                # Of a text nothing is known but where it is written.
                env[name] = self.value(flags[name]) or (Thing("unknown", name, flags[name], sure=False),)
            elif not env.get(name):
                env[name] = (Thing(RANKS.get(name, "unknown"), name, node, sure=False),)
        if node.args.vararg is not None:
            self.frame.rest = (node.args.vararg.arg, args[len(names) :])
        if node.args.kwarg is not None:
            left = {name: things for name, things in named.items() if name not in keywords}
            self.frame.options = (node.args.kwarg.arg, left)

    def returned(self, node: ast.expr, things: Things) -> None:
        """A function returns things; of a tuple each part is kept apart, if it is the only one that is returned."""
        frame = self.frame
        if isinstance(node, ast.Tuple) and frame.parts is None and not frame.returns:
            frame.parts = [self.peek(element) for element in node.elts]
        else:
            frame.parts = [] if frame.returns or frame.parts else None
        frame.returns.extend(things)

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
            given = self.tuples.get(id(value)) if value is not None else None
            if given is not None and len(given) == len(target.elts):
                for element, one in zip(target.elts, given, strict=True):
                    self.bind(element, one, None)
                return
            if things and not parts and all(thing.kind in ("param", "submodule", "unknown") for thing in things):
                # for name, parameter in model.named_parameters(); for i, block in enumerate(model.blocks)
                for element in target.elts[:-1]:
                    self.bind(element, (), None)
                self.bind(target.elts[-1], things, None)
                return
            for i, element in enumerate(target.elts):
                self.bind(element, self.peek(parts[i]) if parts else (), None)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, (), None)
        elif isinstance(target, ast.Subscript):
            for owner in self.value(target.value):
                owner.attrs["[]"] = (*owner.attrs.get("[]", ()), *things)

    def elements(self, things: Things, node: ast.expr) -> Things:
        """What a loop over an iterable takes from it."""
        if isinstance(node, (ast.Tuple, ast.List)):
            return things
        out: list[Thing] = []
        for thing in things:
            if thing.kind in ("params", "modules"):
                one = Thing("param" if thing.kind == "params" else "submodule", thing.name, node)
                one.of = thing.of
                out.append(one)
            elif thing.kind in ("unknown", "module", "modulelist", "fsdp1", "ddp", "submodule"):
                out.append(self.child(thing, "[]"))
            elif thing.kind == "param":  # of a list or dictionary of them
                out.append(thing)
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

    def worth(self, node: ast.AST) -> bool:
        """Whether a function leads to anything of interest."""
        return node in self.interesting

    def harmless(self, target: Definition) -> bool:
        """Whether all that a function calls is known to be no collective: builtins, texts and lists, others of the kind."""
        known = self.calm.get(target.node)
        if known is None:
            self.calm[target.node] = True  # one that calls itself
            known = self.calm[target.node] = all(
                self._calm(target.file, inner) for inner in ast.walk(target.node) if isinstance(inner, ast.Call)
            )
        return known

    def _calm(self, file: File, call: ast.Call) -> bool:
        text = dotted_text(call.func)
        found = self.project.resolve(file, text) if text and file.knows(text.partition(".")[0]) else ""
        if isinstance(found, Definition):
            return not isinstance(found.node, ast.ClassDef) and not self.worth(found.node) and self.harmless(found)
        if found or not isinstance(call.func, ast.Attribute):
            return found.startswith(PLAIN) or (not found and text in BUILTINS)
        return call.func.attr in QUIET

    def notable(self, args: tuple[Things, ...], named: dict[str, Things], owner: Thing | None) -> bool:
        """Whether a call hands over anything whose kind is known: such calls are followed more often."""
        for things in (*args, *named.values(), (owner,) if owner is not None else ()):
            for thing in things:
                if thing.kind in _NOTABLE:
                    return True
                if any(what not in _SLIGHT and not what.startswith("method ") for what in thing.had):
                    return True
        return False

    def peek(self, node: ast.expr) -> Things:
        """What an expression that was looked at before stands for, without telling the checks again."""
        if isinstance(node, (ast.Call, ast.Compare, ast.BoolOp)):
            return self.cache.get(id(node), ())
        if isinstance(node, ast.NamedExpr):
            return self.value(node.target)
        return self.value(node) if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) else ()

    def full(self, node: ast.AST) -> str:
        """The full name of something from outside the project; "" for anything else."""
        found = self.resolved(node)
        return found if isinstance(found, str) else ""

    def resolved(self, node: ast.AST) -> str | Definition:
        """What a dotted name means: a definition of the project, or the full name of something from outside; "" for anything else."""
        inner = node
        while inner.__class__ is ast.Attribute:
            inner = inner.value
        if inner.__class__ is not ast.Name:
            return ""
        head: str = inner.id
        file = self.frame.file
        if (head not in file.heads and not file.stars) or (head in self.frame.env and head not in file.imports):
            return ""
        return self.project.resolve(file, dotted_text(node))


def _methods_called(file: File, methods: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> set[str]:
    """Which of the methods are called as such by any of them."""
    names = {item.name for item in methods}
    found = names & set().union(*(file.calls[item] for item in methods))
    unclear = found & file.survey.plainly
    if unclear:  # self.run() and run() have the same name
        found -= unclear
        for item in methods:
            for call in ast.walk(item):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in unclear:
                    found.add(call.func.attr)
    return found


def _flags(node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    """Parameters whose default is a plain constant, with it."""
    places = [*node.args.posonlyargs, *node.args.args]
    pairs = [
        *zip(places[len(places) - len(node.args.defaults) :], node.args.defaults, strict=True),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ]
    return {
        one.arg: value
        for one, value in pairs
        if isinstance(value, ast.Constant) and isinstance(value.value, (bool, str))
    }


def _static(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in node.decorator_list)
