"""Make the logs of tests/diagnose/logs again, by running the programs of tests/diagnose/failures.

    python tests/diagnose/regenerate.py [ID…] [--to FOLDER]

Needs PyTorch 2.13.0 (CPU). What differs from run to run (process ids, ports, times, addresses, folders) is written as stable
values; the order in which ranks fail and print is not ours to fix, so a log made again may differ in its order.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import socket
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))

from tests.diagnose import launch  # noqa: E402

DAY = 1_767_607_200  # 2026-01-05 10:00:00 UTC
_GLOG = re.compile(
    r"(?P<level>\[?[IWEF])(?P<date>\d{4}) (?P<time>\d\d:\d\d:\d\d)\.(?P<rest>\d+)(?: (?P<pid>\d+))?(?= )"
)
_ROW = re.compile(r"(?P<head>time +: )(?P<day>\d{4}-\d\d-\d\d)_(?P<time>\d\d:\d\d:\d\d)")


def programs() -> dict[str, Path]:
    """All programs by their id."""
    return {path.stem: path for path in sorted((HERE / "failures").glob("*.py")) if path.stem != "__init__"}


class Scrub:
    """Stable values for what differs from run to run: the first of a kind that comes up is always the same."""

    def __init__(self, work: Path) -> None:
        site = sysconfig.get_paths()["purelib"]
        standard = sysconfig.get_paths()["stdlib"]
        here = str(Path(launch.__file__).parent)
        self.texts = [
            (str(work) + ".work", f"{launch.TRAIN}/run"),
            (str(work), f"{launch.TRAIN}/logs"),
            (site, "/opt/venv/lib/python3.11/site-packages"),
            (standard, "/usr/lib/python3.11"),
            (sys.executable, launch.PYTHON),
            (here, "/opt/harness"),
        ]
        self.hosts = re.compile(rf"\b{re.escape(socket.gethostname())}\b(?=[:)\]\s,])")
        self.known: dict[tuple[str, str], str] = {}

    def text(self, text: str, times: list[str]) -> str:
        """A log. ``times`` are all times of the case, sorted."""
        for found, put in self.texts:
            text = text.replace(found, put)
        text = re.sub(r"(?m)^([IWEF]\d{4} .*? \d+ )\S*site-packages/torch/", r"\1torch/", text)
        text = self.hosts.sub("node0", text)
        at = {time: index for index, time in enumerate(times)}

        def glog(found: re.Match[str]) -> str:
            pid = f" {self._id('pid', found['pid'], 4000)}" if found["pid"] else ""
            rest = found["rest"]
            stamp = _clock(at[found["time"] + "." + rest])
            digits = rest[-3:] if len(rest) == 9 else "000"
            return f"{found['level']}0105 {stamp}.{'000' + digits if found['pid'] else '000000000'}{pid}"

        text = _GLOG.sub(glog, text)
        seconds = sorted({one[:8] for one in times})
        text = _ROW.sub(
            lambda found: f"{found['head']}2026-01-05_{_clock(_second(found['time'], seconds, times))}", text
        )
        text = re.sub(
            r"(?i)(\bpid:? |\bprocess |\bpid\(s\) |\bPID\t|-- )(\d{3,7})\b",
            lambda m: m[1] + self._id("pid", m[2], 4000),
            text,
        )
        text = re.sub(r"(?<=\]:)(\d{4,5})\b(?!-)", lambda m: self._id("port", m[1], 40000), text)
        text = re.sub(
            r"((?:127\.0\.0\.1|localhost|node0)[:,] )(\d{4,5})\b", lambda m: m[1] + self._id("port", m[2], 40000), text
        )
        text = re.sub(r"(?<=127\.0\.0\.1:)(\d{4,5})\b", lambda m: self._id("port", m[1], 40000), text)
        text = re.sub(r"(?<=localhost:)(\d{4,5})\b", lambda m: self._id("port", m[1], 40000), text)
        text = re.sub(r"(?<=port: )(\d{4,5})\b", lambda m: self._id("port", m[1], 40000), text)
        text = re.sub(r"\b0x[0-9a-f]{6,16}\b", lambda m: f"0x7f{int(self._id('address', m[0], 0)):010x}", text)
        text = re.sub(
            r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
            "3f2c7b1e-0000-4000-8000-000000000001",
            text,
        )
        text = re.sub(r"torchelastic_\w+", "torchelastic_a1b2c3d4", text)
        text = re.sub(r"(?<=/none_)\w{8}|(?<=-4000-8000-000000000001_)\w{8}", "a1b2c3d4", text)
        text = re.sub(r"(after|waited for|for) \d+\.\d{3,}(?= ?s)", r"\1 30.000", text)
        return re.sub(r"\b\d+\.\d{6,} (?=seconds)", "30.000000 ", text)

    def _id(self, kind: str, value: str, first: int) -> str:
        key = (kind, value)
        if key not in self.known:
            self.known[key] = str(first + 1 + sum(one[0] == kind for one in self.known))
        return self.known[key]


def _clock(index: int) -> str:
    return f"10:{index // 60:02d}:{index % 60:02d}"


def _second(clock: str, seconds: list[str], times: list[str]) -> int:
    """Where a time of the table (whole seconds) stands among those of the log: behind the last of the same or an earlier second."""
    return max((index for index, one in enumerate(times) if one[:8] <= clock), default=0)


def scrub(folder: Path, target: Path) -> None:
    """Everything in ``folder`` with stable values, to ``target``."""
    rules = Scrub(folder)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    logs = {
        path: path.read_text(encoding="utf-8", errors="replace")
        for path in files
        if not path.name.startswith("fr_trace")
    }
    times = sorted({found["time"] + "." + found["rest"] for text in logs.values() for found in _GLOG.finditer(text)})
    dumps = {path: launch.load_dump(path) for path in files if path.name.startswith("fr_trace")}
    if target.exists():
        shutil.rmtree(target)
    for path, text in logs.items():
        to = target / rules.text(str(path.relative_to(folder)), times)
        to = Path(re.sub(r"[0-9a-f-]{36}_\w+|none_\w+", "job_a1b2c3d4", str(to)))
        if "error.json" in to.name:
            continue
        # Empty files are evidence as well: that rank said nothing.
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(rules.text(text, times), encoding="utf-8")
    moments = sorted({entry[name] for dump in dumps.values() for entry in dump["entries"] for name in _MOMENTS if isinstance(entry.get(name), int) and entry[name] > 1 << 40})  # fmt: skip
    order = {value: DAY * 10**9 + index * 10**6 for index, value in enumerate(moments)}
    for path, dump in dumps.items():
        plain = _plain(launch.without_harness(dump), rules, order)
        to = target / path.name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(json.dumps(plain).encode() if path.suffix == ".json" else pickle.dumps(plain, protocol=2))


_MOMENTS = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")


def _plain(value: Any, rules: Scrub, order: dict[int, int], key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _plain(one, rules, order, name) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(one, rules, order) for one in value)
    if isinstance(value, str):
        return "thread" if key == "thread_id" else rules.text(value, [])
    if isinstance(value, float) and key == "duration_ms":
        return 1.0
    if isinstance(value, int) and not isinstance(value, bool):
        return order.get(value, value)
    return value


def make(name: str, target: Path) -> None:
    """Run one program and keep what it left."""
    program = launch.Program(programs()[name])
    # Not TemporaryDirectory: a rank is a fork, and its exit handlers would remove the folder.
    temporary = Path(tempfile.mkdtemp()).resolve()
    try:
        # Which of two ranks connects to the other is Gloo's choice, by their addresses: some failures come every other time only.
        for number in range(program.about.get("again", 1)):
            folder = temporary / str(number) / "logs"
            launch.run(launch.Program(programs()[name]), folder)
            if any(path.stat().st_size for path in folder.rglob("*") if path.is_file()):
                break
        scrub(folder, target / name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """The programs named, or all."""
    import torch

    if not torch.__version__.startswith("2.13.0"):
        print(f"these logs are PyTorch 2.13.0's, this is {torch.__version__}", file=sys.stderr)
        return 1
    target = HERE / "logs"
    if "--to" in arguments:
        at = arguments.index("--to")
        target = Path(arguments[at + 1])
        del arguments[at : at + 2]
    preload()
    for name in arguments or programs():
        make(name, target)
        size = sum(path.stat().st_size for path in (target / name).rglob("*") if path.is_file())
        print(f"{name}: {size:,} bytes", flush=True)
    return 0


def preload() -> None:
    """Import once what the programs import, before anything is forked."""
    import torch.distributed.algorithms.join
    import torch.distributed.checkpoint
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.elastic.multiprocessing.errors
    import torch.distributed.fsdp
    import torch.distributed.launch
    import torch.distributed.run
    import torch.distributed.tensor
    import torch.nn.parallel
    import torch.utils.checkpoint
    import torch.utils.data

    os.environ.setdefault("LANG", "C.UTF-8")
    _ = torch.distributed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
