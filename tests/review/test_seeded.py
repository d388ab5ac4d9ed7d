"""A hundred mistakes put into correct programs: review finds nearly all of them, and nothing in the correct programs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))  # this folder is no package
from tests.migrate import parity  # noqa: E402


def load():
    spec = importlib.util.spec_from_file_location("seed_mistakes", ROOT / "scripts" / "seed_mistakes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load()


@pytest.fixture(scope="module")
def correct():
    return script.programs()


def expected(name: str) -> set[str]:
    """What review says, and rightly, of a program that is here for another reason."""
    kind, _, program = name.partition("/")
    refused = {one.name for one in parity.REFUSED}
    return parity.SAID.get(program, set()) if kind == "programs" or program in refused else set()


def test_correct_programs(correct) -> None:
    wrong = [
        (name, finding.code, finding.file, finding.line)
        for name, texts in correct.items()
        for finding in script.reviewed(texts)
        if finding.code not in expected(name)
    ]
    assert len(correct) > 60 and wrong == []


def test_seeded_mistakes(correct) -> None:
    mistakes = script.draw(100, 5, correct)
    assert len({one.what for one in mistakes}) >= 60
    missed = [f"{one.row} in {one.program}: {one.what}" for one in mistakes if not script.found(one)[0]]
    assert len(mistakes) == 100 and len(missed) <= 5, "\n".join(missed)


def test_the_table(correct) -> None:
    """Each kind is of its own, rests on rules that there are, and all forms of programs are used."""
    from shardguide.knowledge import rule_store

    kinds = script.kinds()
    assert len({kind["what"] for kind in kinds}) == len(kinds)
    forms = [name.partition("/")[0] for *_, name in script.places(correct)]
    assert min(forms.count("programs"), forms.count("migrated"), forms.count("seeds")) >= 25
    known = set(rule_store.codes())
    for kind in kinds:
        assert set(kind["codes"]) <= known, kind["row"]
