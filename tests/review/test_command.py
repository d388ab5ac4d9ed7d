"""``shardguide review`` as a command: status, text, JSON, selection."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

WRONG = "import datetime, torch.distributed as dist\n\ndist.init_process_group('gloo', timeout=60)\n"


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shardguide", "review", *arguments, "--notebook", str(tmp_path / "n.db")]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)


def test_findings_are_status_1_and_nothing_is_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WRONG + "open('made', 'w')\nimport os\nos.abort()\n")
    ran = run(tmp_path, "train.py", "--torch", "2.13")
    assert ran.returncode == 1 and not (tmp_path / "made").exists()
    assert "train.py:3:41: FSD111" in ran.stdout and ran.stderr == ""


def test_json_and_diff(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WRONG)
    record = json.loads(run(tmp_path, "train.py", "--torch", "2.13", "--json").stdout)
    (found,) = record["findings"]
    assert (found["rule"], found["line"], found["column"]) == ("FSD111", 3, 41)
    assert set(found["sources"]) <= {source["id"] for source in record["sources"]} and found["sources"]
    assert (
        "+dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=60))"
        in run(tmp_path, "train.py", "--torch", "2.13", "--diff").stdout
    )


def test_select_and_ignore(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WRONG)
    for options, status in ((["--select", "FSD1"], 1), (["--select", "FSD2"], 0), (["--ignore", "fsd111"], 0)):
        assert run(tmp_path, "train.py", "--torch", "2.13", *options).returncode == status


def test_unusable(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("import torch\nprint 'x'\n")
    ran = run(tmp_path, "old.py", "--torch", "2.13")
    assert ran.returncode == 2 and "old.py:2: not valid Python 3" in ran.stdout
    assert run(tmp_path).returncode == 2 and run(tmp_path, "none.py").returncode == 2
