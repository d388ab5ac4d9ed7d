"""Who reads the files changes nothing in the answer, and starting readers opens no door in the guard."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shardguide.frontends.cli import engines
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.serialise import to_dict
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose
from shardguide.workflows.diagnose.reading import dumps, logs, mapped
from tests.diagnose.job import dump, write_job

RANKS = 48
CULPRIT = 21


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log and a dump of every rank; one rank misses a collective, and one dump is cut off."""
    folder = tmp_path_factory.mktemp("job")
    write_job(folder, RANKS, CULPRIT)
    return folder


def record(job: Path, executor: Executor | None) -> dict[str, Any]:
    return to_dict(diagnose(DiagnoseRequest((str(job),), torch="2.13"), executor))


@pytest.fixture(scope="module")
def expected(job: Path) -> dict[str, Any]:
    found = record(job, None)
    assert found["diagnoses"][0]["id"] == "fr_rank_missing"
    assert found["diagnoses"][0]["ranks"] == [CULPRIT]
    assert any("nccl_trace_rank_5 is damaged or cut off" in one for one in found["not_done"])
    return found


def test_threads(job: Path, expected: dict[str, Any]) -> None:
    with ThreadPoolExecutor(4) as executor:
        assert record(job, executor) == expected


def test_processes(job: Path, expected: dict[str, Any]) -> None:
    with ProcessPoolExecutor(2) as executor:
        assert record(job, executor) == expected


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A real Dask cluster on this machine: a scheduler and two worker processes."""
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("Dask is not installed: pip install 'shardguide[dask]'")
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made, Client(made) as client:
        yield client


def test_dask(job: Path, expected: dict[str, Any], cluster: Any) -> None:
    assert set(cluster.run(os.getpid).values()).isdisjoint({os.getpid()})  # processes of their own
    assert record(job, cluster.get_executor()) == expected


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shardguide", "diagnose", *options, "--torch", "2.13", "--no-input", "--json"]
    notebook = tempfile.mkdtemp(
        dir=folder.parent
    )  # a new one: the record of an earlier run is no part of what is compared
    command += ["--notebook", f"{notebook}/notebook.db"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("spec", ["serial", "auto", "thread", "thread:3", "process", "process:2"])
def test_command_line(spec: str, job: Path) -> None:
    done = run(job, ".", "--executor", spec)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    first = json.loads(done.stdout)["diagnoses"][0]
    assert (first["id"], first["ranks"]) == ("fr_rank_missing", [CULPRIT])


def test_command_line_gives_the_same_bytes(job: Path) -> None:
    assert run(job, ".", "--executor", "serial").stdout == run(job, ".", "--executor", "process:2").stdout


def test_command_line_dask(job: Path) -> None:
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("Dask is not installed: pip install 'shardguide[dask]'")
    done = run(job, ".", "--executor", "dask")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["diagnoses"][0]["ranks"] == [CULPRIT]


@pytest.mark.slow
def test_command_line_dask_address(job: Path, cluster: Any) -> None:
    done = run(job, ".", "--executor", f"dask:{cluster.scheduler.address}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["diagnoses"][0]["ranks"] == [CULPRIT]


@pytest.mark.slow
def test_command_line_ray(job: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'shardguide[ray]'")
    done = run(job, ".", "--executor", "ray")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["diagnoses"][0]["ranks"] == [CULPRIT]


@pytest.mark.parametrize(
    "spec",
    ["", "processes", "process:0", "process:x", "process:99999", "thread:-1", "serial:2", "auto:3", "dask:nowhere://x"],
)
def test_bad_specifications(spec: str, job: Path) -> None:
    if spec.startswith("dask") and importlib.util.find_spec("distributed") is None:
        pytest.skip("Dask is not installed: pip install 'shardguide[dask]'")
    done = run(job, ".", "--executor", spec)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1


def test_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UnusableInput, match=r"pip install '\.\[dask\]'"):
        engines.start("dask", [])


def test_when_processes_pay(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(engines.PAYS // 2 + 1)
    assert engines.pays([str(tmp_path)])
    assert engines.pays([str(tmp_path / "a"), str(tmp_path / "b")])
    assert not engines.pays([str(tmp_path / "a")])
    (tmp_path / "b").write_bytes(b"")
    assert not engines.pays([str(tmp_path), "-", "no such file", "\x00"])


class Counting(Executor):
    """Runs at once and counts how many results nobody has taken yet."""

    def __init__(self) -> None:
        self.open = self.most = self.tasks = 0

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Any:
        from concurrent.futures import Future

        self.open += 1
        self.tasks += 1
        self.most = max(self.most, self.open)
        counting = self

        class Taken(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                counting.open -= 1
                return function(*arguments, **named)

        return Taken()


def test_results_do_not_pile_up() -> None:
    executor = Counting()
    paths = [str(at) for at in range(10_240)]
    assert list(mapped(lambda some: list(some), paths, executor)) == paths
    assert executor.tasks >= 256
    assert executor.most <= 64


def test_summaries_travel(job: Path) -> None:
    """What goes between processes is small beside what was read, and comes back equal."""
    for path in (job / "nccl_trace_rank_3", job / "rank3.log"):
        (one,) = (dumps if "trace" in path.name else logs)([str(path)])
        packed = pickle.dumps(one)
        assert pickle.loads(packed) == one  # noqa: S301 - made here
        assert len(packed) < max(4096, path.stat().st_size)


def test_a_process_that_dies_is_one_sentence(job: Path) -> None:
    with ProcessPoolExecutor(1) as executor, pytest.raises(UnusableInput, match="a process that was reading ended"):
        list(mapped(_die, ["a", "b"], executor))


def _die(paths: Any) -> Any:
    os._exit(9)


GUARDED = """
import os, pickle, sys, subprocess
from shardguide import guard
from shardguide.frontends.cli import engines, workers
from shardguide.workflows.diagnose import reading
folder = sys.argv[1]
pool = engines.start("process:2", [folder])
guard.install()
guard.permit("results")
def stopped(action, *args):
    try: action(*args)
    except guard.GuardViolation: return True
    except BaseException as error: return type(error).__name__
    return False
paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if "trace" in name][:4]
print("reads", all(isinstance(one, reading.Dump) for one in reading.mapped(reading.dumps, paths, pool)))
print("system", stopped(os.system, "true"))
print("fork", stopped(os.fork))
print("popen", stopped(subprocess.Popen, ["true"]))
print("kill", stopped(os.kill, os.getppid(), 0))
import socket
print("socket", stopped(socket.socket))
class Evil:
    def __init__(self, what): self.what = what
    def __reduce__(self): return self.what
for what in ((os.system, ("true",)), (eval, ("1",)), (getattr, (1, "real")), (workers.processes, (1,)), (engines.start, ("serial", []))):
    print("pickle", what[0].__name__, stopped(pickle.loads, pickle.dumps(Evil(what))))
"""
# The same in a worker: the functions below are ours to send only because the test adds itself to the table before forking.
WORKER = """
from shardguide.guard import hook
hook.RECORDS = {**hook.RECORDS, "__main__": {"inside"}}
import os, subprocess, socket, sys
from shardguide import guard
from shardguide.frontends.cli import engines
def inside():
    out = []
    for action, args in ((os.system, ("true",)), (os.fork, ()), (subprocess.Popen, (["true"],)), (socket.socket, ()), (open, ("x", "w")), (__import__, ("torch",))):
        try: action(*args)
        except guard.GuardViolation: out.append(True)
        except BaseException as error: out.append(type(error).__name__)
        else: out.append(False)
    return [guard.installed(), *out]
pool = engines.start("process:1", [])
guard.install(); guard.permit("results")
print(pool.submit(inside).result())
"""


def program(text: str, job: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), str(job)], cwd=job, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_guard_refuses_everything_else_while_processes_read(job: Path) -> None:
    lines = program(GUARDED, job).splitlines()
    assert lines[0] == "reads True"
    assert len(lines) == 11 and all(line.endswith(" True") for line in lines), lines


def test_guard_is_on_in_the_workers(job: Path) -> None:
    assert program(WORKER, job).strip() == str([True] * 7)


SPAWNED = """
import sys
if __name__ == "__main__":
    import multiprocessing
    real = multiprocessing.get_context
    multiprocessing.get_context = lambda name=None: real("spawn" if name == "fork" else name)
    from shardguide.frontends.cli.main import main
    sys.exit(main(["diagnose", sys.argv[1], "--torch", "2.13", "--no-input", "--json", "--executor", "process:2", "--notebook", sys.argv[2]]))
"""


def test_spawned_processes(job: Path, tmp_path: Path) -> None:
    """As on macOS, where forking is not safe."""
    (tmp_path / "spawned.py").write_text(SPAWNED)
    command = [sys.executable, str(tmp_path / "spawned.py"), ".", str(tmp_path / "n.db")]
    done = subprocess.run(command, cwd=job, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run(job, ".", "--executor", "serial").stdout


def stat(process: int | str) -> tuple[str, int]:
    """State and parent; ("Z", 0) where there is no such process."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "Z", 0
    return fields[0], int(fields[1])


def runs(process: int) -> bool:
    """Whether it is there, and not only waits for somebody to ask how it ended."""
    return stat(process)[0] != "Z"


def children(of: int) -> list[int]:
    found = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    return [int(name) for name in found if stat(name)[1] == of and runs(int(name))]


def has_open(process: int, folder: Path) -> bool:
    """Whether it has a file of the folder open."""
    try:
        return any(str(one.readlink()).startswith(f"{folder}/") for one in Path(f"/proc/{process}/fd").iterdir())
    except OSError:
        return False


def test_ctrl_c_is_quiet(tmp_path: Path) -> None:
    """Status 130, no traceback of any process, and nothing that goes on."""
    import signal
    import time

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to see what a process does")
    for name in ("a.log", "b.log"):
        with (tmp_path / name).open("wb") as file:
            for _ in range(40):
                file.write(b"step 1 ERROR loss 2\n" * 500_000)
    command = [
        sys.executable,
        "-m",
        "shardguide",
        "diagnose",
        ".",
        "--executor",
        "process:2",
        "--notebook",
        str(tmp_path.parent / "n.db"),
    ]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A suite that runs in the background ignores Ctrl-C, and what it starts would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until = time.monotonic() + 60
    while len([one for one in children(process.pid) if has_open(one, tmp_path)]) < 2:
        assert process.poll() is None and time.monotonic() < until, "both workers never read at the same time"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=120) == (b"", b"")
    assert process.returncode == 130
    with pytest.raises(ProcessLookupError):
        for _ in range(600):
            os.killpg(process.pid, 0)
            time.sleep(0.1)


def test_nothing_is_left_running(job: Path) -> None:
    """Workers end with the command, also when it is killed."""
    import signal
    import time

    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc to see processes")
    text = "import sys, time; from shardguide.frontends.cli import engines; p = engines.start('process:2', []); print('up', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    workers = children(process.pid)
    assert len(workers) == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 60
    while time.monotonic() < until and any(map(runs, workers)):
        time.sleep(0.2)
    assert not list(filter(runs, workers))


def test_the_helper_is_what_torch_writes() -> None:
    """The dumps of these tests have the keys of a dump of PyTorch 2.13 (tests/diagnose/logs or failures hold real ones)."""
    content = pickle.loads(dump(0, 4, 1))  # noqa: S301 - made here
    assert set(content) == {"version", "pg_config", "comm_lib_version", "pg_status", "entries"}
