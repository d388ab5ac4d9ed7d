"""The example in README.md is what the demo's command prints today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_is_real_output() -> None:
    """``python scripts/readme_demo.py`` (make generate) renews it."""
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "readme_demo.py"), "--check"], check=False)
    assert done.returncode == 0, "README.md shows other output than the command gives; run make generate"
