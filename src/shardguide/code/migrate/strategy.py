"""Sharding strategy, mesh and groups, device, offload, ignored parts: what they are for fully_shard."""

from __future__ import annotations

import ast

from .plan import Plan, maybe_none, simple
from .todos import Refusal
from .unit import Unit

_HYBRID = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
_MESH = "torch.distributed.device_mesh.init_device_mesh"


def device_type(plan: Plan) -> str:
    """The type of device that device_id names; "" where it names none."""
    node = plan.given.get("device_id")
    node = plan.unit.bound(node) if node is not None else None
    if isinstance(node, ast.Call) and plan.unit.full(node.func) == "torch.device" and node.args:
        node = plan.unit.bound(node.args[0])
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return str(node.value).partition(":")[0]
    if isinstance(node, ast.Call):
        full = plan.unit.full(node.func)
        for kind in ("cuda", "xpu", "cpu"):
            if full.startswith(f"torch.{kind}."):
                return kind
    return ""


def literal(plan: Plan, node: ast.expr | None) -> str:
    """The strategy where it is written out; "" where it is not, FULL_SHARD where none is given."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return "FULL_SHARD"
    bound = plan.unit.bound(node)
    name = plan.unit.canon(bound) if bound is not None else ""
    if isinstance(bound, ast.Subscript) and isinstance(bound.slice, ast.Constant):
        name = f"{plan.unit.canon(bound.value)}.{bound.slice.value!s}"
    return name.partition(".")[2] if name.startswith("ShardingStrategy.") else ""


def shard(plan: Plan) -> None:
    """sharding_strategy, device_mesh and process_group."""
    node = plan.given.get("sharding_strategy")
    name = literal(plan, node)
    if name == "NO_SHARD":
        raise Refusal("no-shard")
    mesh = _given_mesh(plan)
    if name:
        if name in _HYBRID and not mesh:
            mesh = _hybrid(plan)
        _place(plan, mesh)
        if name in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"):
            plan.both("sharding_strategy", "reshard_after_forward", "False")
        if node is not None:
            plan.used.append(node)
        return
    assert node is not None
    text = plan.text(node)
    if not simple(node):
        text = plan.hoist("sharding_strategy", text)
    plan.unit.todo(node, "no-shard-possible")
    if not mesh or mesh.endswith(("is not None else None", "None)")) or _may_be_none(plan):
        made = f'{plan.unit.helper("mesh_of")}({text}, "{device_type(plan) or "cuda"}")'
        plan.unit.todo(node, "hybrid-nodes")
        mesh = f"{mesh} if {mesh} is not None else {made}" if mesh else made
        mesh = plan.hoist("mesh", mesh)
    _place(plan, mesh)
    reshard = f"{plan.unit.helper('reshard_after_forward')}({text})"
    plan.both("sharding_strategy", "reshard_after_forward", plan.hoist("reshard", reshard))


def _place(plan: Plan, mesh: str) -> None:
    if not mesh and device_type(plan) == "cpu":
        size = f"{plan.unit.need('torch.distributed.get_world_size')}()"
        mesh = plan.hoist("mesh", f'{plan.unit.need(_MESH)}("cpu", ({size},))')
    if mesh:
        origin = next((name for name in ("device_mesh", "process_group") if name in plan.given), "sharding_strategy")
        plan.both(origin, "mesh", mesh)


def _may_be_none(plan: Plan) -> bool:
    node = plan.given.get("device_mesh")
    return node is not None and maybe_none(plan, node)


def _given_mesh(plan: Plan) -> str:
    """The mesh that the call itself names, as an expression that may be written twice; "" for none."""
    node = plan.given.get("device_mesh")
    if node is not None and plan.constant("device_mesh") is not None:
        _name_dimensions(plan, node)
        text = plan.text(node)
        return text if simple(node) else plan.hoist("mesh", text)
    group = plan.given.get("process_group")
    if group is None or plan.constant("process_group") is None:
        return ""
    bound = plan.unit.bound(group)
    hybrid = literal(plan, plan.given.get("sharding_strategy")) in _HYBRID
    if isinstance(bound, ast.Tuple) and not (hybrid and len(bound.elts) == 2):
        raise Refusal("process-group-pair")
    method = bound.func if isinstance(bound, ast.Call) and not bound.args and not bound.keywords else None
    if isinstance(method, ast.Attribute) and method.attr == "get_group":
        return plan.text(method.value)
    if bound is not None and plan.unit.full(bound).endswith("group.WORLD"):
        return ""
    if hybrid:  # FSDP1 takes a pair then, and nothing else
        return _of_groups(plan, group)
    if not plan.unit.target.has("torch.distributed.device_mesh.DeviceMesh.from_group"):
        raise Refusal("release", f"PyTorch {plan.unit.target.release} makes no mesh of a process group.")
    kind = device_type(plan) or "cuda"
    plan.unit.grouped.add(plan.unit.group)
    plan.group = plan.text(group) if simple(group) else plan.hoist("group", plan.text(group))
    made = f'{plan.unit.need("torch.distributed.device_mesh.DeviceMesh")}.from_group({plan.group}, "{kind}")'
    if maybe_none(plan, group):
        made = f"{made} if {plan.group} is not None else None"
    return plan.hoist("mesh", made)


def _of_groups(plan: Plan, group: ast.expr) -> str:
    """The mesh of two groups, one to shard over and one to replicate over."""
    kind = device_type(plan) or "cuda"
    text = plan.text(group) if not maybe_none(plan, group) or simple(group) else plan.hoist("groups", plan.text(group))
    made = f'{plan.unit.helper("mesh_of_groups")}({text}, "{kind}")'
    if maybe_none(plan, group):
        made = f"{made} if {text} is not None else {_nodes(plan)}"
    plan.unit.todo(group, "process-group-pair")
    return plan.hoist("mesh", made)


def _hybrid(plan: Plan) -> str:
    return plan.hoist("mesh", _nodes(plan))


def _nodes(plan: Plan) -> str:
    """A mesh of nodes and the devices of a node, as FSDP1 made its groups where it was given none."""
    unit = plan.unit
    plan.unit.todo(plan.given.get("sharding_strategy", plan.call), "hybrid-nodes")
    kind = device_type(plan) or "cuda"
    size = unit.need("torch.distributed.get_world_size")
    count = unit.need(f"torch.{kind}.device_count")
    per_node = plan.hoist("devices_per_node", f"{count}()")
    sizes = f"({size}() // {per_node}, {per_node})"
    return f'{unit.need(_MESH)}("{kind}", {sizes}, mesh_dim_names=("replicate", "shard"))'


def _name_dimensions(plan: Plan, node: ast.expr) -> None:
    """A 2-D mesh that was made without names gets them where it is made, if that is in this file."""
    calls = [plan.unit.bound(node)]
    calls += [thing.node for thing in plan.unit.reading.things(node) if thing.kind == "mesh"]  # type: ignore[misc]
    for call in calls:
        if isinstance(call, ast.Call) and not name_mesh(plan.unit.owner(call), call):
            plan.unit.todo(node, "mesh-names")


def name_mesh(unit: Unit | None, call: ast.Call) -> bool:
    """Give a 2-D mesh its names where it is made; False where it lacks them and that cannot be done."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    shape = call.args[1] if len(call.args) > 1 else given.get("mesh_shape")
    if not isinstance(shape, ast.Tuple) or len(shape.elts) != 2 or len(call.args) > 2 or "mesh_dim_names" in given:
        return True
    if unit is None:
        return False
    end = unit.source.span((call.args or call.keywords)[-1] if not call.keywords else call.keywords[-1])[1]
    unit.source.cut(end, end, ', mesh_dim_names=("replicate", "shard")')
    return True


def offload(plan: Plan) -> None:
    """cpu_offload."""
    node = plan.given.get("cpu_offload")
    if node is None or plan.constant("cpu_offload") is None:
        return
    unit = plan.unit
    bound = unit.bound(node)

    def policy() -> str:
        return f"{unit.need('torch.distributed.fsdp.CPUOffloadPolicy')}()"

    if isinstance(bound, ast.IfExp):
        test, yes, no = plan.text(bound.test), _flag(plan, bound.body), _flag(plan, bound.orelse)
        if yes == "True" and no == "False":
            plan.offloaded = f"bool({test})"
            plan.both("cpu_offload", "offload_policy", f"{policy()} if {test} else {_none(plan)}")
            plan.used.append(node)
            return
    flag = _flag(plan, bound) if bound is not None else ""
    if flag == "True":
        plan.offloaded = "True"
        plan.both("cpu_offload", "offload_policy", policy())
        plan.used.append(node)
    elif flag == "False":
        plan.used.append(node)
    elif flag:
        plan.offloaded = f"bool({flag})"
        plan.both("cpu_offload", "offload_policy", f"{policy()} if {flag} else {_none(plan)}")
        plan.used.append(node)
    else:
        text = plan.text(node) if simple(node) else plan.hoist("cpu_offload", plan.text(node))
        plan.offloaded = f"{text} is not None and {text}.offload_params"
        plan.both(
            "cpu_offload",
            "offload_policy",
            f"{policy()} if {text} is not None and {text}.offload_params else {_none(plan)}",
        )


def _none(plan: Plan) -> str:
    return f"{plan.unit.need('torch.distributed.fsdp.OffloadPolicy')}()"


def _flag(plan: Plan, node: ast.expr) -> str:
    """What CPUOffload(offload_params=…) says, as text; "" for anything else."""
    if isinstance(node, ast.Constant) and node.value is None:
        return "False"
    if isinstance(node, ast.Call) and plan.unit.canon(node.func) == "CPUOffload":
        given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "offload_params")]
        return plan.text(given[0]) if given else "False"
    return ""


def ignored(plan: Plan) -> None:
    """ignored_modules and ignored_states."""
    unit = plan.unit
    for name in ("ignored_modules", "ignored_states", "ignored_parameters"):
        node = plan.given.get(name)
        if node is None or plan.constant(name) is None:
            continue
        if isinstance(unit.bound(node), (ast.List, ast.Tuple)) and not unit.bound(node).elts:  # type: ignore[union-attr]
            continue
        if not unit.target.takes("torch.distributed.fsdp.fully_shard", "ignored_params"):
            raise Refusal("ignored-release")
        text = plan.text(node)
        listed = f"({text} or ())" if maybe_none(plan, node) else text
        if name == "ignored_modules":
            parameters = f"{{p for m in {listed} for p in m.parameters()}}"
            plan.skip = plan.hoist("ignored", f"{{inner for m in {listed} for inner in m.modules()}}")
        elif name == "ignored_parameters":
            parameters = f"set({listed})"
        else:
            module = unit.need("torch.nn.Module")
            parameters = f"{{p for s in {listed} for p in (s.parameters() if isinstance(s, {module}) else [s])}}"
            modules = f"{{inner for s in {listed} if isinstance(s, {module}) for inner in s.modules()}}"
            plan.skip = plan.hoist("ignored", modules)
        plan.both(name, "ignored_params", plan.hoist("ignored_params", parameters))
