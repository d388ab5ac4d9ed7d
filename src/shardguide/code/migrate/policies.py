"""auto_wrap_policy: which modules FSDP1 would wrap, as the test of a loop over the modules."""

from __future__ import annotations

import ast

from .names import arguments
from .plan import Plan, simple
from .todos import Refusal

_LONG = 50
_CLASSES = ("transformer_auto_wrap_policy", "_module_wrap_policy", "_wrap_module_cls_individually")


def wrap(plan: Plan) -> None:
    """Write the test into the plan; nothing where there is no policy."""
    node = plan.given.get("auto_wrap_policy")
    if node is None or plan.constant("auto_wrap_policy") is None:
        return
    bound = plan.unit.bound(node)
    if bound is not None and isinstance(bound, ast.Call):
        name = plan.unit.canon(bound.func)
        if name == "CustomPolicy":
            _custom(plan, bound)
            plan.used.append(node)
            return
    found = _test(plan, bound) if bound is not None else None
    if found is not None:
        variable, test = found
        plan.tests.append((variable, f"reversed(list({plan.subject}.modules()))", test))
        plan.used.append(node)
        return
    if "CustomPolicy" in plan.unit.near:
        plan.unit.todo(node, "custom-policy-possible")
    text = plan.text(node)
    ignored = f", {plan.skip}" if plan.skip else ""
    plan.skip = ""
    plan.tests.append(("module", f"{plan.unit.helper('policy_modules')}({plan.subject}, {text}{ignored})", ""))


def _test(plan: Plan, node: ast.expr) -> tuple[str, str] | None:
    """The variable and the test of the loop; None for a policy that cannot be told from the text."""
    unit = plan.unit
    if isinstance(node, ast.Call):
        name = unit.canon(node.func)
        if name == "ModuleWrapPolicy":
            given = arguments(node, name)
            return ("module", _classes(plan, given["module_classes"])) if given and "module_classes" in given else None
        if unit.full(node.func) == "functools.partial" and node.args:
            name = unit.canon(node.args[0])
            given = arguments(node, name, skip=1)
            return _partial(plan, name, given) if given is not None else None
    return None


def _partial(plan: Plan, name: str, given: dict[str, ast.expr]) -> tuple[str, str] | None:
    if name in _CLASSES:
        classes = given.get("transformer_layer_cls", given.get("module_classes"))
        return ("module", _classes(plan, classes)) if classes is not None else None
    if name == "lambda_auto_wrap_policy" and "lambda_fn" in given:
        return _function(plan, given["lambda_fn"])
    if name == "_or_policy" and "policies" in given:
        policies = plan.unit.bound(given["policies"])
        if not isinstance(policies, (ast.List, ast.Tuple, ast.Set)):
            return None
        tests = []
        for one in policies.elts:
            bound = plan.unit.bound(one)
            found = _test(plan, bound) if bound is not None else None
            if found is None:
                return None
            tests.append(found)
        if len({variable for variable, _ in tests}) > 1:
            return None
        return tests[0][0], " or ".join(f"({test})" if " or " in test else test for _, test in tests)
    return None


def _function(plan: Plan, node: ast.expr) -> tuple[str, str] | None:
    bound = plan.unit.bound(node)
    if isinstance(bound, ast.Lambda) and len(bound.args.args) == 1 and not bound.args.defaults:
        name = bound.args.args[0].arg
        body = plan.text(bound.body)
        if not _taken(plan, name):
            return name, f"({body})" if isinstance(bound.body, (ast.BoolOp, ast.IfExp)) else body
        if "\n" not in body:
            return "module", f"(lambda {name}: {body})(module)"
    return ("module", f"{plan.text(node)}(module)") if isinstance(node, (ast.Name, ast.Attribute)) else None


def _taken(plan: Plan, name: str) -> bool:
    """Whether a name means something around the call, but for what small functions call their own argument."""
    unit = plan.unit
    if unit.names.lookup(plan.call, name) or name in unit.names.imports or name in unit.names.own:
        return True
    waiting: list[ast.AST] = [unit.function(plan.call)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Lambda) and any(one.arg == name for one in node.args.args):
            continue
        if isinstance(node, ast.Name) and node.id == name:
            return True
        waiting.extend(ast.iter_child_nodes(node))
    return False


def _classes(plan: Plan, node: ast.expr) -> str:
    bound = plan.unit.bound(node)
    if (
        isinstance(bound, ast.Call)
        and isinstance(bound.func, ast.Name)
        and bound.func.id in ("set", "tuple", "frozenset")
    ):
        bound = plan.unit.bound(bound.args[0]) if bound.args else bound
    if isinstance(bound, (ast.Set, ast.List, ast.Tuple)) and bound.elts and all(simple(one) for one in bound.elts):
        names = [plan.text(one) for one in bound.elts]
        text = names[0] if len(names) == 1 else f"({', '.join(names)})"
        return f"isinstance(module, {text if len(text) < _LONG else plan.hoist('layer_classes', text)})"
    return f"isinstance(module, tuple({plan.text(node)}))"


def _custom(plan: Plan, call: ast.Call) -> None:
    """CustomPolicy(f): f gives True or False, or a dictionary of arguments for one module."""
    given = arguments(call, "CustomPolicy")
    node = given.get("lambda_fn") if given else None
    if node is None:
        raise Refusal("custom-policy")
    bound = plan.unit.bound(node)
    if isinstance(bound, ast.Lambda):
        plain = _boolean(bound.body)
    else:
        definition = plan.unit.local_function(node)
        plain = definition is not None and all(_boolean(one) for one in _returned(definition))
    found = _function(plan, node)
    if found is None:
        raise Refusal("custom-policy")
    if plain:
        plan.tests.append((found[0], f"reversed(list({plan.subject}.modules()))", found[1]))
        return
    if plan.norms:
        raise Refusal("custom-policy")
    # Asked of every module before any is sharded, as FSDP1 did.
    chosen = plan.hoist("chosen", f"{{{found[0]}: {found[1]} for {found[0]} in {plan.subject}.modules()}}")
    plan.own = plan.unit.fresh("own", plan.call)
    plan.tests.append(("module", f"reversed({chosen}.items())", plan.own))
    plan.unit.todo(node, "own-options")


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    return [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]


def _boolean(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool)
    if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return True
    if isinstance(node, ast.BoolOp):
        return all(_boolean(value) for value in node.values)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in (
        "isinstance", "hasattr", "any", "all", "bool", "issubclass", "callable",
    )  # fmt: skip
