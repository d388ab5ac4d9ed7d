"""Every failure of tests/diagnose/failures, as its logs were kept, and 25 logs from elsewhere: the planted cause first, the right ranks.

The key of a program stands in its head, that of the other logs in expected.toml (written from reading them). Making the logs again
runs the programs for real (``python tests/diagnose/regenerate.py``); a sample is made again in the slow test.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomllib

from shardguide.workflows.diagnose import DiagnoseRequest, diagnose
from tests.diagnose import launch, regenerate

HERE = Path(__file__).parent
LOGS = HERE / "logs"


class Key(NamedTuple):
    """What a diagnosis of these logs must say first."""

    path: Path
    expect: str
    ranks: list[int] | str  # "any": every rank fails alike, those whose lines are shown may be named
    world: int
    line: int  # of the planted fault in the program, 0 where no log shows it


def keys() -> dict[str, Key]:
    """All fixtures."""
    found = {}
    for name, path in regenerate.programs().items():
        one = launch.Program(path)
        found[name] = Key(LOGS / name, one.about["expect"], one.about["ranks"], one.world, one.line)
    for name, key in tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8")).items():
        path = LOGS / "reproduced" / f"{name}.log"
        found[name] = Key(path if path.is_file() else path.with_suffix(""), key["expect"], key["ranks"], 2, 0)
    return found


KEYS = keys()


def told(key: Key, **more: Any) -> dict[str, Any]:
    """The first diagnosis, and the outcome."""
    record = diagnose(DiagnoseRequest((str(key.path),), torch="2.13", **more))
    first = record.extra["diagnoses"][0] if record.extra["diagnoses"] else {"id": "", "ranks": [], "place": ""}
    return {**first, "outcome": record.extra["outcome"]}


@pytest.mark.parametrize("name", KEYS)
def test_the_planted_cause_comes_first_with_its_ranks(name: str) -> None:
    key = KEYS[name]
    found = told(key)
    assert (found["outcome"], found["id"]) == ("diagnosed", key.expect)
    if key.ranks == "any":
        assert found["ranks"], "no rank is named"
        assert set(found["ranks"]) <= set(range(key.world))
    else:
        assert found["ranks"] == key.ranks
    if key.line:
        assert re.match(rf"{launch.TRAIN}/{name}\.py:{key.line}\b", found["place"])


def test_there_are_enough_of_many_kinds() -> None:
    programs = [launch.Program(path) for path in regenerate.programs().values()]
    assert len(programs) >= 60
    assert {one.layout for one in programs} == {"torchrun", "folder", "files", "srun", "plain", "launch"}
    assert {one.world for one in programs} >= {2, 3, 4, 5, 8}
    assert len({one.about["expect"] for one in programs}) >= 50


def test_the_logs_are_of_no_machine_and_small() -> None:
    files = [path for path in LOGS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 3_000_000
    for path in files:
        text = path.read_bytes()
        assert b"/work/" not in text and b"/tmp/" not in text and b".pyenv" not in text and b"/root" not in text, path
        assert b"/opt/harness" not in text, path


@pytest.mark.parametrize("name", ["raise_loop", "rank0_barrier", "fsdp2_tied", "fr_missing"])
def test_code_points_at_the_line_of_the_script(name: str) -> None:
    script = HERE / "failures" / f"{name}.py"
    found = told(KEYS[name], code=(str(script),))
    line = script.read_text(encoding="utf-8").splitlines()[KEYS[name].line - 1].strip()
    assert found["place"].startswith(f"{script}:{KEYS[name].line} ")
    assert any(one["file"] == str(script) and one["text"].startswith(line) for one in found["evidence"])


def test_code_says_under_which_condition_a_call_stands() -> None:
    found = told(KEYS["rank0_barrier"], code=(str(HERE / "failures" / "rank0_barrier.py"),))
    assert any("under if dist.get_rank() == 0" in one["text"] for one in found["evidence"])


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "kill_sigkill",
        "raise_srun",
        "rank0_barrier",
        "detail_op",
        "ddp_unused",
        "fsdp2_tied",
        "dcp_missing_key",
        "fr_missing",
    ],
)
def test_made_again_the_logs_show_the_same(name: str, tmp_path: Path) -> None:
    """The program fails in the same way today, and the diagnosis of the new logs is the same."""
    done = launch.in_new_process(["tests/diagnose/regenerate.py", name, "--to", str(tmp_path)], HERE.parent.parent)
    assert done.returncode == 0, done.stderr
    again = KEYS[name]._replace(path=tmp_path / name)
    found = told(again)
    assert (found["outcome"], found["id"]) == ("diagnosed", again.expect)
    if again.ranks != "any":
        assert found["ranks"] == again.ranks
