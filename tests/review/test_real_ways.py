"""Right code that reads like wrong code, and wrong code beside it: ways that real projects write, which were once misjudged.

Each program says after ``# ==`` what is to be found in it: the code, with ``?`` for a suspicion, or nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shardguide.code.review.engine import review
from shardguide.knowledge import rule_store

PROGRAMS = {
    part.partition("\n")[0].strip(): part.partition("\n")[2]
    for part in (Path(__file__).parent / "real_ways.txt").read_text(encoding="utf-8").split("#### ")[1:]
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_real_way(name: str, tmp_path: Path) -> None:
    text = PROGRAMS[name]
    wanted = sorted(
        (at, code)
        for at, line in enumerate(text.split("\n"), 1)
        if "# == " in line
        for code in line.partition("# == ")[2].split()
    )
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    result = review((str(tmp_path / "train.py"),), "2.13", frozenset(rule_store.codes()))
    assert not result.problems
    assert sorted((one.line, one.code + ("" if one.certain else "?")) for one in result.findings) == wanted
