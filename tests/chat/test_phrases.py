"""First contact: free words lead to the right workflow, with what they state filled in (``phrases.toml``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

from shardguide.workflows import catalogue
from shardguide.workflows.intake import understand

PHRASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "phrases.toml").read_text())["phrase"]
SEVERAL = ("goal", "with", "now")  # the words may state more of these than the phrase was written for


def stated(phrase: dict[str, Any], found: dict[str, Any]) -> bool:
    for name, value in phrase["states"].items():
        got = found.get(name)
        if name in SEVERAL:
            wanted, have = (set(one if isinstance(one, list) else str(one or "").split(",")) for one in (value, got))
            if not wanted <= have:
                return False
        elif got != value:
            return False
    return True


def test_ninety_five_of_a_hundred() -> None:
    """The right workflow, and all that was stated, for at least 95 % of the phrases of every kind together."""
    wrong = []
    for phrase in PHRASES:
        found = understand(phrase["words"])
        if found.tool != phrase["tool"] or not stated(phrase, found.arguments):
            wrong.append((phrase["words"], phrase["tool"], found.tool, found.arguments))
    assert len(PHRASES) >= 160
    assert len(wrong) <= 0.05 * len(PHRASES), wrong


def test_what_is_stated_is_what_the_workflow_takes() -> None:
    for phrase in PHRASES:
        found = understand(phrase["words"])
        assert set(found.arguments) <= set(catalogue.arguments_of(catalogue.TASKS[found.tool]))


def test_spelling_and_case_do_not_matter() -> None:
    """The same words in capitals, without marks and with more blanks lead to the same workflow."""
    differ = [
        phrase["words"]
        for phrase in PHRASES
        for words in (
            phrase["words"].upper(),
            f"  {phrase['words'].replace(' ', '   ')}  ",
            phrase["words"].rstrip("?.!"),
        )
        if "_" not in phrase["words"] and "Error" not in phrase["words"] and understand(words).tool != phrase["tool"]
    ]
    assert len(differ) <= 0.05 * 3 * len(PHRASES), differ
