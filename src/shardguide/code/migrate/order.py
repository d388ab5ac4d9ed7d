"""Activation checkpointing comes before sharding; an optimizer comes after it."""

from __future__ import annotations

import ast

from ..review.records import Thing
from .edits import Text
from .names import FSDP1
from .plan import Plan
from .todos import Refusal
from .unit import Unit

_APPLY = "apply_activation_checkpointing"
_WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.CheckpointWrapper"


def checkpointing(plan: Plan, statement: ast.stmt) -> list[ast.stmt]:
    """The statements after the constructor's that apply activation checkpointing, and what they need; they go before it."""
    unit = plan.unit
    if not isinstance(statement, (ast.Assign, ast.Expr)):
        return []
    block = unit.block(statement)
    model = _model(plan, statement)
    if not model:
        return []
    after = block[block.index(statement) + 1 :]
    moved: list[ast.stmt] = []
    for position, one in enumerate(after):
        call = _applies(unit, one, model)
        if call is None:
            continue
        needed = _needed(after[:position], one, model)
        if needed is None or not _pure(one, model) or not all(_movable(unit, item) for item in (*needed, one)):
            continue  # asked for later, see left_over
        moved.extend(item for item in (*needed, one) if item not in moved)
    return moved


def _movable(unit: Unit, statement: ast.stmt) -> bool:
    start, end = unit.source.span(statement)
    return (
        unit.source.alone(statement)
        and not unit.source.changes_in(start, end)
        and not unit.source.strings_in(start, end)
    )


def _model(plan: Plan, statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign):
        if len(statement.targets) != 1 or statement.value is not plan.call:
            return ""
        target = ast.unparse(statement.targets[0])
        # Before the call the model is known under the name that it has there.
        return target if target == plan.subject else ""
    return plan.subject


def _applies(unit: Unit, statement: ast.stmt, model: str) -> ast.Call | None:
    """The call in a statement that applies activation checkpointing to the model, in a function of the project or not."""
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call) or not any(ast.unparse(value) == model for value in node.args):
            continue
        if unit.full(node.func).endswith(_APPLY):
            return node
        definition = unit.definition(node.func)
        if definition is not None and not isinstance(definition.node, ast.ClassDef):
            names = {ast.unparse(inner.func) for inner in ast.walk(definition.node) if isinstance(inner, ast.Call)}
            if any(name.rpartition(".")[2] == _APPLY for name in names):
                return node
    return None


def _pure(statement: ast.stmt, model: str) -> bool:
    """Whether a statement only calls things, under a test at most: nothing in it needs the sharded model."""
    if isinstance(statement, ast.Expr):
        return True
    if isinstance(statement, ast.If) and not statement.orelse:
        return all(
            _pure(one, model) or (isinstance(one, (ast.FunctionDef, ast.Assign)) and not _binds(one, model))
            for one in statement.body
        )
    return False


def _binds(statement: ast.stmt, model: str) -> bool:
    return isinstance(statement, ast.Assign) and any(ast.unparse(target) == model for target in statement.targets)


def _needed(before: list[ast.stmt], statement: ast.stmt, model: str) -> list[ast.stmt] | None:
    """The definitions among ``before`` that a statement uses; None where one of them is more than a definition."""
    wanted = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    root = model.partition(".")[0]
    wanted.discard(root)
    out: list[ast.stmt] = []
    for one in reversed(before):
        if isinstance(one, ast.FunctionDef):
            bound = {one.name}
        else:
            bound = {
                node.id for node in ast.walk(one) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
        if root in bound and "." not in model:
            return None  # the model is another one by now
        if not bound & wanted:
            continue
        used = {node.id for node in ast.walk(one) if isinstance(node, ast.Name)}
        if not isinstance(one, (ast.FunctionDef, ast.Assign)) or (root in used and isinstance(one, ast.Assign)):
            return None
        wanted |= used
        out.insert(0, one)
    return out


def move(plan: Plan, statement: ast.stmt, moved: list[ast.stmt]) -> list[Text]:
    """Take statements away; gives their lines for the place before the constructor's."""
    for one in moved:
        for call in ast.walk(one):
            if isinstance(call, ast.Call):
                _remember(plan.unit, call)
    return _taken(plan.unit, moved, plan.unit.source.indent(statement))


def _taken(unit: Unit, moved: list[ast.stmt], indent: str) -> list[Text]:
    """Take statements away; gives their text, with what is still going to be changed in it."""
    source = unit.source
    out: list[Text] = []
    for one in moved:
        start, end = source.starts[_first(source.lines, one) - 1], source.starts[one.end_lineno or one.lineno]
        end = min(end, len(source.data))

        def text(start: int = start, end: int = end) -> str:
            lines = source.between(start, end, skip=(start, end), within=True).rstrip("\n").split("\n")
            return "\n".join(line[len(indent) :] if line.strip() else "" for line in lines)

        out.append(text)
        source.cut(start, end)
    return out


def _first(lines: list[bytes], statement: ast.stmt) -> int:
    """The line where a statement begins, with the comments right above it."""
    number: int = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))])
    while number > 1 and lines[number - 2].strip().startswith(b"#"):
        number -= 1
    return number


def wrappers(plan: Plan) -> tuple[list[str], str]:
    """Lines that find the checkpoint around a module, and the name of that dictionary."""
    wrapper = plan.unit.need(_WRAPPER)
    name = plan.unit.fresh("checkpointed", plan.call)
    line = f"{name} = {{next(m.children()): m for m in {plan.subject}.modules() if isinstance(m, {wrapper})}}"
    return [line], name


def optimizers(plan: Plan) -> None:
    """An optimizer of the module from before its constructor call gets the new parameters, where FSDP1 kept the old ones."""
    unit, call = plan.unit, plan.call
    inner = {id(thing) for thing in unit.reading.things(plan.given["module"])}
    kept = plan.constant("use_orig_params") is True
    captured = _captured(plan) if kept else []
    seen: set[str] = set()
    for thing in sorted(unit.reading.made_optimizers, key=lambda one: getattr(one.node, "lineno", 0)):
        node = thing.node
        if not isinstance(node, ast.Call):
            continue
        if not any(id(one) in inner for parameters in thing.of for one in (parameters, *parameters.of)):
            continue
        here = unit.file.holds(node) and unit.function(node) is unit.function(call)
        if here and node.lineno >= call.lineno:
            continue
        name = _named(plan, node) if here else _received(plan, thing)
        if not name and not here:
            continue
        if _given_anew(plan):
            if not captured:
                raise Refusal("optimizer-first")
            continue
        if not name or not kept:
            raise Refusal("optimizer-first")
        if name in seen:
            continue
        seen.add(name)
        names = unit.fresh("names", call)
        plan.before.append(f"{names} = {unit.helper('names_of')}({plan.subject})")
        plan.after.insert(0, f"{unit.helper('follow_parameters')}({name}, {plan.subject}, {names})")
    plan.after.extend(move(plan, unit.statement(call), captured))


def _named(plan: Plan, node: ast.Call) -> str:
    """The variable that holds an optimizer made in the same block, "" where it is none."""
    unit = plan.unit
    statement = unit.statement(node)
    if isinstance(statement, ast.Assign) and statement.value is node and isinstance(statement.targets[0], ast.Name):
        same = unit.block(statement) is unit.block(unit.statement(plan.call))
        return statement.targets[0].id if same else ""
    return ""


def _received(plan: Plan, thing: Thing) -> str:
    """The variable that holds an optimizer made elsewhere, if it is bound in the same block before the constructor."""
    unit = plan.unit
    statement = unit.statement(plan.call)
    block = unit.block(statement)
    before = block[: block.index(statement)] if statement in block else []
    bound = {
        one.id for part in before if isinstance(part, ast.Assign) for to in part.targets for one in ast.walk(to)
        if isinstance(one, ast.Name)
    }  # fmt: skip
    for one in ast.walk(unit.function(plan.call)):
        if isinstance(one, ast.Name) and one.id in bound and thing in unit.reading.things(one):
            return one.id
    return ""


def _given_anew(plan: Plan) -> bool:
    """Whether the code puts parameters into an optimizer's groups itself, after the constructor."""
    return any(
        isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store) and one.lineno > plan.call.lineno
        and isinstance(one.slice, ast.Constant) and one.slice.value == "params"
        for one in ast.walk(plan.unit.function(plan.call))
    )  # fmt: skip


def _captured(plan: Plan) -> list[ast.stmt]:
    """Statements right before the constructor that read the parameters for later: FSDP1 kept these, fully_shard makes new ones."""
    unit = plan.unit
    out: list[ast.stmt] = []
    statement = unit.statement(plan.call)
    block = unit.block(statement)
    model = _model(plan, statement)
    if not model or statement not in block:
        return []
    used: set[str] = set()
    for one in reversed(block[: block.index(statement)]):
        calls = [node for node in ast.walk(one) if isinstance(node, ast.Call)]
        given = [node for node in calls if any(ast.unparse(value) == model for value in node.args)]
        reads = [node for node in calls if _reads(unit, node, model)]
        named = isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name)
        if reads and named and one.targets[0].id not in used and _movable(unit, one):  # type: ignore[attr-defined]
            out.insert(0, one)
        elif given or any(isinstance(node, ast.Name) and node.id == model and isinstance(node.ctx, ast.Store)
                          for node in ast.walk(one)):  # fmt: skip
            break
        used |= {node.id for node in ast.walk(one) if isinstance(node, ast.Name)}
    return out


def _reads(unit: Unit, node: ast.Call, model: str) -> bool:
    """Whether a call gives the model's parameters, itself or in a function of the project."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("parameters", "named_parameters"):
        return ast.unparse(node.func.value) == model
    definition = unit.definition(node.func) if any(ast.unparse(value) == model for value in node.args) else None
    if definition is None or isinstance(definition.node, ast.ClassDef):
        return False
    last = definition.node.body[-1]
    return isinstance(last, ast.Return) and any(
        isinstance(one, ast.Attribute) and one.attr in ("parameters", "named_parameters") for one in ast.walk(last)
    )


def outside(plan: Plan) -> bool:
    """Move activation checkpointing that is applied where the function around a constructor is called; whether there was any."""
    unit, function = plan.unit, plan.unit.function(plan.call)
    module = plan.given["module"]
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not isinstance(module, ast.Name):
        return False
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if module.id not in names:
        return False
    found = False
    for other in unit.units:
        if other.group != unit.group or other.refused or _APPLY not in other.file.text:
            continue
        for node in ast.walk(other.file.tree):
            if isinstance(node, ast.Call):
                definition = other.definition(node.func)
                if definition is not None and definition.node is function:
                    found = _of_caller(other, node, module.id, names.index(module.id)) or found
    return found


def _of_caller(unit: Unit, call: ast.Call, name: str, position: int) -> bool:
    given = [one.value for one in call.keywords if one.arg == name]
    before = call.args[position] if position < len(call.args) else given[0] if given else None
    statement = unit.statement(call)
    if not isinstance(before, ast.Name) or not isinstance(statement, ast.Assign) or statement.value is not call:
        return False
    target = statement.targets[0]
    if len(statement.targets) != 1 or not isinstance(target, ast.Name) or not unit.source.alone(statement):
        return False
    block, source = unit.block(statement), unit.source
    after = block[block.index(statement) + 1 :]
    found = False
    for place, one in enumerate(after):
        apply = _applies(unit, one, target.id)
        if apply is None or not _pure(one, target.id) or not _movable(unit, one):
            continue
        needed = _needed(after[:place], one, target.id)
        if needed is None or not all(_movable(unit, item) for item in needed):
            continue
        for node in ast.walk(one):
            if isinstance(node, ast.Name) and node.id == target.id and isinstance(node.ctx, ast.Load):
                source.replace(node, before.id)
        source.before(statement, _taken(unit, [*needed, one], source.indent(statement)))
        _remember(unit, apply)
        found = True
    return found


def _remember(unit: Unit, call: ast.Call) -> None:
    """A function that applies activation checkpointing is called before sharding from now on."""
    definition = unit.definition(call.func)
    unit.early.add(id(definition.node) if definition is not None else id(call))


def tests(unit: Unit) -> None:
    """``not isinstance(m, FSDP)`` in what chooses modules to checkpoint left FSDP1's wrappers out; now there are none."""
    for call in ast.walk(unit.file.tree):
        if not isinstance(call, ast.Call) or not unit.full(call.func).endswith(_APPLY):
            continue
        given = next((one.value for one in call.keywords if one.arg == "check_fn"), None)
        function = unit.local_function(given) if given is not None else None
        for node in ast.walk(function or given) if given is not None else ():
            if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.Not):
                continue
            asked, around = node.operand, unit.parent(node)
            if not isinstance(asked, ast.Call) or len(asked.args) != 2 or unit.canon(asked.args[1]) != FSDP1:
                continue
            if not isinstance(around, ast.BoolOp) or not isinstance(around.op, ast.And):
                continue
            place = around.values.index(node)
            near = around.values[place + 1] if place == 0 else around.values[place - 1]
            start, end = unit.source.span(node)
            if place == 0:
                end = unit.source.span(near)[0]
            else:
                start = unit.source.span(near)[1]
            unit.source.cut(start, end)
            unit.use(asked.args[1], "isinstance", "FSDP", "converted")


def left_over(unit: Unit) -> None:
    """Activation checkpointing that still comes after sharding; sharding and it stand in different functions or branches."""
    source = unit.source
    for node in ast.walk(unit.file.tree):
        if not (isinstance(node, ast.Call) and node.args and unit.full(node.func).endswith(_APPLY)):
            continue
        place = source.span(node)[0]
        moved = any(start <= place < end for start, end in source.spans)
        if unit.is_fsdp1(node.args[0]) and not moved and not {id(node), id(unit.function(node))} & unit.early:
            unit.todo(node, "activation-checkpointing", what=_where(unit, node.args[0]))


def _where(unit: Unit, model: ast.expr) -> str:
    """What to do with activation checkpointing that comes too late, with the places where its model is sharded."""
    places = set()
    for thing in unit.reading.things(model):
        owner = unit.owner(thing.node) if thing.kind == "fsdp1" and thing.node is not None else None
        if owner is not None:
            places.add((owner.file.path, getattr(thing.node, "lineno", 0)))
    words = ", ".join(f"{path}:{line}" for path, line in sorted(places)[:3])
    return (
        f"Apply this, and then torch.compile of each block, before the model is sharded ({words}); in place of a block that has a "
        "CheckpointWrapper around it shard the wrapper."
    )
