"""What changed between two releases for someone who trains with FSDP, DDP, DTensor or DCP."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.knowledge import api, releases
from shardguide.knowledge.lines import Lines

from .reference import between, deprecation, option_changes, variable_changes

_WRAPPER = "torch.distributed.algorithms._checkpoint"
# Title, what the areas of a user's code are called in torch, and whether they are shown without --verbose.
AREAS: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("FSDP", ("torch.distributed.fsdp", "torch.distributed._composable"), True),
    ("DDP and its hooks", ("torch.nn.parallel", "torch.distributed.algorithms"), True),
    (
        "DTensor, tensor parallelism, DeviceMesh",
        ("torch.distributed.tensor", "torch.distributed._tensor", "torch.distributed.device_mesh"),
        True,
    ),
    ("Distributed checkpoints (DCP)", ("torch.distributed.checkpoint",), True),
    (
        "Activation checkpointing, mixed precision, clipping",
        (
            "torch.utils.checkpoint",
            _WRAPPER,
            "torch.amp",
            "torch.autocast",
            "torch.cuda.amp",
            "torch.nn.utils.clip_grad",
        ),
        True,
    ),
    ("Pipelining", ("torch.distributed.pipelining",), False),
    ("torchrun and elastic launching", ("torch.distributed.elastic", "torch.distributed.launcher"), False),
    ("RPC, distributed autograd, remote modules", ("torch.distributed.rpc", "torch.distributed.autograd"), False),
    ("Distributed optimizers", ("torch.distributed.optim",), False),
    ("Flight recorder and debugging", ("torch.distributed.flight_recorder", "torch.distributed.debug"), False),
    (
        "Functional collectives, symmetric memory and other inner modules",
        (
            "torch.distributed._functional_collectives",
            "torch.distributed._local_tensor",
            "torch.distributed._symmetric_memory",
            "torch.distributed._tools",
        ),
        False,
    ),
    ("Process groups and collectives", ("torch.distributed",), True),
    ("Optimizers", ("torch.optim",), False),
    ("Devices, compiler, the rest of torch", ("torch",), False),
)
ORDER = ("moved", "added", "removed", "changed", "deprecated", "warns", "undeprecated", "annotations")
# Words by which a claim says itself that its subject changed with a release.
_BOUNDS = r"(?:[Ff]rom|[Ss]ince|[Uu]p to|[Uu]ntil|[Bb]efore) (2\.\d+)"


class Change(NamedTuple):
    """One difference."""

    name: str
    kind: str  # one of ORDER
    details: tuple[str, ...] = ()


def changes(first: str, second: str) -> dict[str, Any]:
    """The difference from one release to another: API by areas, launch, behaviour.

    ``behaviour`` holds claims that are known to hold for one of the two only; ``statements`` those that are known for one
    only: their words stand in one, which may be new words for old behaviour, or it was run on one.

    Raises:
        UnusableInput: no releases, or twice the same.
    """
    before, after = releases.normalise(first), releases.normalise(second)
    if before == after:
        raise UnusableInput(f"Both are PyTorch {before}; name two releases, for example 2.11 2.15.")
    by_area: dict[str, list[Change]] = {title: [] for title, _, _ in AREAS}
    for change in _api(before, after):
        by_area[_area(change.name)].append(change)
    behaviour, statements = _claims(before, after)
    return {
        "from": before,
        "to": after,
        "areas": [
            {"title": title, "main": main, "changes": [_plain(change) for change in by_area[title]]}
            for title, _, main in AREAS
            if by_area[title]
        ],
        "behaviour": behaviour,
        "statements": statements,
        "torchrun": _options(before, after),
        "environment": _variables(before, after),
    }


def _plain(change: Change) -> dict[str, Any]:
    return {"name": change.name, "kind": change.kind, "details": list(change.details)}


def _area(name: str) -> str:
    """The area with the longest prefix that fits."""
    fitting = [
        (len(prefix), title)
        for title, prefixes, _ in AREAS
        for prefix in prefixes
        if name == prefix or name.startswith(prefix + ".")
    ]
    return max(fitting)[1] if fitting else AREAS[-1][0]


def _api(before: str, after: str) -> list[Change]:
    """API changes by name; other names of an object and members of a class that came or went go without saying."""
    gone: dict[str, api.Entry] = {}
    new: dict[str, api.Entry] = {}
    found: list[Change] = []
    moved: set[str] = set()
    for name in api.differing(before, after):
        was, now = api.entry(name, before), api.entry(name, after)
        if was is None and now is not None:
            new[name] = now
        elif was is not None and now is None:
            gone[name] = was
        elif was is not None and now is not None and was.name == name:
            if now.name != name:
                moved.add(now.name)
            found += _same(now.name, was, now)
    for name, now in new.items():
        if now.name != name or name.rpartition(".")[0] in new:
            continue
        others = api.referring(name) if name in moved else []
        former = [other for other in others if (api.entry(other, before) or now).name == other]
        if former:
            found.append(Change(name, "moved", (f"was {min(former, key=len)}",)))
        else:
            found.append(Change(name, "added"))
    for name, was in gone.items():
        if was.name == name and name.rpartition(".")[0] not in gone:
            found.append(Change(name, "removed"))
    found += _passing(before, after)
    return sorted(set(found), key=lambda change: (ORDER.index(change.kind), change.name))


def _passing(before: str, after: str) -> list[Change]:
    """Deprecations that came and went between the two releases."""
    order = releases.known()
    first, last = sorted((order.index(before), order.index(after)))
    found = []
    for name in api.ever_deprecated():
        inside = [release for release in order[first + 1 : last] if api.deprecated(name, release)]
        if inside and not api.deprecated(name, before) and not api.deprecated(name, after) and api.exists(name, after):
            words = f"deprecated in {releases.ranges(inside)} only: {api.deprecated(name, inside[-1])}"
            found.append(Change(name, "undeprecated", (words,)))
    return found


def _same(name: str, was: api.Entry, now: api.Entry) -> list[Change]:
    """What changed about a name that both releases have."""
    calls, notes = between(was, now)
    about = deprecation(was, now)
    rest = tuple(item for item in calls if item not in about)
    found = [Change(name, "changed", rest)] if rest else []
    for item in about:
        kind = next((word for word in ("deprecated", "warns") if item.startswith(f"{word}: ")), "undeprecated")
        found.append(Change(name, kind, (item.removeprefix(f"{kind}: "),)))
    return found + ([Change(name, "annotations", tuple(notes))] if notes else [])


def _claims(before: str, after: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Claims that hold in one of the releases only: those known to, and those whose words stand in one only."""
    import json
    import re

    said = re.compile(_BOUNDS)
    inside = sorted((_order(before), _order(after)))
    behaviour: list[dict[str, Any]] = []
    statements: list[dict[str, Any]] = []
    for name, entry in json.loads(Lines("claims.json").text).items():
        where = "" if name.startswith("@") else entry.get("limits") or entry["releases"]
        holds = [api.holds(release, where) for release in (before, after)]
        if not where or holds[0] == holds[1]:
            continue
        row = {"id": name, "text": entry["text"], "holds_in": before if holds[0] else after, "releases": where}
        named = any(inside[0] <= _order(release) <= inside[1] for release in said.findall(entry["text"]))
        (behaviour if named or _open_ended(entry.get("limits", "")) else statements).append(row)
    return behaviour, statements


def _open_ended(limits: str) -> bool:
    """Whether limits say from when on, or up to when; with both ends they say where it was looked at."""
    first, _, last = limits.partition("-")
    return bool(limits) and (first == releases.OLDEST or (last or first) == releases.NEWEST)


def _order(release: str) -> tuple[int, int]:
    first, second = release.split(".")
    return int(first), int(second)


def _options(before: str, after: str) -> list[dict[str, Any]]:
    rows = ((name, option_changes(api.option(name, before), api.option(name, after))) for name in api.options())
    return [{"name": name, "details": _later(details)} for name, details in rows if details]


def _variables(before: str, after: str) -> list[dict[str, Any]]:
    rows = ((name, variable_changes(api.variable(name, before), api.variable(name, after))) for name in api.variables())
    return [{"name": name, "details": details} for name, details in rows if details]


def _later(details: list[str]) -> list[str]:
    """Between two releases an option is new, not in its first release."""
    return ["new" if item == "first release" else item for item in details]
