"""Statements: branches, loops, ways out. Every branch is taken, with its condition kept and its collectives apart."""

from __future__ import annotations

import ast
from collections.abc import Callable

from shardguide.guidance.hints import TYPE_CHECKING, Any

from .conditions import Test, of_test
from .loops import trip_count
from .project import dotted_text
from .records import Call, Condition, Path, Thing, Things
from .state import State
from .torch_names import short
from .trace import Branch, Item, Leave, Loop, Scope, Unknown
from .values import value as value_of

if TYPE_CHECKING:
    from .walk import Walker


class Flow(State):
    """How control goes on from one statement to the next."""

    checks: Checks

    # What an expression stands for; every call in it is told to the checks once. ``migrate`` remembers here what each
    # expression was: calls.py and values.py ask the walker, not the function.
    if TYPE_CHECKING:

        def value(self, node: ast.expr) -> Things: ...  # noqa: D102

    else:
        value = value_of

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
        how = _STATEMENTS.get(node.__class__)
        return how(self, node) if how is not None else False

    def _expression(self, node: ast.Expr) -> bool:
        given = node.value
        things = self.value(given)
        if isinstance(given, ast.Call):
            self.checks.dropped(self, given, things)  # type: ignore[arg-type]
            if _exits(given):
                self.trace.append(Leave("exit", node))
                return True
        return False

    def _assign(self, node: ast.Assign) -> bool:
        things = self.value(node.value)
        self.checks.assigned(self, node)  # type: ignore[arg-type]
        for target in node.targets:
            self.bind(target, things, node.value)
        return False

    def _annotated(self, node: ast.AnnAssign) -> bool:
        if node.value is not None:
            self.bind(node.target, self.value(node.value), node.value)
        return False

    def _augmented(self, node: ast.AugAssign) -> bool:
        self.value(node.value)
        if isinstance(node.target, ast.Name):
            self.frame.written[node.target.id] = None  # it is more than it was bound to
        return False

    def _assert(self, node: ast.Assert) -> bool:
        self._parts(node)
        test = of_test(self, node.test)  # type: ignore[arg-type]
        if any(one.kind == "rank" for one in (*test.holds, *test.fails)):
            made = Branch(node, self.frame.file, test.holds, test.fails)
            made.other.append(Leave("raise", node))
            self.trace.append(made)
        return False

    def _if(self, node: ast.If) -> bool:
        self.value(node.test)
        return self.branch(node, of_test(self, node.test), node.body, node.orelse)  # type: ignore[arg-type]

    def _for(self, node: ast.For | ast.AsyncFor) -> bool:
        things = self.value(node.iter)
        self.bind(node.target, self.elements(things, node.iter), None)
        self.checks.loop(self, node)  # type: ignore[arg-type]
        self._loop(node, things)
        return False

    def _while(self, node: ast.While) -> bool:
        self.value(node.test)
        self._loop(node, ())
        return False

    def _return(self, node: ast.Return) -> bool:
        if node.value is not None:
            self.returned(node.value, self.value(node.value))
        self.trace.append(Leave("return", node))
        return True

    def _leave(self, node: ast.Raise | ast.Continue | ast.Break) -> bool:
        self.trace.append(Leave(node.__class__.__name__.lower(), node))
        return True

    def _cases(self, node: ast.Match) -> bool:
        self._match(node, self.value(node.subject), 0)
        return False

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        made = Thing("function", node.name, node)
        made.file = self.frame.file
        self.frame.env[node.name] = (made,)
        return False

    def _parts(self, node: ast.Assert | ast.Delete) -> bool:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child)
        return False

    def arm(self, conditions: Path, body: list[ast.stmt], trace: list[Item]) -> bool:
        """Follow one arm of a branch, under its conditions."""
        before, outer = self.path, self.trace
        self.path, self.trace = (*before, *conditions), trace
        ended = self.block(body)
        self.path, self.trace = before, outer
        return ended

    def branch(self, node: ast.AST, test: Test, body: list[ast.stmt], other: list[ast.stmt]) -> bool:
        """Follow both arms of a test."""
        if test.always:
            return self.block(body)
        made = Branch(node, self.frame.file, test.holds, test.fails)
        env = dict(self.frame.env)
        first = True if test.never else self.arm(test.holds, body, made.body)
        after_first = self.frame.env
        self.frame.env = dict(env)
        second = self.arm(test.fails, other, made.other) if other else False
        after_second = self.frame.env
        if test.never:
            self.trace.extend(made.other)
        elif any(one.kind == "rank" for one in (*test.holds, *test.fails)):
            self.trace.append(made)
        elif made.body or made.other:
            self.trace.extend(only_unknown(made.body + made.other) or [made])
        if first and not second:
            self.frame.env = after_second
            self.path = (*self.path, *test.fails)
        elif second and not first:
            self.frame.env = after_first
            self.path = (*self.path, *test.holds)
        else:
            self.frame.env = either(after_first, after_second)
        return first and second and bool(other)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, things: Things) -> None:
        made = Loop(node, self.frame.file, *trip_count(self, node, things))  # type: ignore[arg-type]
        outer, self.trace = self.trace, made.body
        self.loop_depth += 1
        self.block(node.body)
        self.loop_depth -= 1
        self.trace = outer
        if made.body:
            self.trace.extend(only_unknown(made.body) or [made])
        if node.orelse:
            self.block(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> bool:
        before = self.contexts
        for item in node.items:
            things = self.value(item.context_expr)
            name = ""
            owner: Things = ()
            if isinstance(item.context_expr, ast.Call):
                function = item.context_expr.func
                name = short(self.full(function)) or self.full(function)
                if isinstance(function, ast.Attribute):
                    name = name or function.attr
                    owner = things
                elif not name:
                    for thing in self.peek(function):
                        if thing.kind == "method":  # sync = getattr(model, "no_sync", nullcontext)
                            name, owner = thing.name, things
                if name == "device" and _meta(item.context_expr):
                    name = "meta"
            self.contexts = [*self.contexts, (name, item.context_expr, owner)]
            if item.optional_vars is not None:
                self.bind(item.optional_vars, things, None)
            self.checks.context(self, node, item, name)  # type: ignore[arg-type]
        ended = self.block(node.body)
        self.contexts = before
        return ended

    def _try(self, node: ast.Try) -> bool:
        imports = any(
            _catches(handler, ("ImportError", "ModuleNotFoundError", "AttributeError")) for handler in node.handlers
        )
        key = f"{self.frame.number}:{id(node)}"
        outer = self.trace
        made = Scope("try", None)
        if node.finalbody:
            self.trace = made.body
        if imports:
            guard = Branch(node, self.frame.file, (Condition(key, True, "guard"),), (Condition(key, False, "guard"),))
            self.arm(guard.holds, node.body, guard.body)
            if guard.body:
                self.trace.append(guard)
            ended = False
        else:
            ended = self.block(node.body)
        for i, handler in enumerate(node.handlers):
            kind = "guard" if imports else "except"
            one, no = Condition(f"{key}:{i}", True, kind), Condition(f"{key}:{i}", False, kind)
            caught = Branch(handler, self.frame.file, (one,), (no,))
            self.arm((one,), handler.body, caught.body)
            if caught.body:
                self.trace.append(caught)
        ended = self.block(node.orelse) or ended
        self.trace = outer
        if not node.finalbody:
            return ended and not node.handlers
        self.trace = made.final = []
        last = self.block(node.finalbody)
        self.trace = outer
        if made.body or made.final:
            self.trace.append(made)
        return last or (ended and not node.handlers)

    def _match(self, node: ast.Match, subject: Things, at: int) -> None:
        """The cases of a match from the one at ``at`` on; each later one is what is left of the earlier."""
        if at >= len(node.cases):
            return
        case = node.cases[at]
        test = (Condition(f"{self.frame.number}:{id(node)}:{at}", True, ""),)
        pattern = case.pattern
        if isinstance(pattern, ast.MatchValue) and isinstance(pattern.value, ast.Constant) and case.guard is None:
            for thing in subject:
                if thing.kind in ("rank", "local_rank"):
                    test = (Condition(f"{thing.kind} == {pattern.value.value!r}", True, "rank", thing.sure),)
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and case.guard is None:
            self.block(case.body)
            return
        made = Branch(case, self.frame.file, test, tuple(one._replace(arm=False) for one in test))
        self.arm(made.holds, case.body, made.body)
        outer, before = self.trace, self.path
        self.trace, self.path = made.other, (*before, *made.fails)
        self._match(node, subject, at + 1)
        self.trace, self.path = outer, before
        if made.body or made.other:
            self.trace.append(made)

    # What the walker adds

    def bind(self, target: ast.expr, things: Things, value: ast.expr | None) -> None:
        """Give names what an expression stands for."""
        raise NotImplementedError

    def elements(self, things: Things, node: ast.expr) -> Things:
        """What a loop over an iterable takes from it."""
        raise NotImplementedError

    def returned(self, node: ast.expr, things: Things) -> None:
        """A function returns things."""
        raise NotImplementedError

    def full(self, node: ast.AST) -> str:
        """The full name of something from outside the project."""
        raise NotImplementedError

    def peek(self, node: ast.expr) -> Things:
        """What an expression that was looked at before stands for."""
        raise NotImplementedError


_STATEMENTS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Expr: Flow._expression,
    ast.Assign: Flow._assign,
    ast.AnnAssign: Flow._annotated,
    ast.AugAssign: Flow._augmented,
    ast.If: Flow._if,
    ast.For: Flow._for,
    ast.AsyncFor: Flow._for,
    ast.While: Flow._while,
    ast.With: Flow._with,
    ast.AsyncWith: Flow._with,
    ast.Try: Flow._try,
    getattr(ast, "TryStar", ast.Try): Flow._try,  # 3.10 has none
    ast.Return: Flow._return,
    ast.Raise: Flow._leave,
    ast.Continue: Flow._leave,
    ast.Break: Flow._leave,
    ast.Match: Flow._cases,
    ast.FunctionDef: Flow._function,
    ast.AsyncFunctionDef: Flow._function,
    ast.Assert: Flow._assert,
    ast.Delete: Flow._parts,
}


def only_unknown(items: list[Item]) -> list[Item]:
    """The first of calls that cannot be followed, if there is nothing else."""
    for item in items:
        if item.__class__ is not Unknown:
            return []
    return items[:1]


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


def either(one: dict[str, Things], other: dict[str, Things]) -> dict[str, Things]:
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
