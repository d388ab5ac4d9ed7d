"""What expressions stand for, as far as it matters: models, optimizers of them, ranks, samplers, work that is under way."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable

from shardguide.guidance.hints import TYPE_CHECKING, Any

from .calls import call_value
from .conditions import Test, of_test, rank_test
from .loops import trip_count
from .made import environment
from .methods import is_property, method_of
from .project import Definition
from .records import Condition, Thing, Things, compatible
from .trace import Branch, Item, Loop, only_unknown

if TYPE_CHECKING:
    from .walk import Walker

_BUILTINS = frozenset(dir(builtins))
_OTHER_RANKS = ("lora", "dora", "peft", "adapter")  # whose rank is that of a matrix
# Flags handed to a function, which decide its branches: see Walker.enter and conditions.of_test.
_CONSTANTS = {key: (Thing("constant", repr(key)),) for key in (True, False, None)}
# Attributes of FSDP1 that a check wants to hear of.
PRIVATE = frozenset({"_fsdp_wrapped_module", "_handle", "_flat_param", "_all_handles"})


def _negative(node: ast.UnaryOp) -> bool:
    """Whether it is -1 or the like, which as a rank says that there are no ranks."""
    return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)


def value(walker: Walker, node: ast.expr) -> Things:
    """What ``node`` stands for; every call inside it is told to the checks once, inner ones first."""
    how = _VALUES.get(node.__class__)
    return how(walker, node) if how is not None else _parts(walker, node)


def _parts(walker: Walker, node: ast.expr) -> Things:
    """Every part is looked at; what they stand for together depends on what holds them."""
    out: list[Thing] = []
    for part in node.__dict__.values():
        if part.__class__ is list:
            for child in part:
                if isinstance(child, ast.expr):
                    out.extend(walker.value(child))
        elif isinstance(part, ast.expr):
            out.extend(walker.value(part))
    kind = node.__class__
    if kind in (ast.Compare, ast.BoolOp, ast.UnaryOp):
        return _test(walker, node)
    if kind in (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.Starred, ast.Await):
        return tuple(dict.fromkeys(out))[:16]
    if kind is ast.BinOp and isinstance(node.op, ast.Mod):  # type: ignore[attr-defined]
        return tuple(Thing("local_rank", thing.name, node) for thing in out if thing.kind == "rank")
    if kind is ast.BinOp:
        return tuple(thing for thing in out if thing.kind in ("params", "param"))
    return tuple(thing for thing in out if thing.kind in ("rank", "local_rank")) if kind is ast.FormattedValue else ()


def _constant(walker: Walker, node: ast.Constant) -> Things:
    given = node.value
    return _CONSTANTS[given] if given is True or given is False or given is None else ()


def _called(walker: Walker, node: ast.Call) -> Things:
    found = walker.cache[id(node)] = call_value(walker, node)
    return found


def _named(walker: Walker, node: ast.NamedExpr) -> Things:
    things = walker.value(node.value)
    walker.bind(node.target, things, None)
    return things


def _signed(walker: Walker, node: ast.UnaryOp) -> Things:
    return (Thing("constant", walker.source(node)),) if _negative(node) else _parts(walker, node)


def _none(walker: Walker, node: ast.expr) -> Things:
    return ()


def _if_expression(walker: Walker, node: ast.IfExp) -> Things:
    """Both ways are taken; where the test is one of the rank, each under its condition."""
    walker.value(node.test)
    if not isinstance(node.body, ast.Call) and not isinstance(node.orelse, ast.Call):
        return (*walker.value(node.body), *walker.value(node.orelse))
    test = of_test(walker, node.test)
    if test.never or test.always:
        return walker.value(node.orelse if test.never else node.body)
    made = Branch(node, walker.frame.file, test.holds, test.fails)
    outer, path = walker.trace, walker.path
    out: list[Thing] = []
    for conditions, trace, part in ((test.holds, made.body, node.body), (test.fails, made.other, node.orelse)):
        walker.trace, walker.path = trace, (*path, *conditions)
        out.extend(walker.value(part))
    walker.trace, walker.path = outer, path
    if made.body or made.other:
        outer.append(made)
    return tuple(out)


def _is_and(node: ast.BoolOp) -> bool:
    return isinstance(node.op, ast.And)


def _and(walker: Walker, node: ast.BoolOp) -> Things:
    """``rank == 0 and dist.barrier()``: what comes last is reached if all before it hold."""
    if not isinstance(node.values[-1], ast.Call) or not _is_and(node):
        return _parts(walker, node)
    for part in node.values[:-1]:
        walker.value(part)
    rank = [found for part in node.values[:-1] if (found := rank_test(walker, part)) is not None]
    if not rank:
        walker.value(node.values[-1])
        return _test(walker, node)
    own = f"{walker.frame.number}:{id(node)}"
    more = () if len(rank) == len(node.values) - 1 else (Condition(own, True, ""),)
    fails = (rank[0]._replace(arm=not rank[0].arm),) if len(rank) == 1 and not more else (Condition(own, False, ""),)
    made = Branch(node, walker.frame.file, (*rank, *more), fails)
    outer, path = walker.trace, walker.path
    walker.trace, walker.path = made.body, (*path, *made.holds)
    walker.value(node.values[-1])
    walker.trace, walker.path = outer, path
    if made.body:
        outer.append(made)
    return ()


def _dict(walker: Walker, node: ast.Dict) -> Things:
    """What a dictionary holds; by name too, where its keys are plain strings."""
    out: list[Thing] = []
    named: dict[str, Things] = {}
    for key, part in zip(node.keys, node.values, strict=True):
        if key is not None and not isinstance(key, ast.Constant):
            out.extend(walker.value(key))
        things = walker.value(part)
        out.extend(things)
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            named[f"[{key.value}]"] = things
        elif key is None:
            for thing in things:
                named.update(thing.attrs if thing.kind == "dict" else {})
    if not any(named.values()):
        return tuple(dict.fromkeys(out))[:16]
    made = Thing("dict", "dict", node)
    made.attrs = named
    return (made, *dict.fromkeys(thing for thing in out if thing.kind != "dict"))[:16]


def _test(walker: Walker, node: ast.expr) -> Things:
    found = rank_test(walker, node)
    if found is None and isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        # not dist.is_initialized() or rank == 0
        inner = [one for part in node.values if (one := rank_test(walker, part)) is not None]
        found = inner[0] if len(inner) == 1 else None
    if found is None:
        return ()
    made = Thing("rank_test", found.key, node, found.sure)
    if not found.arm:
        made.attrs["fails"] = ()
    return (made,)


def _name(walker: Walker, node: ast.Name) -> Things:
    frame = walker.frame
    found = frame.env.get(node.id)
    if found is not None:
        return found
    outer = walker.globals.get(id(frame.file), {}).get(node.id)
    if outer is not None:
        return outer
    if node.id in frame.file.functions or node.id in frame.file.imports:
        meant = walker.project.resolve(frame.file, node.id)
        return () if isinstance(meant, str) else _function(meant)
    if node.id in _BUILTINS:
        return ()
    if frame.options[0] == node.id or frame.rest[0] == node.id:
        return _handed_on(walker, node)
    made = (Thing("unknown", node.id, node, sure=False),)
    frame.env[node.id] = made
    return made


def _function(found: Definition) -> Things:
    """A function of the project that is handed over or kept, to be called later."""
    if found.owner is not None or isinstance(found.node, ast.ClassDef):
        return ()
    made = Thing("function", found.node.name, found.node)
    made.file = found.file
    return (made,)


def _handed_on(walker: Walker, node: ast.Name) -> Things:
    """``*args`` and ``**kwargs`` of the function that is followed."""
    frame = walker.frame
    if frame.rest[0] == node.id:
        return tuple(dict.fromkeys(thing for things in frame.rest[1] for thing in things))[:16]
    made = Thing("dict", node.id, node)
    made.attrs = {f"[{name}]": things for name, things in frame.options[1].items()}
    return (made,) if made.attrs else ()


def _attribute(walker: Walker, node: ast.Attribute) -> Things:
    found = walker.resolved(node)
    if found:
        return () if isinstance(found, str) else _function(found)
    owners = walker.value(node.value)
    out: list[Thing] = []
    name = node.attr
    for owner in owners:
        if name in PRIVATE:
            walker.checks.attribute_set(walker, owner, node, ())
        if owner.kind in ("ddp", "fsdp1") and name == "module":
            out.extend(owner.of)
        elif name in owner.attrs:
            out.extend(thing for thing in owner.attrs[name] if not _elsewhere(walker, thing))
        elif (method := method_of(walker, owner, name)) is not None:
            out.extend(_method(walker, owner, method))
        elif (
            name in ("rank", "local_rank", "global_rank")
            and owner.kind in ("unknown", "instance")
            and not any(word in owner.name.lower() for word in _OTHER_RANKS)
        ):
            owner.attrs[name] = (Thing("local_rank" if name == "local_rank" else "rank", name, node, sure=False),)
            out.extend(owner.attrs[name])
        elif owner.kind in ("param", "params"):
            walker.checks.attribute_set(walker, owner, node, ())
        elif owner.kind not in ("rank", "local_rank", "rank_test"):
            out.append(walker.child(owner, name))
    return tuple(out)[:8]


def _elsewhere(walker: Walker, thing: Thing) -> bool:
    """Whether a thing was made on another branch than this, so that it cannot be here."""
    made = thing.marks[0] if thing.marks else None
    return made is not None and made.what == "made" and not compatible(made.path, walker.path)


def _method(walker: Walker, owner: Thing, method: Definition) -> Things:
    """A method that is not called where it is named, unless it is a property; what one gives is asked once."""
    if not is_property(method.node):
        made = Thing("method", method.node.name, method.node)
        made.file, made.of = method.file, (owner,)
        return (made,)
    if not walker.worth(method.node):
        return (walker.child(owner, method.node.name),)
    owner.attrs[method.node.name] = ()  # a property that asks for itself
    owner.attrs[method.node.name] = walker.enter(method, (), {}, owner)
    return owner.attrs[method.node.name]


def _subscript(walker: Walker, node: ast.Subscript) -> Things:
    if walker.full(node.value) == "os.environ":
        return environment(node.slice, node)
    owners = walker.value(node.value)
    walker.value(node.slice)
    key = node.slice.value if isinstance(node.slice, ast.Constant) else None
    if isinstance(key, str):
        known = [one for owner in owners if owner.kind == "dict" for one in owner.attrs.get(f"[{key}]", ())]
        if known:
            return tuple(known)
        return tuple(
            walker.child(owner, f"[{key}]") for owner in owners if owner.kind in ("unknown", "instance", "mesh")
        )
    return walker.elements(owners, node)


def _comprehension(walker: Walker, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> Things:
    saved, outer, path = dict(walker.frame.env), walker.trace, walker.path
    inside: list[Item] = []
    around: list[tuple[ast.comprehension, Things, list[Test]]] = []
    for generator in node.generators:
        over = walker.value(generator.iter)
        walker.bind(generator.target, walker.elements(over, generator.iter), None)
        walker.trace, tests = inside, []
        for asked in generator.ifs:
            walker.value(asked)
            tests.append(of_test(walker, asked))
            walker.path = (*walker.path, *tests[-1].holds)
        around.append((generator, over, tests))
    if isinstance(node, ast.DictComp):
        walker.value(node.key)
        things = walker.value(node.value)
    else:
        things = walker.value(node.elt)
    walker.trace, walker.path = outer, path
    if inside:
        outer.extend(_turns(walker, node, inside, around))
    walker.frame.env = saved
    return things


def _turns(
    walker: Walker, node: ast.expr, inside: list[Item], around: list[tuple[ast.comprehension, Things, list[Test]]]
) -> list[Item]:
    """What a comprehension executes, as loops and branches around it."""
    if only_unknown(inside):
        return only_unknown(inside)
    file = walker.frame.file
    for generator, over, tests in reversed(around):
        for test, asked in zip(reversed(tests), reversed(generator.ifs), strict=True):
            branch = Branch(asked, file, test.holds, test.fails)
            branch.body, inside = inside, [branch]
        turn = ast.copy_location(ast.For(generator.target, generator.iter, [], []), node)
        loop = Loop(turn, file, *trip_count(walker, turn, over))
        loop.body, inside = inside, [loop]
    return inside


def _taken(walker: Walker, node: ast.expr) -> Things:
    return walker.elements(walker.value(node), node)


_VALUES: dict[type, Callable[[Any, Any], Things]] = {
    ast.Name: _name,
    ast.Constant: _constant,
    ast.Attribute: _attribute,
    ast.Call: _called,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _comprehension,
    ast.Lambda: _none,
    ast.Subscript: _subscript,
    ast.IfExp: _if_expression,
    ast.BoolOp: _and,
    ast.Dict: _dict,
    ast.NamedExpr: _named,
    ast.UnaryOp: _signed,
}
