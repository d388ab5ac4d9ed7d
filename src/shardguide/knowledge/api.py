"""The API of every PyTorch release: which public names exist, how they are called, torchrun's options, environment variables.

``data/api.json`` is written by ``scripts/build_api.py`` from the releases' own wheels. An object is described under one of its
public names; the others refer to it, and a class refers to its bases for what it inherits, so that a look-up may go over
several lines of the file.
"""

from __future__ import annotations

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.knowledge import releases
from shardguide.knowledge.lines import Lines

_lines = Lines("api.json")
_known: dict[
    str, dict[str, Any]
] = {}  # lines that were read already: a history asks for the same ones for each release
_within: dict[tuple[str, str], bool] = {}

KINDS = {
    "M": "module",
    "c": "class",
    "e": "enumeration",
    "x": "exception",
    "f": "function",
    "m": "method",
    "s": "static method",
    "k": "class method",
    "v": "value",
    "t": "attribute",
    "o": "option of torchrun",
}
_DEPTH = 8  # references and base classes followed

Parameter = tuple[str, "str | None", str]


class Entry(NamedTuple):
    """A name as a release has it."""

    name: str  # the public name under which the object is described, whatever name was asked for
    kind: str  # a value of KINDS
    call: tuple[Parameter, ...] | None  # (name, default or None, annotation or ""); None for what is not called
    returns: str  # annotation of what is returned, "" for none
    deprecated: str  # what the decorator, the docstring or an unconditional warning says; "" for none
    warns: tuple[str, ...]  # warnings about deprecated uses, and arguments that the docstring calls deprecated
    bases: tuple[str, ...]  # public names of base classes
    attributes: tuple[str, ...]  # of a class: members that are not called


class Option(NamedTuple):
    """An option of torchrun as a release has it."""

    name: str  # the longest spelling with dashes
    spellings: tuple[str, ...]
    default: str  # source text, "" where none is stated
    type: str  # source text, "" where none is stated
    choices: str  # source text, "" for no choices
    env: str  # the variable from which the default is taken before, "" for none
    flag: bool  # takes no value


class Variable(NamedTuple):
    """An environment variable as a release has it."""

    name: str
    read: tuple[tuple[str, str], ...]  # files that read it, with the default as source text ("" for none)
    named: tuple[str, ...]  # files whose texts name it, while no Python file reads it


def names() -> list[str]:
    """Every name that has an entry of its own, whatever releases it is in; inherited members have none."""
    return [name for name in _lines.keys() if name[0] not in "@-$"]  # noqa: SIM118 - not a mapping


def options() -> list[str]:
    """Every option of torchrun, whatever releases it is in."""
    return [name for name in _lines.keys() if name[0] == "-"]  # noqa: SIM118


def variables() -> list[str]:
    """Environment variables of all releases."""
    return [name[1:] for name in _lines.keys() if name[0] == "$"]  # noqa: SIM118


def exists(name: str, release: str) -> bool:
    """Whether a public dotted name, such as ``torch.distributed.fsdp.FSDPModule.reshard``, is in a release.

    False also for a name that the index doesn't cover: it covers the distributed packages and what goes with them.
    """
    return entry(name, release) is not None


def signature(name: str, release: str) -> tuple[tuple[str, str | None], ...] | None:
    """How a function, method or class is called in a release: ``(parameter, default)`` in order, without ``self``.

    A default is source text; None means that the parameter is required. ``("*", None)`` starts the keyword-only
    parameters, ``("/", None)`` ends the positional-only ones, ``*args`` and ``**kwargs`` keep their stars. None for a name
    that does not exist, is not called (a module, a constant, an enumeration), or whose signature is not written in Python.
    """
    found = entry(name, release)
    if found is None or found.call is None:
        return None
    return tuple((item[0], item[1]) for item in found.call)


def deprecated(name: str, release: str) -> str:
    """What a release says about a name's deprecation, in its decorator, docstring or warning; "" for none."""
    found = entry(name, release)
    return found.deprecated if found else ""


def since(name: str) -> str:
    """The releases that have a name, as ranges: ``"2.6-2.15"``; "" for a name that the index doesn't cover."""
    return releases.ranges([minor for minor in releases.known() if exists(name, minor)])


def entry(name: str, release: str, depth: int = _DEPTH) -> Entry | None:
    """A public name as a release has it; None where it has it not."""
    found = _variant(name, release)
    if found is not None and found[1] == "a":
        return entry(found[2], release, depth - 1) if depth else None
    if found is not None:
        return _entry(name, found)
    owner, _, member = name.rpartition(".")
    variant = _variant(owner, release) if depth and owner else None
    if variant is None:
        return None
    if variant[1] == "a":
        return entry(f"{variant[2]}.{member}", release, depth - 1)
    described = _entry(owner, variant)
    if member in described.attributes:
        return Entry(name, "attribute", None, "", "", (), (), ())
    for base in described.bases:
        inherited = entry(f"{base}.{member}", release, depth - 1)
        if inherited is not None:
            return inherited
    return None


def place(name: str, release: str) -> tuple[str, str] | None:
    """The file below site-packages that defines a name in a release, and the qualified name in it ("" for a module)."""
    found = entry(name, release)
    if found is None:
        return None
    here = _place(found.name, release)
    if here is None:
        owner, _, member = found.name.rpartition(".")
        above = _place(owner, release)
        here = (above[0], f"{above[1]}.{member}".lstrip(".")) if above else None
    return here


def option(name: str, release: str) -> Option | None:
    """An option of torchrun, by its longest spelling with dashes."""
    found = _variant(name, release)
    if found is None or found[1] != "o":
        return None
    told = found[3] if len(found) > 3 else {}
    words = [str(told.get(key, "")) for key in ("default", "type", "choices", "env")]
    return Option(name, tuple(found[2]), words[0], words[1], words[2], words[3], "flag" in told)


def variable(name: str, release: str) -> Variable | None:
    """An environment variable; None where the release's Python files neither read nor name it."""
    line = _line(f"${name}")
    read = [(_file(row[1]), row[2] if len(row) > 2 else "") for row in line.get("read", ()) if _holds(row, release)]
    named = [_file(row[1]) for row in line.get("named", ()) if _holds(row, release)]
    return Variable(name, tuple(read), tuple(named)) if read or named else None


def ending(tail: str) -> list[str]:
    """Names in the index that end with the components of ``tail``."""
    if not tail.replace(".", "").replace("_", "").isalnum():
        return []
    text, found, at = _lines.text, [], 0
    needle = f'.{tail}": '
    while (at := text.find(needle, at)) >= 0:
        start = text.rfind("\n", 0, at) + 2
        found.append(text[start : at + len(needle) - 3])
        at += 1
    return [name for name in found if '"' not in name]


def differing(before: str, after: str) -> list[str]:
    """Names of which the two releases say different things."""
    import json

    found = []
    for name, line in json.loads(_lines.text).items():
        if name[0] in "@-$":
            continue
        _known[name] = line
        for row in line["v"]:
            if _holds(row, before) != _holds(row, after):
                found.append(name)
                break
    return found


def ever_deprecated() -> list[str]:
    """Names that some release calls deprecated."""
    lines = (line for line in _lines.text.split("\n") if '"deprecated": ' in line)
    return [line[1 : line.index('": ')] for line in lines]


def below(name: str) -> list[str]:
    """Names in the index of what a class or module holds, one level down."""
    text, found, at = _lines.text, [], 0
    needle = f'\n"{name}.'
    while (at := text.find(needle, at)) >= 0:
        key = text[at + 2 : text.index('"', at + 2)]
        if "." not in key[len(name) + 1 :]:
            found.append(key)
        at += 1
    return found


def referring(name: str) -> list[str]:
    """Names that refer to this one in some release: where the object also is, or was."""
    text, found, at = _lines.text, [], 0
    needle = f'"a", "{name}"]'
    while (at := text.find(needle, at)) >= 0:
        start = text.rfind("\n", 0, at) + 2
        key = text[start : text.index('"', start)]
        if key not in found:
            found.append(key)
        at += 1
    return found


def holds(release: str, ranges: str) -> bool:
    """``releases.within``, remembered: some hundred different ranges are asked about thousands of times."""
    key = (release, ranges)
    if key not in _within:
        _within[key] = releases.within(release, ranges)
    return _within[key]


def parameter(text: str) -> Parameter:
    """``"mesh: DeviceMesh | None = None"`` -> name, default (None if required), annotation ("" for none)."""
    head, equals, default = text.partition(" = ")
    name, _, annotation = head.partition(": ")
    return name, default if equals else None, annotation


def text(item: Parameter) -> str:
    """A parameter as it is written."""
    return f"{item[0]}{': ' + item[2] if item[2] else ''}{'' if item[1] is None else ' = ' + item[1]}"


def _line(name: str) -> dict[str, Any]:
    if name not in _known:
        found = _lines.get(name)
        _known[name] = found if isinstance(found, dict) else {}
    return _known[name]


def _holds(row: list[Any], release: str) -> bool:
    return holds(release, row[0])


def _variant(name: str, release: str) -> list[Any] | None:
    for row in _line(name).get("v", ()):
        if _holds(row, release):
            found: list[Any] = row
            return found
    return None


def _entry(name: str, row: list[Any]) -> Entry:
    call = row[2] if len(row) > 2 else None
    told = row[3] if len(row) > 3 else {}
    return Entry(
        name,
        KINDS[row[1]],
        None if call is None else tuple(parameter(item) for item in call),
        told.get("returns", ""),
        told.get("deprecated", ""),
        tuple(told.get("warns", ())),
        tuple(told.get("bases", ())),
        tuple(told.get("attributes", ())),
    )


def _place(name: str, release: str) -> tuple[str, str] | None:
    for row in _line(name).get("at", ()):
        if _holds(row, release):
            definition = row[2] if len(row) > 2 else name.rpartition(".")[2]
            module = (_variant(name, release) or ["", ""])[1] == "M"
            return _file(row[1]), "" if module else definition
    return None


def _file(number: int) -> str:
    if "@files" not in _known:
        _known["@files"] = {"names": _lines.get("@files")}
    return str(_known["@files"]["names"][number])
