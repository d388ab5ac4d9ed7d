"""One name of PyTorch's API: how it is called in a release, what changed, and where it is in the PyTorch at hand."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Release
from shardguide.guidance.serialise import plain
from shardguide.installed.lookup import Tree
from shardguide.knowledge import api, releases

from .release import resolve
from .variables import elsewhere

_LONGEST = 200  # characters of a name that are looked at
_RUN = "torch/distributed/run.py"
# What the documentation's examples call these: import torch.distributed as dist, and so on.
_SHORT = {
    "dist": "torch.distributed",
    "dcp": "torch.distributed.checkpoint",
    "DDP": "torch.nn.parallel.DistributedDataParallel",
    "FSDP": "torch.distributed.fsdp.FullyShardedDataParallel",
}


class Difference(NamedTuple):
    """What differs between two ways to call: for the caller, and in annotations and private parameters only."""

    calls: tuple[str, ...]
    notes: tuple[str, ...]


def name(asked: str, torch: str | None, site_packages: str | None) -> dict[str, Any]:
    """A public name, a method, an option of torchrun or an environment variable, as ``docs api`` shows it.

    ``asked`` may be a dotted name, the end of one that is unique, ``--nproc-per-node`` or ``TORCH_NCCL_ASYNC_ERROR_HANDLING``.

    Raises:
        UnusableInput: the name is not in the index (the message names near ones) or means several objects.
    """
    resolved = resolve(torch, site_packages, None)
    release = resolved.release
    minor = releases.nearest(release.version) or releases.NEWEST
    asked = asked.strip()[:_LONGEST]
    if asked.startswith("-"):
        return _option(asked, minor, release)
    if asked in api.variables():
        return _variable(asked, minor, release)
    if asked.startswith("PET_"):
        for item in api.options():
            if any(found.env == asked for found in (api.option(item, at) for at in releases.known()) if found):
                return _option(item, minor, release)
    return _name(find(asked, minor), asked, minor, release)


def _name(dotted: str, asked: str, minor: str, release: Release) -> dict[str, Any]:
    found = api.entry(dotted, minor)
    since = api.since(dotted)
    history = _history(dotted)
    shown = found or api.entry(dotted, _last(since))
    also = [other for other in api.referring(shown.name if shown else dotted) if other != dotted]
    if shown and shown.name != dotted:
        also.append(shown.name)
    elsewhere = {other: api.since(other) for other in also}
    here = dotted if found else next((other for other in sorted(also) if api.exists(other, minor)), "")
    found_here = api.entry(here, minor)
    return {
        "name": dotted,
        "asked": asked,
        "kind": shown.kind if shown else "",
        "release": minor,
        "torch": plain(release),
        "in_release": found is not None,
        "instead": "" if found else here,  # the name that the release has it under
        "releases": since,
        "signature": written(here, found_here) if found_here else "",
        "parameters": _parameters(found_here),
        "returns": found_here.returns if found_here else "",
        "deprecated": found_here.deprecated if found_here else "",
        "warns": list(found_here.warns) if found_here else [],
        "bases": list(found_here.bases) if found_here else [],
        "members": members(here, minor) if found_here else [],
        "defined_as": found.name if found and found.name != dotted else "",
        "also": {key: elsewhere[key] for key in sorted(elsewhere)},
        "history": history,
        "installed": _installed(found_here.name, minor, release) if found_here else None,
    }


def _parameters(found: api.Entry | None) -> list[dict[str, Any]] | None:
    if found is None or found.call is None:
        return None
    return [{"name": one, "default": default, "annotation": note} for one, default, note in found.call]


def written(dotted: str, found: api.Entry) -> str:
    """The signature as one would write it; "" for what is not called."""
    if found.call is None:
        return ""
    returns = f" -> {found.returns}" if found.returns else ""
    return f"{dotted.rpartition('.')[2]}({', '.join(api.text(item) for item in found.call)}){returns}"


def members(dotted: str, minor: str) -> list[str]:
    """Methods and attributes of a class in a release; what it inherits is in its bases."""
    found = api.entry(dotted, minor)
    if found is None or found.kind not in ("class", "enumeration", "exception"):
        return []
    own = [item.rpartition(".")[2] for item in api.below(found.name) if api.exists(item, minor)]
    return sorted({*own, *found.attributes})


def _last(since: str) -> str:
    return since.replace(", ", "-").rpartition("-")[2]


def _history(dotted: str) -> list[dict[str, Any]]:
    """Every release at which something changed, oldest first."""
    result: list[dict[str, Any]] = []
    before: api.Entry | None = None
    for minor in releases.known():
        found = api.entry(dotted, minor)
        if found is None:
            if before is not None:
                result.append({"release": minor, "changes": ["gone"], "notes": []})
        elif before is None:
            changes = ["first release" if not result else "back"]
            if minor == releases.OLDEST:
                changes = [f"there already ({minor} is the oldest release known here)"]
            changes += [f"deprecated: {found.deprecated}"] if found.deprecated else []
            result.append({"release": minor, "changes": changes, "notes": []})
        elif found != before:
            changes, notes = between(before, found)
            if changes or notes:
                result.append({"release": minor, "changes": changes, "notes": notes})
        before = found
    return result


def between(before: api.Entry, after: api.Entry) -> tuple[list[str], list[str]]:
    """What changed for a caller, and what changed in annotations and other details, in words."""
    difference = compare(before.call, after.call)
    changes, notes = list(difference.calls), list(difference.notes)
    if before.kind != after.kind and {before.kind, after.kind} != {"class", "exception"}:
        changes.append(f"{before.kind} became {after.kind}")
    changes += deprecation(before, after)
    fields = {item[0] for call in (before.call, after.call) for item in call or ()}  # said with the parameters already
    new = [item for item in after.attributes if item not in before.attributes and item not in fields]
    old = [item for item in before.attributes if item not in after.attributes and item not in fields]
    changes += [f"new members: {', '.join(new)}"] if new else []
    changes += [f"members gone: {', '.join(old)}"] if old else []
    if before.returns != after.returns and before.returns and after.returns:
        notes.append(f"returns {after.returns} (was {before.returns})")
    return changes, notes


def deprecation(before: api.Entry, after: api.Entry) -> list[str]:
    """Deprecations that came and went; a change of words alone is none."""
    found = []
    if after.deprecated and not before.deprecated:
        found.append(f"deprecated: {after.deprecated}")
    elif before.deprecated and not after.deprecated:
        found.append("no longer deprecated")
    if after.warns and not before.warns:
        found.append(f"warns: {'; '.join(after.warns)}")
    elif before.warns and not after.warns:
        found.append("no longer warns of a deprecated use")
    return found


def compare(before: tuple[api.Parameter, ...] | None, after: tuple[api.Parameter, ...] | None) -> Difference:
    """Parameters that came, went, moved or changed their default."""
    if before is None or after is None or before == after:
        return Difference((), ())
    old, new = ({item[0]: item for item in call if item[0] not in "*/"} for call in (before, after))
    calls: list[str] = []
    notes: list[str] = []
    for key, item in new.items():
        where = notes if key.startswith("_") else calls
        if key not in old:
            where.append(f"+ {api.text(item)}")
            continue
        was = old[key]
        if was[1] != item[1]:
            where.append(f"{key}: default {was[1] or '(required)'} → {item[1] or '(required)'}")
        if was[2] != item[2] and was[2] and item[2]:
            notes.append(f"{key}: {was[2]} → {item[2]}")
    for key, item in old.items():
        if key not in new:
            (notes if key.startswith("_") else calls).append(f"- {api.text(item)}")
    kept = [[key for key in call if key in old and key in new] for call in (old, new)]
    if kept[0] != kept[1]:
        calls.append(f"order now {', '.join(kept[1])}")
    by_word = [_by_word(call) for call in (before, after)]
    moved = sorted(key for key in by_word[1] - by_word[0] if key in old)
    freed = sorted(key for key in by_word[0] - by_word[1] if key in new)
    calls += [f"keyword-only now: {', '.join(moved)}"] if moved else []
    calls += [f"no longer keyword-only: {', '.join(freed)}"] if freed else []
    return Difference(tuple(calls), tuple(notes))


def _by_word(call: tuple[api.Parameter, ...]) -> set[str]:
    """Parameters that are passed by name only."""
    for at, item in enumerate(call):
        if item[0].startswith("*") and not item[0].startswith("**"):
            return {one[0] for one in call[at + 1 :] if not one[0].startswith("*")}
    return set()


# --- which name is meant -------------------------------------------------------------------------------------------------


def find(asked: str, minor: str) -> str:
    """The dotted name that is meant.

    Raises:
        UnusableInput: nothing, or several objects.
    """
    head, _, tail = asked.partition(".")
    dotted = f"{_SHORT[head]}.{tail}".rstrip(".") if head in _SHORT else asked
    if dotted.startswith("torch.") and _known(dotted):
        return dotted
    candidates = api.ending(dotted)
    if not candidates and "." in dotted:  # an inherited member: FullyShardedDataParallel.state_dict
        owner, _, member = dotted.rpartition(".")
        candidates = [f"{one}.{member}" for one in api.ending(owner) if _known(f"{one}.{member}")]
    objects: dict[str, str] = {}
    for one in sorted(candidates, key=lambda item: _rank(item, minor)):
        last = api.entry(one, _last(api.since(one)))
        best = last.name if last else one  # which the documentation uses; an inherited member keeps the name asked for
        objects.setdefault(best, best if best in candidates else one)
    ranked = sorted(objects.values(), key=lambda item: _rank(item, minor))
    if not ranked:
        raise UnusableInput(_unknown(asked))
    if len(ranked) > 1 and _rank(ranked[0], minor)[:3] == _rank(ranked[1], minor)[:3]:
        some = ", ".join(ranked[:6]) + (f" and {len(ranked) - 6} more" if len(ranked) > 6 else "")
        raise UnusableInput(f"{asked} may mean {some}; give more of its dotted name.")
    return ranked[0]


def _known(dotted: str) -> bool:
    return any(api.exists(dotted, minor) for minor in reversed(releases.known()))


def _rank(dotted: str, minor: str) -> tuple[int, int, int, str]:
    private = sum(part.startswith("_") for part in dotted.split("."))
    return private, 0 if api.exists(dotted, minor) else 1, dotted.count("."), dotted


def _unknown(asked: str) -> str:
    from difflib import get_close_matches  # only for this sentence

    everything = [*api.names(), *api.options(), *api.variables()]
    tail = asked.rpartition(".")[2]
    by_tail: dict[str, str] = {}
    for one in sorted(everything, key=lambda item: (item.count("._"), item.count("."), item)):
        by_tail.setdefault(one.rpartition(".")[2], one)
    letters = set(tail)
    like = [
        one for one in by_tail if abs(len(one) - len(tail)) <= 4 and len(letters & set(one)) * 3 >= len(letters) * 2
    ]
    near = [by_tail[one] for one in get_close_matches(tail, like, 4, 0.6)]
    words = f"; near it: {', '.join(near)}" if near else ""
    words += elsewhere(asked)
    return f"The index of PyTorch's distributed API ({releases.OLDEST} to {releases.NEWEST}) has no {asked or 'empty name'}{words}."


# --- options and variables -------------------------------------------------------------------------------------------------


def _option(asked: str, minor: str, release: Release) -> dict[str, Any]:
    wanted = asked.replace("_", "-")
    known = {item: api.option(item, minor) for item in api.options()}
    name = next((item for item, found in known.items() if item == wanted or (found and asked in found.spellings)), "")
    if not name:
        raise UnusableInput(_unknown(asked))
    found = known[name]
    stands = [at for at in releases.known() if api.option(name, at)]
    history: list[dict[str, Any]] = []
    for before, after in zip(("", *releases.known()), releases.known(), strict=False):
        was, is_ = api.option(name, before) if before else None, api.option(name, after)
        changes = option_changes(was, is_) if before else ["there already"] if is_ else []
        if changes:
            history.append({"release": after, "changes": changes, "notes": []})
    return {
        "name": name,
        "asked": asked,
        "kind": "option of torchrun",
        "release": minor,
        "torch": plain(release),
        "in_release": found is not None,
        "releases": releases.ranges(stands),
        "option": plain(found) if found else None,
        "history": history,
        "installed": _line(release, _RUN, (f'"{name}"', f"'{name}'")) if found else None,
    }


def option_changes(was: api.Option | None, now: api.Option | None) -> list[str]:
    """What changed about an option of torchrun."""
    if was is None or now is None:
        return ["first release"] if now else ["gone"] if was else []
    rows = ((key, getattr(was, key), getattr(now, key)) for key in ("default", "type", "choices", "env", "flag"))
    found = [f"{key} {before or '(none)'} → {after or '(none)'}" for key, before, after in rows if before != after]
    new = [item for item in now.spellings if item not in was.spellings]
    return [*found, *([f"also written {', '.join(new)}"] if new else [])]


def _variable(asked: str, minor: str, release: Release) -> dict[str, Any]:
    found = api.variable(asked, minor)
    history: list[dict[str, Any]] = []
    before: api.Variable | None = None
    for at in releases.known():
        now = api.variable(asked, at)
        changes = variable_changes(before, now)
        if changes:
            history.append({"release": at, "changes": changes, "notes": []})
        before = now
    where = None
    for file in (*(file for file, _ in found.read), *found.named) if found else ():
        where = where or _line(release, file, (f'"{asked}"', f"'{asked}'", asked))
    return {
        "name": asked,
        "asked": asked,
        "kind": "environment variable",
        "release": minor,
        "torch": plain(release),
        "in_release": found is not None,
        "releases": releases.ranges([at for at in releases.known() if api.variable(asked, at)]),
        "read": [{"file": file, "default": default} for file, default in found.read] if found else [],
        "named": list(found.named) if found else [],
        "history": history,
        "installed": where,
    }


def variable_changes(before: api.Variable | None, now: api.Variable | None) -> list[str]:
    """Which Python files begin or cease to read or name a variable, and with which default."""
    was, is_ = (dict(item.read) if item else {} for item in (before, now))
    found = [f"read in {file}" + (f", default {is_[file]}" if is_[file] else "") for file in is_ if file not in was]
    found += [f"no longer read in {file}" for file in was if file not in is_]
    found += [
        f"default in {file} {was[file] or '(none)'} → {is_[file] or '(none)'}"
        for file in is_
        if file in was and was[file] != is_[file]
    ]
    if not is_ and now and now.named and not (before and before.named and not was):
        found.append(f"named in {', '.join(now.named)}; no Python file reads it")
    if now is None and before is not None and not found:
        found.append("no longer named")
    return found


# --- where it is in the PyTorch at hand ------------------------------------------------------------------------------------


def _installed(name: str, minor: str, release: Release) -> dict[str, Any] | None:
    """File and line of a definition in the PyTorch at hand; None where there is none or it is not written in Python."""
    where = api.place(name, minor)
    if not release.path or where is None:
        return None
    file, definition = where
    tree = Tree(release.path)
    if not definition:
        return {"file": file, "line": 1} if tree.text(file) is not None else None
    spans = tree.spans(file, definition)
    text = tree.text(file) or ""
    if spans:
        return {"file": file, "line": text.count("\n", 0, spans[-1][0]) + 1}  # the last of overloads is what runs
    owner, _, last = definition.rpartition(".")
    import re

    assigned = re.compile(rf"^[ \t]*{re.escape(last)}\s*[:=]", re.M)
    for start, end in tree.spans(file, owner) if owner else [(0, len(text))]:
        found = assigned.search(text, start, end)
        if found:
            return {"file": file, "line": text.count("\n", 0, found.start()) + 1}
    return _resolved(tree, name)


def _resolved(tree: Tree, name: str) -> dict[str, Any] | None:
    """The slow way, which parses the files on the path: for a definition that is no longer where it was."""
    from shardguide.installed.resolve import Resolver

    found = Resolver(tree).find(name)
    if found is None:
        return None
    return {"file": found.file, "line": found.nodes[-1].lineno if found.nodes else 1}


def _line(release: Release, file: str, words: tuple[str, ...]) -> dict[str, Any] | None:
    text = Tree(release.path).text(file) if release.path else None
    for word in words if text else ():
        at = (text or "").find(word)
        if at >= 0:
            return {"file": file, "line": (text or "").count("\n", 0, at) + 1}
    return None
