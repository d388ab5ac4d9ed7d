"""Logs of runs that ended well: no diagnosis, whatever words stand in them.

``made-*``: real training, run by healthy/make.py; ``words-*``: synthetic, with words that failures have as well; ``public-*``: from
public pages of runs that ended well, see healthy/sources.toml.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shardguide.workflows.diagnose import DiagnoseRequest, diagnose

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")

HERE = Path(__file__).parent / "healthy"
LOGS = sorted(HERE.glob("*.log"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_no_diagnosis(path: Path) -> None:
    extra = diagnose(DiagnoseRequest((str(path),), torch="2.13")).extra
    assert (extra["outcome"], extra["diagnoses"]) == ("no_failure", [])


def test_all_together() -> None:
    extra = diagnose(DiagnoseRequest((str(HERE),), torch="2.13")).extra
    assert (extra["outcome"], extra["diagnoses"]) == ("no_failure", [])


def test_there_are_enough_of_each_kind() -> None:
    kinds = [path.stem.partition("-")[0] for path in LOGS]
    assert len(LOGS) >= 60
    assert kinds.count("words") >= 20
    assert kinds.count("public") >= 20
    assert kinds.count("made") >= 17
    assert {path.name for path in LOGS if path.stem.startswith("public")} == set(
        tomllib.loads((HERE / "sources.toml").read_text(encoding="utf-8"))
    )
