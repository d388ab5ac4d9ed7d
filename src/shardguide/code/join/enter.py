"""A function of the project is followed, with its parameters bound."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from .classes import HOOK, JOINABLE
from .known import code
from .steps import Unknown
from .values import Function, Value, constant, flags
from .world import Return

if TYPE_CHECKING:
    from .evaluate import Evaluator

_DEEP = 14  # calls, one inside the other
_ALWAYS = frozenset({"__init__", "main_hook", "post_hook", "join_hook", "_join_hook"})
_SHORT = 8  # statements of a function that leads to no collective and is followed for its result


def enter(world: Evaluator, function: Function, args: list[Value], named: dict[str, Value], node: ast.AST) -> Value:
    """Follow a function of the project; one that leads to no collective only where it is short."""
    inner = function.node
    words = getattr(inner, "name", "lambda")
    leads = words in _ALWAYS or inner is world.root or world.relevant(inner)
    shown = f"{function.bound.text}.{words}" if function.bound is not None else words
    result = Value("text", f"{shown}({', '.join(one.text for one in args)})", flags=flags(*args),
                   make=f"{function.bound.make or function.bound.text}.{words}({', '.join(code(one) for one in args)})"
                   if function.bound is not None and all(code(one) for one in args) else "")  # fmt: skip
    if inner in world.stack or len(world.stack) > _DEEP:
        if leads:
            world.add(Unknown(f"{words} calls itself", node, world.file, world.owner))
        return result
    if not leads and inner not in world.world.short:
        world.world.short[inner] = _short(inner)
    if not leads and not world.world.short[inner]:
        return result
    saved = (world.file, world.env, world.around, world.cls, world.owner)
    world.stack.append(inner)
    world.file, world.cls = function.file, function.owner
    world.around = function.around or (function.owner.around if function.owner is not None else {})
    world.env = {}
    bound = function.bound
    if (
        bound is not None and bound.kind == "object" and bound.ref.cls is not None and bound.ref.cls.is_a(JOINABLE)
    ) or (bound is not None and bound.kind == "object" and bound.ref.cls is not None and bound.ref.cls.is_a(HOOK)):
        world.owner = bound.ref
    bind(world, function, args, named)
    try:
        if isinstance(inner, ast.Lambda):
            return world.value(inner.body)
        world.block(inner.body)
        return constant(None)
    except Return as found:
        return found.value
    finally:
        world.last_env = world.env
        world.stack.pop()
        world.file, world.env, world.around, world.cls, world.owner = saved


def bind(world: Evaluator, function: Function, args: list[Value], named: dict[str, Value]) -> None:
    """Bind the parameters of a function."""
    spec = function.node.args
    names = [one.arg for one in (*spec.posonlyargs, *spec.args)]
    given = list(args)
    if function.bound is not None and names:
        given.insert(0, function.bound)
    defaults: dict[str, ast.expr] = dict(zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True))
    defaults.update(
        {one.arg: value for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value is not None}
    )
    bound: dict[str, Value] = {}
    for name, value in zip(names, given, strict=False):
        bound[name] = value
    for one in (*names, *(arg.arg for arg in spec.kwonlyargs)):
        if one in named:
            bound[one] = named[one]
        elif one not in bound:
            bound[one] = world.value(defaults[one]) if one in defaults and "**" not in named else _open(one)
    if spec.vararg is not None:
        more = tuple(given[len(names) :])
        bound[spec.vararg.arg] = (
            Value("sequence", f"[{', '.join(one.text for one in more)}]", ref=more)
            if more
            else Value("text", spec.vararg.arg, flags=frozenset({"argument"}))
        )
    if spec.kwarg is not None:
        bound[spec.kwarg.arg] = named["**"] if "**" in named else Value(
            "kwargs", spec.kwarg.arg, ref={key: value for key, value in named.items() if key not in bound}
        )  # fmt: skip
    world.env.update(bound)


def _open(name: str) -> Value:
    return Value("text", f"the argument {name}", flags=frozenset({"argument"}))


def _short(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
    if isinstance(node, ast.Lambda):
        return True
    inner = list(ast.walk(node))
    return sum(isinstance(one, ast.stmt) for one in inner) <= _SHORT and not any(
        isinstance(one, (ast.For, ast.While)) for one in inner
    )
