"""The rules on FSDP, over programs in other words than their examples: classes, helpers, loops, other ways to write the same mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardguide.code.review.engine import review
from shardguide.knowledge import rule_store

PARTS = (Path(__file__).parent / "variants_fsdp.txt").read_text(encoding="utf-8").split("---- ")[1:]
HEAD = PARTS[0].partition("\n")[2]
CASES = [part.partition("\n")[::2] for part in PARTS[1:]]


@pytest.mark.parametrize(("codes", "text"), CASES, ids=[f"{i}-{codes}" for i, (codes, _) in enumerate(CASES)])
def test_variant(codes: str, text: str, tmp_path) -> None:
    (tmp_path / "train.py").write_text(f"{HEAD}\n{text}")
    result = review((str(tmp_path / "train.py"),), "2.13", frozenset(rule_store.codes()))
    found = {finding.code for finding in result.findings}
    assert not result.problems
    if codes == "none":
        assert not found
    else:
        assert not found.isdisjoint(codes.split("|"))
