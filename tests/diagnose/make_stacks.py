"""Make stacks/: real dumps of py-spy and faulthandler, of real Gloo processes that hang, each in another way.

    python tests/diagnose/make_stacks.py [CASE…]

Needs py-spy (0.4) beside this Python and leave to trace processes. The processes run stacks/train.py; paths of the machine that made
them are replaced.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

HERE = Path(__file__).parent / "stacks"
CASES = {
    "sleep": 3, "different": 3, "loader": 2, "loader_inline": 2, "saving": 3, "same": 4, "gil": 2, "compiling": 2, "fsdp2": 3, "ddp": 3,
    "debugger": 2, "wait": 2, "setup": 3, "ended": 3, "faulthandler": 3,
}  # fmt: skip
SETTLED = 6  # seconds until every process stands where it stays


def plain(text: str) -> str:
    """Without the paths of this machine."""
    for path, name in (
        (sysconfig.get_paths()["purelib"], "/opt/venv/lib/python3.11/site-packages"),
        (sys.prefix, "/opt/venv"),
        (sys.base_prefix, "/usr"),
        (str(HERE), "/home/user/run"),
    ):
        text = text.replace(path, name)
    return re.sub(r"(train\.py \w+) \S+", r"\1 out", text)


def made(case: str, ranks: int, port: int) -> None:
    """Start the processes of a case, dump them, and end them."""
    out = HERE / case
    out.mkdir(exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    command = [sys.executable, "train.py", case, str(out), str(ranks), str(port)]
    with subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        time.sleep(SETTLED)
        spy = Path(sys.executable).with_name("py-spy")
        for rank, pid in enumerate(pids):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            wanted = [(f"rank{rank}.txt", str(pid), [])]
            if case == "sleep":
                wanted += [(f"rank{rank}.json", str(pid), ["--json"]), (f"process{rank}.dump", str(pid), ["--locals"])]
            wanted += [(f"worker{rank}_{n}.txt", child, []) for n, child in enumerate(children)]
            for name, process, options in wanted if case != "faulthandler" else ():
                done = subprocess.run(
                    [spy, "dump", "--pid", process, *options], capture_output=True, text=True, check=False
                )
                (out / name).write_text(plain(done.stdout), encoding="utf-8")
            for child in children:
                os.kill(int(child), signal.SIGKILL)
        for pid in (*pids, parent.pid):
            os.kill(pid, signal.SIGKILL)
    for path in out.iterdir():
        if path.name.startswith("left"):
            path.unlink()
        elif case == "faulthandler":
            path.write_text(plain(path.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    for number, (name, count) in enumerate(CASES.items()):
        if not sys.argv[1:] or name in sys.argv[1:]:
            made(name, count, 29741 + number)
