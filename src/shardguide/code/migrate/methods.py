"""What is done with an FSDP1 model: clipping, accumulation, whole parameters, the wrapper and its class."""

from __future__ import annotations

import ast
import re

from .checkpoints import static
from .names import FSDP1, SETTINGS, arguments
from .narrow import narrowed
from .todos import Refusal
from .unit import Unit
from .ways import ways

_NOT_MODELS = ("accelerator", "fabric", "trainer", "engine", "strategy", "plugin", "utils")
_LOWER = re.compile(r"mixed_precision\s*=(?!\s*None)")
_IGNORED = re.compile(r"""ignored_(?:modules|states|parameters)["']?\s*[=:]\s*(?!None\b|\[\]|\(\)|=)""")
_SHARDED = ("local_tensor", "local_shards")  # of ShardedTensor
_PRIVATE = frozenset({"_flat_param", "_all_handles", "_fsdp_state", "_handles", "_streams"})
# Of an FSDP1 module, though others have such names as well.
_INNER = frozenset({"_handle", "params", "sharding_strategy", "mixed_precision", "cpu_offload", "_is_root"})


def calls(unit: Unit) -> None:
    """Methods, one call after the other."""
    for node in ast.walk(unit.file.tree):
        if not isinstance(node, ast.Call) or id(node) in unit.handled:
            continue
        name = static(unit, node)
        method = node.func.attr if isinstance(node.func, ast.Attribute) and not name else ""
        if name in ("clip_grad_norm_", "no_sync", "forward"):  # FSDP.clip_grad_norm_(model, …)
            name, method = "", name
        what = name or method
        try:
            if name == "summon_full_params" or unit.is_method(node, "summon_full_params"):
                _summon(unit, node)
            elif name == "fsdp_modules":
                _modules(unit, node)
            elif method == "clip_grad_norm_":
                _clip(unit, node)
            elif method == "no_sync":
                _no_sync(unit, node)
            elif method == "forward":
                _forward(unit, node)
            elif method == "apply" and unit.is_fsdp1(node.func.value):  # type: ignore[attr-defined]
                unit.todo(node, "apply")
                unit.use(node, "method", method, "kept", "apply")
            elif method in ("register_comm_hook", "check_is_root") and unit.is_fsdp1(node.func.value):  # type: ignore[attr-defined]
                raise Refusal("comm-hook" if method == "register_comm_hook" else "no-counterpart")
            elif unit.canon(node.func) == "ShardedGradScaler":
                _scaler(unit, node)
                what = "ShardedGradScaler"
            elif name == "state_dict_type":
                raise Refusal("state-dict-type")
            elif name:
                raise Refusal("no-counterpart")
        except Refusal as refusal:
            unit.leave(node, "method", what, refusal)


def names(unit: Unit) -> None:
    """FSDP1's class as a type, the wrapped module, and private parts."""
    for node in ast.walk(unit.file.tree):
        if id(node) in unit.handled or isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            continue
        if isinstance(node, (ast.Name, ast.Attribute)) and unit.canon(node) == FSDP1:
            _class(unit, node)
        elif isinstance(node, ast.Attribute) and node.attr in ("module", "_fsdp_wrapped_module"):
            kinds = unit.reading.kinds(node.value)
            of = narrowed(unit, node.value)
            if not unit.is_fsdp1(node.value) or of == "other":
                continue
            if "ddp" in kinds and not of:
                ours, owner = unit.need("torch.distributed.fsdp.FSDPModule"), node.value
                unit.source.replace(
                    node,
                    lambda node=node, owner=owner, ours=ours: (  # type: ignore[misc]
                        f"({unit.source.text(owner)} if isinstance({unit.source.text(owner)}, {ours}) "
                        f"else {unit.source.inside(node)})"
                    ),
                )
                unit.use(node, "attribute", node.attr, "converted")
            elif kinds == {"fsdp1"} or of == "fsdp1":
                owner = node.value
                unit.source.replace(node, lambda owner=owner: unit.source.text(owner))  # type: ignore[misc]
                unit.use(node, "attribute", node.attr, "converted")
        elif isinstance(node, (ast.Name, ast.Attribute)) and unit.canon(node) == "ShardedGradScaler":
            parent = unit.parent(node)
            if not (isinstance(parent, ast.Call) and parent.func is node):
                unit.source.replace(node, _scaler_name(unit))
                unit.use(node, "class", "ShardedGradScaler", "converted")
        elif isinstance(node, ast.Attribute) and node.attr in _INNER and _inside(unit, node):
            unit.todo(node, "private")
            unit.use(node, "private", node.attr, "left", "private")
        elif isinstance(node, ast.Attribute) and node.attr in _SHARDED and _any_made(unit):
            unit.todo(node, "sharded-tensor")
        elif isinstance(node, ast.Attribute) and node.attr in ("ndim", "dim") and _parameter(unit, node.value):
            unit.todo(node, "parameter-groups")
        elif isinstance(node, ast.Attribute) and (node.attr in _PRIVATE or unit.canon(node).startswith("private ")):
            parent = unit.parent(node)
            if not isinstance(parent, ast.Attribute):
                unit.todo(node, "private")
                unit.use(node, "private", node.attr, "left", "private")
        elif (
            isinstance(node, ast.Name)
            and unit.canon(node).startswith("private ")
            and not isinstance(unit.parent(node), ast.Attribute)
        ):
            unit.todo(node, "private")
            unit.use(node, "private", node.id, "left", "private")


def _inside(unit: Unit, node: ast.Attribute) -> bool:
    """Whether an attribute is read of an FSDP1 module, as values and tests of its type say."""
    if unit.is_fsdp1(node.value):
        return True
    found = ways(unit, node, ast.unparse(node.value))
    return (found is not None and 1 in found and 0 not in found) or _of_its_modules(unit, node.value)


def _of_its_modules(unit: Unit, owner: ast.expr) -> bool:
    """Whether a loop goes over what a function of the project calls FSDP's modules."""
    here = unit.parent(owner)
    while isinstance(owner, ast.Name) and here is not None and not isinstance(here, ast.FunctionDef):
        if isinstance(here, ast.For) and "fsdp" in ast.unparse(here.iter).lower() and _any_made(unit):
            return any(isinstance(one, ast.Name) and one.id == owner.id for one in ast.walk(here.target))
        here = unit.parent(here)
    return False


def _any_made(unit: Unit) -> bool:
    return any(code == "" for code in unit.constructors.get(unit.group, ()))


def _parameter(unit: Unit, node: ast.expr) -> bool:
    """Whether an expression is a parameter of a migrated model."""
    things = unit.reading.things(node)
    owners = [owner for thing in things if thing.kind == "param" for owner in thing.of if owner.kind == "fsdp1"]
    return bool(owners) and any(unit.made.get(id(owner.node), False) for owner in owners)


def settings(unit: Unit) -> None:
    """FSDP1's policies and settings: gone, or read by the new code when it runs."""
    source = unit.source
    for node in ast.walk(unit.file.tree):
        if not isinstance(node, ast.Call) or id(node) in unit.handled:
            continue
        name = unit.canon(node.func)
        if unit.full(node.func) == "functools.partial" and node.args:
            name = unit.canon(node.args[0])
        if name not in SETTINGS or name in ("wrap", "enable_wrap"):
            continue
        place = source.span(node)[0]
        if any(start <= place < end for start, end in source.spans):
            unit.use(node, "setting", name, "converted")
        else:
            unit.use(node, "setting", name, "kept", "read-at-run-time")


def _class(unit: Unit, node: ast.expr) -> None:
    parent = unit.parent(node)
    if (
        id(node) in unit.handled
        or isinstance(parent, ast.Attribute)
        or (isinstance(parent, ast.Call) and parent.func is node)
    ):
        return  # a static method or a constructor, told elsewhere
    if isinstance(parent, ast.Assign) and any(
        isinstance(to, ast.Name) and (id(unit.file), to.id) in unit.reading.aliases.classes for to in parent.targets
    ):
        return  # another name of it: see leftovers.py
    here: ast.AST | None = parent
    inner: ast.AST = node
    while isinstance(here, (ast.Tuple, ast.List, ast.Subscript, ast.BinOp)):
        inner, here = here, unit.parent(here)
    asked = (
        isinstance(here, ast.Call) and isinstance(here.func, ast.Name) and here.func.id in ("isinstance", "issubclass")
    )
    annotation = (
        (isinstance(here, ast.arg))
        or (isinstance(here, ast.AnnAssign) and here.annotation is inner)
        or (isinstance(here, (ast.FunctionDef, ast.AsyncFunctionDef)) and here.returns is inner)
    )
    codes = unit.constructors.get(unit.group, ())
    if (asked or annotation or isinstance(here, ast.Compare)) and codes and all(codes):
        unit.leave(node, "isinstance" if asked else "class", "FSDP", Refusal("left-constructor"))
        return
    if asked and any(codes):  # some are FSDP1's still
        ours, old = unit.need("torch.distributed.fsdp.FSDPModule"), unit.source.raw(node)
        both = f"{old} | {ours}" if isinstance(parent, ast.BinOp) else f"{old}, {ours}"
        unit.source.replace(node, both if isinstance(parent, (ast.Tuple, ast.BinOp)) else f"({both})")
        unit.use(node, "isinstance", "FSDP", "converted")
        return
    if asked or annotation:
        unit.source.replace(node, unit.need("torch.distributed.fsdp.FSDPModule"))
        unit.use(node, "isinstance" if asked else "class", "FSDP", "converted")
        return
    if isinstance(here, ast.Compare) and _type_of(here) is not None:
        test = _type_of(here)
        assert test is not None
        subject, negated = test
        name = unit.need("torch.distributed.fsdp.FSDPModule")
        unit.source.replace(here, f"{'not ' if negated else ''}isinstance({unit.source.text(subject)}, {name})")
        unit.use(node, "isinstance", "FSDP", "converted")
        return
    unit.todo(node, "class")
    unit.use(node, "class", "FSDP", "left", "class")


def _type_of(node: ast.Compare) -> tuple[ast.expr, bool] | None:
    """What is compared in ``type(x) == FSDP``, and whether the test is for not being one."""
    left = node.left
    if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
        return None
    if (
        isinstance(left, ast.Call)
        and isinstance(left.func, ast.Name)
        and left.func.id == "type"
        and len(left.args) == 1
    ):
        return left.args[0], isinstance(node.ops[0], (ast.NotEq, ast.IsNot))
    return None


def _called_on(unit: Unit, node: ast.Call) -> tuple[ast.expr, list[ast.expr]]:
    """The model of a method call and the other arguments: ``model.method(x)`` or ``FSDP.method(model, x)``."""
    assert isinstance(node.func, ast.Attribute)
    if static(unit, node):
        if not node.args or isinstance(node.args[0], ast.Starred):
            raise Refusal("arguments")
        return node.args[0], node.args[1:]
    return node.func.value, node.args


def _clip(unit: Unit, node: ast.Call) -> None:
    owner, args = _called_on(unit, node)
    if not static(unit, node) and (unit.full(node.func).startswith("torch.") or unit.full(owner)):
        return
    first = args[0] if args else None
    if isinstance(first, ast.Call) and isinstance(first.func, ast.Attribute) and first.func.attr == "parameters":
        return
    if any(word in ast.unparse(owner).lower() for word in _NOT_MODELS):
        return
    if _own_method(unit, owner, "clip_grad_norm_"):
        return
    unit.certain(owner, but=("no-shard",))
    if not args and not any(keyword.arg == "max_norm" for keyword in node.keywords):
        raise Refusal("arguments")
    used = not isinstance(unit.parent(node), ast.Expr)
    source = unit.source
    if any("inf" in ast.unparse(one) for one in (*args[1:], *(k.value for k in node.keywords if k.arg == "norm_type"))):
        unit.todo(node, "infinity-norm")
    whole = _IGNORED.search(unit.near) is not None
    if whole or (not unit.is_fsdp1(owner) and "no-shard" in unit.constructors.get(unit.group, ())):
        # Gradients of ignored parameters, or under NO_SHARD, are no DTensors, and one call cannot take both.
        helper = unit.helper("clip_grad_norm")
        source.replace(
            node,
            lambda: f"{helper}({', '.join([source.text(owner), *(source.text(o) for o in (*args, *node.keywords))])})",
        )
        unit.use(node, "method", "clip_grad_norm_", "converted")
        return
    name = unit.need("torch.nn.utils.clip_grad_norm_")

    def text() -> str:
        rest = [source.text(one) for one in (*args, *node.keywords)]
        call = f"{name}({', '.join([f'{source.text(owner)}.parameters()', *rest])})"
        return f"{call}.full_tensor()" if used else call

    source.replace(node, text)
    unit.use(node, "method", "clip_grad_norm_", "converted")


def _own_method(unit: Unit, owner: ast.expr, name: str) -> bool:
    """Whether it may be a class of the project whose method this is, since nothing says that the object is FSDP1's."""
    if "fsdp1" in unit.reading.kinds(owner) or unit.same_name(owner) or narrowed(unit, owner) == "fsdp1":
        return False
    return any(
        (isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.name == name)
        or (isinstance(one, ast.Attribute) and one.attr == name and isinstance(one.ctx, ast.Store))
        for other in unit.units if other.group == unit.group and name in other.file.text
        for one in ast.walk(other.file.tree)
    )  # fmt: skip


def _no_sync(unit: Unit, node: ast.Call) -> None:
    owner, args = _called_on(unit, node)
    kinds = unit.reading.kinds(owner)
    if args or node.keywords or unit.full(owner) or any(word in ast.unparse(owner).lower() for word in _NOT_MODELS):
        return
    if kinds == {"ddp"} or narrowed(unit, owner) == "other":
        return
    if _own_method(unit, owner, "no_sync"):
        return
    unit.certain(owner)
    sure = kinds == {"fsdp1"} or ("fsdp1" in kinds and "DistributedDataParallel" not in unit.near)
    helper = unit.helper("no_sync" if sure else "no_sync_of")
    unit.source.replace(node, lambda: f"{helper}({unit.source.text(owner)})")
    unit.use(node, "context", "no_sync", "converted")


def _forward(unit: Unit, node: ast.Call) -> None:
    owner, _ = _called_on(unit, node)
    if unit.reading.kinds(owner) == {"fsdp1"} and unit.is_fsdp1(owner):
        if static(unit, node):
            raise Refusal("no-counterpart", "Write model(...) for FSDP.forward(model, ...).")
        function = node.func
        unit.source.replace(function, lambda: unit.source.text(owner))
        unit.use(node, "method", "forward", "converted")


def _modules(unit: Unit, node: ast.Call) -> None:
    given = arguments(node, "fsdp_modules")
    if given is None or "module" not in given or "root_only" in given:
        raise Refusal("no-counterpart", "fully_shard keeps no list of roots.")
    name = unit.need("torch.distributed.fsdp.FSDPModule")
    module = given["module"]
    unit.certain(module)
    unit.source.replace(node, lambda: f"[m for m in {unit.source.text(module)}.modules() if isinstance(m, {name})]")
    unit.use(node, "method", "fsdp_modules", "converted")


def _scaler_name(unit: Unit) -> str:
    return unit.need("torch.amp.GradScaler" if unit.target.at_least >= (2, 3) else "torch.cuda.amp.GradScaler")


def _scaler(unit: Unit, node: ast.Call) -> None:
    given = arguments(node, "ShardedGradScaler")
    if given is None:
        raise Refusal("arguments")
    name = _scaler_name(unit)
    parts = [
        f"{key}={unit.source.text(value)}" for key, value in given.items() if key != "process_group"
    ]  # fmt: skip
    if not given or (set(given) == {"process_group"}):
        unit.source.replace(node.func, name)
    if len(node.args) == 0 and "process_group" not in given:
        unit.source.replace(node.func, name)
    else:
        unit.source.replace(node, f"{name}({', '.join(parts)})")
    unit.use(node, "class", "ShardedGradScaler", "converted")


def _summon(unit: Unit, node: ast.Call) -> None:
    given = arguments(node, "summon_full_params")
    if given is None:
        raise Refusal("arguments")
    if "module" not in given:
        assert isinstance(node.func, ast.Attribute)
        given["module"] = node.func.value
    if _set(given, "with_grads", False):
        raise Refusal("summon-write")
    writes = _set(given, "writeback", True) and _may_write(unit, node)
    if writes and _LOWER.search(unit.near):
        raise Refusal("summon-write")
    helper = unit.helper("full_parameters_written_back" if writes else "full_parameters")
    module, recurse = given["module"], given.get("recurse")
    source = unit.source

    def text() -> str:
        more = f", recurse={source.text(recurse)}" if recurse is not None else ""
        return f"{helper}({source.text(module)}{more})"

    source.replace(node, text)
    unit.todo(node, "summon")
    unit.use(node, "context", "summon_full_params", "converted")


def _set(given: dict[str, ast.expr], name: str, default: bool) -> bool:
    node = given.get(name)
    if node is None:
        return default
    return not (isinstance(node, ast.Constant) and node.value is False)


def _may_write(unit: Unit, node: ast.Call) -> bool:
    """Whether the body of the context may change a parameter, as far as can be seen."""
    statement = unit.statement(node)
    if not isinstance(statement, ast.With):
        return True
    for part in statement.body:
        for inner in ast.walk(part):
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                name = inner.func.attr
                if (name.endswith("_") and not name.endswith("__")) or name in (
                    "load_state_dict",
                    "apply",
                    "init_weights",
                ):
                    return True
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "setattr":
                return True
            if isinstance(inner, (ast.Attribute, ast.Subscript)) and isinstance(inner.ctx, ast.Store):
                return True
            if isinstance(inner, ast.AugAssign):
                return True
            if isinstance(inner, ast.Call) and unit.definition(inner.func) is not None:
                return True
    return False
