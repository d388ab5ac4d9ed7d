"""Each thing that the guard forbids, tried in a process of its own: once without the guard, where it must take effect
(or the case proves nothing), and once with it, where it must not."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

# Runs a case. "EFFECT" on stdout, or a file called marker in the folder outside, is the case's effect. The exception is
# looked at by name so that the run without the guard imports nothing of Shardguide's.
RUNNER = """
import os, sys
outside, notebook, guarded = sys.argv[1], sys.argv[2], sys.argv[3] == "guarded"
marker = os.path.join(outside, "marker")
{setup}
if guarded:
    from shardguide.guard import install
    install(notebook)
try:
    {body}
except BaseException as error:
    names = [kind.__name__ for kind in type(error).__mro__]
    print("STOPPED" if "GuardViolation" in names else "FAILED", repr(str(error)))
if guarded:
    from shardguide.guard import violations
    for sentence in violations():
        print("STOPPED", sentence)
"""


class Case(NamedTuple):
    name: str
    body: str
    setup: str = ""
    says: str = ""  # words of the sentence


TOUCH = "[sys.executable, '-c', 'import sys; open(sys.argv[1], \"w\").close()', marker]"

PROCESSES = [
    Case("os.system", "os.system(f'touch \"{marker}\"')", says="start a process"),
    Case("os.popen", "os.popen(f'touch \"{marker}\"').read()", says="start a process"),
    Case("subprocess.run", f"subprocess.run({TOUCH})", "import subprocess", "start a process"),
    Case("subprocess shell", "subprocess.call(f'touch \"{marker}\"', shell=True)", "import subprocess"),
    Case("subprocess imported late", f"import subprocess; subprocess.run({TOUCH})"),
    Case("os.execv", f"os.execv(sys.executable, {TOUCH})", says="start a process"),
    Case("os.execvpe", f"os.execvpe(sys.executable, {TOUCH}, os.environ)"),
    Case("os.posix_spawn", f"os.waitpid(os.posix_spawn(sys.executable, {TOUCH}, os.environ), 0)"),
    Case("os.posix_spawnp", f"os.waitpid(os.posix_spawnp(sys.executable, {TOUCH}, os.environ), 0)"),
    Case("os.spawnv", f"os.spawnv(os.P_WAIT, sys.executable, {TOUCH})"),
    Case("os.fork", "pid = os.fork(); pid == 0 and (print('EFFECT', flush=True), os._exit(0)); os.waitpid(pid, 0)"),
    Case(
        "pty.fork", "pid, _ = pty.fork(); pid == 0 and os._exit(0); os.waitpid(pid, 0); print('EFFECT')", "import pty"
    ),
    Case("pty.spawn", "pty.spawn(['/bin/sh', '-c', f'touch \"{marker}\"'])", "import pty"),
    Case(
        "multiprocessing fork",
        "p = multiprocessing.get_context('fork').Process(target=open, args=(marker, 'w')); p.start(); p.join()",
        "import multiprocessing",
    ),
    Case(
        "multiprocessing spawn",
        "p = multiprocessing.get_context('spawn').Process(target=open, args=(marker, 'w')); p.start(); p.join()",
        "import multiprocessing",
    ),
    Case(
        "fork_exec in C",
        "from multiprocessing import util;"
        " os.waitpid(util.spawnv_passfds(os.fsencode(sys.executable), [os.fsencode(a) for a in " + TOUCH + "], []), 0)",
    ),
    Case("_posixsubprocess", "import _posixsubprocess; print('EFFECT')"),
    Case(
        "process pool",
        "ProcessPoolExecutor(1).submit(open, marker, 'w').exception()",
        "from concurrent.futures import ProcessPoolExecutor",
    ),
    Case("os.kill", "os.kill(os.getppid(), 0); print('EFFECT')", says="signal"),
    Case("os.killpg", "os.killpg(os.getpgrp(), 0); print('EFFECT')"),
]

SERVER = "import socket; server = socket.create_server(('127.0.0.1', 0)); address = server.getsockname()"
SOCKETS = [
    Case("socket.connect", "socket.create_connection(address); print('EFFECT')", SERVER),
    Case(
        "socket.connect on an old socket",
        "client.connect(address); print('EFFECT')",
        SERVER + "; client=socket.socket()",
    ),
    Case("socket.connect_ex", "client.connect_ex(address); print('EFFECT')", SERVER + "; client=socket.socket()"),
    Case("socket.bind", "client.bind(('127.0.0.1', 0)); print('EFFECT')", SERVER + "; client=socket.socket()"),
    Case("socket.create_server", "socket.create_server(('127.0.0.1', 0)); print('EFFECT')", "import socket"),
    Case("socket", "socket.socket(); print('EFFECT')", "import socket", "network socket"),
    Case(
        "socket.sendto",
        "client.sendto(b'x', ('127.0.0.1', 9)); print('EFFECT')",
        "import socket; client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    ),
    Case(
        "socket.sendmsg",
        "client.sendmsg([b'x'], [], 0, ('127.0.0.1', 9)); print('EFFECT')",
        "import socket; client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    ),
    Case("unix socket", "socket.socket(socket.AF_UNIX).bind(marker)", "import socket", "listen on"),
    Case("socket.getaddrinfo", "socket.getaddrinfo('127.0.0.1', 80); print('EFFECT')", "import socket", "look up"),
    Case("socket.gethostbyname", "socket.gethostbyname('127.0.0.1'); print('EFFECT')", "import socket"),
    Case(
        "socket.gethostbyaddr",
        "with contextlib.suppress(OSError): socket.gethostbyaddr('127.0.0.1')\n    print('EFFECT')",
        "import contextlib, socket",
    ),
    Case("socket.getnameinfo", "socket.getnameinfo(('127.0.0.1', 80), 3); print('EFFECT')", "import socket"),
    Case(
        "urllib",
        "urllib.request.urlopen(f'http://127.0.0.1:{server.server_port}/')",
        "import urllib.request, threading, http.server\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): print('EFFECT'); self.send_response(200); self.end_headers()\n"
        "    def log_message(self, *args): pass\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), H)\n"
        "threading.Thread(target=server.serve_forever, daemon=True).start()",
    ),
    Case(
        "asyncio server",
        "asyncio.run(asyncio.start_server(None, '127.0.0.1', 0)); print('EFFECT')",
        "import asyncio",
    ),
]

IMPORTS = [
    Case("import torch", "import torch", says="'torch'"),
    Case("import torch.distributed", "import torch.distributed.fsdp", says="torch.distributed.fsdp"),
    Case("import transformers", "import transformers", says="'transformers'"),
    Case("__import__", "__import__('torch')"),
    Case("importlib.import_module", "importlib.import_module('torch')", "import importlib", "torch"),
    Case("import of the user's module", "import train", says="'train'"),
    Case("the user's random.py", "import random", "os.chdir('shadow')", "random.py"),
    Case("the user's yaml.py", "import yaml", "os.chdir('shadow')", "yaml.py"),
    Case(
        "spec_from_file_location",
        "spec = util.spec_from_file_location('m', 'train.py'); spec.loader.exec_module(util.module_from_spec(spec))",
        "from importlib import util",
        "train.py",
    ),
    Case("runpy.run_path", "runpy.run_path('train.py')", "import runpy"),
    Case("runpy.run_module", "runpy.run_module('train')", "import runpy"),
    Case("ctypes", "import ctypes; print('EFFECT')", says="ctypes"),
    Case("ctypes.CDLL", "ctypes.CDLL(None); print('EFFECT')", "import ctypes", "ctypes.dlopen"),
    Case(
        "ctypes symbol", "library.getpid; print('EFFECT')", "import ctypes; library = ctypes.CDLL(None)", "ctypes.dlsym"
    ),
    # A build of Python without extensions for SQLite has no such method; then running text stands in for it.
    Case(
        "SQLite extension",
        "getattr(database, 'enable_load_extension', lambda on: eval('1'))(True); print('EFFECT')",
        "import sqlite3; database = sqlite3.connect(':memory:')",
    ),
    Case(
        "subinterpreter",
        "__import__(name).create(); print('EFFECT')",
        "name = '_interpreters' if sys.version_info >= (3, 13) else '_xxsubinterpreters'",
        "interpreters",
    ),
    Case("dbm", "import dbm.dumb; dbm.dumb.open(marker, 'c').close(); os.rename(marker + '.dir', marker)", says="dbm"),
]

EXECUTION = [
    Case("exec", "exec(open('text').read())", says="compile text"),
    Case("eval", "eval(open('text').read())"),
    Case("compile", "compile(open('text').read(), 'text', 'exec'); print('EFFECT')", says="compile text"),
    Case("exec of code", "exec(code)", "code = compile(open('text').read(), 'text', 'exec')", "run code"),
    Case("eval of code", "eval(code)", "code = compile(open('text').read(), 'text', 'eval')"),
    Case("name of a library file", "exec(code)", "code = compile(open('text').read(), os.__file__, 'exec')"),
    Case(
        "exec of a syntax tree",
        "exec(compile(ast.parse(open('text').read()), 'text', 'exec'))",
        "import ast",
        "compile text",
    ),
    Case(
        "function of code",
        "FunctionType(code, globals())()",
        "from types import FunctionType\ncode = compile(open('text').read(), 'text', 'exec')",
        "build executable code",
    ),
    Case("code.replace", "code.replace(co_name='x'); print('EFFECT')", "code = compile('1', 'text', 'eval')"),
    Case("marshal", "marshal.loads(data); print('EFFECT')", "import marshal; data = marshal.dumps(1)", "marshalled"),
    Case(
        "marshal.load", "marshal.load(data); print('EFFECT')", "import marshal, io; data = io.BytesIO(marshal.dumps(1))"
    ),
    Case("pickle with a global", "pickle.load(open('pickle', 'rb'))", "import pickle", "from a pickle"),
    Case("pickle in Python", "pickle._Unpickler(open('pickle', 'rb')).load()", "import pickle", "from a pickle"),
    Case("code.interact", "code.InteractiveInterpreter().runsource(open('text').read())", "import code"),
    Case("timeit", "timeit.timeit(open('text').read(), number=1)", "import timeit"),
    Case("breakpoint", "breakpoint()", "os.environ['PYTHONBREAKPOINT'] = 'train.hook'", "builtins.breakpoint"),
]

WRITES = [
    Case("open w", "open(marker, 'w')", says="write to"),
    Case("open wb", "open(marker, 'wb')"),
    Case("open a", "open(marker, 'a')"),
    Case("open x", "open(marker, 'x')"),
    Case("open r+", "open(target, 'r+').write('changed')"),
    Case("open bytes path", "open(os.fsencode(marker), 'w')"),
    Case("open relative", "open(os.path.relpath(marker), 'w')"),
    Case("open beside a parent link", "open(os.path.join('link', '..', 'outside', 'marker'), 'w')"),
    Case("open through a link", "open('link/marker', 'w')"),
    Case("io.FileIO", "io.FileIO(marker, 'w')", "import io"),
    Case("os.open", "os.open(marker, os.O_WRONLY | os.O_CREAT)"),
    Case("os.open truncating", "os.open(target, os.O_WRONLY | os.O_TRUNC)"),
    Case(
        "os.open dir_fd", "os.open('marker', os.O_WRONLY | os.O_CREAT, dir_fd=fd)", "fd = os.open(outside, os.O_RDONLY)"
    ),
    Case("pathlib", "Path(marker).write_text('x')", "from pathlib import Path"),
    Case("Path.touch", "Path(marker).touch()", "from pathlib import Path"),
    Case("os.remove", "os.remove(target)", says="write to"),
    Case("os.unlink dir_fd", "os.unlink('target', dir_fd=fd)", "fd = os.open(outside, os.O_RDONLY)"),
    Case("os.rename", "os.rename(target, marker)"),
    Case("os.replace", "os.replace(target, marker)"),
    Case("os.rename dir_fd", "os.rename('target', 'marker', src_dir_fd=fd, dst_dir_fd=fd)", "fd = os.open(outside, 0)"),
    Case("os.mkdir", "os.mkdir(marker)"),
    Case("os.makedirs", "os.makedirs(os.path.join(marker, 'deep'))"),
    Case("os.rmdir", "os.rmdir(os.path.join(outside, 'empty'))"),
    Case("os.symlink", "os.symlink(target, marker)", says="make a link"),
    Case("os.link", "os.link(target, marker)", says="make a link"),
    Case("os.truncate", "os.truncate(target, 0)"),
    Case("os.chmod", "os.chmod(target, 0o777)"),
    Case("os.fchmod", "os.fchmod(fd, 0o777)", "fd = os.open(target, os.O_RDONLY)"),
    Case("os.chown", "os.chown(target, os.getuid(), os.getgid()); print('EFFECT')"),
    Case("os.utime", "os.utime(target, (1, 1))"),
    Case("shutil.copy", "shutil.copy(target, marker)", "import shutil"),
    Case("shutil.copytree", "shutil.copytree(outside, marker)", "import shutil"),
    Case("shutil.move", "shutil.move(target, marker)", "import shutil"),
    Case("shutil.rmtree", "shutil.rmtree(outside)", "import shutil"),
    Case(
        "shutil.make_archive",
        "shutil.make_archive(marker, 'zip', outside); os.rename(marker + '.zip', marker)",
        "import shutil",
    ),
    Case("tempfile.mkstemp", "tempfile.mkstemp(dir=outside); print('EFFECT')", "import tempfile"),
    Case("tempfile.mkdtemp", "tempfile.mkdtemp(dir=outside); print('EFFECT')", "import tempfile"),
    Case("tempfile.TemporaryFile", "tempfile.TemporaryFile(); print('EFFECT')", "import tempfile"),
    Case("logging", "logging.FileHandler(marker)", "import logging"),
    Case("zipfile", "zipfile.ZipFile(marker, 'w').close()", "import zipfile"),
    Case("sqlite3", "sqlite3.connect(marker).execute('create table t(a)')", "import sqlite3", "write to"),
    Case("sqlite3 URI", "sqlite3.connect('file:' + marker, uri=True).execute('create table t(a)')", "import sqlite3"),
    Case("sqlite3 temporary", "sqlite3.connect('').execute('select 1'); print('EFFECT')", "import sqlite3"),
    Case("beside the notebook", "open(notebook + '.copy', 'w').close(); os.rename(notebook + '.copy', marker)"),
    Case("notebook moved out", "os.rename(notebook, marker)", "open(notebook, 'w').close()"),
    Case("bytecode of the user's", "py_compile.compile('train.py', marker)", "import py_compile"),
    Case("syslog", "syslog.syslog('shardguide test'); print('EFFECT')", "import syslog"),
]

# Not on macOS; and not every file system keeps attributes, so reaching the system is the effect.
for call in ("setxattr(target, 'user.x', b'1')", "removexattr(target, 'user.x')"):
    if hasattr(os, "setxattr"):
        body = f"with contextlib.suppress(OSError): os.{call}\n    print('EFFECT')"
        WRITES.append(Case(call.partition("(")[0], body, "import contextlib"))

CASES = PROCESSES + SOCKETS + IMPORTS + EXECUTION + WRITES


class Touch:
    """Unpickling it makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return open, (self.path, "w")


def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A working folder with things of the user's, a folder outside, and the notebook's."""
    work, outside, home = tmp_path / "work", tmp_path / "outside", tmp_path / "home"
    for folder in (
        work,
        outside,
        home,
        outside / "empty",
        work / "shadow",
        work / "torch" / "distributed",
        work / "transformers",
    ):
        folder.mkdir(parents=True)
    for module in ("train.py", "torch/__init__.py", "transformers/__init__.py", "shadow/random.py", "shadow/yaml.py"):
        (work / module).write_text("print('EFFECT')\ndef hook(): print('EFFECT')\n")
    (work / "torch" / "distributed" / "__init__.py").write_text("")
    (work / "torch" / "distributed" / "fsdp.py").write_text("print('EFFECT')\n")
    (work / "text").write_text("print('EFFECT')")
    (work / "pickle").write_bytes(pickle.dumps(Touch(str(outside / "marker"))))
    (work / "link").symlink_to(outside)
    (outside / "target").write_text("the user's")
    (outside / "target").chmod(0o600)
    return work, outside, home / "notebook.db"


def snapshot(outside: Path) -> dict[str, tuple[object, ...]]:
    """What the folder outside holds, with modes and times of change."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(outside.rglob("*")) if outside.exists() else []:
        status = path.lstat()
        found[path.name] = (status.st_mode, status.st_mtime_ns, status.st_size)
    return found


def run(case: Case, tmp_path: Path, guarded: bool) -> tuple[str, bool]:
    """Standard output, and whether the case took effect."""
    work, outside, notebook = folders(tmp_path)
    before = snapshot(outside)
    setup = "target = os.path.join(outside, 'target')\n" + textwrap.dedent(case.setup)
    # The effect of a system log entry is not looked for in the log: reaching the end counts.
    program = RUNNER.format(setup=setup, body=case.body)
    done = subprocess.run(
        [sys.executable, "-c", program, str(outside), str(notebook), "guarded" if guarded else "free"],
        cwd=work, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr, "EFFECT" in done.stdout or snapshot(outside) != before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_is_stopped(case: Case, tmp_path: Path) -> None:
    """With the guard: nothing happens, and the exception is a sentence that names what was tried."""
    output, effect = run(case, tmp_path, guarded=True)
    assert "STOPPED" in output, output
    assert not effect, output
    assert case.says in output, output


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_works_without_the_guard(case: Case, tmp_path: Path) -> None:
    """Without it the very same lines do take effect, so that the test above can fail."""
    output, effect = run(case, tmp_path, guarded=False)
    assert "STOPPED" not in output
    assert effect, output
