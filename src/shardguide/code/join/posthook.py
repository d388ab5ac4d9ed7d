"""post_hook: every rank makes its collectives, and the source of a broadcast is one that all agree on, of the last to join."""

from __future__ import annotations

from .results import Issue, Unknowns
from .steps import Choice, Op, Path, Step, flat, talks

LAST = "is_last_joiner"


def post(paths: list[Path], stale: bool, unknown: Unknowns) -> list[Issue]:
    """What is wrong with a post hook. ``stale``: main_hook changes nothing of what is broadcast."""
    out: list[Issue] = []
    for one in paths:
        for other in paths:
            choice = _parts(one, other)
            if choice is None or not choice.arm:
                continue
            if [_sign(step) for step in talks(one.steps)] != [_sign(step) for step in talks(other.steps)]:
                step = (talks(one.steps) or talks(other.steps))[0]
                _add(out, Issue("FSD619", step.file, step.node, choice.words))
    for path in paths if not out else ():
        ops = [step for step in flat(path.steps) if isinstance(step, Op)]
        for op in ops:
            if op.name == "broadcast":
                problem = _source(op, ops, stale)
                if problem:
                    _add(out, Issue("FSD620", op.file, op.node, problem))
    return out


def _add(out: list[Issue], issue: Issue) -> None:
    if not any((one.code, one.line) == (issue.code, issue.line) for one in out):
        out.append(issue)


def _parts(one: Path, other: Path) -> Choice | None:
    """The test whose answer differs over the ranks and that alone parts two ways."""
    arms = {choice.key: choice.arm for choice in other.choices}
    differ = [choice for choice in one.choices if arms.get(choice.key, choice.arm) is not choice.arm]
    if len(differ) != 1:
        return None
    choice = differ[0]
    own = "last" in choice.flags or "get_rank(" in choice.key
    return (
        choice
        if (own and "told" not in choice.flags - {"last"})
        or (own and "get_rank(" not in choice.key and "told" not in choice.flags)
        else None
    )


def _sign(step: Step) -> str:
    return step.name if isinstance(step, Op) else type(step).__name__


def _source(op: Op, ops: list[Op], stale: bool) -> str:
    """Why the source of a broadcast is wrong; "" where it is not, or is not known."""
    root = op.root
    if root is None:
        return ""
    if "told" in root.flags:
        for other in ops:
            if (other.told and f"{other.told}.item()" in root.text) or (
                other.told and root.text.startswith(other.told)
            ):
                if other.reduce in ("MIN", "SUM", "PRODUCT", "AVG"):
                    return f"the ranks agree by {other.reduce}: of several last joiners, and of the others' -1, only MAX picks one"
                if other.tensor is not None and "last" not in other.tensor.flags:
                    return "the rank that is agreed on is not one of the last to join"
        return ""
    if root.kind == "constant":
        if stale:
            return f"rank {root.text} may have joined early: what it has is old"
        return ""
    if "get_rank(" in root.text or "last" in root.flags:
        return "each rank names another source"
    return ""
