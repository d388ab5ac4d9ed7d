"""One Join against its loop: groups, keywords, flags, the order of the list, and collectives that nobody shadows."""

from __future__ import annotations

import ast
import re

from ..review.project import dotted_text
from .results import Issue, Unknowns, place
from .sites import Found, rounds
from .steps import Event, Notify, Op, Site, Step, Unknown, flat
from .structure import is_joinable
from .values import Instance, Value

_RANKED = re.compile(r"\b(local_)?rank\b|get_rank\(")
DDP_KEYWORDS = frozenset({"divide_by_initial_world_size"})


def group_of(found: Found, one: Value) -> Value | None:
    """The process group that a joinable names; None where it is not known."""
    if one.kind != "object":
        return None
    held: Instance = one.ref
    if held.kind in ("ddp", "zero"):
        given = held.given.get("process_group")
        if given is None or (given.kind == "constant" and given.ref is None):
            return Value("name", "WORLD")
        return given if given.kind in ("name", "object") else None
    if is_joinable(held):
        value = found.tracer.attribute(one, "join_process_group")
        return value if value.kind in ("name", "object") and value.text != "None" else None
    return None


def look(found: Found, unknown: Unknowns, asked: dict[str, tuple[dict[str, bool], bool]]) -> list[Issue]:
    """What is wrong with one Join. ``asked``: by class, the keywords that its hook looks for, and whether it takes any."""
    out: list[Issue] = []
    site = found.site
    members = found.joinables
    if members is None:
        unknown.add("what is in Join's list could not be followed")
        return out
    enabled, throws = found.flag("enable", True), found.flag("throw_on_early_termination", False)
    out.extend(_groups(found, members))
    out.extend(_keywords(found, members, asked))
    iteration, loop, outside = rounds(site.steps)
    if enabled is False:
        if loop is not None and _RANKED.search(loop.key.text):
            out.append(Issue("FSD630", site.file, site.join.node or site.node, loop.key.text))
        return out
    names = {one.name for one in found.instances}
    for one in found.instances:
        if one.kind == "ddp" and throws is False:
            module = one.given.get("0") or one.given.get("module")
            if module is not None and module.kind == "object" and module.ref.kind == "sync":
                out.append(Issue("FSD628", site.file, site.join.node or site.node, ""))
    if throws:
        out.extend(_caught(site))
    else:
        for step in site.steps if iteration is None else (*outside, *iteration):
            out.extend(_unshadowed(step, names, step in outside))
    for step in flat(site.steps):
        if isinstance(step, Unknown):
            unknown.add(f"{place(step.file, step.node)}: {step.why}")
    if iteration is not None:
        out.extend(_order(found, iteration, [one.name for one in found.instances]))
    return out


def _groups(found: Found, members: list[Value]) -> list[Issue]:
    groups = [(one, group_of(found, one)) for one in members]
    known = [group for _, group in groups if group is not None]
    if len({one.text for one in known}) > 1:
        words = " and ".join(dict.fromkeys("the default group" if one.text == "WORLD" else _made(one) for one in known))
        return [Issue("FSD626", found.site.file, found.site.join.node or found.site.node, words)]
    return []


def _made(group: Value) -> str:
    line = getattr(group.ref.node, "lineno", 0) if group.kind == "object" else 0
    return f"the group of line {line}" if line else group.text


def _keywords(found: Found, members: list[Value], asked: dict[str, tuple[dict[str, bool], bool]]) -> list[Issue]:
    at = found.site.join.node or found.site.node
    read: set[str] = set()
    out: list[Issue] = []
    for one in members:
        if one.kind != "object":
            return out
        held: Instance = one.ref
        if held.kind == "ddp":
            read |= DDP_KEYWORDS
        elif held.kind == "zero":
            continue
        elif is_joinable(held) and held.cls is not None and held.cls.name in asked:
            keys, takes = asked[held.cls.name]
            read |= set(keys)
            extra = [key for key in found.kwargs if key not in keys]
            if not takes and extra:
                out.append(
                    Issue(
                        "FSD623",
                        found.site.file,
                        at,
                        f"join_hook of {held.cls.name} does not take {', '.join(extra)}: TypeError",
                    )
                )
                return out
            lacks = [key for key, needed in keys.items() if needed and key not in found.kwargs]
            if lacks:
                out.append(
                    Issue(
                        "FSD623",
                        found.site.file,
                        at,
                        f"join_hook of {held.cls.name} needs {', '.join(lacks)}, which is not passed",
                    )
                )
        else:
            return out
    nobody = [key for key in found.kwargs if key not in read and key != "**"]
    if nobody:
        out.append(Issue("FSD623", found.site.file, at, f"no hook reads {', '.join(nobody)}"))
    return out


def _caught(site: Site) -> list[Issue]:
    if any(_catches(one) for one in site.around):
        return []
    for inner in ast.walk(site.node):
        if isinstance(inner, ast.Try) and _catches(inner):
            return [Issue("FSD629", site.file, inner, "")]
    return []


def _catches(node: ast.Try) -> bool:
    for handler in node.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or dotted_text(kind) in ("RuntimeError", "Exception", "BaseException") for kind in kinds):
            return True
    return False


def _unshadowed(step: Step, names: set[str], outside: bool) -> list[Issue]:
    out = []
    for one in flat([step]):
        if isinstance(one, Op) and one.owner is None:
            where = "in Join's block, outside the loop" if outside else "in the loop"
            out.append(Issue("FSD627", one.file, one.node, f"{one.name} {where}"))
        elif (
            isinstance(one, (Op, Notify))
            and one.owner is not None
            and one.owner.name not in names
            and is_joinable(one.owner)
        ):
            name = one.owner.cls.name if one.owner.cls is not None else one.owner.name
            if isinstance(one, Op) or True:
                out.append(Issue("FSD633", one.file if one.owner.node is None else step.file, _call_node(one), name))
    return out[:1] if out and out[0].code == "FSD633" else out


def _call_node(step: Step) -> ast.AST:
    owner = step.owner
    return owner.node if owner is not None and owner.node is not None else step.node


def _order(found: Found, iteration: list[Step], listed: list[str]) -> list[Issue]:
    site = found.site
    sequence: list[tuple[str, Step]] = []
    ddp = [one.name for one in found.instances if one.kind == "ddp"]
    for step in flat(iteration):
        name = ""
        if isinstance(step, Event):
            if step.what == "backward":
                name = ddp[0] if len(ddp) == 1 else ""
            elif step.what != "loop" and step.owner is not None:
                name = step.owner.name
        elif isinstance(step, (Op, Notify)) and step.owner is not None:
            name = step.owner.name
        if name in listed and (not sequence or sequence[-1][0] != name):
            sequence.append((name, step))
    met = [name for name, _ in sequence]
    kinds = {one.name: one.kind for one in found.instances}
    for i, (name, step) in enumerate(sequence):
        if name in met[:i]:
            between = [one for one, _ in sequence[met.index(name) + 1 : i]]
            mixed = next((one for one in between if kinds.get(one) == "own"), name)
            at = next((s for n, s in sequence if n == mixed), step)
            return [Issue("FSD632", at.file, at.node, _called(found, mixed))]
    wanted = [name for name in listed if name in met]
    if met != wanted and any(kinds.get(name) == "own" for name in met):
        loop, given = (", ".join(_called(found, one) for one in order) for order in (met, wanted))
        words = f"the loop has {loop}; the list has {given}"
        return [Issue("FSD631", site.file, site.join.node or site.node, words)]
    return []


def _called(found: Found, name: str) -> str:
    for one in found.instances:
        if one.name == name:
            return (
                one.cls.name
                if one.cls is not None
                else {"ddp": "DistributedDataParallel", "zero": "ZeroRedundancyOptimizer"}.get(one.kind, one.kind)
            )
    return name
