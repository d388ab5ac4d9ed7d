"""How fast ``shardguide review`` reads code, beside TorchFix where it is installed, and what one file costs beside an empty Python.

    python benchmarks/review.py FOLDER [--torch 2.13] [--torchfix PYTHON] [--runs 3] [--least 22700]

FOLDER is any checked-out repository; the figures in README.md are for accelerate's sources. Every row is a fresh process, start-up
included, with all rules; lines per second are the lines of all Python files in the folder divided by user plus system time,
the least of the runs. The single file is the program of mistakes of the tests. Status 1 when a limit is exceeded.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from run import interpreter

TIMES = 8  # a single file, against a bare Python


def cost(command: list[str]) -> float:
    """CPU seconds of one process; its output goes nowhere. Status 1 is what linters end with when they find something."""
    silent = os.open(os.devnull, os.O_RDWR)
    files = [(os.POSIX_SPAWN_DUP2, silent, number) for number in (0, 1, 2)]
    pid = os.posix_spawn(command[0], command, dict(os.environ), file_actions=files)
    _, status, usage = os.wait4(pid, 0)
    os.close(silent)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with status {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime


def lines(folder: Path) -> tuple[int, int]:
    """Python files below a folder, and their lines."""
    paths = [path for path in folder.rglob("*.py") if not any(part.startswith(".") for part in path.parts)]
    return len(paths), sum(path.read_bytes().count(b"\n") for path in paths)


def example() -> str:
    """A training script with mistakes of every area."""
    return (Path(__file__).parent.parent / "tests" / "review" / "program.txt").read_text(encoding="utf-8")


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torch", default="2.13")
    parser.add_argument("--torchfix", metavar="PYTHON", help="interpreter of an environment that has TorchFix")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--least", type=int, default=22_700, help="lines per CPU second")
    arguments = parser.parse_args()
    python = interpreter()
    files, count = lines(arguments.folder)
    review = [python, "-m", "shardguide", "review", "--torch", arguments.torch, "--json"]
    with tempfile.TemporaryDirectory() as folder:
        one = Path(folder) / "train.py"
        one.write_text(example(), encoding="utf-8")
        os.environ["SHARDGUIDE_HOME"] = folder  # the notebook of these runs
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled once
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        cost([*review, str(one)])
        whole = min(cost([*review, str(arguments.folder)]) for _ in range(arguments.runs))
        bare = min(cost([python, "-c", "pass"]) for _ in range(10 * arguments.runs))
        single = min(cost([*review, str(one)]) for _ in range(10 * arguments.runs))
    print(f"{arguments.folder}: {files} files, {count:,} lines")
    rate = count / whole
    print(f"{'shardguide review':<22}{whole:>9.2f} s {rate:>10,.0f} lines/s   at least {arguments.least:,}")
    if arguments.torchfix:
        other = cost([arguments.torchfix, "-m", "torchfix", str(arguments.folder)])
        print(f"{'TorchFix':<22}{other:>9.2f} s {count / other:>10,.0f} lines/s   {other / whole:.0f}x")
    print(f"{'one file':<22}{single:>9.3f} s {single / bare:>9.2f}x a bare Python ({bare:.3f} s)   at most {TIMES}x")
    return 0 if rate >= arguments.least and single <= TIMES * bare else 1


if __name__ == "__main__":
    sys.exit(main())
