"""Operators, literals and subscripts: what they give of what their parts stand for."""

from __future__ import annotations

import ast
import operator

from shardguide.guidance.hints import TYPE_CHECKING

from .known import certain, code, compared, whole
from .values import Function, Value, constant, flags, like, text

_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is", ast.IsNot: "is not",
            ast.In: "in", ast.NotIn: "not in"}  # fmt: skip
_BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
}

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..review.project import File
    from .classes import Class


class Expressions:
    """The part of an evaluator that needs nothing but the values of the parts."""

    if TYPE_CHECKING:  # what the evaluator has beside
        file: File
        cls: Class | None
        env: dict[str, Value]
        around: dict[str, Value]

        value: Callable[[ast.expr | None], Value]
        known: Callable[[ast.expr], bool | None]
        truth: Callable[[ast.expr], bool]
        relevant: Callable[[ast.AST], bool]
        words: Callable[[ast.AST], str]
        assign: Callable[[ast.expr, Value], None]
        joined: Callable[[Value, Value], Value]
        keyword: Callable[[Value, Value, Value | None, ast.AST], Value]

    def _binop(self, node: ast.BinOp) -> Value:
        a, b = self.value(node.left), self.value(node.right)
        sign = _BINARY.get(type(node.op), type(node.op).__name__)
        if a.kind == b.kind == "constant" and isinstance(a.ref, (int, float)) and isinstance(b.ref, (int, float)):
            try:
                return constant(
                    {
                        "+": operator.add,
                        "-": operator.sub,
                        "*": operator.mul,
                        "//": operator.floordiv,
                        "%": operator.mod,
                    }[sign](a.ref, b.ref)
                )
            except (KeyError, ZeroDivisionError, OverflowError):
                pass
        if a.kind == "sequence" and b.kind == "sequence" and sign == "+":
            return self.joined(a, b)
        tensors = [one for one in (a, b) if one.kind == "tensor"]
        if tensors and sign in ("+", "-", "*", "/", "//", "**"):
            other = b if tensors[0] is a else a
            if len(tensors) == 1 and other.kind in ("constant", "text", "name"):
                zero = tensors[0].fill == "0.0" and sign in ("*", "/")
                kept = like(tensors[0], "0.0" if zero else "")
                whole = other.kind == "constant" and isinstance(other.ref, int) and sign != "/"
                if kept.dtype.startswith("float") or whole:
                    return kept
                return kept._replace(dtype=f"like {a.text} {sign} {b.text}")
            if len(tensors) == 2 and a.shape == b.shape and a.dtype == b.dtype:
                return like(a)
        return text(f"{a.text} {sign} {b.text}", a, b)._replace(
            make=f"{code(a)} {sign} {code(b)}" if code(a) and code(b) else ""
        )

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        inner = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            known = certain(inner)
            return constant(not known) if known is not None else text(f"not {inner.text}", inner)
        if isinstance(node.op, ast.USub) and inner.kind == "constant" and isinstance(inner.ref, (int, float)):
            return constant(-inner.ref)
        return like(inner) if inner.kind == "tensor" else text(f"-{inner.text}", inner)

    def _boolop(self, node: ast.BoolOp) -> Value:
        every = isinstance(node.op, ast.And)
        open_: list[Value] = []
        for part in node.values:
            found = self.value(part)
            known = certain(found)
            if known is None:
                open_.append(found)
            elif known is not every:
                if not open_:
                    return found
                return constant(False) if every else text(" or ".join(one.text for one in [*open_, found]), *open_)
        if not open_:
            return self.value(node.values[-1])
        return (
            open_[0]
            if len(open_) == 1
            else text((" and " if every else " or ").join(one.text for one in open_), *open_)
        )

    def _compare(self, node: ast.Compare) -> Value:
        parts = [self.value(node.left), *(self.value(one) for one in node.comparators)]
        signs = [_COMPARE[type(one)] for one in node.ops]
        if len(signs) == 1:
            known = compared(parts[0], signs[0], parts[1])
            if known is not None:
                return constant(known)
        words = parts[0].text + "".join(f" {sign} {part.text}" for sign, part in zip(signs, parts[1:], strict=True))
        written = [code(part) for part in parts]
        make = (
            written[0] + "".join(f" {sign} {part}" for sign, part in zip(signs, written[1:], strict=True))
            if all(written)
            else ""
        )
        return text(words, *parts)._replace(make=make)

    def _ifexp(self, node: ast.IfExp) -> Value:
        known = self.known(node.test)
        if known is not None:
            return self.value(node.body if known else node.orelse)
        if self.relevant(node):
            return self.value(node.body if self.truth(node.test) else node.orelse)
        test, a, b = self.value(node.test), self.value(node.body), self.value(node.orelse)
        if a == b:
            return a
        if a.kind == b.kind == "tensor" and a.shape == b.shape and a.dtype == b.dtype:
            return like(a)
        counted = {"|int"} if whole(a) and whole(b) else set()
        return text(f"({a.text} if {test.text} else {b.text})", test, a, b)._replace(flags=flags(test, a, b) | counted)

    def _tuple(self, node: ast.Tuple | ast.List | ast.Set) -> Value:
        inner = [self.value(one.value if isinstance(one, ast.Starred) else one) for one in node.elts]
        words = ", ".join(one.text for one in inner)
        if any(isinstance(one, ast.Starred) for one in node.elts):
            if len(inner) == 1:
                return inner[0]
            return text(f"[{words}]", *inner)
        return Value("sequence", f"[{words}]", ref=tuple(inner), flags=flags(*inner))

    _list = _tuple
    _set = _tuple

    def _dict(self, node: ast.Dict) -> Value:
        parts = [self.value(one) for one in node.values]
        return text(self.words(node), *parts)

    def _subscript(self, node: ast.Subscript) -> Value:
        base, index = (
            self.value(node.value),
            self.value(node.slice) if not isinstance(node.slice, ast.Slice) else text(self.words(node.slice)),
        )
        if (
            base.kind == "sequence"
            and isinstance(base.ref, tuple)
            and index.kind == "constant"
            and isinstance(index.ref, int)
        ) and -len(base.ref) <= index.ref < len(base.ref):
            element: Value = base.ref[index.ref]
            return element
        if base.kind == "kwargs":
            return self.keyword(base, index, None, node)
        if base.kind == "tensor" and base.shape.count(",") == 1 and base.shape.startswith("("):
            return base._replace(text=f"{base.text}[{index.text}]", shape="()")
        make = f"{code(base)}[{code(index)}]" if code(base) and code(index) else ""
        return Value("text", f"{base.text}[{index.text}]", flags=flags(base, index), make=make)

    def _lambda(self, node: ast.Lambda) -> Value:
        return Value("function", "lambda", ref=Function(self.file, node, self.cls, None, {**self.around, **self.env}))

    def _joinedstr(self, node: ast.JoinedStr) -> Value:
        return text(self.words(node))

    def _starred(self, node: ast.Starred) -> Value:
        return self.value(node.value)

    def _namedexpr(self, node: ast.NamedExpr) -> Value:
        found: Value = self.value(node.value)
        self.assign(node.target, found)
        return found

    def _await(self, node: ast.Await) -> Value:
        return self.value(node.value)
