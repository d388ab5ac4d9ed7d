"""The index beside griffe, which resolves the same sources with code of its own.

PyTorch 2.13.0 as installed; every release where SHARDGUIDE_WHEELS names the folder that scripts/fetch_wheels.py filled.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from shardguide.knowledge import api, releases

griffe = pytest.importorskip("griffe", reason="compares with griffe (pip install griffe)")
pytestmark = [pytest.mark.slow, pytest.mark.torch]
CALLED = ("function", "method", "static method", "class method")
MINORS = list(releases.known())
# At least so many comparisons in the oldest and in every later release: functions and methods, constructors, classes' members, places.
FEWEST = {"functions": 700, "constructors": 250, "members": 200, "places": 600}


def folder_of(minor):
    """The sources of a release: installed, or unpacked from its wheel."""
    wheels = os.environ.get("SHARDGUIDE_WHEELS")
    for folder in sorted(Path(wheels).iterdir()) if wheels else ():
        if (folder / "torch" / "version.py").is_file() and releases.minor(folder.name) == minor:
            return folder
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent.parent
        if f"'{minor}." in (folder / "torch" / "version.py").read_text(encoding="utf-8"):
            return folder
    pytest.skip(f"PyTorch {minor} is neither installed here nor in the folder that SHARDGUIDE_WHEELS names")


def load(folder):
    loader = griffe.GriffeLoader(search_paths=[str(folder)], allow_inspection=False)
    package = loader.load("torch", try_relative_path=False, submodules=True)
    loader.resolve_aliases(implicit=True, external=False)
    return package


def theirs_of(package, name):
    """What griffe has under a name; None for what is compiled or comes from files it does not see."""
    try:
        found = package[name.removeprefix("torch.")]
        return found.final_target if found.is_alias else found
    except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None


def spelled(default):
    return None if default is None else str(default).replace(" ", "").replace('"', "'")


def rows(parameters, bound):
    found = [
        (item.name.lstrip("*"), None if item.kind.value.startswith("variadic") else spelled(item.default))
        for item in parameters
    ]
    return found[1:] if bound else found


def mine_of(found):
    return [(item[0].lstrip("*"), spelled(item[1])) for item in found.call if item[0] not in "*/"]


@pytest.mark.parametrize("minor", MINORS)
def test_the_index_equals_griffe(minor):
    """The same parameters with the same defaults, the same members of classes, defined in the same files."""
    folder = folder_of(minor)
    package = load(folder)
    compared = dict.fromkeys(FEWEST, 0)
    wrong = []
    for name in api.names():
        found = api.entry(name, minor)
        theirs = theirs_of(package, name) if found is not None else None
        if found is None or theirs is None:
            continue
        if found.call is not None and found.kind in CALLED and theirs.is_function:
            compared["functions"] += 1
            if mine_of(found) != rows(theirs.parameters, found.kind in ("method", "class method")):
                wrong.append((name, mine_of(found), rows(theirs.parameters, True)))
        if found.kind in ("class", "exception") and theirs.is_class:
            makes = "__init__" in theirs.members or "dataclass" in theirs.labels
            if found.call is not None and makes:
                compared["constructors"] += 1
                made = rows(theirs.parameters, True)
                new = theirs.members.get("__new__")
                if [key for key, _ in made] == ["args", "kwargs"] and new is not None:
                    # of DTensor a compiled function takes the place of the one that is written
                    made = rows(new.parameters, True) if new.is_function else mine_of(found)
                if mine_of(found) != made:
                    wrong.append((name, mine_of(found), made))
            own = {
                key
                for key, item in theirs.members.items()
                if not key.startswith("_") and not item.is_alias and item.is_function
            }
            compared["members"] += 1
            wrong += [(name, "lacks", key) for key in sorted(own) if not api.exists(f"{name}.{key}", minor)]
        where = api.place(name, minor)
        if where is not None and (theirs.is_function or theirs.is_class) and found.name == name:
            compared["places"] += 1
            if Path(theirs.filepath) != folder / where[0]:
                wrong.append((name, where[0], str(theirs.filepath)))
    assert wrong == []
    assert all(compared[key] >= FEWEST[key] for key in FEWEST), compared
