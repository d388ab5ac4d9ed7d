"""Programs whose verdict was decided by reading: early returns, breaks, else, finally, managers, decorators, match, walrus, coroutines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardguide.code.review.engine import review
from shardguide.knowledge import rule_store

try:
    import tomllib
except ModuleNotFoundError:  # 3.10
    import tomli as tomllib

HEAD = "import torch.distributed as dist\n"
PROGRAMS = tomllib.loads((Path(__file__).parent / "orders.toml").read_text())["program"]
ORDER = frozenset(code for code in rule_store.codes() if code.startswith("FSD2"))


def verdict(tmp_path: Path, program: dict[str, Any]) -> tuple[str, set[tuple[str, int]]]:
    """The worst that is said of a program, and where findings stand."""
    for name, text in program["files"].items():
        (tmp_path / f"{name}.py").write_text(HEAD + text)
    result = review((str(tmp_path),), "2.13", ORDER)
    assert not result.problems
    places = {(Path(one.path).stem, one.line) for one in result.findings}
    said = {one.verdict for one in result.collectives}
    if places or "mismatched" in said:
        return "mismatched", places
    return "unknown" if "unknown" in said else "matched", places


@pytest.mark.parametrize("program", PROGRAMS, ids=[one["name"] for one in PROGRAMS])
def test_verdict(tmp_path: Path, program: dict[str, Any]) -> None:
    found, places = verdict(tmp_path, program)
    marked = {
        (name, number)
        for name, text in program["files"].items()
        for number, line in enumerate((HEAD + text).split("\n"), 1)
        if "# here" in line
    }
    assert (found, places) == (program["verdict"], marked)
