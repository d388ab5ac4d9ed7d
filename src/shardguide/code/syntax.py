"""The user's Python as a syntax tree, and what its names mean. Nothing is compiled further, imported or run."""

from __future__ import annotations

import ast

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple

from .imports import bind_imports

LIMIT = 1 << 19  # bytes of source; trainers of well-known frameworks stay below 300 kB
_DENSITY = 150_000  # punctuation marks, which bound the number of nodes and so the memory of the tree
_BUDGET = 20_000  # expressions read in one file; keeps (b, b, b …) of (c, c, c …) from growing without end
_DEPTH = 12  # names followed, e.g. policy = base_policy; FSDP(model, mixed_precision=policy)

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


def parse(text: str, where: str) -> ast.Module:
    """``text`` as a tree. Raises UnusableInput for what is not Python 3, is too large or nests too deeply."""
    import sys
    import warnings

    grammar = f"{sys.version_info.major}.{sys.version_info.minor}"  # newer syntax is none to this interpreter
    dense = len(text) > _DENSITY and sum(text.count(mark) for mark in "\n;,.([{=+-@&|<>") > _DENSITY
    if dense or len(text) > LIMIT:
        raise UnusableInput(f"{where}: too large a program to be read; hand over the file that sets up FSDP.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the user's strings are not our news
            return ast.parse(text)
    except SyntaxError as error:
        place = f", line {error.lineno}" if error.lineno else ""
        raise UnusableInput(
            f"{where}{place}: not valid Python {grammar} ({(error.msg or 'syntax error')[:80]})."
        ) from None
    except (RecursionError, MemoryError):
        raise UnusableInput(f"{where}: nested too deeply to be read.") from None
    except ValueError as error:
        raise UnusableInput(f"{where}: not valid Python {grammar} ({str(error)[:80]}).") from None


class Value(NamedTuple):
    """What an expression says, as far as it can be read without running it."""

    text: str  # "True", "bfloat16", "FULL_SHARD", "(2, 8)", a dotted name …; "unknown" when it cannot be read
    known: bool
    line: int  # where the deciding expression stands, 1-based
    source: str  # that expression, shortened
    parts: tuple[tuple[str, Value], ...] = ()  # the keyword arguments when the expression is a call


class Names:
    """Imports and assignments of one file, looked up from the place of use outwards."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self.lines = [line.encode("utf-8", "replace") for line in text.split("\n")]
        self.imports: dict[str, str] = {}
        self.stars: list[str] = []
        self.own: set[str] = set()  # functions and classes that the file itself defines
        self.parents: dict[ast.AST, ast.AST] = {}
        self.bound: dict[tuple[ast.AST, str], list[ast.expr | None]] = {}
        self.items: dict[tuple[ast.AST, str], list[tuple[str, ast.expr]]] = {}
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
        for node in ast.walk(tree):
            self._read(node)

    def scope(self, node: ast.AST) -> ast.AST:
        """The function, class or module that ``node`` stands in."""
        here = self.parents.get(node)
        while here is not None and not isinstance(here, Scope):
            here = self.parents.get(here)
        return here if here is not None else node

    def _bind(self, at: ast.AST, name: str, value: ast.expr | None) -> None:
        self.bound.setdefault((self.scope(at), name), []).append(value)

    def _targets(self, at: ast.AST, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self._bind(at, target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            for i, element in enumerate(target.elts):
                same = len(values) == len(target.elts)
                self._targets(at, element, values[i] if same else None)
        elif isinstance(target, ast.Starred):
            self._targets(at, target.value, None)
        elif (
            isinstance(target, ast.Subscript)
            and isinstance(target.value, ast.Name)
            and isinstance(target.slice, ast.Constant)
            and isinstance(target.slice.value, str)
            and value is not None
        ):
            self.items.setdefault((self.scope(at), target.value.id), []).append((target.slice.value, value))

    def _read(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            bind_imports(node, self.imports, self.stars)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._targets(node, target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            if node.value is not None:
                self._targets(node, node.target, node.value)
        elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor)):
            self._targets(node, node.target, None)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._targets(node, node.optional_vars, None)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.own.add(node.name)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            arguments = node.args
            for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
                self.bound.setdefault((node, argument.arg), []).append(None)
            for extra in (arguments.vararg, arguments.kwarg):
                if extra is not None:
                    self.bound.setdefault((node, extra.arg), []).append(None)

    def lookup(self, at: ast.AST, name: str) -> list[ast.expr | None]:
        """Every value bound to ``name`` in the innermost scope that binds it; None for one that cannot be read."""
        scope: ast.AST | None = self.scope(at)
        while scope is not None:
            found = self.bound.get((scope, name))
            if found:
                return found
            outer = self.scope(scope)
            scope = outer if outer is not scope else None
        return []

    def dotted(self, node: ast.AST) -> str:
        """The full name that ``node`` refers to, through import aliases: ``torch.distributed.fsdp.fully_shard``.

        "" for anything that is not a plain name of something imported.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        root = self.imports.get(node.id, "")
        if not root:
            if node.id in self.own or self.lookup(node, node.id):
                return ""
            likely = [module for module in self.stars if module.startswith("torch")]
            root = f"{likely[0]}.{node.id}" if likely else ""
        return ".".join([root, *reversed(parts)]) if root else ""

    def items_of(self, at: ast.AST, name: str) -> list[tuple[str, ast.expr]]:
        """``name["key"] = value`` assignments to a dict that is visible at ``at``."""
        scope: ast.AST | None = self.scope(at)
        found: list[tuple[str, ast.expr]] = []
        while scope is not None:
            found.extend(self.items.get((scope, name), []))
            outer = self.scope(scope)
            scope = outer if outer is not scope else None
        return found

    def source(self, node: ast.expr, limit: int = 120) -> str:
        """The first line of ``node`` as the file has it, shortened."""
        if not 0 < node.lineno <= len(self.lines):
            return ""
        same = node.end_lineno == node.lineno
        end = node.end_col_offset if same and node.end_col_offset is not None else node.col_offset + 4 * limit
        text = self.lines[node.lineno - 1][node.col_offset : end].decode("utf-8", "replace").strip()
        return text if same and len(text) <= limit else f"{text[: limit - 1]}…"

    def unknown(self, node: ast.expr) -> Value:
        """The value of an expression that cannot be read without running it."""
        return Value("unknown", False, node.lineno, self.source(node))


class Evaluator:
    """Reads expressions: constants, names, enum members, dtypes, and the calls whose arguments are listed."""

    def __init__(self, names: Names, positions: dict[str, tuple[str, ...]]) -> None:
        self.names = names
        self.positions = positions  # last part of a callable's name -> its parameters in order
        self.budget = _BUDGET

    def value(self, node: ast.expr, depth: int = 0) -> Value:
        """What ``node`` says; names are followed through single assignments."""
        self.budget -= 1
        if depth > _DEPTH or self.budget < 0:
            return self.names.unknown(node)
        source, line = self.names.source(node), node.lineno
        if isinstance(node, ast.Constant):
            text = node.value if isinstance(node.value, str) else repr(node.value)
            return Value(text[:200], True, line, source)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return Value(f"-{node.operand.value!r}", True, line, source)
        if isinstance(node, ast.Name):
            return self._name(node, depth)
        if isinstance(node, ast.Attribute):
            full = self.names.dotted(node)
            return Value(_short(full), True, line, source) if full else self.names.unknown(node)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            inner = [self.value(element, depth + 1) for element in node.elts[:64]]
            if len(node.elts) > 64 or not all(value.known for value in inner):
                return self.names.unknown(node)
            text = ", ".join(value.text for value in inner)
            if len(text) > 1000:
                return self.names.unknown(node)
            if isinstance(node, ast.Tuple):
                text = f"({text},)" if len(inner) == 1 else f"({text})"
            else:
                text = f"[{text}]" if isinstance(node, ast.List) else f"{{{text}}}"
            return Value(text, True, line, source)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        return self.names.unknown(node)

    def _name(self, node: ast.Name, depth: int) -> Value:
        bound = self.names.lookup(node, node.id)
        if not bound:
            full = self.names.dotted(node)
            if full or node.id in self.names.own:
                return Value(_short(full) if full else node.id, True, node.lineno, self.names.source(node))
            return self.names.unknown(node)
        first = bound[0]
        if (
            first is None
            or len(bound) > 8
            or any(other is None or ast.dump(other) != ast.dump(first) for other in bound[1:])
        ):
            return self.names.unknown(node)
        return self.value(first, depth + 1)

    def _subscript(self, node: ast.Subscript, depth: int) -> Value:
        index = self.value(node.slice, depth + 1)
        if not index.known:
            return self.names.unknown(node)
        full = self.names.dotted(node.value)
        if full.rpartition(".")[2] in ("ShardingStrategy", "BackwardPrefetch", "StateDictType"):
            return Value(index.text, True, node.lineno, self.names.source(node))
        base = self.value(node.value, depth + 1)  # a mesh's dimension: mesh["dp"]
        if not base.known or not base.text.startswith(("init_device_mesh", "DeviceMesh")):
            return self.names.unknown(node)
        return base._replace(text=f"{base.text}[{index.text}]", source=self.names.source(node))

    def _call(self, node: ast.Call, depth: int) -> Value:
        full = self.names.dotted(node.func)
        last = full.rpartition(".")[2]
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) == 2:
            base, attribute = self.names.dotted(node.args[0]), self.value(node.args[1], depth + 1)
            if base and attribute.known:
                return Value(_short(f"{base}.{attribute.text}"), True, node.lineno, self.names.source(node))
            return self.names.unknown(node)
        if last == "partial" and node.args:
            inner = self.names.dotted(node.args[0])
            if not inner:
                return self.names.unknown(node)
            parts = self.arguments(node, inner.rpartition(".")[2], depth + 1, skip=1)
            return Value(_short(inner), True, node.lineno, self.names.source(node), parts)
        if last not in self.positions:
            return self.names.unknown(node)
        return Value(last, True, node.lineno, self.names.source(node), self.arguments(node, last, depth + 1))

    def arguments(self, node: ast.Call, callee: str, depth: int = 0, skip: int = 0) -> tuple[tuple[str, Value], ...]:
        """A call's arguments by name; ``**options`` is followed to a dict that is written out, else it is ``**``."""
        order = self.positions.get(callee, ())
        found: list[tuple[str, Value]] = []
        for i, argument in enumerate(node.args[skip : skip + 64]):
            if isinstance(argument, ast.Starred):
                found.append(("*", self.names.unknown(argument)))
            elif i < len(order):
                found.append((order[i], self.value(argument, depth)))
        for keyword in node.keywords[:128]:
            if keyword.arg is not None:
                found.append((keyword.arg, self.value(keyword.value, depth)))
            else:
                found.extend(self._spread(keyword.value, depth))
        return tuple(found)

    def _spread(self, node: ast.expr, depth: int) -> list[tuple[str, Value]]:
        literal: ast.expr | None = node
        later: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.Name):
            bound = self.names.lookup(node, node.id)
            literal = bound[0] if len(bound) == 1 else None
            later = self.names.items_of(node, node.id)
        found: dict[str, Value] = {}
        if isinstance(literal, ast.Dict):
            for name, written in zip(literal.keys, literal.values, strict=True):
                if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
                    found["**"] = self.names.unknown(node)
                else:
                    found[name.value] = self.value(written, depth + 1)
        elif isinstance(literal, ast.Call) and isinstance(literal.func, ast.Name) and literal.func.id == "dict":
            found = dict(self.arguments(literal, "dict", depth + 1))
        else:
            return [("**", self.names.unknown(node))]
        for key, value in later:
            # Whether a later item assignment is reached depends on the run when it stands under a condition.
            certain = not self._conditional(value)
            found[key] = self.value(value, depth + 1) if certain else self.names.unknown(value)
        return list(found.items())

    def _conditional(self, node: ast.AST) -> bool:
        here = self.names.parents.get(node)
        while here is not None and not isinstance(here, Scope):
            if isinstance(here, (ast.If, ast.For, ast.While, ast.Try, ast.IfExp)):
                return True
            here = self.names.parents.get(here)
        return False


def _short(full: str) -> str:
    """A dotted name as people say it: bfloat16 for ``torch.bfloat16``, an enum member's own name."""
    return full.rpartition(".")[2]
