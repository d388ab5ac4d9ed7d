"""Put the real output of ``make demo``'s command into README.md, or check that it is there (``--check``).

python scripts/readme_demo.py [--check]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(?s)(--torch 2\.13\n)(.*?)(```\n)")


def output() -> str:
    """What the demo's command prints, without a PyTorch at hand (so that no path of this machine is in it)."""
    with tempfile.TemporaryDirectory() as folder:
        # -S -E: no site-packages, and no ./.venv in this folder; hence no PyTorch, and the shipped index answers.
        shutil.copytree(ROOT / "examples", Path(folder) / "examples")
        program = "import sys; sys.path[:0] = [sys.argv.pop(1)]; from shardguide.frontends.cli.main import run; run()"
        arguments = [
            "plan", "examples/llama-3.1-8b", "--gpus", "16", "--nodes", "2", "--gpu", "H100 SXM 80GB", "--intra", "nvlink",
            "--inter", "infiniband", "--optimizer", "adamw", "--param-dtype", "float32", "--torch", "2.13", "--no-input",
            "--notebook", str(Path(folder) / "notebook.db"),
        ]  # fmt: skip
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "COLUMNS": "100"}
        command = [sys.executable, "-S", "-E", "-c", program, str(ROOT / "src"), *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def main() -> int:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    fresh = BLOCK.sub(lambda match: match[1] + output() + match[3], text, count=1)
    if "--check" in sys.argv:
        return 0 if fresh == text else 1
    readme.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
