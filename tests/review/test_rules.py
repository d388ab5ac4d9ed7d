"""Each rule's wrong example yields its code at the marked lines and nothing else; each right example yields nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardguide.code.review.engine import review
from shardguide.knowledge import releases, rule_store

CODES = rule_store.codes()


def found(text: str, rule: rule_store.Rule, tmp_path) -> list[tuple[int, str]]:
    path = tmp_path / rule.file
    path.write_text(text)
    for name, other in rule.beside.items():
        (tmp_path / name).write_text(other)
    release = rule.torch or ("" if not rule.releases else rule.releases.split("-")[0])
    result = review((str(path), *(str(tmp_path / name) for name in rule.beside)), release, frozenset(CODES))
    assert not result.problems
    return [(finding.line, finding.code) for finding in result.findings]


@pytest.mark.parametrize("code", CODES)
def test_wrong_example(code: str, tmp_path) -> None:
    rule = rule_store.get(code)
    marked = [(at, line.rpartition("# ")[2]) for at, line in enumerate(rule.wrong.split("\n"), 1) if "  # FSD" in line]
    assert marked and found(rule.wrong, rule, tmp_path) == marked


@pytest.mark.parametrize("code", CODES)
def test_right_example(code: str, tmp_path) -> None:
    rule = rule_store.get(code)
    assert found(rule.right, rule, tmp_path) == []


def test_releases_exist() -> None:
    for code in CODES:
        rule = rule_store.get(code)
        assert not rule.torch or releases.normalise(rule.torch) == rule.torch


def test_a_program_of_mistakes(tmp_path) -> None:
    """Mistakes spread over functions, methods and helpers of one program."""
    text = (Path(__file__).parent / "program.txt").read_text()
    (tmp_path / "train.py").write_text(text)
    marked = [(at, line.rpartition("# ")[2]) for at, line in enumerate(text.split("\n"), 1) if "  # FSD" in line]
    result = review((str(tmp_path / "train.py"),), "2.13", frozenset(CODES))
    assert [(finding.line, finding.code) for finding in result.findings] == marked and len(marked) == 19


def test_the_shipped_rules_are_those_of_the_files() -> None:
    """As ``scripts/build_rules.py`` would write them."""
    folder = Path(rule_store.__file__).parent / "rules"
    assert sorted(path.stem for path in folder.glob("*.toml")) == CODES
    for code in CODES:
        text = (folder / f"{code}.toml").read_text(encoding="utf-8")
        assert rule_store.get(code).wrong in text and rule_store.get(code).right in text
