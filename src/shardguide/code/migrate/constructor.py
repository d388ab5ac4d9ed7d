"""FSDP(...) becomes fully_shard: the call itself is changed in place, and lines are put around its statement."""

from __future__ import annotations

import ast

from . import initialise, order, policies, precision, strategy
from .edits import Text
from .names import FSDP1, ORDER, arguments
from .plan import Plan, simple
from .todos import Refusal
from .unit import Unit

_WIDTH = 100
# Arguments that only told FSDP1 what fully_shard does anyway, or has no switch for.
_DROPPED = ("device_id", "backward_prefetch", "forward_prefetch", "limit_all_gathers", "use_orig_params")
_ASSIGNS = (ast.Assign, ast.AnnAssign, ast.Expr)
_KEPT_PARENTS = (ast.Call, ast.keyword, ast.Tuple, ast.List, ast.Starred, ast.Attribute)


def plan_of(unit: Unit, call: ast.Call) -> Plan | None:
    """What a call becomes, None where ``**`` hides its arguments. Raises Refusal."""
    given = arguments(call, FSDP1)
    spread: list[ast.AST] = []
    if given is None:
        given = unit.spread(call, ORDER[FSDP1])
        spread = [keyword.value for keyword in call.keywords if keyword.arg is None]
    if given is None and not any(isinstance(value, ast.Starred) for value in call.args) and len(call.args) < 3:
        return None
    if given is None or "module" not in given:
        raise Refusal("arguments")
    unknown = [name for name in given if name not in (*ORDER[FSDP1], "ignored_parameters")]
    if unknown:
        raise Refusal("argument-unknown", f"The argument {unknown[0]} is none of FSDP1's.")
    plan = Plan(unit, call, given)
    plan.used.extend(spread)
    return plan


def convert(unit: Unit, call: ast.Call) -> None:
    """Change one call. Raises Refusal where it must stay."""
    plan = plan_of(unit, call)
    if plan is None:
        _at_run_time(unit, call, call.func)
        return
    statement = unit.statement(call)
    nested = is_nested(unit, call)
    plan.subject = _subject(plan, statement)
    strategy.shard(plan)
    strategy.offload(plan)
    strategy.ignored(plan)
    precision.precision(plan, nested)
    policies.wrap(plan)
    initialise.initialise(plan)
    order.optimizers(plan)
    _prefetch(plan)
    moved = order.checkpointing(plan, statement)
    plan.checkpointed = bool(plan.tests) and (bool(moved) or order.outside(plan))
    first = order.move(plan, statement, moved)
    settings = [one for line in plan.hoisted for one in _broken(line)]
    anchor = _anchor(plan, statement)
    lines = _lines(plan, first, settings if anchor is statement else [])
    if lines or plan.after:
        _around(plan, statement, lines)
    if anchor is not statement:
        unit.source.before(anchor, settings)
    _edit(plan)
    unit.spent.extend(plan.used)


def partial(unit: Unit, call: ast.Call) -> None:
    """functools.partial(FSDP, …) becomes one of the function that takes FSDP1's arguments."""
    if len(call.args) > 1:
        raise Refusal("arguments")
    _at_run_time(unit, call, call.args[0])


def called(unit: Unit, call: ast.Call) -> None:
    """A call of such a partial."""
    if is_nested(unit, call):
        _nested(unit, call)


def _nested(unit: Unit, call: ast.Call) -> None:
    """Tell the function that a call wraps a part of a model, which does not cast its inputs."""
    end = unit.source.span(([*call.args, *call.keywords])[-1])[1] if call.args or call.keywords else 0
    if end and "mixed_precision" in unit.near:
        unit.source.cut(end, end, ", root=False")


def _at_run_time(unit: Unit, call: ast.Call, name: ast.expr) -> None:
    """``**options`` from elsewhere: a function that takes FSDP1's arguments, since only the run knows them."""
    known = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    if strategy.literal(Plan(unit, call, {}), known.get("sharding_strategy")) == "NO_SHARD":
        raise Refusal("no-shard")
    policy = unit.bound(known["auto_wrap_policy"]) if "auto_wrap_policy" in known else None
    if isinstance(policy, ast.Call) and unit.canon(policy.func) == "CustomPolicy":
        raise Refusal("custom-policy")
    if "CustomPolicy" in unit.near:
        unit.todo(call, "custom-policy-possible")
    if not unit.target.takes("torch.distributed.fsdp.fully_shard", "ignored_params"):
        raise Refusal("ignored-release")
    unit.source.replace(name, unit.helper("shard_model"))
    for node in ast.walk(unit.file.tree):
        if isinstance(node, ast.Call) and unit.full(node.func).endswith(".init_device_mesh"):
            strategy.name_mesh(unit, node)  # fully_shard takes a 2-D mesh only with names
    for keyword in call.keywords:
        if keyword.arg == "module":
            unit.source.cut(*_name_of(unit, keyword))
    if is_nested(unit, call):
        _nested(unit, call)
    unit.todo(call, "arguments-at-run-time")


def _name_of(unit: Unit, keyword: ast.keyword) -> tuple[int, int]:
    """Where ``module=`` stands."""
    return unit.source.span(keyword)[0], unit.source.span(keyword.value)[0]


def is_nested(unit: Unit, call: ast.Call) -> bool:
    """Whether a call wraps a part of a model, as far as can be seen: in a loop, an item, or inside of a module's own class."""
    here = unit.parent(call)
    while here is not None and not isinstance(here, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
        if isinstance(here, (ast.For, ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            return True
        if isinstance(here, ast.Assign) and any(isinstance(target, ast.Subscript) for target in here.targets):
            return True
        if isinstance(here, ast.Call) and isinstance(here.func, ast.Name) and here.func.id == "setattr":
            return True
        if isinstance(here, ast.Call) and unit.full(here.func).startswith("torch.nn."):
            return True
        if isinstance(here, ast.Call) and unit.canon(here.func) == FSDP1:
            return True
        here = unit.parent(here)
    owner = unit.parent(here) if here is not None else None
    if isinstance(owner, ast.ClassDef):
        return any(unit.full(base).startswith("torch.nn.") for base in owner.bases)
    target = unit.statement(call)
    if isinstance(target, ast.Assign) and isinstance(target.targets[0], ast.Attribute):
        # model.block = FSDP(model.block): a part, where the model is wrapped as well
        whole = target.targets[0].value
        return isinstance(whole, ast.Name) and whole.id != "self"
    return False


def _subject(plan: Plan, statement: ast.stmt) -> str:
    """How lines around the call speak of the module; it gets a name where it is more than a name."""
    module = plan.given["module"]
    if simple(module):
        return plan.unit.source.raw(module)
    if isinstance(statement, ast.Assign) and statement.value is plan.call and simple(statement.targets[0]):
        return plan.unit.source.raw(statement.targets[0])
    return plan.unit.fresh("model", plan.call)


def _prefetch(plan: Plan) -> None:
    node = plan.given.get("backward_prefetch")
    if node is not None:
        bound = plan.unit.bound(node)
        name = plan.unit.canon(bound) if bound is not None else ""
        if name != "BackwardPrefetch.BACKWARD_PRE":
            plan.unit.todo(node, "prefetch")
        plan.used.append(node)
    node = plan.given.get("forward_prefetch")
    if node is not None and plan.constant("forward_prefetch") not in (None, False):
        plan.unit.todo(node, "prefetch")
    if "device_id" in plan.given and "set_device" not in plan.unit.near and strategy.device_type(plan) != "cpu":
        plan.unit.todo(plan.given["device_id"], "device")


def _anchor(plan: Plan, statement: ast.stmt) -> ast.stmt:
    """The statement before which settings go: out of the loops and comprehensions around the call, if they hang on none."""
    unit = plan.unit
    if not plan.hoisted:
        return statement
    used = {node.id for line in plan.hoisted for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Name)}
    anchor, inner = statement, plan.tests or plan.before or plan.after
    here: ast.AST | None = plan.call
    while here is not None and not isinstance(
        here, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module, ast.Lambda, ast.IfExp)
    ):
        if isinstance(here, (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            bound = {one.id for one in ast.walk(here) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
            if bound & used - {line.partition(" = ")[0] for line in plan.hoisted}:
                return statement
            if isinstance(here, ast.stmt):
                anchor = here
            elif inner or not unit.source.alone(statement):
                return statement
            else:
                plan.moved_out = True
        here = unit.parent(here)
    return anchor


def _lines(plan: Plan, first: list[Text], settings: list[str]) -> list[Text]:
    """What goes before the statement; ``first``: activation checkpointing."""
    out: list[Text] = [*first, *plan.before, *settings]
    wrapped = ""
    if plan.checkpointed:
        found, wrapped = order.wrappers(plan)
        out.extend(found)
    module = plan.given["module"]
    if not simple(module) and (plan.before or plan.tests or plan.after):
        out.insert(0, f"{plan.subject} = {plan.text(module)}")
    for variable, iterable, test in plan.tests:
        skip = f" and {variable} not in {plan.skip}" if plan.skip else ""
        out.append(f"for {variable}{plan.own and f', {plan.own}'} in {iterable}:")
        inner = "    "
        words = "if"
        shard = plan.unit.need("torch.distributed.fsdp.fully_shard")
        if plan.norms:
            others = [(name, text) for name, text in plan.child if name != "mp_policy"]
            out.append(f"    if isinstance({variable}, {precision.norms(plan)}){skip}:")
            out.extend(_call(shard, variable, [*others, *plan.norms], "        "))
            words = "elif"
        if test:
            test = f"({test})" if " or " in test or " if " in test else test
            out.append(f"    {words} {test} and {variable} is not {plan.subject}{skip}:")
            inner = "        "
        elif plan.norms:
            out.append("    else:")
            inner = "        "
        outer = f"{wrapped}.get({variable}, {variable})" if wrapped else variable
        child = plan.child
        if plan.own:
            lines = _call(f"**{plan.unit.helper('module_options')}", plan.own, child, f"{inner}    ")
            child = [("", "\n".join(lines).strip())]
        out.extend(_call(shard, outer, child, inner))
    return out


def _call(name: str, subject: str, keywords: list[tuple[str, str]], indent: str) -> list[str]:
    """A call on one line, or on one for each argument."""
    parts = [subject, *(f"{key}={text}" if key else text for key, text in keywords)]
    line = f"{indent}{name}({', '.join(parts)})"
    if len(line) <= _WIDTH and "\n" not in line:
        return [line]
    lines = [f"{indent}{name}(", *(f"{indent}    {part}," for part in parts), f"{indent})"]
    return [one for line in lines for one in line.split("\n")]


def _broken(line: str) -> list[str]:
    """A long assignment of a call or a tuple, on several lines."""
    if len(line) <= _WIDTH:
        return [line]
    try:
        node = ast.parse(line.strip()).body[0]
    except SyntaxError:
        return [line]
    if not isinstance(node, ast.Assign):
        return [line]
    head = f"{ast.unparse(node.targets[0])} = "
    if isinstance(node.value, ast.Tuple):
        return [f"{head}(", *(f"    {ast.unparse(one)}," for one in node.value.elts), ")"]
    if isinstance(node.value, ast.Call):
        data = line.strip().encode()
        parts: list[ast.expr | ast.keyword] = [*node.value.args, *node.value.keywords]
        text = [data[one.col_offset : one.end_col_offset].decode() for one in parts]
        return [f"{head}{ast.unparse(node.value.func)}(", *(f"    {one}," for one in text), ")"]
    return [line]


def _around(plan: Plan, statement: ast.stmt, lines: list[Text]) -> None:
    unit, source = plan.unit, plan.unit.source
    if not source.alone(statement):
        raise Refusal("expression")
    here = unit.parent(plan.call)
    while here is not statement and not plan.moved_out:
        if not isinstance(here, _KEPT_PARENTS):
            raise Refusal("expression")
        here = unit.parent(here)
    direct = getattr(statement, "value", None) is plan.call
    if isinstance(statement, ast.Return) and plan.after:
        if not direct:
            raise Refusal("expression")
        source.cut(source.offset(statement.lineno, statement.col_offset), source.span(plan.call)[0])
        plan.after.append(f"return {plan.subject}")
    elif (plan.after and not (direct and isinstance(statement, _ASSIGNS))) or not isinstance(
        statement, (*_ASSIGNS, ast.Return)
    ):
        raise Refusal("expression")
    source.before(statement, lines)
    source.after(statement, plan.after)


def _edit(plan: Plan) -> None:
    """Change the call in place: name, arguments that have a counterpart, and those that have none."""
    unit, source, call = plan.unit, plan.unit.source, plan.call
    source.replace(call.func, unit.need("torch.distributed.fsdp.fully_shard"))
    module = plan.given["module"]
    if _short(plan):
        return
    positions = ORDER[FSDP1]
    items: list[tuple[ast.AST, str]] = [
        (value, positions[position]) for position, value in enumerate(call.args) if value is not module
    ]
    items += [(keyword, keyword.arg or "**") for keyword in call.keywords if keyword.value is not module]
    written = {name for _, name in items}
    extra = [one for name, keywords in plan.root.items() if name not in written for one in keywords]
    text = f"{plan.subject}" if not simple(module) and (plan.before or plan.tests or plan.after) else ""
    if extra or text:
        own = text or source.text(module)
        # The module's own text may hold changes: it is worked out when the file is written.
        if text:
            source.replace(module, ", ".join([own, *(f"{key}={value}" for key, value in extra)]))
        else:
            end = source.span(module)[1]
            source.cut(end, end, "".join(f", {key}={value}" for key, value in extra))
    kept_end = source.span(module)[1]
    whole = [module, *(node for node, _ in items)]
    lost: list[str] = []
    for position, (node, name) in enumerate(items, 1):
        keywords = plan.root.get(name, [])
        if keywords:
            start, end = source.span(node)
            own_line = not source.lines[source.line_of(start) - 1][
                : start - source.starts[source.line_of(start) - 1]
            ].strip()
            comments = source.comments(start, end)
            indent = source.indent(node)
            parts = [f"{key}={value}" for key, value in keywords]
            joined = f",\n{indent}".join(parts) if own_line else ", ".join(parts)
            if own_line:
                joined = "".join(f"{one}\n{indent}" for one in comments) + joined
            else:
                lost.extend(comments)
            source.replace(node, joined)
            kept_end = end
        else:
            following = whole[position + 1] if position + 1 < len(whole) else None
            lost.extend(_remove(unit, node, following, kept_end))
    if lost:
        source.before(unit.statement(call), lost)


def _short(plan: Plan) -> bool:
    """Write the call on one line, where it was on several and fits."""
    source, call = plan.unit.source, plan.call
    start, end = source.span(call)
    if call.lineno == call.end_lineno or source.comments(start, end) or any(k.arg is None for k in call.keywords):
        return False
    keywords = [one for keywords in plan.root.values() for one in keywords]
    module = plan.given["module"]
    named = simple(module) or plan.before or plan.tests or plan.after
    subject = plan.subject if named else plan.text(module)
    lines = _call(plan.unit.need("torch.distributed.fsdp.fully_shard"), subject, keywords, "")
    if len(lines) > 1 or "\n" in lines[0] or call.col_offset + len(lines[0]) > _WIDTH:
        return False
    source.spans.pop(source.span(call.func), None)
    source.replace(call, lines[0])
    return True


def _remove(unit: Unit, node: ast.AST, following: ast.AST | None, kept_end: int) -> list[str]:
    """Take an argument out, with its lines where it has them for itself; gives the comments that found no place."""
    source = unit.source
    start, end = source.span(node)
    first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
    before = source.lines[first - 1][: start - source.starts[first - 1]]
    after = source.lines[last - 1][end - source.starts[last - 1] :].lstrip()
    rest = after[1:].lstrip() if after.startswith(b",") else after
    if not before.strip() and (not rest or rest.startswith(b"#")) and (after.startswith(b",") or following is None):
        begin, stop = source.starts[first - 1], source.starts[last]
        source.at_line(first, source.comments(begin, stop), before.decode("utf-8"))
        source.cut(begin, stop)
        return []
    if following is not None and following.lineno == last:  # type: ignore[attr-defined]
        start, end = start, source.span(following)[0]
    else:
        start = kept_end
    source.cut(start, end)
    return source.comments(start, end)
