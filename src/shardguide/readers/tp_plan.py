"""A tensor-parallel plan of the user's (``--tp-plan FILE``): a JSON object from module pattern to style."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput

from .files import MIB, parse_json, quoted, read_text, shown

LIMIT = MIB
MOST = 10_000


def read_tp_plan(path: str) -> tuple[tuple[str, str], ...]:
    """``{"model.layers.*.self_attn.q_proj": "colwise", …}`` as pairs, in the file's order.

    The form is that of transformers' ``base_model_tp_plan`` with the full names of the modules. Raises UnusableInput.
    """
    where = shown(path)
    plan = parse_json(read_text(path, LIMIT), where, values=2 * MOST)
    if not isinstance(plan, dict) or not plan:
        raise UnusableInput(f"{where}: a tensor-parallel plan is a JSON object from module pattern to style.")
    for pattern, style in plan.items():
        if not isinstance(style, str) or not pattern.replace(".", "").replace("_", "").replace("*", "").isalnum():
            raise UnusableInput(
                f"{where}: {quoted(pattern)} must be a module pattern with a style such as colwise or rowwise."
            )
    return tuple(plan.items())
