"""FSDP1 programs trained before and after their migration: the same loss and gradient norm at every step, on every rank."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path
from types import SimpleNamespace

import pytest

from . import parity

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NAMES = sorted({program.name for program in parity.PROGRAMS})


@pytest.fixture(scope="module", autouse=True)
def imported():
    """What every program imports, once, before the forks; an optimizer imports torch._dynamo."""
    import torch._dynamo
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.fsdp
    import torch.distributed.tensor  # noqa: F401


@pytest.fixture(scope="module")
def migrated(tmp_path_factory):
    """Each program migrated once: where it lies, its texts, and what was said of it."""
    made: dict[str, SimpleNamespace] = {}

    def get(name: str) -> SimpleNamespace:
        if name not in made:
            texts, result = parity.migrate(parity.source(name))
            where = parity.place(name, tmp_path_factory.mktemp(name), texts)
            made[name] = SimpleNamespace(where=where, texts=texts, result=result)
        return made[name]

    return get


@pytest.mark.parametrize("program", parity.PROGRAMS, ids=lambda program: program.id)
def test_same_training(program: parity.Program, migrated) -> None:
    before = parity.train(parity.source(program.name), program.argv, program.world)
    after = parity.train(migrated(program.name).where, program.argv, program.world)
    assert before[0] != before[1]  # each rank has its own data, or its own part of it
    assert len({tuple(norm for _, norm in rank) for rank in before}) == 1  # and one norm for all
    assert parity.difference(before, after) <= program.tolerance


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_FSDP1_is_left(name: str, migrated) -> None:
    texts = migrated(name).texts
    assert texts
    for path, text in texts.items():
        compile(text, path, "exec")
        assert ("FullyShardedDataParallel" in text) == (name in parity.KEPT) and "StateDictType" not in text
    assert not [use for use in migrated(name).result.uses if use.status == "left"]


def comments(text: str) -> list[str]:
    return [one.string for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type == tokenize.COMMENT]


@pytest.mark.parametrize("name", NAMES)
def test_comments_stay(name: str, migrated) -> None:
    for path, text in migrated(name).texts.items():
        left = comments(text)
        assert [one for one in comments(Path(path).read_text()) if one not in left] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_second_migration_changes_nothing(name: str, migrated) -> None:
    texts, _ = parity.migrate(migrated(name).where)
    assert texts == {}


@pytest.mark.parametrize("name", NAMES)
def test_review_finds_nothing(name: str, migrated) -> None:
    before = findings(parity.source(name))
    assert {code for code, _ in before} == parity.SAID.get(name, set())
    assert findings(migrated(name).where) == []


def findings(where: Path) -> list[tuple[str, int]]:
    from shardguide.code.review.engine import review
    from shardguide.knowledge import rule_store

    result = review((str(where),), parity.RELEASE, frozenset(rule_store.codes()))
    assert not result.problems
    return [(one.code, one.line) for one in result.findings]


@pytest.mark.parametrize("program", parity.REFUSED, ids=lambda program: program.id)
def test_refused(program: parity.Program) -> None:
    """It trains, but there is nothing in FSDP2 that does the same: no change at all, and a reason at the call."""
    assert parity.train(parity.source(program.name), program.argv, program.world)
    texts, result = parity.migrate(parity.source(program.name))
    assert texts == {}
    left = [use for use in result.uses if use.status == "left"]
    assert left and all(use.reason for use in left) and result.todos


def halves(where: Path, folder: Path, first: int = 3) -> tuple[parity.World, parity.World]:
    """Steps before a checkpoint and steps of a new start that reads it."""
    saved = parity.train(where, ("--steps", str(first), "--save", str(folder)))
    return saved, resumed(where, folder, first)


def resumed(where: Path, folder: Path, first: int = 3) -> parity.World:
    return parity.train(where, ("--first", str(first), "--steps", "3", "--resume", str(folder)))


@pytest.mark.parametrize("name", parity.RESUMED)
def test_a_checkpoint_is_resumed(name: str, migrated, tmp_path) -> None:
    """Before and after: a run of six steps, and one that is interrupted after three, are the same."""
    for form, where in (("before", parity.source(name)), ("after", migrated(name).where)):
        (tmp_path / form).mkdir()
        whole = parity.train(where, ("--steps", "6"))
        first, second = halves(where, tmp_path / form)
        joined = [one + two for one, two in zip(first, second)]
        assert parity.difference(whole, joined) <= 1e-6, form


@pytest.mark.parametrize("name", parity.RESUMED)
def test_a_checkpoint_of_FSDP1_is_read(name: str, migrated, tmp_path) -> None:
    """What the program saved before its migration is read by the migrated one."""
    _, wanted = halves(parity.source(name), tmp_path)
    assert parity.difference(wanted, resumed(migrated(name).where, tmp_path)) <= 1e-6
