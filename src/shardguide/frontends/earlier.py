"""A request that was asked before: the answer of then, held against the one that was just worked out and checked.

So the record is used, and never shown stale: what the release, the PyTorch at hand or the knowledge have changed is said.
"""

from __future__ import annotations

from shardguide.guidance.hints import TYPE_CHECKING, Any, NamedTuple
from shardguide.workflows.sources import knowledge_version

if TYPE_CHECKING:
    from shardguide.frontends.render.blocks import Block
    from shardguide.notebook import Kept

_MOST = 8  # sentences
_SENTENCE, _CHOICE = 240, 90  # characters
# What is no part of the answer: how it is addressed, what it was asked with, where its sources were found, what leads on.
_AROUND = frozenset(
    {"schema", "id", "workflow", "torch", "status", "answers", "questions", "facts", "sources", "next", "done", "not_done", "approval",
     "notes", "digests"}
)  # fmt: skip
# Of the entries of these lists one field is compared; of all else, what says the same for every release.
_SAYS = {"decisions": "choice", "checks": "result", "snippets": "code", "diagnoses": "fix", "statements": "text"}
_WORDS = frozenset({"reason", "sources", "status"})
_NAMED = ("id", "operation", "name", "title", "path")  # what an entry is called by, the first that it has


class Earlier(NamedTuple):
    """``earlier`` in the JSON."""

    id: str
    at: str  # UTC, ISO 8601
    torch: str  # the release that it was for
    state: str  # "draft", "approved" or "rejected"
    same: bool  # the answer of now says the same
    changed: list[str]  # sentences: what is other than then


def told(kept: Kept, record: dict[str, Any]) -> dict[str, Any] | None:
    """``earlier`` for a record: what was answered then, and what is other now. None where what is kept is no such record."""
    kept = kept._replace(guidance=kept.guidance or record)  # empty: the same to the byte
    try:
        answer = _answers(kept.guidance, record) if kept.guidance is not record else []
        changed = [*_circumstances(kept, record), *answer]
    except (AttributeError, KeyError, TypeError):  # imported, or of another version of Shardguide
        return None
    if kept.mark.state == "approved" and (kept.id != record["id"] or answer):
        changed.insert(0, "The approval was given to the earlier answer, not to this one.")
    if len(changed) > _MOST:
        changed[_MOST - 1 :] = [f"{len(changed) - _MOST + 1} further differences."]
    short = [_cut(one, _SENTENCE) for one in changed]
    return Earlier(kept.id, kept.at, kept.torch, kept.mark.state, not answer, short)._asdict()


def page(earlier: dict[str, Any]) -> list[Block]:
    """The same for people, below the answer."""
    from shardguide.frontends.render.blocks import Items, Text

    state = "" if earlier["state"] == "draft" else f", {earlier['state']}"
    found = "the same answer" if earlier["same"] else "not the same answer"
    said = f"Asked here before ({earlier['at'][:10]}, {earlier['id']}{state}); worked out and checked again: {found}."
    return [Text(said), Items(tuple(earlier["changed"]))] if earlier["changed"] else [Text(said)]


def _circumstances(kept: Kept, record: dict[str, Any]) -> list[str]:
    """What may be the reason: another release, another PyTorch at hand, other knowledge."""
    out = []
    now = record["torch"]
    then, here = (one or "the shipped index" for one in (kept.guidance["torch"]["path"], now["path"]))
    if kept.torch != now["version"]:
        out.append(f"It was for {_release(kept.torch)}, this is for {_release(now['version'])}.")
    elif then != here:
        out.append(f"Its sources were looked up in {then}, now in {here}.")
    elif now["path"] and _places(kept.guidance) != _places(record):
        out.append(f"The PyTorch in {here} is not as it was: sources stand elsewhere in it, or no longer.")
    if kept.knowledge != knowledge_version():
        out.append("Shardguide's knowledge has been revised since.")
    return out


def _release(version: str) -> str:
    return f"PyTorch {version}" if version else "an unknown release"


def _places(record: dict[str, Any]) -> dict[str, Any]:
    return {one["id"]: one["reopened"] for one in record["sources"]}


def _answers(was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What the answers say differently, a sentence each."""
    out = []
    if was["status"] != now["status"]:
        out.append(f"status: {_plain(was['status'])} then, {_plain(now['status'])} now.")
    for name in dict.fromkeys((*was, *now)):
        if name in _AROUND:
            continue
        then, found = _parts(was, name), _parts(now, name)
        other = [one for one in dict.fromkeys((*then, *found)) if then.get(one) != found.get(one)]
        if name in ("decisions", "checks"):
            out += [f"{_plain(one)}: {_short(then.get(one))} then, {_short(found.get(one))} now." for one in other]
        elif other:
            which = f" ({', '.join(other[:6])}{', …' if len(other) > 6 else ''})" if other[0] else ""
            out.append(f"{_plain(name)}: other than then{which}.")
    return out


def _parts(record: dict[str, Any], name: str) -> dict[str, Any]:
    """What one field of a record says, by the names of its parts."""
    value = record.get(name)
    if isinstance(value, dict):
        return {key: _bare(one) for key, one in value.items()}
    if not isinstance(value, list):
        return {"": value}
    said: dict[str, Any] = {}
    for number, one in enumerate(value, 1):
        if not isinstance(one, dict):
            said[str(number)] = one
            continue
        called = next((str(one[field]) for field in _NAMED if one.get(field)), str(number))
        if one.get("path") and one.get("line"):
            called = f"{one.get('rule', '')} {one['path']}:{one['line']}".strip()
        if called in said:
            called = f"{called} {number}"
        says = one.get(_SAYS.get(name, ""), one)
        said[called] = _code(record, says) if name == "snippets" else _bare(says)
    return said


def _code(record: dict[str, Any], code: str) -> str:
    """Code without its release: that it names another one is no difference."""
    version = str(record["torch"]["version"])
    minor = ".".join(version.split(".")[:2])
    return code.replace(version, "X").replace(minor, "X") if version else code


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _bare(one) for name, one in value.items() if name not in _WORDS}
    return [_bare(one) for one in value] if isinstance(value, list) else value


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _short(choice: Any) -> str:
    return "nothing" if choice is None else _cut(str(choice), _CHOICE)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
