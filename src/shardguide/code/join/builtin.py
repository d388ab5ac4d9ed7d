"""Python's own functions, and comprehensions."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from .calls import LACKS, collective
from .known import code
from .steps import Loop, Unknown
from .values import Instance, Value, constant, flags, text

if TYPE_CHECKING:
    from .evaluate import Evaluator
    from .steps import Step


def again(full: str, args: list[Value], named: dict[str, Value]) -> str:
    """The call as a hook can write it; "" where an argument has no expression there."""
    parts = [code(one) for one in args] + [f"{key}={code(one)}" if code(one) else "" for key, one in named.items()]
    return f"{full}({', '.join(parts)})" if all(parts) else ""


def builtin(world: Evaluator, node: ast.Call, name: str, args: list[Value], named: dict[str, Value]) -> Value:
    """What one of Python's own functions gives."""
    if name in ("list", "tuple", "iter") and len(args) == 1:
        return args[0]
    if name in ("enumerate", "reversed") and args:
        return Value("iter", f"{name}({args[0].text})", ref=(name, args[0]), flags=flags(*args))
    if name == "zip" and args:
        return Value("iter", f"zip({', '.join(one.text for one in args)})", ref=("zip", *args), flags=flags(*args))
    if name == "range" and args:
        count = (
            args[0]
            if len(args) == 1
            else args[1]
            if args[0].text == "0" and len(args) == 2
            else text(f"range({', '.join(one.text for one in args)})", *args)
        )
        return Value("iter", f"range({count.text})", ref=("range", count), flags=count.flags)
    if name == "getattr" and len(args) >= 2 and args[1].kind == "constant" and isinstance(args[1].ref, str):
        return world.attribute(args[0], args[1].ref)
    if name == "hasattr" and len(args) == 2 and args[0].kind == "object":
        holder: Instance = args[0].ref
        if holder.cls is not None and str(args[1].ref) in LACKS.get(holder.cls.name, ()):
            return constant(False)
        if args[1].ref in holder.attrs:
            return constant(True)
    if name == "len" and args and args[0].kind == "sequence" and isinstance(args[0].ref, tuple):
        return constant(len(args[0].ref))
    if name in ("int", "float", "bool") and args:
        if args[0].kind == "constant" and isinstance(args[0].ref, (int, float)):
            return constant({"int": int, "float": float, "bool": bool}[name](args[0].ref))
        if "told" in args[0].flags and name != "float":
            return args[0]
        return Value("text", f"{name}({args[0].text})", flags=flags(*args), make=again(name, args, named))
    if name in ("setattr",) and len(args) == 3 and args[0].kind == "object" and isinstance(args[1].ref, str):
        world.attrs[(args[0].ref.name, args[1].ref)] = args[2]
        return constant(None)
    if name == "map" and len(args) == 2 and args[0].kind == "function":
        _, element = world.each(args[1])
        done = world.enter(args[0].ref, [element], {}, node)
        return Value("work", "works", ref=done.ref) if done.kind == "work" else text(f"map over {args[1].text}", *args)
    if name == "map" and args:
        unread = args[0].kind == "text" or (args[0].kind == "name" and collective(args[0].text) is not None)
        if unread:
            world.add(Unknown(f"map of {args[0].text}", node, world.file, world.owner))
    if name == "type" and len(args) == 1:
        return text(f"type({args[0].text})")
    return Value(
        "text", f"{name}({', '.join(one.text for one in args)})", flags=flags(*args), make=again(name, args, named)
    )


def comprehension(world: Evaluator, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
    """A list made by a loop; collectives in it are made once for each element."""
    first = node.generators[0]
    over = world.value(first.iter)
    listed = world.elements(over) if len(node.generators) == 1 and not first.ifs else None
    if listed is not None:
        out = []
        for one in listed:
            world.assign(first.target, one)
            out.append(world.value(node.elt))
        return Value("sequence", f"[{', '.join(one.text for one in out)}]", ref=tuple(out), flags=flags(*out))
    key, element = world.each(over)
    world.assign(first.target, element)
    outer: list[Step] = world.items
    world.items = []
    for more in node.generators[1:]:
        inner_key, inner = world.each(world.value(more.iter))
        world.assign(more.target, inner)
        key = text(f"{key.text}, {inner_key.text}", key, inner_key)
    tests = [world.value(test).text for part in node.generators for test in part.ifs]
    made = world.value(node.elt)
    steps, world.items = world.items, outer
    if steps:
        if tests:
            key = text(f"{key.text} if {' and '.join(tests)}", key)
        world.add(Loop(key, steps, node, world.file, world.owner))
    if made.kind == "work":
        return Value("work", "works", ref=made.ref)
    if made.text == element.text and not tests:
        return key if key.kind != "range" else text(f"[… for {key.text}]")
    suffix = f" if {' and '.join(tests)}" if tests else ""
    return Value("text", f"[{made.text} for each of {key.text}{suffix}]", flags=flags(made, key))
