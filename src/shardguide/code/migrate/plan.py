"""What one FSDP1 constructor call becomes: arguments of fully_shard for the layers and the root, and lines around the call."""

from __future__ import annotations

import ast
import contextlib
import re

from .edits import Text
from .unit import Unit

Keywords = list[tuple[str, str]]


class Plan:
    """Filled in argument by argument."""

    def __init__(self, unit: Unit, call: ast.Call, given: dict[str, ast.expr]) -> None:
        self.unit = unit
        self.call = call
        self.given = given
        self.subject = ""  # how the module is called in the lines around
        self.root: dict[str, Keywords] = {}  # FSDP1's argument -> what stands in its place ("" for what is added)
        self.child: Keywords = []
        self.hoisted: list[str] = []  # before the loop: values that are used more than once
        self.moved_out = False  # the settings hang on nothing that the expression around the call binds
        self.group = ""  # the process group that was given, as an expression; "" for all ranks
        self.offloaded = ""  # whether parameters are offloaded, as an expression; "" where they are not
        self.before: list[str] = []  # before anything is sharded
        self.tests: list[tuple[str, str, str]] = []  # variable, iterable, test; "" for all of it
        self.checkpointed = False  # activation checkpointing comes before, so that its wrappers are what is sharded
        self.own = ""  # the variable with what a policy gives for one module, "" where modules are not told apart
        self.skip = ""  # further condition of every test
        self.norms: Keywords = []  # arguments for batch norms, where they are sharded apart
        self.after: list[Text] = []
        self.used: list[ast.AST] = []  # nodes of FSDP1's that are gone with this call

    def both(self, argument: str, name: str, text: str) -> None:
        """An argument that layers and root have alike."""
        self.root.setdefault(argument, []).append((name, text))
        self.child.append((name, text))

    def text(self, node: ast.AST) -> str:
        """An expression as it will be, on one line where that is possible."""
        text = self.unit.source.text(node)
        if "\n" not in text:
            return text
        try:
            whole = ast.parse(f"({text.strip()})", mode="eval")
        except SyntaxError:
            return text
        line = re.sub(r",?\s*\n\s*([\])}])", r"\1", text.strip())
        line = re.sub(r"\s*\n\s*", " ", re.sub(r"([\[({])\s*\n\s*", r"\1", line))
        with contextlib.suppress(SyntaxError):  # a comment, or a string over lines
            if ast.dump(ast.parse(f"({line})", mode="eval")) == ast.dump(whole):
                return line
        return ast.unparse(whole)

    def hoist(self, name: str, text: str) -> str:
        """Give a value a name, before the call."""
        own = self.unit.fresh(name, self.call)
        self.hoisted.append(f"{own} = {text}")
        return own

    def constant(self, name: str) -> object:
        """A constant that was given for an argument; Ellipsis for what is no constant, None for what was not given."""
        node = self.given.get(name)
        if node is None:
            return None
        bound = self.unit.bound(node)
        return bound.value if isinstance(bound, ast.Constant) else ...


def simple(node: ast.AST) -> bool:
    """Whether an expression may be written twice: a name, an attribute, a constant, an item by constant."""
    if isinstance(node, ast.Attribute):
        return simple(node.value)
    if isinstance(node, ast.Subscript):
        return simple(node.value) and simple(node.slice)
    return isinstance(node, (ast.Name, ast.Constant))


def maybe_none(plan: Plan, node: ast.expr) -> bool:
    """Whether an expression may be None, as far as can be seen."""
    bound = plan.unit.bound(node)
    return not isinstance(bound, (ast.Call, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp))
