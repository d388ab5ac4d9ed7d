"""Projects that have FSDP1 and FSDP2 side by side: which constructors may be converted, and which uses stay as they are, and why.

What asks for a model's type is never changed: a model that is FSDP2's from now on goes the way of the project's own FSDP2 models.
What is chosen by other means (a setting, a version number) would meet the new model unprepared: its constructor is left.
"""

from __future__ import annotations

import ast
import re

from .checkpoints import static
from .names import FSDP1, SETTINGS, canonical
from .todos import Refusal
from .unit import Unit
from .ways import ways

_ASKS = re.compile("fsdp_?2|fsdp_version", re.IGNORECASE)
_NEW = ("fully_shard", "FSDPModule")
# What only an FSDP1 model has: where its model is known, it is never one of FSDP2.
_OWN = (
    "clip_grad_norm_",
    "no_sync",
    "summon_full_params",
    "check_is_root",
    "_fsdp_wrapped_module",
    "_handle",
    "_flat_param",
)
_DICTS = ("state_dict", "load_state_dict")


class Place:
    """One use of FSDP1 in such a project."""

    def __init__(self, unit: Unit, node: ast.expr, kind: str, what: str, model: ast.expr | None) -> None:
        self.unit = unit
        self.node = node
        self.kind = kind
        self.what = what
        self.model = model
        self.ways = ways(unit, node, ast.unparse(model)) if model is not None else None
        if self.ways is None and model is not None:
            other = _alias(unit, model)
            self.ways = ways(unit, node, other) if other else None
        things = unit.reading.things(model) if model is not None else set()
        self.made = {id(thing.node) for thing in things if thing.kind == "fsdp1"}
        if model is not None and not things:
            self.made = {id(call) for call in unit.same_name(model)}
        self.only = {thing.kind for thing in things} == {"fsdp1"}
        # Values are not followed everywhere: models of other files may come as well.
        self.alone = self.only and self.made <= {id(call) for call in constructors_of(unit)}


def sort_out(units: list[Unit]) -> None:
    """Decide for each file of such projects what may be changed in it."""
    groups = {unit.group for unit in units if both(unit)}
    near = [unit for unit in units if unit.group in groups]
    if not near:
        return
    calls = {id(call): (unit, call) for unit in near for call in constructors_of(unit)}
    places = {unit: _places(unit) for unit in near}
    reached = _reached(near)
    lost = {call for call, (unit, node) in calls.items() if _escapes(unit, node)}
    leaning = {unit for unit in near if _leans(unit, near)}
    blocked: set[int] = set()
    for _ in calls:
        open_ = {unit for unit in near if _open(unit, calls, places[unit], blocked, unit in leaning)}
        more = {
            call
            for unit in near
            for place in places[unit]
            for call in _stopped(place, calls, reached, lost, unit in open_)
        }
        if more <= blocked:
            break
        blocked |= more
    for unit in near:
        unit.beside = True
        unit.blocked = blocked
        if not _open(unit, calls, places[unit], blocked, unit in leaning):
            unit.refused = "both"
    for unit in near:
        _tell(
            unit,
            places[unit],
            any(call not in blocked for call, (owner, _) in calls.items() if owner.group == unit.group),
        )


def _open(
    unit: Unit, calls: dict[int, tuple[Unit, ast.Call]], places: list[Place], blocked: set[int], leans: bool
) -> bool:
    """Whether anything in a file may be changed."""
    own = [call for call, (owner, _) in calls.items() if owner is unit]
    if own:
        return any(call not in blocked for call in own) or not (both(unit) or leans)
    made = {call for place in places for call in place.made}
    return not both(unit) and bool(made) and not made & blocked


def _stopped(
    place: Place, calls: dict[int, tuple[Unit, ast.Call]], reached: dict[int, set[int]], lost: set[int], open_: bool
) -> set[int]:
    """The constructors that a use keeps from being converted: an FSDP2 model would come to it unprepared."""
    unit = place.unit
    if place.ways is not None or place.kind in ("isinstance", "class", "private") or place.what in _DICTS:
        return set()
    if open_ and (place.only or (place.made and place.what in _OWN and place.kind != "state dict")):
        return set()  # converted with them
    if place.made:
        return {call for call in place.made if not _together(place, calls.get(call))}
    return {
        call for call, (owner, _) in calls.items()
        if (both(unit) if unit is owner else id(unit.function(place.node)) in reached.get(call, ()) or call in lost)
    }  # fmt: skip


def constructors_of(unit: Unit) -> list[ast.Call]:
    """The FSDP1 constructor calls of a file."""
    return [one for one in ast.walk(unit.file.tree) if isinstance(one, ast.Call) and unit.canon(one.func) == FSDP1]


def both(unit: Unit) -> bool:
    """Whether a file has FSDP1 and FSDP2 side by side, or asks which of them it has to do with."""
    if unit.has_both is None:
        unit.has_both = _both(unit)
    return unit.has_both


def _both(unit: Unit) -> bool:
    if "FullyShardedDataParallel" not in unit.file.text and "FSDP" not in unit.file.text:
        return False
    if not any(canonical(full) == FSDP1 for full in unit.file.imports.values()):
        return False
    for node in ast.walk(unit.file.tree):
        word = (
            node.id if isinstance(node, ast.Name)
            else node.attr if isinstance(node, ast.Attribute)
            else node.arg or "" if isinstance(node, (ast.keyword, ast.arg))
            else node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 16
            else ""
        )  # fmt: skip
        if word in _NEW or _ASKS.search(word):
            return True
    return any(full.rpartition(".")[2] in _NEW for full in unit.file.imports.values())


def _leans(unit: Unit, near: list[Unit]) -> bool:
    """Whether a file takes something from one with both."""
    homes = {id(other.file) for other in near if both(other)}
    for name in unit.file.imports:
        found = unit.project.resolve(unit.file, name)
        if not isinstance(found, str) and id(found.file) in homes:
            return True
    return False


def _places(unit: Unit) -> list[Place]:
    """The uses of FSDP1 in a file, but for constructors and settings."""
    out: list[Place] = []
    for node in ast.walk(unit.file.tree):
        name = static(unit, node)
        if isinstance(node, ast.Call) and name:
            out.append(Place(unit, node, "state dict", name, _subject(node)))
        elif isinstance(node, ast.Call) and unit.canon(node.func) in ("ShardedGradScaler", "enable_wrap"):
            out.append(Place(unit, node, "class", unit.canon(node.func), None))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in (*_OWN, *_DICTS):
            place = Place(unit, node, "method", node.func.attr, node.func.value)
            alone = node.func.attr in ("summon_full_params", "check_is_root")  # nothing else has these
            if alone or place.made or (place.ways is not None and 1 in place.ways and 0 not in place.ways):
                out.append(place)  # others are no business of FSDP1
        elif isinstance(node, ast.Attribute) and node.attr in ("_fsdp_wrapped_module", "_handle", "_flat_param"):
            out.append(Place(unit, node, "attribute", node.attr, node.value))
        elif isinstance(node, ast.Attribute) and node.attr == "module" and "fsdp1" in unit.reading.kinds(node.value):
            place = Place(unit, node, "attribute", node.attr, node.value)
            if place.ways is not None and 2 not in place.ways:  # elsewhere it may be DistributedDataParallel's
                out.append(place)
        elif isinstance(node, (ast.Name, ast.Attribute)) and unit.canon(node).startswith("private "):
            if not isinstance(unit.parent(node), ast.Attribute):
                parent = unit.parent(node)
                given = _subject(parent) if isinstance(parent, ast.Call) and parent.func is node else None
                out.append(Place(unit, node, "private", ast.unparse(node).rpartition(".")[2], given))
        elif isinstance(node, (ast.Name, ast.Attribute)) and unit.canon(node) == FSDP1:
            test = _test(unit, node)
            if test is not None:
                out.append(Place(unit, node, "isinstance", "FSDP", test))
            elif _loose(unit, node):
                out.append(Place(unit, node, "class", "FSDP", None))
    return out


def _subject(node: ast.Call) -> ast.expr | None:
    """The model that a static method is called with."""
    for keyword in node.keywords:
        if keyword.arg in ("module", "model"):
            return keyword.value
    return node.args[0] if node.args else None


def _alias(unit: Unit, model: ast.expr) -> str:
    """The other name in ``module = layer`` above a use of ``module``."""
    if not isinstance(model, ast.Name):
        return ""
    here = unit.statement(model)
    while True:
        block = unit.block(here)
        for one in reversed(block[: block.index(here)] if here in block else []):
            if isinstance(one, ast.Assign) and any(
                isinstance(to, ast.Name) and to.id == model.id for to in one.targets
            ):
                return ast.unparse(one.value) if isinstance(one.value, (ast.Name, ast.Attribute)) else ""
        parent = unit.parent(here)
        if not isinstance(parent, (ast.If, ast.With, ast.For)):
            return ""
        here = parent


def _escapes(unit: Unit, call: ast.Call) -> bool:
    """Whether a model is put where it cannot be followed: by setattr, or into a container."""
    statement = unit.statement(call)
    names = {
        one.id for one in ast.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }  # fmt: skip
    function = unit.function(call)
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "setattr"
        and any(part is call or (isinstance(part, ast.Name) and part.id in names) for value in one.args for part in ast.walk(value))
        for one in ast.walk(function)
    )  # fmt: skip


def _test(unit: Unit, node: ast.AST) -> ast.expr | None:
    """What ``isinstance(…, FSDP)`` asks of, where a name of FSDP1 stands in one."""
    here = unit.parent(node)
    while isinstance(here, (ast.Tuple, ast.BinOp)):
        here = unit.parent(here)
    asked = (
        isinstance(here, ast.Call) and isinstance(here.func, ast.Name) and here.func.id in ("isinstance", "issubclass")
    )
    return here.args[0] if asked and isinstance(here, ast.Call) and node is not here.args[0] else None


def _loose(unit: Unit, node: ast.AST) -> bool:
    parent = unit.parent(node)
    return not isinstance(parent, ast.Attribute) and not (isinstance(parent, ast.Call) and parent.func is node)


def _together(place: Place, made: tuple[Unit, ast.Call] | None) -> bool:
    """Whether a use stands in the branch in which the constructor of its model stands, so that no other model gets there."""
    if made is None:
        return False
    unit, call = made
    if unit is not place.unit:
        return False
    block = unit.block(unit.statement(call))
    return any(part is place.node for statement in block for part in ast.walk(statement))


def _reached(near: list[Unit]) -> dict[int, set[int]]:
    """Constructor -> the functions that its model gets to, as far as values were followed."""
    out: dict[int, set[int]] = {}
    for unit in near:
        for node in ast.walk(unit.file.tree):
            if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
                for thing in unit.reading.things(node):
                    if thing.kind == "fsdp1":
                        out.setdefault(id(thing.node), set()).add(id(unit.function(node)))
    return out


def _alone(unit: Unit, node: ast.AST) -> bool:
    """Whether a test for FSDP1 has no test for FSDP2 in its function."""
    function = unit.function(node)
    return not any(
        isinstance(one, (ast.Name, ast.Attribute)) and (unit.full(one).endswith("FSDPModule") or _ASKS.search(ast.unparse(one)))
        for one in ast.walk(function)
    )  # fmt: skip


def _tell(unit: Unit, places: list[Place], goes: bool) -> None:
    """Say of each use that stays why it does; what is not told here is converted like any other."""
    for place in places:
        node = place.node
        if place.kind == "isinstance":
            if unit.refused or both(unit) or not place.alone:
                if _alone(unit, node) and goes:
                    unit.todo(node, "type-test")
                unit.use(node, place.kind, place.what, "kept", "type-test")
        elif (
            place.ways is not None and 2 not in place.ways and 1 in place.ways and not (place.alone and not both(unit))
        ):
            unit.use(node, place.kind, place.what, "kept", "behind-type-test")
        elif place.ways is not None and 2 in place.ways:
            unit.todo(node, "fsdp2-too")
            unit.use(node, place.kind, place.what, "kept", "fsdp2-too")
        elif place.kind == "private":
            if unit.refused:
                unit.leave(node, place.kind, place.what, Refusal("private"))
        elif place.kind == "class":
            if both(unit) or unit.refused:
                reason = "type-test" if place.what == "FSDP" else "fsdp2-too"
                unit.use(node, place.kind, place.what, "kept", reason)
        elif place.what in _DICTS:
            if both(unit) or unit.refused:
                unit.use(node, "state dict", place.what, "kept", "fsdp2-too")
        elif unit.refused or (not place.only and not (place.made and place.what in _OWN)):
            unit.leave(node, place.kind, place.what, Refusal("both"))
    if unit.refused:
        _settings(unit, {id(unit.function(place.node)) for place in places if place.ways is not None})


def _settings(unit: Unit, asked: set[int]) -> None:
    """FSDP1's policies and settings in a file that stays; ``asked``: functions that ask for the type first."""
    for node in ast.walk(unit.file.tree):
        name = unit.canon(node.func) if isinstance(node, ast.Call) else ""
        if name not in SETTINGS or name in ("wrap", "enable_wrap"):
            continue
        if id(unit.function(node)) in asked:
            unit.use(node, "setting", name, "kept", "behind-type-test")
        else:
            unit.use(node, "setting", name, "left", "both")
