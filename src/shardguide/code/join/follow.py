"""Calls: collectives become steps, functions of the project are followed, and what cannot be followed is said."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from ..review.project import dotted_text
from .backward import applied, backward, register
from .builtin import again, builtin
from .calls import BUILTINS, HARMLESS, SAFE_DIST, collective
from .classes import Class, join_name
from .evaluate import Evaluator
from .known import code
from .make import instance
from .native import native, wrapped
from .record import communicate
from .steps import Event, Notify, Unknown
from .tensors import method as tensor_method
from .tensors import torch_function
from .values import Function, Instance, Value, constant, flags, text

if TYPE_CHECKING:
    pass

_REGISTER = frozenset(
    {"register_hook", "register_post_accumulate_grad_hook", "register_full_backward_hook", "register_full_backward_pre_hook",
     "register_multi_grad_hook"}
)  # fmt: skip
_FORWARD = frozenset({"register_forward_hook", "register_forward_pre_hook"})
# Modules whose functions make no collective.
_SAFE_HEADS = tuple(
    f"{name}."
    for name in [
        "torch",
        "math",
        "os",
        "time",
        "logging",
        "json",
        "random",
        "sys",
        "numpy",
        "warnings",
        "collections",
        "itertools",
        "functools",
        "contextlib",
        "weakref",
        "pickle",
        "io",
        "threading",
        "inspect",
        "enum",
        "uuid",
        "pathlib",
        "traceback",
        "copy",
        "typing",
        "re",
        "datetime",
        "operator",
        "statistics",
        "tqdm",
        "torchvision",
    ]
)
_QUIET_HOMES = (
    "torch.distributed.utils._",
    "torch.distributed.algorithms.ddp_comm_hooks.",
    "torch.distributed.rpc.",
    "torch.distributed.optim.",
)


def called(world: Evaluator, node: ast.Call) -> Value:
    """What a call gives."""
    function = node.func
    if isinstance(function, ast.Call) and dotted_text(function.func) == "super":
        return text("super")
    if isinstance(function, ast.Name) and function.id == "super":
        return Value("text", "super()")
    if (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Call)
        and dotted_text(function.value.func) == "super"
    ):
        return _super(world, node, function.attr)
    base: Value | None = None
    if isinstance(function, ast.Attribute) and not _imported(world, function):
        base = world.value(function.value)
        what = world.attribute(base, function.attr)
    else:
        what = world.value(function)
    args: list[Value] = []
    for one in node.args:
        found = world.value(one)
        if isinstance(one, ast.Starred) and found.kind == "sequence" and isinstance(found.ref, tuple):
            args.extend(found.ref)
        else:
            args.append(found)
    named = {one.arg or "**": world.value(one.value) for one in node.keywords}
    if what.kind == "name":
        return _named(world, node, what.text, args, named)
    if what.kind == "class":
        return instance(world, node, what.ref, args, named)
    if what.kind == "function":
        return world.enter(what.ref, args, named, node)
    if what.kind == "object":
        return _object(world, node, what, args, named)
    if isinstance(function, ast.Attribute) and base is not None:
        return _method(world, node, function, base, args, named)
    return _unknown(world, node, what, args, named)


def _imported(world: Evaluator, node: ast.Attribute) -> bool:
    dotted = dotted_text(node)
    head = dotted.partition(".")[0]
    return bool(dotted) and head not in world.env and head not in world.around and head in world.file.imports


def _named(world: Evaluator, node: ast.Call, full: str, args: list[Value], named: dict[str, Value]) -> Value:
    """Something imported, or a builtin."""
    found = collective(full)
    if found is not None:
        return communicate(world, node, found[0], found[1], args, named, full)
    joined = full.rpartition(".")
    if joined[2] in ("notify_join_context", "_notify_join_context") and join_name(joined[0]):
        world.add(Notify(node, world.file, world.owner, args[0] if args else named.get("joinable")))
        return text("the handle of Join's all-reduce")
    if join_name(full) == "Join":
        return _join(world, node, args, named)
    if full.startswith("torch."):
        made = torch_function(world, node, full, args, named)
        if made is not None:
            return made
        if full.startswith("torch.distributed."):
            last = full.rpartition(".")[2]
            if (
                last not in SAFE_DIST
                and not last.startswith(("_get", "is_", "get_"))
                and last[:1].islower()
                and not full.startswith(_QUIET_HOMES)
            ):
                world.add(Unknown(f"what {full} makes of collectives is not known", node, world.file, world.owner))
        words = ", ".join([*(one.text for one in args), *(f"{key}={one.text}" for key, one in named.items())])
        return Value("text", f"{full}({words})", flags=flags(*args, *named.values()), make=again(full, args, named))
    if full in BUILTINS:
        return builtin(world, node, full, args, named)
    if full.startswith(_SAFE_HEADS) or full.rpartition(".")[2][:1].isupper():
        return text(f"{full}({', '.join(one.text for one in args)})", *args, *named.values())
    if world.owner is not None or world.joins:
        world.add(Unknown(f"{full} could not be followed", node, world.file, world.owner))
    return text(f"{full}({', '.join(one.text for one in args)})", *args)


def _join(world: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value]) -> Value:
    made = Instance(f"Join@{node.lineno}", "join", None, node)
    made.file = world.file
    order = ("joinables", "enable", "throw_on_early_termination")
    made.given = {**dict(zip(order, args, strict=False)), **named}
    return Value("object", made.name, ref=made)


def _super(world: Evaluator, node: ast.Call, name: str) -> Value:
    """``super().name(…)``."""
    self_ = world.env.get("self")
    args = [world.value(one) for one in node.args]
    named = {one.arg or "**": world.value(one.value) for one in node.keywords}
    if self_ is None or self_.kind != "object" or world.cls is None or self_.ref.cls is None:
        return text("super()")
    whole: Class = self_.ref.cls
    found = whole.find(name, world.cls)
    if found is not None:
        return world.enter(Function(found[0].file, found[1], found[0], self_), args, named, node)
    foreign = [one for one in whole.rest(world.cls) if isinstance(one, str) and one.startswith("?")]
    if foreign and name != "__init__":
        world.add(Unknown(f"{name} of {foreign[0].lstrip('? ')}, which was not read", node, world.file, world.owner))
    return text(f"super().{name}()")


def _object(world: Evaluator, node: ast.Call, what: Value, args: list[Value], named: dict[str, Value]) -> Value:
    """An object is called."""
    held: Instance = what.ref
    if held.kind in ("ddp", "fsdp"):
        world.add(Event(f"{held.kind} forward", node, world.file, held))
        return text(f"{held.name}(…)", *args)
    if held.cls is not None:
        for name in ("__call__", "forward"):
            found = held.cls.find(name)
            if found is not None:
                return world.enter(Function(found[0].file, found[1], found[0], what), args, named, node)
    if held.kind == "module":
        return text(f"{held.name}(…)", *args)
    return _unknown(world, node, what, args, named)


def _method(
    world: Evaluator, node: ast.Call, function: ast.Attribute, base: Value, args: list[Value], named: dict[str, Value]
) -> Value:
    """A method of something."""
    name = function.attr
    if (
        base.kind == "class"
        and name == "apply"
        and any(isinstance(one, str) and one.startswith("torch.autograd.") for one in base.ref.order)
    ):
        return applied(world, node, base.ref, args, named)
    if base.kind == "object" and base.ref.kind == "ddp":
        if name == "join":
            made = _join(world, node, [Value("sequence", "[…]", ref=(base,)), *args], named)
            return made
        if name == "forward":
            world.add(Event("ddp forward", node, world.file, base.ref))
            return text(f"{base.text}(…)")
    if base.kind == "object" and base.ref.kind in ("zero", "optimizer") and name == "step":
        world.add(Event(f"{base.ref.kind} step", node, world.file, base.ref))
        return constant(None)
    found = native(world, node, base, name, args, named)
    if found is not None:
        return found
    if name in _REGISTER and args:
        return register(world, node, args, base)
    if name in _FORWARD and args and args[0].kind == "function" and world.relevant(args[0].ref.node):
        world.add(Unknown(f"a hook of {name} communicates", node, world.file, world.owner))
        return text("handle")
    if name == "wait" and base.kind == "work":
        for op in base.ref:
            op.waited = True
        return constant(True)
    if base.kind == "work" and name in ("result", "get_future"):
        op = base.ref[0]
        return Value(
            "sequence",
            "result",
            ref=(Value("tensor", op.told, op.tensor.shape if op.tensor else "", flags=frozenset({"told"})),),
        )
    if name in ("append", "extend", "add") and args and (base.kind in ("sequence", "work")):
        one = (
            args[0]
            if name == "extend" or args[0].kind == "work"
            else Value("sequence", f"[{args[0].text}]", ref=(args[0],))
        )
        world.assign(
            function.value,
            world.joined(base, one) if world.depth == 0 or one.kind == "work" else text(f"{base.text} + …"),
        )
        return constant(None)
    if base.kind == "kwargs" and name in ("get", "pop") and args and args[0].kind == "constant":
        return world.keyword(base, args[0], args[1] if len(args) > 1 else constant(None), node)
    if name == "backward":
        world.add(Event("backward", node, world.file, world.owner))
        backward(world, node)
        return constant(None)
    made_ = tensor_method(base, name, args, named)
    if made_ is not None:
        return made_
    if name in (
        "parameters",
        "named_parameters",
        "buffers",
        "named_buffers",
        "modules",
        "children",
        "named_modules",
        "items",
        "values",
        "keys",
    ):
        return _many(base, name)
    words = ", ".join(one.text for one in args)
    own = frozenset({"data"}) if base.kind == "tensor" else frozenset()
    written = [code(one) for one in (base, *args)]
    make = f"{written[0]}.{name}({', '.join(written[1:])})" if all(written) else ""
    what = Value("text", f"{base.text}.{name}({words})", flags=flags(base, *args) | own, make=make)
    if base.text.rpartition(".")[2].lstrip("_") in ("logger", "log", "writer", "timer", "logging"):
        return what
    if (
        name in HARMLESS
        or base.kind in ("constant", "sequence", "iter", "kwargs", "work", "tensor")
        or wrapped(world, base)
    ):
        return what
    if (
        base.kind == "object"
        and base.ref.kind in ("module", "group", "join", "optimizer", "zero")
        and base.ref.cls is None
    ):
        return what
    return _unknown(world, node, what, args, named)


def _many(base: Value, name: str) -> Value:
    plain = name.removeprefix("named_")
    words = f"{base.text}.{plain}()"
    make = f"{code(base)}.{plain}()" if code(base) else ""
    if name in ("values", "keys", "items"):
        words, make = base.text, (f"{code(base)}.values()" if code(base) else "")
        key = Value("text", words, flags=base.flags, make=make)
        return Value("iter", words, ref=("items", key), flags=base.flags) if name == "items" else key
    key = Value("text", words, flags=base.flags - {"state"}, make=make)
    return Value("iter", words, ref=("items", key), flags=base.flags) if name.startswith("named_") else key


def _unknown(world: Evaluator, node: ast.Call, what: Value, args: list[Value], named: dict[str, Value]) -> Value:
    """A callable that nobody can look into."""
    if wrapped(world, what):
        return text(f"{what.text}(…)", *args)
    if not world.quiet and (world.owner is not None or world.joins):
        words = world.words(node.func)
        world.add(Unknown(f"{words}(…) could not be followed", node, world.file, world.owner))
    return text(f"{what.text}({', '.join(one.text for one in args)})", what, *args)
