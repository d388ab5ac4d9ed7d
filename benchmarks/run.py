"""Whole-process CPU time and peak memory of Shardguide beside bare Python of the same environment.

    python benchmarks/run.py [--runs 20] [--deepspeed PYTHON]

Every line is a fresh process, run N times; the smallest CPU time (user + system, children included) and the largest
peak memory count. A ratio is the CPU time divided by that of `python -I -c pass`. Status 1 when a limit is exceeded.
"""

# Few imports: a process that is started inherits the peak memory of the one that starts it (see README.md).
from __future__ import annotations

import argparse
import os
import pty
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests" / "knowledge" / "family_cases" / "llama-3.1-405b.json"
PLAN = [
    "plan", str(MODEL), "--gpus", "16384", "--nodes", "2048", "--gpu", "H100 SXM 80GB", "--intra", "nvlink",
    "--inter", "infiniband", "--optimizer", "adamw", "--param-dtype", "float32", "--torch", "2.13", "--no-input",
]  # fmt: skip
LIMIT_MB = 80
DEEPSPEED_RUNS = 5  # it takes seconds
# The same model and cluster; the largest layer as its own model_to_params counts it, the embedding of 128,256 x 16,384.
ESTIMATE = """
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs_all_cold as estimate
estimate(total_params=405853388800, largest_layer_params=2101346304, num_gpus_per_node=8, num_nodes=2048)
"""


class Cost(NamedTuple):
    """Of one command, over several runs."""

    cpu: float  # seconds, the smallest
    memory: int  # bytes, the largest


def once(command: list[str], terminal: bool, env: dict[str, str]) -> tuple[float, int]:
    """CPU seconds and peak bytes of one process whose output is a pipe or a terminal, read to its end."""
    reading, writing = pty.openpty() if terminal else os.pipe()
    # On a terminal standard input is one too, as it is when somebody types the command.
    files = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_CLOSE, reading)]
    if terminal:
        files.insert(0, (os.POSIX_SPAWN_DUP2, writing, 0))
    pid = os.posix_spawn(command[0], command, env, file_actions=files)
    os.close(writing)
    while True:
        try:
            if not os.read(reading, 1 << 16):
                break
        except OSError:  # Linux's way of saying that a terminal's other side is closed
            break
    os.close(reading)
    _, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{' '.join(command)} ended with status {os.waitstatus_to_exitcode(status)}")
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes on macOS, KiB on Linux
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit


def measure(command: list[str], runs: int, terminal: bool = False) -> Cost:
    """The cheapest of several runs, after one that fills the caches."""
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "PYTHONDONTWRITEBYTECODE")}
    env |= {"TERM": "xterm-256color", "COLUMNS": "120"}
    once(command, terminal, env)
    found = [once(command, terminal, env) for _ in range(runs)]
    return Cost(min(cpu for cpu, _ in found), max(memory for _, memory in found))


def interpreter() -> str:
    """Return the Python of this environment. A version manager's shim is a script: its own cost would flatter every ratio."""
    if Path(sys.executable).read_bytes()[:2] == b"#!":
        raise SystemExit(f"{sys.executable} is a script that starts Python; run this with the interpreter itself.")
    return sys.executable


def line(name: str, cost: Cost, bare: Cost, limit: int = 0) -> bool:
    """Print one row; whether it keeps to its limits."""
    ratio = cost.cpu / bare.cpu
    good = not limit or (ratio <= limit and cost.memory <= LIMIT_MB * 10**6)
    allowed = f"at most {limit}x, {LIMIT_MB} MB" if limit else ""
    print(
        f"{name:<34}{1000 * cost.cpu:>9.1f}{ratio:>8.2f}x{cost.memory / 1e6:>10.1f}   {allowed}{'' if good else '  OVER'}"
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of every command (default 20)")
    parser.add_argument("--deepspeed", metavar="PYTHON", help="interpreter of an environment that has deepspeed")
    arguments = parser.parse_args()
    python = interpreter()
    script = Path(python).parent / "shardguide"  # what pip installs; it spares the search of python -m
    shardguide = [python, str(script)] if script.is_file() else [python, "-m", "shardguide"]
    print(f"Python {sys.version.split()[0]}, {os.path.realpath(python)}; shardguide is {' '.join(shardguide)}")
    print(f"{'minimum of ' + str(arguments.runs) + ' runs':<34}{'CPU ms':>9}{'ratio':>9}{'peak MB':>10}   limit")
    with tempfile.TemporaryDirectory() as folder:
        plan = [*shardguide, *PLAN, "--notebook", str(Path(folder) / "notebook.db")]
        bare = measure([python, "-I", "-c", "pass"], arguments.runs)
        line("python -I -c pass", bare, bare)
        good = [
            line("shardguide --help", measure([*shardguide, "--help"], arguments.runs), bare, 3),
            line("plan --json, 405B on 16,384 GPUs", measure([*plan, "--json"], arguments.runs), bare, 6),
            line("plan, to a pipe", measure(plan, arguments.runs), bare),
            line("plan, on a terminal with colour", measure(plan, arguments.runs, terminal=True), bare, 10),
        ]
    estimate(arguments.deepspeed or python, min(arguments.runs, DEEPSPEED_RUNS), bare)
    return 0 if all(good) else 1


def estimate(python: str, runs: int, bare: Cost) -> None:
    """The row of DeepSpeed's estimator, where it is installed."""
    command = [python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('deepspeed'))"]
    pid = os.posix_spawn(python, command, os.environ)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
        line(f"DeepSpeed's estimator ({runs} runs)", measure([python, "-c", ESTIMATE], runs), bare)
    else:
        print("DeepSpeed's estimator: not installed here; benchmarks/README.md says how to add it")


if __name__ == "__main__":
    sys.exit(main())
