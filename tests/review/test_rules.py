"""Each rule's wrong example yields its code at the marked lines and nothing else; each right example yields nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.join_check import programs

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
    for one in result.findings:  # every word of its message is filled in
        message = rule_store.get(one.code).message
        assert set(re.findall(r"{(\w+)}", message)) <= {word for word, _ in one.words}, (one.code, message)
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


# Mistakes that tests of other folders make for real.
ELSEWHERE = {
    "FSD603": "knowledge/test_witnesses_join.py::test_join_of_zero_before_ddp_hangs",
    "FSD604": "knowledge/test_witnesses_join.py::test_join_leaves_the_optimizer_behind",
    "FSD606": "knowledge/test_witnesses_join.py::test_join_of_ddp_and_zero_steps_with_old_gradients",
    "FSD607": "join_check/test_runs.py::test_without_its_constructor_a_joinable_works_inside_join_only",
    "FSD618": "join_check/test_runs.py::test_broken_variants",
}


def test_each_mistake_is_made_for_real_or_says_why_not() -> None:
    """By the code in the name of a test that runs it, by the table above, or by the rule's own reason."""
    here = Path(__file__).parent
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert f"def {name}(" in (here.parent / file).read_text()
    names = [
        name for file in here.glob("test_run*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)
    ]
    run = {code for name in names for code in re.findall(r"FSD\d{3}", name)} | set(ELSEWHERE)
    run |= {variant.code for variant in programs.VARIANTS if variant.runs}  # test_broken_variants
    why = {code for code in CODES if rule_store.get(code).not_run}
    assert run <= set(CODES) and not run & why
    assert set(CODES) - run - why == set()


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
