"""Statements: branches, loops, ways out. Every branch is taken, with its condition kept and its collectives apart."""

from __future__ import annotations

import ast
from collections.abc import Callable

from shardguide.guidance.hints import TYPE_CHECKING, Any

from .calls import manage
from .conditions import Test, of_test
from .loops import trip_count
from .project import dotted_text
from .records import Condition, Path, Thing, Things
from .state import State
from .telling import Checks as Checks
from .torch_names import short
from .trace import Branch, Item, Leave, Loop, Scope, breaks, only_unknown
from .values import value as value_of

if TYPE_CHECKING:
    pass


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
            self._otherwise(node, breaks(made.body))

    def _otherwise(self, node: ast.For | ast.AsyncFor | ast.While, ways: list[Path]) -> None:
        """The else of a loop: for those that did not break out of it."""
        before, outer = self.path, self.trace
        for way in ways:
            one = len(way) == 1
            fails = way[0]._replace(arm=not way[0].arm) if one else Condition(f"{id(node)}:{len(self.path)}", False, "")
            made = Branch(node, self.frame.file, way, (fails,))
            self.trace.append(made)
            self.trace, self.path = made.other, (*self.path, fails)
        self.block(node.orelse)
        self.trace, self.path = outer, before

    def _with(self, node: ast.With | ast.AsyncWith) -> bool:
        before = self.contexts
        managers: list[Thing] = []
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
            managers += [thing for thing in things if thing.kind == "instance"]
            for thing in managers[-1:] if things else ():
                manage(self, thing, "__enter__")  # type: ignore[arg-type]
            if item.optional_vars is not None:
                self.bind(item.optional_vars, things, None)
            self.checks.context(self, node, item, name)  # type: ignore[arg-type]
        ended = self._managed(node, managers) if managers else self.block(node.body)
        self.contexts = before
        return ended

    def _managed(self, node: ast.With | ast.AsyncWith, managers: list[Thing]) -> bool:
        """The body, and what objects of the project do when it is left, on whatever way."""
        outer, made = self.trace, Scope("with", None)
        self.trace = made.body
        ended = self.block(node.body)
        self.trace = made.final = []
        for thing in reversed(managers):
            manage(self, thing, "__exit__")  # type: ignore[arg-type]
        self.trace = outer
        if not made.final:
            self.trace.extend(made.body)
        elif made.body or made.final:
            self.trace.append(made)
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
        test = self._case(node, case, subject, at)
        if not test:
            self.block(case.body)
            return
        one = len(test) == 1
        own = Condition(f"{self.frame.number}:{id(case)}", False, "")
        made = Branch(case, self.frame.file, test, (test[0]._replace(arm=not test[0].arm),) if one else (own,))
        env = dict(self.frame.env)
        self.arm(made.holds, case.body, made.body)
        after, self.frame.env = self.frame.env, env
        outer, before = self.trace, self.path
        self.trace, self.path = made.other, (*before, *made.fails)
        self._match(node, subject, at + 1)
        self.trace, self.path = outer, before
        self.frame.env = either(after, self.frame.env)
        if made.body or made.other:
            self.trace.append(made)

    def _case(self, node: ast.Match, case: ast.match_case, subject: Things, at: int) -> Path:
        """The conditions of a case; none where whatever comes fits."""
        pattern, guard = case.pattern, case.guard
        test: Path = (Condition(f"{self.frame.number}:{id(node)}:{at}", True, ""),)
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
            test = ()
        for thing in subject if test else ():
            numbers = _numbers(pattern)
            if thing.kind in ("rank", "local_rank") and numbers:
                said = f"== {numbers[0]}" if len(numbers) == 1 else f"in ({', '.join(numbers)})"
                test = (Condition(f"{thing.kind} {said}", True, "rank", thing.sure),)
        if guard is not None:
            self.value(guard)
            test = (*test, *of_test(self, guard).holds)  # type: ignore[arg-type]
        return test

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


def either(one: dict[str, Things], other: dict[str, Things]) -> dict[str, Things]:
    """What names stand for after two branches."""
    out = dict(one)
    for name, things in other.items():
        have = out.get(name)
        out[name] = things if not have or have is things else tuple(dict.fromkeys((*have, *things)))[:8]
    return out


def _numbers(pattern: ast.pattern) -> list[str]:
    """The numbers that a pattern is or names side by side: ``case 0 | 1``; none for any other."""
    parts = pattern.patterns if isinstance(pattern, ast.MatchOr) else [pattern]
    found = [
        repr(one.value.value)
        for one in parts
        if isinstance(one, ast.MatchValue) and isinstance(one.value, ast.Constant)
    ]
    return found if len(found) == len(parts) else []


def _exits(node: ast.Call) -> bool:
    return dotted_text(node.func) in ("sys.exit", "exit", "quit", "os._exit", "os.abort")


def _meta(node: ast.Call) -> bool:
    return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == "meta"


def _catches(handler: ast.ExceptHandler, names: tuple[str, ...]) -> bool:
    if handler.type is None:
        return False
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(dotted_text(item).rpartition(".")[2] in names for item in types)
