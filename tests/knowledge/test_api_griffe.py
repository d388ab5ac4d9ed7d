"""The index beside griffe, which resolves the same sources with code of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardguide.knowledge import api

CALLED = ("function", "method", "static method", "class method")


def spelled(default):
    return None if default is None else str(default).replace(" ", "").replace('"', "'")


@pytest.mark.slow
@pytest.mark.torch
def test_signatures_equal_those_of_griffe():
    """Every function and method that griffe finds: the same parameters with the same defaults."""
    griffe = pytest.importorskip("griffe", reason="compares with griffe (pip install griffe)")
    torch = pytest.importorskip("torch", reason="griffe reads the installed PyTorch")
    if not torch.__version__.startswith("2.13"):
        pytest.skip("another PyTorch than 2.13 is installed here")
    loader = griffe.GriffeLoader(search_paths=[str(Path(torch.__file__).parents[1])], allow_inspection=False)
    package = loader.load("torch", try_relative_path=False, submodules=True)
    loader.resolve_aliases(implicit=True, external=False)
    compared = 0
    for name in api.names():
        found = api.entry(name, "2.13")
        if found is None or found.call is None or found.kind not in CALLED:
            continue
        try:
            theirs = package[name.removeprefix("torch.")]
            theirs = theirs.final_target if theirs.is_alias else theirs
        except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
            continue  # compiled, or from another file of stubs
        if not theirs.is_function:
            continue  # a submodule of the same name, which the function hides when Python runs
        rows = [
            (item.name.lstrip("*"), None if item.kind.value.startswith("variadic") else spelled(item.default))
            for item in theirs.parameters
        ]
        rows = rows[1:] if found.kind in ("method", "class method") else rows
        mine = [(item[0].lstrip("*"), spelled(item[1])) for item in found.call if item[0] not in "*/"]
        assert mine == rows, name
        compared += 1
    assert compared > 1200
