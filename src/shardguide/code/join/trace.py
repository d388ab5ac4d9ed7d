"""Follows a function on one way through it: statements in order, each open test decided by a list of decisions.

``paths`` runs a function again for every combination of open tests, so each way is a straight list of steps. Nothing of the
user's is executed: names stand for values of ``values.py``.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable

from ..review.project import dotted_text
from ..review.survey import inner_statements
from .evaluate import Evaluator
from .steps import Event, Loop, Path, Site, Unknown
from .values import Function, Value, constant, flags, text
from .world import Return, Stop

PATHS = 96  # ways through one function; more are not told apart


class Tracer(Evaluator):
    """One world: a project, its classes, and the way that is being followed."""

    def paths(self, start: Callable[[], Value], most: int = PATHS) -> tuple[list[Path], bool]:
        """Every way through ``start``, and whether that is all of them."""
        out: list[Path] = []
        decisions: list[bool] = []
        whole = True
        while len(out) < most and (self.world.left > 0 or not out):
            self.begin(decisions)
            try:
                result = start()
            except Return as found:
                result = found.value
            except Stop:
                result = None
            if result is not None:
                out.append(
                    Path(
                        tuple(self.items),
                        tuple(self.choices),
                        result,
                        frozenset(self.writes),
                        dict(self.last_env),
                        tuple(self.sites),
                    )
                )
            whole = whole and not self.cut
            decisions = list(self.decisions)
            while decisions and not decisions[-1]:
                decisions.pop()
            if not decisions:
                return out, whole
            decisions[-1] = False
        return out, False

    def block(self, body: list[ast.stmt]) -> None:
        """Follow statements."""
        for node in body:
            self.budget -= 1
            self.world.left -= 1
            if self.budget < 0 or self.world.left < 0:
                self.cut = True
                self.add(Unknown("too much to follow", node, self.file, self.owner))
                raise Return(text("unknown"))
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        """Follow one statement."""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield) and self.yields:
            self._yielded()
        elif isinstance(node, ast.Expr):
            self.value(node.value)
        elif isinstance(node, ast.Assign):
            found = self.value(node.value)
            for target in node.targets:
                self.assign(target, found)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.assign(node.target, self.value(node.value))
        elif isinstance(node, ast.AugAssign):
            self._augmented(node)
        elif isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._for(node)
        elif isinstance(node, ast.While):
            self._while(node)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            self._with(node)
        elif isinstance(node, ast.Try):
            self._try(node)
        elif isinstance(node, ast.Return):
            raise Return(self.value(node.value) if node.value is not None else constant(None))
        elif isinstance(node, ast.Raise):
            raise Stop
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.env[node.name] = Value("function", node.name, ref=Function(self.file, node, self.cls, None, self.env))
        elif isinstance(node, ast.ClassDef):
            cls = self.classes.of(self.file, node)
            cls.around = self.env
            self.env[node.name] = Value("class", node.name, ref=cls)
        elif isinstance(node, (ast.Continue, ast.Break)):
            raise Skip
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            return
        elif isinstance(node, (ast.Match,)) and self.relevant(node):
            self.add(Unknown("a match statement", node, self.file, self.owner))

    def _augmented(self, node: ast.AugAssign) -> None:
        found = self.value(node.value)
        target = node.target
        before = self.value(target) if isinstance(target, (ast.Name, ast.Attribute)) else text("unknown")
        if before.kind == "tensor":
            after = before._replace(fill="")
        elif before.kind == "sequence" and found.kind in ("sequence", "work"):
            after = self.joined(before, found)
        else:
            after = text(f"{before.text} {type(node.op).__name__} {found.text}", before, found)
        if isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if owner.kind == "object":
                self.writes.add(f"+{owner.text}.{target.attr}")
        self.assign(target, after)

    def _if(self, node: ast.If) -> None:
        if self.quiet:
            self._both(node)
            return
        if _only_raises(node.body) and not self.relevant(node.test):
            self.block(node.orelse)
            return
        if not self.relevant(node) and not _leaves(node):
            self._both(node)
            return
        self.block(node.body if self.truth(node.test) else node.orelse)

    def _both(self, node: ast.If) -> None:
        """A test that decides no collective: what its branches bind is kept where they agree."""
        known = self.known(node.test)
        if known is not None:
            self.block(node.body if known else node.orelse)
            return
        holder = self.env.get("self")
        held = holder.ref if self.quiet and holder is not None and holder.kind == "object" else None
        start = dict(held.attrs) if held is not None else {}
        before, attrs = dict(self.env), dict(self.attrs)
        self._quietly(node.body)
        yes, yes_attrs = dict(self.env), dict(self.attrs)
        first = dict(held.attrs) if held is not None else {}
        if held is not None:
            held.attrs = start
        self.env.clear()
        self.env.update(before)
        self.attrs = dict(attrs)
        self._quietly(node.orelse)
        no, no_attrs = dict(self.env), dict(self.attrs)
        differ = [name for name in {*yes, *no} if yes.get(name) != no.get(name)]
        tensors = [
            name for name in differ if name in yes and name in no and yes[name].kind == no[name].kind == "tensor"
        ]
        if not self.quiet and (
            tensors or any(no_attrs.get(k) != v for k, v in yes_attrs.items() if v.kind == "tensor")
        ):
            take = self.truth(node.test)
            self.env.clear()
            self.env.update(yes if take else no)
            self.attrs = yes_attrs if take else no_attrs
            return
        test = self.words(node.test)
        if held is not None:
            for name, value in first.items():
                other = held.attrs.get(name)
                if other is None:
                    held.attrs[name] = value
                elif other != value:
                    same = other.kind == value.kind == "tensor" and (other.shape, other.dtype) == (
                        value.shape,
                        value.dtype,
                    )
                    held.attrs[name] = (
                        value if same else text(f"({value.text} if {test} else {other.text})", value, other)
                    )
        for name in differ:
            a, b = yes.get(name), no.get(name)
            if a is None or b is None:
                kept = a if a is not None else b
                assert kept is not None
                self.env[name] = kept
            else:
                self.env[name] = Value(
                    "object" if a.kind == b.kind == "object" and a.ref is b.ref else "text", f"({a.text} if {test} else {b.text})",
                    flags=flags(a, b) | {"data"},
                )  # fmt: skip
        for key, found in yes_attrs.items():
            if no_attrs.get(key) != found:
                self.attrs[key] = text(f"({found.text} if {test} else …)", found)

    def _quietly(self, body: list[ast.stmt]) -> None:
        """A branch that may end the constructor: the rest of it is read all the same."""
        if not self.quiet:
            self.block(body)
            return
        with contextlib.suppress(Return, Stop, Skip):
            self.block(body)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        over = self.value(node.iter)
        elements = self.elements(over)
        if elements is not None:
            for element in elements:
                self.assign(node.target, element)
                try:
                    self.block(node.body)
                except Skip:
                    continue
            self.block(node.orelse)
            return
        key, element = self.each(over)
        self._loop(key, lambda: self.assign(node.target, element), node)

    def _while(self, node: ast.While) -> None:
        test = self.known(node.test)
        if test is False:
            return
        self._loop(text(f"while {self.words(node.test)}", self.value(node.test)), lambda: None, node)

    def _loop(self, key: Value, bind: Callable[[], None], node: ast.For | ast.AsyncFor | ast.While) -> None:
        outer, self.items = self.items, []
        self.depth += 1
        mark = Event("loop", node, self.file, self.owner)
        try:
            bind()
            self.block(node.body)
        except Skip:
            pass
        finally:
            inner, self.items = self.items, outer
            self.depth -= 1
        if inner:
            self.items.append(mark)
            self.add(
                Loop(key, inner, node, self.file, inner[0].owner if len({id(i.owner) for i in inner}) == 1 else None)
            )

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        joins = []
        for item in node.items:
            if self._managed(item.context_expr, node):
                return
            found = self.value(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, found)
            if found.kind == "object" and found.ref.kind == "join":
                joins.append(found.ref)
        if not joins:
            self.block(node.body)
            return
        outer, self.items = self.items, []
        self.joins.append(joins[0])
        try:
            self.block(node.body)
        finally:
            inner, self.items = self.items, outer
            self.joins.pop()
            self.sites.append(Site(joins[0], node, self.file, tuple(inner), tuple(self.handlers)))
            self.items.extend(inner)

    def _managed(self, call: ast.expr, node: ast.With | ast.AsyncWith) -> bool:
        """A context manager of the project that is a generator: the block stands where it yields."""
        if not isinstance(call, ast.Call) or not isinstance(call.func, (ast.Name, ast.Attribute)):
            return False
        what = self.value(call.func)
        if what.kind != "function" or isinstance(what.ref.node, ast.Lambda):
            return False
        made = what.ref.node
        if not any(dotted_text(one).endswith("contextmanager") for one in made.decorator_list) or made in self.stack:
            return False
        args = [self.value(one) for one in call.args]
        named = {one.arg: self.value(one.value) for one in call.keywords if one.arg}
        frame = (self.file, self.env, self.around, self.cls, self.owner)
        self.yields.append((node, frame))
        root, self.root = self.root, made
        try:
            self.enter(what.ref, args, named, call)
        finally:
            self.root = root
            if self.yields and self.yields[-1][0] is node:
                self.yields.pop()
        return True

    def _yielded(self) -> None:
        node, frame = self.yields.pop()
        inside = (self.file, self.env, self.around, self.cls, self.owner)
        self.file, self.env, self.around, self.cls, self.owner = frame
        try:
            self.block(node.body)
        finally:
            self.file, self.env, self.around, self.cls, self.owner = inside

    def _try(self, node: ast.Try) -> None:
        self.handlers.append(node)
        try:
            self.block(node.body)
        finally:
            self.handlers.pop()
        for handler in node.handlers:
            if self.relevant(handler) and self.owner is not None:
                self.add(Unknown("collectives in an except", handler, self.file, self.owner))
        self.block(node.orelse)
        self.block(node.finalbody)


class Skip(Exception):
    """``continue`` or ``break``."""


def _only_raises(body: list[ast.stmt]) -> bool:
    return (
        bool(body) and isinstance(body[-1], ast.Raise) and not any(isinstance(one, (ast.If, ast.For)) for one in body)
    )


def _leaves(node: ast.If) -> bool:
    """Whether a branch ends the function or the round of a loop."""
    waiting = inner_statements(node)[:]
    for one in waiting:  # it grows on the way
        if isinstance(one, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
            return True
        if not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            waiting += inner_statements(one)
    return False
