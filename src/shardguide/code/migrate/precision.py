"""MixedPrecision: two policies for exactly what FSDP1 did, since it casts inputs at the root only."""

from __future__ import annotations

import ast

from .names import arguments
from .plan import Plan, simple

_POLICY = "torch.distributed.fsdp.MixedPrecisionPolicy"
_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")


def precision(plan: Plan, nested: bool) -> None:
    """mixed_precision; ``nested``: the call wraps a part of the model, not its root."""
    node = plan.given.get("mixed_precision")
    if node is None or plan.constant("mixed_precision") is None:
        return
    bound = plan.unit.bound(node)
    given = None
    if isinstance(bound, ast.Call) and plan.unit.canon(bound.func) == "MixedPrecision":
        given = arguments(bound, "MixedPrecision")
        if given is not None and not all(simple(value) for value in given.values()):
            given = _named(plan, given) if bound is node else None
    if given is None:
        _unknown(plan, node, nested)
        return
    _known(plan, node, given, nested)
    root = plan.root.get("mixed_precision")
    if root and isinstance(node, ast.Name) and isinstance(bound, ast.Call) and plan.unit.only_load(node):
        # The definition stays where it is, with its comments; the layers' policy differs in one field.
        plan.unit.source.replace(bound, root[0][1])
        plan.root["mixed_precision"] = [("mp_policy", node.id)]
        if plan.child[-1] == root[0]:
            plan.child[-1] = ("mp_policy", node.id)
    else:
        plan.used.append(node)


def _named(plan: Plan, given: dict[str, ast.expr]) -> dict[str, ast.expr]:
    """The arguments with a name for each that is more than one: two policies are made of them."""
    out = dict(given)
    for key, value in given.items():
        if not simple(value):
            name = ast.Name(plan.hoist(key, plan.text(value)), ast.Load())
            out[key] = ast.copy_location(name, value)
    return out


def _known(plan: Plan, node: ast.expr, given: dict[str, ast.expr], nested: bool) -> None:
    unit = plan.unit
    text = {
        name: value.id if isinstance(value, ast.Name) else plan.text(value)
        for name, value in given.items() if not _none(value)
    }  # fmt: skip
    parts = []
    if "param_dtype" in text:
        parts.append(f"param_dtype={text['param_dtype']}")
    if "reduce_dtype" in text or "param_dtype" in text:  # None follows param_dtype in FSDP1
        parts.append(f"reduce_dtype={text.get('reduce_dtype', text.get('param_dtype'))}")
    layers, root = text.get("cast_forward_inputs", "False"), text.get("cast_root_forward_inputs", "True")
    policy = unit.need(_POLICY)

    def made(cast: str) -> str:
        return f"{policy}({', '.join([*parts, *([] if cast == 'True' else [f'cast_forward_inputs={cast}'])])})"

    if parts or layers != "False":
        plan.child.append(("mp_policy", made(layers)))
        plan.root["mixed_precision"] = [("mp_policy", made(layers if nested else root))]
    if "buffer_dtype" in text and not nested:
        _buffers(plan, node, text["buffer_dtype"])
    if text.get("keep_low_precision_grads", "False") != "False":
        unit.todo(node, "keep-low-precision-grads")
    if parts and "auto_wrap_policy" in plan.given and "BatchNorm" in unit.near:
        dtype = text.get("param_dtype")
        output = f", output_dtype={dtype}" if dtype else ""
        float32 = unit.need("torch.float32")
        plan.norms = [("mp_policy", f"{policy}(param_dtype={float32}, reduce_dtype={float32}{output})")]
        unit.todo(node, "batch-norm")


def norms(plan: Plan) -> str:
    """The classes that FSDP1 keeps out of mixed precision."""
    names = [plan.unit.need(f"torch.nn.{name}") for name in _NORMS]
    return f"({', '.join(names)})"


def _buffers(plan: Plan, node: ast.expr, dtype: str) -> None:
    plan.unit.todo(node, "buffer-dtype")
    if not dtype.startswith("torch."):  # it may be None
        plan.after.append(f"{plan.unit.helper('cast_buffers')}({plan.subject}, {dtype})")
        return
    plan.after.extend(
        [
            f"for buffer in {plan.subject}.buffers():",
            "    if buffer.is_floating_point():",
            f"        buffer.data = buffer.to({dtype})",
        ]
    )


def _unknown(plan: Plan, node: ast.expr, nested: bool) -> None:
    """A policy that is known only when the program runs: the helper reads the FSDP1 object."""
    unit = plan.unit
    helper = unit.helper("precision_policy")
    text = plan.text(node) if simple(node) else plan.hoist("mixed_precision", plan.text(node))
    layers = f"{helper}({text}, root=False)"
    plan.child.append(("mp_policy", layers))
    plan.root["mixed_precision"] = [("mp_policy", layers if nested else f"{helper}({text})")]
    if not nested:
        plan.after.append(f"if {text} is not None:")
        plan.after.append(f"    {unit.helper('cast_buffers')}({plan.subject}, {text}.buffer_dtype)")
        unit.todo(node, "buffer-dtype")


def _none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
