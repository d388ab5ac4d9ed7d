"""What expressions stand for, as far as it matters: models, optimizers of them, ranks, samplers, work that is under way."""

from __future__ import annotations

import ast
import builtins

from shardguide.guidance.hints import TYPE_CHECKING

from .conditions import rank_test
from .project import Definition, dotted_text
from .records import Call, Thing, Things
from .torch_names import COLLECTIVES, short

if TYPE_CHECKING:
    from .walk import Walker

_BUILTINS = frozenset(dir(builtins))
_RANK_KEYS = {"RANK": "rank", "SLURM_PROCID": "rank", "LOCAL_RANK": "local_rank", "SLURM_LOCALID": "local_rank"}
# Methods that a rank-dependent branch may call without another rank taking notice.
_QUIET = frozenset(
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
# Flags handed to a function, which decide its branches: see Walker.enter and conditions.of_test.
_PLAIN = (bool, type(None))
_CONSTANTS = {key: (Thing("constant", repr(key)),) for key in (True, False, None)}
# Methods that give back the object itself.
_SAME = frozenset({"to", "cuda", "cpu", "train", "eval", "half", "bfloat16", "float", "double", "requires_grad_"})
_MODULES = ("from_pretrained", "from_config")


def value(walker: Walker, node: ast.expr) -> Things:
    """What ``node`` stands for; every call inside it is told to the checks once, inner ones first."""
    kind = type(node)
    if kind is ast.Name:
        return _name(walker, node)  # type: ignore[arg-type]
    if kind is ast.Constant:
        return _CONSTANTS.get(node.value, ()) if node.value.__class__ in _PLAIN else ()  # type: ignore[attr-defined]
    if kind is ast.Attribute:
        return _attribute(walker, node)  # type: ignore[arg-type]
    if kind is ast.Call:
        found = walker.cache[id(node)] = _call(walker, node)  # type: ignore[arg-type]
        return found
    if kind in (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp):
        return _comprehension(walker, node)  # type: ignore[arg-type]
    if kind is ast.Lambda:
        return ()
    if kind is ast.Subscript:
        return _subscript(walker, node)  # type: ignore[arg-type]
    if kind is ast.IfExp:
        walker.value(node.test)  # type: ignore[attr-defined]
        return (*walker.value(node.body), *walker.value(node.orelse))  # type: ignore[attr-defined]
    if kind is ast.NamedExpr:
        things = walker.value(node.value)  # type: ignore[attr-defined]
        walker.bind(node.target, things, None)  # type: ignore[attr-defined]
        return things
    out: list[Thing] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            out.extend(walker.value(child))
    if kind in (ast.Compare, ast.BoolOp, ast.UnaryOp):
        return _test(walker, node)
    if kind in (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.Starred, ast.Await):
        return tuple(dict.fromkeys(out))[:16]
    if kind is ast.BinOp and isinstance(node.op, ast.Mod):  # type: ignore[attr-defined]
        return tuple(Thing("local_rank", thing.name, node) for thing in out if thing.kind == "rank")
    if kind is ast.BinOp:
        return tuple(thing for thing in out if thing.kind in ("params", "param"))
    return tuple(thing for thing in out if thing.kind in ("rank", "local_rank")) if kind is ast.FormattedValue else ()


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
    if node.id in _BUILTINS or node.id in frame.file.imports or node.id in frame.file.functions:
        return ()
    made = (Thing("unknown", node.id, node, sure=False),)
    frame.env[node.id] = made
    return made


def _attribute(walker: Walker, node: ast.Attribute) -> Things:
    if walker.full(node):
        return ()
    owners = walker.value(node.value)
    out: list[Thing] = []
    name = node.attr
    for owner in owners:
        if owner.kind in ("ddp", "fsdp1") and name == "module":
            out.extend(owner.of)
        elif (
            name in ("rank", "local_rank", "global_rank")
            and owner.kind in ("unknown", "instance")
            and name not in owner.attrs
        ):
            owner.attrs[name] = (Thing("local_rank" if name == "local_rank" else "rank", name, node, sure=False),)
            out.extend(owner.attrs[name])
        elif name in owner.attrs:
            out.extend(owner.attrs[name])
        elif owner.kind in ("param", "params"):
            walker.checks.attribute_set(walker, owner, node, ())
        elif owner.kind not in ("rank", "local_rank", "rank_test"):
            out.append(walker.child(owner, name))
    return tuple(out)[:8]


def _subscript(walker: Walker, node: ast.Subscript) -> Things:
    if walker.full(node.value) == "os.environ":
        return _environment(node.slice, node)
    owners = walker.value(node.value)
    walker.value(node.slice)
    key = node.slice.value if isinstance(node.slice, ast.Constant) else None
    if isinstance(key, str):
        return tuple(
            walker.child(owner, f"[{key}]") for owner in owners if owner.kind in ("unknown", "instance", "mesh")
        )
    return walker.elements(owners, node)


def _environment(key: ast.expr, node: ast.AST) -> Things:
    if isinstance(key, ast.Constant) and key.value in _RANK_KEYS:
        return (Thing(_RANK_KEYS[key.value], str(key.value), node),)
    return ()


def _comprehension(walker: Walker, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> Things:
    saved = dict(walker.frame.env)
    for generator in node.generators:
        walker.bind(generator.target, _taken(walker, generator.iter), None)
        for test in generator.ifs:
            walker.value(test)
    if isinstance(node, ast.DictComp):
        walker.value(node.key)
        things = walker.value(node.value)
    else:
        things = walker.value(node.elt)
    walker.frame.env = saved
    return things


def _taken(walker: Walker, node: ast.expr) -> Things:
    return walker.elements(walker.value(node), node)


def _call(walker: Walker, node: ast.Call) -> Things:
    function = node.func
    owner: Things = ()
    full = ""
    target: str | Definition = ""
    method = ""
    text = dotted_text(function)
    head = text.partition(".")[0]
    local = head in walker.frame.env and head not in walker.frame.file.imports
    if text and not local:
        target = walker.project.resolve(walker.frame.file, text)
        full = target if isinstance(target, str) else ""
    if isinstance(function, ast.Attribute) and not target:
        owner, method = walker.value(function.value), function.attr
    elif isinstance(function, ast.Name) and local:
        owner = walker.frame.env[head]
    elif not isinstance(function, (ast.Name, ast.Attribute)):
        owner = walker.value(function)
    args = tuple(walker.value(argument) for argument in node.args)
    named = {keyword.arg or "**": walker.value(keyword.value) for keyword in node.keywords}
    name = short(full) if full else ""
    call = Call(node, name, full, owner, method, args, named)
    walker.at += 1
    if isinstance(target, Definition):
        return _own(walker, call, target)
    walker.checks.call(walker, call)
    if method:
        return _method(walker, call)
    if name:
        return _torch(walker, call)
    return _other(walker, call, text)


def _own(walker: Walker, call: Call, target: Definition) -> Things:
    """A function or class of the project."""
    node = target.node
    if isinstance(node, ast.ClassDef):
        return (_instance(walker, call, target),)
    if node.decorator_list and any("contextmanager" in dotted_text(item) for item in node.decorator_list):
        walker.escape((*call.args, *call.named.values()), call.node)
        return ()
    if not walker.worth(node):
        _touched(walker, call)
        return ()
    return walker.enter(target, call.args, call.named, None)


def _instance(walker: Walker, call: Call, target: Definition) -> Thing:
    node = target.node
    assert isinstance(node, ast.ClassDef)
    made = Thing("module" if _is_module(walker, target) else "instance", node.name, call.node)
    made.file = target.file
    if walker.inside("meta"):
        walker.mark((made,), "meta", call.node)
    made.attrs["class"] = (Thing("class", node.name, node),)
    made.attrs["class"][0].file = target.file
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__" and walker.worth(item):
            walker.enter(Definition(target.file, item, node), call.args, call.named, made)
    walker.seen.add(node)
    return made


def _is_module(walker: Walker, target: Definition, depth: int = 5) -> bool:
    node = target.node
    if not isinstance(node, ast.ClassDef) or depth < 0:
        return False
    for base in node.bases:
        found = walker.project.resolve(target.file, dotted_text(base)) if dotted_text(base) else ""
        if isinstance(found, Definition):
            if _is_module(walker, found, depth - 1):
                return True
        elif found.startswith("torch.nn.") or found.endswith("PreTrainedModel"):
            return True
    return False


def _method(walker: Walker, call: Call) -> Things:
    """A method of a thing."""
    name = call.method
    out: list[Thing] = []
    for owner in call.owner:
        kind = owner.kind
        if kind in ("instance", "module") and "class" in owner.attrs:
            held = owner.attrs["class"][0]
            for item in getattr(held.node, "body", ()):
                if isinstance(item, ast.FunctionDef) and item.name == name and walker.worth(item):
                    definition = Definition(held.file, item, held.node)  # type: ignore[arg-type]
                    out.extend(walker.enter(definition, call.args, call.named, owner))
                    break
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
        elif name in ("values", "items") and kind in ("unknown", "modulelist"):
            out.append(owner)
        elif name in ("get_rank", "get_local_rank") and kind != "mesh":
            out.append(Thing("unknown", name, call.node, sure=False))
    if name not in _QUIET and not out and not call.owner:
        walker.unknown.append(walker.path)
    elif name not in _QUIET and not out and all(owner.kind in ("unknown", "instance") for owner in call.owner):
        walker.unknown.append(walker.path)
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


def _torch(walker: Walker, call: Call) -> Things:
    """What PyTorch's functions and classes give."""
    name, node = call.name, call.node
    if name == "fully_shard":
        things = call.things("module", 0)
        walker.mark(things, "fully_shard", node)
        return things
    if name == "get_rank":
        return (Thing("rank", "get_rank()", node),) if not node.args and not node.keywords else ()
    if name == "get_node_local_rank":
        return (Thing("local_rank", name, node),)
    if name in COLLECTIVES or name in ("isend", "irecv", "batch_isend_irecv"):
        return (Thing("work", name, node),)
    kind = _KINDS.get(name)
    if kind is None and name in ("convert_sync_batchnorm", "torch.compile"):
        return call.args[0] if call.args else ()
    if kind is None:
        return ()
    made = Thing(kind, call.full, node)
    made.file = walker.frame.file
    if kind in ("fsdp1", "ddp"):
        made.of = call.things("module", 0)
    elif kind == "optimizer":
        made.of = (*call.things("params", 0), *call.things("optimizer", 1))
    elif kind == "loader":
        made.of = call.things("sampler", 3)
    if walker.inside("meta") and kind in ("module", "modulelist"):
        walker.mark((made,), "meta", node)
    walker.mark((made,), "made", node)
    walker.made.append(made)
    return (made,)


_KINDS = {
    "FSDP1": "fsdp1",
    "DDP": "ddp",
    "optimizer": "optimizer",
    "ZeroRedundancyOptimizer": "optimizer",
    "DistributedSampler": "sampler",
    "DataLoader": "loader",
    "GradScaler": "scaler",
    "ShardedGradScaler": "sharded_scaler",
    "init_device_mesh": "mesh",
    "DeviceMesh": "mesh",
    "new_group": "group",
    "nn": "module",
    "ModuleList": "modulelist",
    "ModuleDict": "modulelist",
    "Join": "join",
    "CPUOffloadPolicy": "offload",
}


def _other(walker: Walker, call: Call, text: str) -> Things:
    """Anything else: builtins, other libraries, objects that are called."""
    node = call.node
    if call.owner:  # model(x)
        walker.mark(call.owner, "called", node)
        for owner in call.owner:
            if owner.kind == "function" and isinstance(owner.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                definition = Definition(owner.file, owner.node)  # type: ignore[arg-type]
                return walker.enter(definition, call.args, call.named, None, closure=True)
        if all(owner.kind == "unknown" for owner in call.owner):
            _touched(walker, call)
        return ()
    if call.full in ("os.getenv", "os.environ.get") and node.args:
        return _environment(node.args[0], node)
    if text in ("int", "str"):
        return tuple(thing for things in call.args for thing in things if thing.kind in ("rank", "local_rank"))
    if text in ("list", "tuple", "reversed", "iter", "sorted", "filter", "chain", "enumerate", "zip", "set", "dict"):
        return tuple(thing for things in (*call.args, *call.named.values()) for thing in things)[:16]
    if call.full.endswith(_MODULES) or (call.full.startswith("torch.") and call.full.endswith("Model")):
        made = Thing("module", call.full, node)
        if walker.inside("meta"):
            walker.mark((made,), "meta", node)
        return (made,)
    if text in _BUILTINS or call.full.startswith(
        ("torch.", "os.", "time.", "math.", "logging.", "json.", "random.", "sys.")
    ):
        return ()
    _touched(walker, call)
    return ()


def _touched(walker: Walker, call: Call) -> None:
    """Something that cannot be followed got these things: it may have done anything with them."""
    walker.unknown.append(walker.path)
    walker.escape((*call.args, *call.named.values()), call.node)
