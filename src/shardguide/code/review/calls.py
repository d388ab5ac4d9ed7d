"""Calls: into the project, of methods, of PyTorch, and of whatever cannot be followed."""

from __future__ import annotations

import ast
import builtins

from shardguide.guidance.hints import TYPE_CHECKING

from .made import environment, torch_value
from .methods import inherited, is_module, method_of, one_rank, unwrapped
from .project import Definition, dotted_text
from .records import Call, Condition, Thing, Things
from .torch_names import short
from .trace import Branch

if TYPE_CHECKING:
    from .walk import Walker

BUILTINS = frozenset(dir(builtins))
# Methods that a rank-dependent branch may call without another rank taking notice.
QUIET = frozenset(
    [
        "print",
        "info",
        "debug",
        "warning",
        "error",
        "append",
        "add",
        "update",
        "write",
        "log",
        "join",
        "format",
        "items",
        "keys",
        "values",
        "get",
        "split",
        "strip",
        "flush",
        "close",
    ]
)

PLAIN = ("os.", "time.", "math.", "logging.", "json.", "random.", "sys.")  # libraries that know nothing of ranks
# Methods that give back the object itself.
_SAME = frozenset({"to", "cuda", "cpu", "train", "eval", "half", "bfloat16", "float", "double", "requires_grad_"})
_HOLDERS = frozenset({"instance", "module", "unknown"})
_CALLABLE = ("method", "function", "partial")
# Methods that getattr(model, "…", otherwise) is used for.
METHODS = frozenset({"no_sync", "join", "clip_grad_norm_", "state_dict", "set_epoch"})
ONLY = Condition("rank == 0", True, "rank", False)  # under a decorator that says so
_MODULES = ("from_pretrained", "from_config")


def call_value(walker: Walker, node: ast.Call) -> Things:
    """What a call gives; the checks are told of it, and what the project defines is followed."""
    walker.parts = None
    found = _call(walker, node)
    if walker.parts:
        walker.tuples[id(node)] = walker.parts
        walker.parts = None
    return found


def _call(walker: Walker, node: ast.Call) -> Things:
    function = node.func
    owner: Things = ()
    full = ""
    target: str | Definition = ""
    method = ""
    text = dotted_text(function)
    head = text if isinstance(function, ast.Name) else text.partition(".")[0]
    local = head in walker.frame.env and head not in walker.frame.file.imports
    if text and not local and walker.frame.file.knows(head):
        target = walker.project.resolve(walker.frame.file, text)
        full = target if isinstance(target, str) else ""
    if isinstance(function, ast.Attribute) and not target:
        owner, method = walker.value(function.value), function.attr
    elif isinstance(function, ast.Name) and local:
        owner = walker.frame.env[head]
    elif not isinstance(function, (ast.Name, ast.Attribute)):
        owner = walker.value(function)
    if owner and method:
        held = _held(owner, method)
        if held:
            owner, method = held, ""  # self.model(x)
    if owner and not method and any(one.kind == "method" for one in owner):
        owner, method = _bound(owner)  # sync = getattr(model, "no_sync"); step = self.train_step
    value = walker.value
    args = tuple([value(argument) for argument in node.args])
    named = {keyword.arg or "**": value(keyword.value) for keyword in node.keywords} if node.keywords else {}
    if "**" in named or (node.args and isinstance(node.args[-1], ast.Starred)):
        args, named = _spread(walker, node, args, named)
    name = short(full) if full else ""
    call = Call(node, name, full, owner, method, args, named)
    walker.at += 1
    if isinstance(target, Definition):
        return _own(walker, call, target)
    walker.checks.call(walker, call)
    if method:
        return _method(walker, call)
    if name:
        return torch_value(walker, call)
    return _other(walker, call, text)


def _held(owner: Things, name: str) -> Things:
    """What objects hold under a name that is called, where that is a model, or something that can be followed."""
    out = tuple(thing for one in owner if one.kind in _HOLDERS for thing in one.attrs.get(name, ()))
    known = any(thing.kind in ("fsdp1", "ddp", "module", *_CALLABLE) or "fully_shard" in thing.had for thing in out)
    return out if known else ()


def _bound(things: Things) -> tuple[Things, str]:
    """A method that was taken from objects and is called later: the objects, and its name."""
    name = next(thing.name for thing in things if thing.kind == "method")
    return tuple(dict.fromkeys(one for thing in things for one in thing.of)), name


def _spread(
    walker: Walker, node: ast.Call, args: tuple[Things, ...], named: dict[str, Things]
) -> tuple[tuple[Things, ...], dict[str, Things]]:
    """``f(*args, **kwargs)`` where it is known what they hold."""
    last = node.args[-1] if node.args else None
    if isinstance(last, ast.Starred) and isinstance(last.value, ast.Name):
        name, rest = walker.frame.rest
        if last.value.id == name:
            args = (*args[:-1], *rest)
    for thing in named.get("**", ()):
        if thing.kind == "dict":
            for key, things in thing.attrs.items():
                named.setdefault(key[1:-1], things)
    return args, named


def _own(walker: Walker, call: Call, target: Definition) -> Things:
    """A function or class of the project."""
    node = target.node
    if isinstance(node, ast.ClassDef):
        return (_instance(walker, call, target),)
    if node.decorator_list and any("contextmanager" in dotted_text(item) for item in node.decorator_list):
        if walker.worth(node):  # what it does before and after its yield
            walker.enter(target, call.args, call.named, None)
            walker.parts = None
        walker.escape((*call.args, *call.named.values()), call.node)
        return ()
    if not walker.worth(node) and not _wrapped(call):
        if walker.harmless(target):
            walker.escape((*call.args, *call.named.values()), call.node)
        else:
            _touched(walker, call)
        return ()
    return follow(walker, target, call, None)


def _wrapped(call: Call, owner: Thing | None = None) -> bool:
    """Whether a wrapped model is handed over, or an object has one, which may be run: then any function matters."""
    held = (*call.args, *call.named.values(), *(owner.attrs.values() if owner is not None else ()))
    return any(thing.kind in ("fsdp1", "ddp") or "fully_shard" in thing.had for things in held for thing in things)


def follow(walker: Walker, target: Definition, call: Call, owner: Thing | None, closure: bool = False) -> Things:
    """Follow a function of the project, its decorators included; of several that may be meant none is sure."""
    several = len(call.owner) > 1
    walker.doubt += several
    found = _follow(walker, target, call, owner, closure)
    walker.doubt -= several
    return found


def _follow(walker: Walker, target: Definition, call: Call, owner: Thing | None, closure: bool) -> Things:
    node = target.node
    if not getattr(node, "decorator_list", None):
        return walker.enter(target, call.args, call.named, owner, closure)
    if one_rank(target):
        made = Branch(node, target.file, (ONLY,), (ONLY._replace(arm=False),))
        outer, path = walker.trace, walker.path
        walker.trace, walker.path = made.body, (*path, ONLY)
        found = walker.enter(target, call.args, call.named, owner, closure)
        walker.trace, walker.path = outer, path
        outer.append(made)
        return found
    around = unwrapped(walker, target) if owner is None else None
    if around is None or around[0].node in walker.stack:
        return walker.enter(target, call.args, call.named, owner, closure)
    wrapper, inner = around
    walker.seen.add(node)
    return walker.enter(wrapper, call.args, call.named, None, bound={inner.name: (inner,)})


def _instance(walker: Walker, call: Call, target: Definition) -> Thing:
    node = target.node
    assert isinstance(node, ast.ClassDef)
    made = Thing("module" if is_module(walker.project, target) else "instance", node.name, call.node)
    made.file = target.file
    if walker.inside("meta"):
        walker.mark((made,), "meta", call.node)
    made.attrs["class"] = (Thing("class", node.name, node),)
    made.attrs["class"][0].file = target.file
    method = inherited(walker.project, target, "__init__")
    if method is None:  # a dataclass, a named tuple
        fields = [
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        ]
        made.attrs.update(zip(fields, call.args, strict=False))
        made.attrs.update((name, things) for name, things in call.named.items() if name in fields)
    elif walker.worth(method.node):
        walker.enter(method, call.args, call.named, made)
    walker.seen.add(node)
    bases = [dotted_text(base) for base in node.bases]
    if call.args and any("ptimizer" in base for base in bases) and not any("Join" in base for base in bases):
        made.kind, made.of = "optimizer", call.args[0]
        walker.checks.call(walker, call._replace(name="optimizer", full=node.name))
        walker.mark((made,), "made", call.node)
        walker.made.append(made)
    return made


def _method(walker: Walker, call: Call) -> Things:
    """A method of a thing."""
    name = call.method
    out: list[Thing] = []
    known = False  # it was followed, or leads to nothing
    for owner in call.owner:
        kind = owner.kind
        definition = method_of(walker, owner, name)
        if definition is not None:
            known = True
            if walker.worth(definition.node) or _wrapped(call, owner):
                out.extend(follow(walker, definition, call, owner))
        if kind == "function":
            continue
        if name in ("parameters", "named_parameters"):
            out.append(_of("params", owner, call.node))
        elif name in ("modules", "named_modules", "children", "named_children"):
            out.append(_of("modules", owner, call.node))
        elif name in _SAME or name in ("no_sync", "join"):
            out.append(owner)
        elif name == "state_dict":
            out.append(_of("state_dict", owner, call.node))
        elif name in _MODULES:
            out.append(Thing("module", owner.name, call.node))
        elif name in ("values", "items") and kind in ("unknown", "modulelist", "params", "param"):
            out.append(owner)
        elif name in ("get_rank", "get_local_rank") and kind != "mesh":
            out.append(Thing("unknown", name, call.node, sure=False))
    if name not in QUIET and not out and not call.owner:
        walker.cannot_follow(f".{name}()", call.node)
    elif name not in QUIET and not out and all(owner.kind in ("unknown", "instance") for owner in call.owner):
        if not known:
            walker.cannot_follow(f".{name}()", call.node)
        for owner in call.owner:
            walker.mark((owner,), f"method {name}", call.node)
        walker.escape((*call.args, *call.named.values()), call.node)
    else:
        walker.mark(call.owner, f"method {name}", call.node)
    return tuple(dict.fromkeys(out))[:8]


def _of(kind: str, owner: Thing, node: ast.AST) -> Thing:
    made = Thing(kind, owner.name, node)
    made.of = (owner,)
    return made


def _other(walker: Walker, call: Call, text: str) -> Things:
    """Anything else: builtins, other libraries, objects that are called."""
    node = call.node
    if call.owner:  # model(x)
        walker.mark(call.owner, "called", node)
        for owner in call.owner:
            if owner.kind == "function" and isinstance(owner.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                definition = Definition(owner.file, owner.node)  # type: ignore[arg-type]
                inner = owner.file is walker.frame.file and owner.file.functions.get(owner.node.name) is not owner.node
                return follow(walker, definition, call, None, closure=inner)
            if owner.kind == "partial":
                return _partial(walker, call, owner)
        if all(owner.kind == "unknown" for owner in call.owner):
            _touched(walker, call)
        return _run(walker, call)
    if text == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
        return _attribute_by_name(walker, call, str(node.args[1].value))
    if call.full in ("functools.partial", "types.SimpleNamespace"):
        return _made_of(walker, call)
    if call.full in ("os.getenv", "os.environ.get") and node.args:
        return environment(node.args[0], node)
    if text in ("int", "str"):
        return tuple(thing for things in call.args for thing in things if thing.kind in ("rank", "local_rank"))
    if text in ("list", "tuple", "reversed", "iter", "sorted", "filter", "chain", "enumerate", "zip", "set", "dict"):
        return tuple(thing for things in (*call.args, *call.named.values()) for thing in things)[:16]
    if call.full.endswith(_MODULES) or (call.full.startswith("torch.") and call.full.endswith("Model")):
        made = Thing("module", call.full, node)
        if walker.inside("meta"):
            walker.mark((made,), "meta", node)
        return (made,)
    if text in BUILTINS or call.full.startswith(("torch.", *PLAIN)):
        return ()
    _touched(walker, call)
    return ()


def _run(walker: Walker, call: Call) -> Things:
    """Objects that are called: their class says what happens then. What comes out of a model is data."""
    out: list[Thing] = []
    for owner in call.owner:
        inner = owner.of[0] if owner.kind in ("fsdp1", "ddp") and owner.of else owner
        definition = method_of(walker, inner, "__call__")
        if definition is None and inner.kind == "module":
            definition = method_of(walker, inner, "forward")
        if definition is not None and walker.worth(definition.node):
            found = follow(walker, definition, call, inner)
            out.extend(found if inner.kind == "instance" else ())
    walker.parts = None
    return tuple(dict.fromkeys(out))[:8]


def manage(walker: Walker, thing: Thing, name: str) -> None:
    """What an object of the project does at the beginning or the end of a with statement."""
    definition = method_of(walker, thing, name) or method_of(walker, thing, name.replace("__", "__a", 1))
    if definition is not None and walker.worth(definition.node):
        walker.enter(definition, (), {}, thing)


def _attribute_by_name(walker: Walker, call: Call, name: str) -> Things:
    """getattr(thing, "name", default): a method that may be called, or an attribute."""
    owners = call.args[0]
    if name in METHODS:
        made = Thing("method", name, call.node)
        made.of = owners
        return (made,) if owners else ()
    return tuple(one for owner in owners for one in owner.attrs.get(name, ()))


def _made_of(walker: Walker, call: Call) -> Things:
    """functools.partial(function, …) and types.SimpleNamespace(name=…)."""
    if call.full.endswith("SimpleNamespace"):
        made = Thing("instance", "SimpleNamespace", call.node)
        made.attrs.update((name, things) for name, things in call.named.items() if name != "**")
        return (made,)
    things = [thing for thing in (call.args[0] if call.args else ()) if thing.kind in ("function", "method")]
    if not things:
        return ()
    made = Thing("partial", things[0].name, things[0].node)
    made.file, made.of = things[0].file, things[0].of
    made.attrs = {f"={name}": things for name, things in call.named.items()}
    made.attrs.update((str(i), things) for i, things in enumerate(call.args[1:]))
    return (made,)


def _partial(walker: Walker, call: Call, made: Thing) -> Things:
    """What functools.partial made is called."""
    first = [made.attrs[str(i)] for i in range(len(made.attrs)) if str(i) in made.attrs]
    named = {name[1:]: things for name, things in made.attrs.items() if name.startswith("=")}
    whole = call._replace(args=(*first, *call.args), named={**named, **call.named})
    if made.of:
        return _method(walker, whole._replace(owner=made.of, method=made.name))
    definition = Definition(made.file, made.node)  # type: ignore[arg-type]
    return follow(walker, definition, whole, None) if walker.worth(definition.node) else ()


def _touched(walker: Walker, call: Call) -> None:
    """Something that cannot be followed got these things: it may have done anything with them."""
    walker.cannot_follow(f"{dotted_text(call.node.func)}()", call.node)
    walker.escape((*call.args, *call.named.values()), call.node)
