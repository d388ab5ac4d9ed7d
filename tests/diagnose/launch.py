"""Run a failing program as its user would, without starting an interpreter for every rank.

The process has imported torch. A rank is a fork of it that executes the program as ``__main__`` and ends as Python would:
the exception goes to ``sys.excepthook`` (which ``init_process_group`` replaces, so that lines get their ``[rank0]:``), exit
handlers run, the status is 1. torchrun is PyTorch's own agent in such a fork; only its ``Popen`` is replaced by one that forks.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import linecache
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tests.snippets.ports import free_port

TRAIN = "/home/user/train"  # where the programs stand, as far as their logs tell
TORCHRUN = "/opt/venv/bin/torchrun"
PYTHON = "/opt/venv/bin/python3"
_TORCHRUN_TEXT = """#!/opt/venv/bin/python3
# -*- coding: utf-8 -*-
import re
import sys
from torch.distributed.run import main
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit(main())
"""
_LAUNCH = "/opt/venv/lib/python3.11/site-packages/torch/distributed/launch.py"
_LAUNCH_TEXT = "from torch.distributed.launch import main\n" + "\n" * 205 + "main()\n"


class Program:
    """A program of tests/diagnose/failures and how it is run."""

    def __init__(self, path: Path) -> None:
        import tomllib

        self.name = path.stem
        self.text = path.read_text(encoding="utf-8")
        head = self.text.split("# ///\n")[0].partition("# /// failure\n")[2]
        self.about = tomllib.loads("".join(line.removeprefix("#").lstrip() + "\n" for line in head.splitlines()))
        self.world: int = self.about.get("world", 2)
        self.layout: str = self.about.get("layout", "torchrun")
        self.env: dict[str, str] = self.about.get("env", {})
        self.dump: float = self.about.get("dump", 0)
        marked = [number for number, line in enumerate(self.text.splitlines(), 1) if line.endswith("# planted")]
        self.line = marked[0] if marked else 0

    @property
    def shown(self) -> str:
        """Its path in the logs."""
        return f"{TRAIN}/{self.name}.py"


def environment(rank: int, world: int, port: int, program: Program) -> dict[str, str]:
    """What a launcher sets for a rank."""
    return {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR", "LANG")},
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        **program.env,
    }


def interpret(text: str, file: str, argv: list[str], env: dict[str, str]) -> NoReturn:
    """Execute a program as the interpreter does, in this process, and end it."""
    import torch.distributed as dist

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # torchrun's agent, where this is forked from it, has its own
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.disable()
    os.environ.clear()
    os.environ.update({"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **env})
    dist.set_debug_level_from_env()
    sys.argv = [file, *argv]
    main = types.ModuleType("__main__")
    main.__file__ = file
    sys.modules["__main__"] = main
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    # The interpreter's own hook opens the file, which is not there; this one writes the same and asks linecache.
    sys.excepthook = traceback.print_exception
    status = 0
    try:
        exec(compile(text, file, "exec"), main.__dict__)  # noqa: S102 (a program of this folder)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        error.__traceback__ = trace
        sys.excepthook(type(error), error, trace)
        status = 1
        if isinstance(error, KeyboardInterrupt):
            sys.stderr.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def fork(body: Callable[[], Any], out: int | None = None, err: int | None = None) -> int:
    """The id of a new process that runs ``body`` in a session of its own and ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        for target, given in ((1, out), (2, err)):
            if given is not None:
                os.dup2(given, target)
        # pytest and others may have put something else in their place.
        sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        socket.gethostname = lambda: "node0"
        socket.getfqdn = lambda name="": name if name and name != "node0" else "node0"
        body()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(99)


class Forked:
    """Stands for ``subprocess.Popen`` in torchrun's agent: forks instead of starting an interpreter."""

    program: Program
    dumps: Path

    def __init__(self, args: Any, env: dict[str, str], stdout: Any, stderr: Any, **_: Any) -> None:
        self.args = args
        self.returncode: int | None = None
        argv = [one for one in args[1:] if one != "-u"]
        program = self.program

        def body() -> None:
            dump_later(program, int(env["RANK"]), self.dumps)
            interpret(program.text, program.shown, argv[1:], {**env, **program.env})

        self.pid = fork(body, stdout.fileno() if stdout else None, stderr.fileno() if stderr else None)

    def poll(self) -> int | None:
        """Its status, once it has ended."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its status."""
        end = time.monotonic() + (timeout if timeout is not None else 1e9)
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            time.sleep(0.02)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """To the process."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """With SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """With SIGTERM."""
        self.send_signal(signal.SIGTERM)


def dump_later(program: Program, rank: int, folder: Path) -> None:
    """Write the Flight Recorder's dump of this rank after a while, when the job hangs, and end it."""
    if not program.dump:
        return
    os.environ["TORCH_FR_BUFFER_SIZE"] = program.env["TORCH_FR_BUFFER_SIZE"] = "2000"

    def write() -> None:
        import torch

        time.sleep(program.dump)
        recorder = torch._C._distributed_c10d
        if program.about.get("json"):
            (folder / f"fr_trace_{rank}.json").write_bytes(_bytes(recorder._dump_fr_trace_json()))
        else:
            (folder / f"fr_trace_{rank}").write_bytes(recorder._dump_fr_trace())
        time.sleep(2)  # the others are still there while the last one writes
        os._exit(0)

    threading.Thread(target=write, daemon=True).start()


def _bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data


def run(program: Program, folder: Path) -> None:
    """Run it and leave its logs (and dumps) in ``folder``, as they come."""
    folder.mkdir(parents=True, exist_ok=True)
    here = Path.cwd()
    os.chdir(folder)
    try:
        work = folder.parent / f"{folder.name}.work"  # checkpoints and the like, which are no logs
        work.mkdir(exist_ok=True)
        program.env = {**program.env, "WORK": str(work)}
        {"torchrun": _torchrun, "folder": _torchrun, "launch": _torchrun, "srun": _ranks, "files": _ranks, "plain": _plain}[
            program.layout
        ](program, folder)  # fmt: skip
    finally:
        os.chdir(here)


def _end(pids: list[int], limit: float) -> list[int | None]:
    """The statuses of the processes; those that take longer are killed."""
    end = time.monotonic() + limit
    left: dict[int, int | None] = dict.fromkeys(pids)
    while any(status is None for status in left.values()) and time.monotonic() < end:
        for pid, status in list(left.items()):
            if status is None:
                done, code = os.waitpid(pid, os.WNOHANG)
                if done:
                    left[pid] = os.waitstatus_to_exitcode(code)
        time.sleep(0.02)
    for pid, status in left.items():
        if status is None:
            os.kill(pid, signal.SIGTERM)  # torchrun's agent ends its ranks, which are in sessions of their own
            for _ in range(50):
                done, _ = os.waitpid(pid, os.WNOHANG)
                if done:
                    break
                time.sleep(0.1)
            else:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return list(left.values())


def _torchrun(program: Program, folder: Path) -> None:
    options = [] if program.about.get("bare") else ["--standalone", "--local-addr", "127.0.0.1"]
    options += ["--nproc-per-node", str(program.world), *program.about.get("options", ())]
    if program.layout == "folder":
        options += ["--log-dir", str(folder), "--redirects", "3"]
    other = None
    if program.about.get("taken"):
        other = socket.create_server(("", 0))
        options += ["--master-addr", "127.0.0.1", "--master-port", str(other.getsockname()[1])]
    options.append(f"{program.name}.py")
    Forked.program, Forked.dumps = program, folder

    def agent() -> None:
        from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

        subprocess_handler.Popen = Forked  # type: ignore[assignment,misc]
        sys.executable = PYTHON
        if program.layout == "launch":
            options.remove("--standalone")
            interpret(_LAUNCH_TEXT, _LAUNCH, options, {**os.environ, **program.env})
        interpret(_TORCHRUN_TEXT, TORCHRUN, options, {**os.environ, **program.env})

    with (folder / "torchrun.log").open("wb") as log:
        pid = fork(agent, log.fileno(), log.fileno())
        told = program.about.get("signal")
        if told:
            time.sleep(told["after"])
            os.kill(pid, getattr(signal, told["name"]))
        _end([pid], program.about.get("limit", 60))
    if other is not None:
        other.close()


def _ranks(program: Program, folder: Path) -> None:
    """Every rank by itself, as srun or a loop in a shell starts them: one file each, or one file with labels."""
    port = free_port()
    started = program.about.get("started", program.world)
    pids, files = [], []
    for rank in range(started):
        file = (folder / f"rank{rank}.log").open("wb")
        files.append(file)

        def body(rank: int = rank) -> None:
            dump_later(program, rank, folder)
            interpret(program.text, program.shown, [], environment(rank, program.world, port, program))

        pids.append(fork(body, file.fileno(), file.fileno()))
    statuses = _end(pids, program.about.get("limit", 60))
    for file in files:
        file.close()
    if program.layout == "srun":
        _labelled(folder, started, statuses)


def _labelled(folder: Path, ranks: int, statuses: list[int | None]) -> None:
    """One file, each line with its rank, as ``srun --label`` writes it."""
    out = []
    for rank in range(ranks):
        path = folder / f"rank{rank}.log"
        out += [f"{rank}: {line}\n" for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
        path.unlink()
    (folder / "slurm-4711.out").write_text("".join(out), encoding="utf-8")


def _plain(program: Program, folder: Path) -> None:
    """One process, which may start its ranks itself."""
    port = free_port()
    with (folder / "train.log").open("wb") as log:

        def body() -> None:
            dump_later(program, 0, folder)
            interpret(program.text, program.shown, [], environment(0, program.world, port, program))

        _end([fork(body, log.fileno(), log.fileno())], program.about.get("limit", 60))


def without_harness(dump: dict[str, Any]) -> dict[str, Any]:
    """A dump without the frames of this folder's modules."""
    here = str(Path(__file__).parent)
    for entry in dump["entries"]:
        frames = entry.get("frames")
        if isinstance(frames, list):
            entry["frames"] = [
                one for one in frames if not isinstance(one, dict) or not _from(one.get("filename", ""), here)
            ]
    return dump


def _from(file: str, folder: str) -> bool:
    return file.startswith(folder) and file.endswith(("launch.py", "regenerate.py", "test_failures.py"))


def load_dump(path: Path) -> dict[str, Any]:
    """A dump that this module wrote."""
    data = path.read_bytes()
    return dict(json.loads(data) if path.suffix == ".json" else pickle.loads(data))  # noqa: S301 (our own)


def in_new_process(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A Python of its own: a process that has threads, as pytest's may, is no good parent of ranks."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
