"""The command as a user runs it: a process of its own, with a notebook of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FULL = [
    "plan", str(ROOT / "examples" / "llama-3.1-8b"), "--gpus", "16", "--nodes", "2", "--gpu", "H100 SXM 80GB", "--intra", "nvlink",
    "--inter", "infiniband", "--optimizer", "adamw", "--param-dtype", "float32", "--torch", "2.13",
]  # fmt: skip


class Ran(NamedTuple):
    """What a call gave."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shardguide:
    """Calls the command in a folder, with its own notebook."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "SHARDGUIDE_HOME": str(folder / "state"), "LC_ALL": "C.UTF-8",
        }  # fmt: skip

    def __call__(self, *arguments: str, stdin: str | None = None) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "shardguide", *arguments],
            cwd=self.folder, env=self.env, input=stdin if stdin is not None else "", capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def shardguide(tmp_path: Path) -> Shardguide:
    (tmp_path / "project").mkdir()
    return Shardguide(tmp_path / "project")
