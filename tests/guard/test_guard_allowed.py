"""What the product needs goes on working under the guard, each case in a process of its own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import shardguide

SOURCE = Path(shardguide.__file__).parent
BEFORE = """
import os, sys
outside, notebook = sys.argv[1], sys.argv[2]
from shardguide.guard import GuardViolation, allow_write, install, permit, violations
def stopped(action, *args):
    try:
        action(*args)
    except GuardViolation:
        return True
    return False
"""


def run(body: str, tmp_path: Path, before: str = "", **environment: str) -> str:
    """Standard output of the lines, run after install()."""
    outside, home = tmp_path / "outside", tmp_path / "deep" / "home"
    outside.mkdir(exist_ok=True)
    program = BEFORE + textwrap.dedent(before) + "\ninstall(notebook)\n" + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-c", program, str(outside), str(home / "notebook.db")],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, env=_environment(environment),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def _environment(more: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **more}


def test_reading(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 4096}')
    (tmp_path / "plan.yaml").write_text("gpus: [1, 2]\nname: ü\n")
    out = run(
        """
        import json, glob, mmap, shutil
        from pathlib import Path
        with open("config.json", "rb") as file: print(json.load(file)["hidden_size"])
        with open("config.json") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view: print(view[:1])
        print(Path("config.json").read_text()[:2], sorted(os.listdir()), glob.glob("*.json"), os.path.realpath("."))
        import yaml
        print(yaml.safe_load(Path("plan.yaml").read_text())["gpus"])
        print(shutil.which("sh") is not None, violations())
        """,
        tmp_path,
    )
    assert out.splitlines()[0] == "4096"
    assert "[1, 2]" in out
    assert out.rstrip().endswith("True ()")


def test_rich_renders(tmp_path: Path) -> None:
    out = run(
        """
        from rich.console import Console
        from rich.table import Table
        from rich.syntax import Syntax
        from rich.markdown import Markdown
        from rich.prompt import Prompt
        from rich.progress import track
        table = Table("rank", "bytes"); table.add_row("0", "[bold]42[/]")
        console = Console(force_terminal=True, width=60)
        console.print(table, Syntax("fully_shard(model)", "python"), Syntax("a: 1", "yaml"), Markdown("# head\\n`x`"))
        for _ in track(range(2), console=console): pass
        """,
        tmp_path,
    )
    assert "42" in out
    assert "fully_shard" in out
    assert "\x1b[" in out


def test_library_modules_can_be_loaded_late(tmp_path: Path) -> None:
    """Modules that start-up avoids are loaded when they are needed, generated code of theirs included."""
    out = run(
        """
        import argparse, asyncio, base64, concurrent.futures, csv, dataclasses, datetime, decimal, difflib
        import email.message, enum, fractions, gzip, hashlib, html, http.client, importlib.metadata
        import importlib.resources, inspect, json, logging, lzma, pickle, pickletools, platform, pprint, random
        import readline, shlex, shutil, socket, sqlite3, statistics, string, struct, subprocess, symtable, tarfile
        import tempfile, tokenize, traceback, typing, unittest, urllib.parse, urllib.request, uuid
        import webbrowser, xml.etree.ElementTree, zipfile, zoneinfo
        from collections import namedtuple
        class Row(typing.NamedTuple):
            rank: int = 0
        Point = namedtuple("Point", "x y")
        @dataclasses.dataclass(frozen=True, order=True)
        class Mesh:
            shape: "tuple[int, ...]"
        class Kind(enum.Enum):
            FULL = enum.auto()
        print(Row().rank, Point(1, 2).y, Mesh((2, 4)).shape, Kind.FULL.value, typing.get_type_hints(Mesh))
        print(inspect.signature(int.to_bytes), inspect.signature(argparse.ArgumentParser.parse_args))
        import ast
        print(ast.dump(ast.parse("f(x=1)").body[0].value.func), ast.literal_eval("{'a': [1]}"))
        print(ast.parse("type_: int = 3", feature_version=(3, 8)).body[0].lineno)
        async def answer(): return await asyncio.wait_for(asyncio.sleep(0, 42), 1)
        print(asyncio.run(answer()))
        with concurrent.futures.ThreadPoolExecutor(2) as pool: print(list(pool.map(str, range(2))))
        print(importlib.metadata.version("rich") > "13", platform.python_version() == sys.version.split()[0])
        import sysconfig; sysconfig.get_config_vars()
        print(violations())
        """,
        tmp_path,
    )
    assert out.splitlines()[0].startswith("0 2 (2, 4) 1")
    assert "42" in out
    assert out.rstrip().endswith("()")


# Loaded before the guard is on, with an SDK that is no plain dependency.
NEEDS_THE_EXTRA = {("mcp", "server.py"), ("mcp", "asking.py")}


def test_own_modules_can_be_loaded(tmp_path: Path) -> None:
    names = [
        ".".join(("shardguide", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "__main__.py"
        and path.parent.name != "patterns"  # code that is shown, not our own
        and (path.parent.name, path.name) not in NEEDS_THE_EXTRA
    ]
    assert "shardguide.guard.hook" in names
    imports = "\n".join(f"import {name}" for name in names)
    assert run(f"{imports}\nprint(violations())", tmp_path).rstrip().endswith("()")


def test_notebook_and_its_folders_can_be_written(tmp_path: Path) -> None:
    out = run(
        """
        import sqlite3
        os.makedirs(os.path.dirname(notebook), mode=0o700)
        os.close(os.open(notebook, os.O_RDWR | os.O_CREAT, 0o600))
        os.chmod(notebook, 0o600)
        for mode in ("delete", "wal"):
            database = sqlite3.connect(notebook)
            database.execute(f"pragma journal_mode={mode}")
            database.execute("create table if not exists t(a)"); database.execute("insert into t values (1)")
            database.commit(); database.close()
        print(sqlite3.connect(notebook).execute("select count(*) from t").fetchone())
        print(sqlite3.connect(":memory:").execute("select 1").fetchone())
        print(stopped(os.mkdir, os.path.join(os.path.dirname(notebook), "other")))
        print(stopped(open, os.path.join(os.path.dirname(notebook), "other"), "w"))
        """,
        tmp_path,
    )
    assert out.split() == ["(2,)", "(1,)", "True", "True"]


def test_harmless_targets(tmp_path: Path) -> None:
    out = run(
        """
        import socket
        print("x", file=open(os.devnull, "w"))
        os.close(os.open(os.devnull, os.O_RDWR))
        open(1, "w", closefd=False).write("to stdout\\n")
        a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1))
        os.kill(os.getpid(), 0)
        r, w = os.pipe(); open(w, "wb").write(b"x")
        print(violations())
        """,
        tmp_path,
    )
    assert out == "to stdout\nb'x'\n()\n"


def test_approved_folder(tmp_path: Path) -> None:
    """Inside the folder everything, by real path: not through links, not after the block, not beside it."""
    out = run(
        """
        plan = os.path.join(os.getcwd(), "new", "plan")
        inside = lambda *names: os.path.join(plan, *names)
        print(stopped(os.makedirs, plan))
        with allow_write(plan) as real:
            os.makedirs(inside("launch")); print(real == os.path.realpath(plan))
            with open(inside("launch", "run.sh"), "w") as file: file.write("x")
            os.chmod(inside("launch", "run.sh"), 0o755)
            os.replace(inside("launch", "run.sh"), inside("run.sh"))
            os.rmdir(inside("launch")); os.utime(inside("run.sh"), (1, 1)); os.truncate(inside("run.sh"), 0)
            os.chdir(plan)
            with open("relative", "w") as file: pass
            os.remove("relative")
            print(stopped(open, os.path.join("..", "sibling"), "w"), stopped(open, os.path.join(outside, "x"), "w"))
            print(stopped(os.rename, "run.sh", os.path.join(outside, "x")), stopped(open, plan + "x", "w"))
            print(stopped(os.rename, os.path.join(outside, "x"), "x"), stopped(os.mkdir, "../other"))
            print(stopped(os.link, os.path.join(outside, "kept"), "hard"), stopped(os.symlink, outside, "soft"))
        print(stopped(open, inside("run.sh"), "w"), stopped(os.remove, inside("run.sh")))
        """,
        tmp_path,
    )
    assert out.split() == ["True"] * 12
    assert (tmp_path / "new" / "plan" / "run.sh").read_text() == ""


def test_links_in_an_approved_folder_lead_nowhere(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.mkdir()
    (outside / "target").write_text("kept")
    (project / "folder").symlink_to(outside)
    (project / "file").symlink_to(outside / "target")
    (project / "dangling").symlink_to(outside / "new")
    out = run(
        """
        with allow_write("project"):
            for name in ("folder/new", "folder/target", "file", "dangling", "folder/../outside/new"):
                print(stopped(open, os.path.join("project", name), "w"))
            print(stopped(os.remove, "project/folder/target"), stopped(os.chmod, "project/file", 0o777))
            os.remove("project/file")  # the link itself is the project's
            os.rename("project/dangling", "project/moved")
        with allow_write("project/folder"):  # a link that the user names is followed
            open("project/folder/new", "w").close()
        """,
        tmp_path,
    )
    assert out.split() == ["True"] * 7
    assert sorted(path.name for path in outside.iterdir()) == ["new", "target"]
    assert (outside / "target").read_text() == "kept"


def test_approved_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("old")
    out = run(
        """
        with allow_write("train.py"):
            os.rename("train.py", "train.py.bak")
            with open("train.py.shardguide-tmp", "w") as file: file.write("new")
            os.replace("train.py.shardguide-tmp", "train.py")
            print(stopped(open, "train.pyc", "w"), stopped(open, "other.py", "w"))
        print(stopped(open, "train.py", "a"))
        try: allow_write("/").__enter__()
        except ValueError: print("True")
        """,
        tmp_path,
    )
    assert out.split() == ["True"] * 4
    assert ((tmp_path / "train.py").read_text(), (tmp_path / "train.py.bak").read_text()) == ("new", "old")


LOOPBACK = """
import socket
server = socket.create_server(("127.0.0.1", 0)); address = server.getsockname()
def listen(host): socket.create_server((host, 0)).close()
def connect(): socket.create_connection(address).close()
def process(): print(os.waitstatus_to_exitcode(os.system("exit 0")) if os.name == "posix" else 0)
"""


@pytest.mark.parametrize(
    ("granted", "expected"),
    [("", "True True True True"), ("executor", "False True True True"), ("http", "True False True True"),
     ("remote", "True True True False"), ("results", "True True True True")],
)  # fmt: skip
def test_permits(granted: str, expected: str, tmp_path: Path) -> None:
    """A permit opens its own door and no other: process, loopback server, server for all, connection."""
    out = run(
        f"""
        if {granted!r}: permit({granted!r})
        print("doors", stopped(os.system, "exit 0"), stopped(listen, "127.0.0.1"), stopped(listen, "0.0.0.0"),
              stopped(connect))
        print(stopped(__import__, "torch_of_the_user"), stopped(eval, "1"), stopped(open, "x", "w"))
        """,
        tmp_path,
        before=LOOPBACK,
    )
    assert f"doors {expected}\n" in out
    assert out.rstrip().endswith("True True True")


def test_unknown_permit(tmp_path: Path) -> None:
    out = run("try: permit('everything')\nexcept ValueError as error: print(error)", tmp_path)
    assert "executor, http, remote, results" in out


def test_nothing_switches_it_off(tmp_path: Path) -> None:
    """Not a second install(), not an attribute that is replaced, not the environment."""
    out = run(
        """
        install(notebook); install()
        import shardguide.guard.hook as hook
        hook._guard = None
        hook._Guard.process = hook._Guard.open = lambda *args: None
        sys.addaudithook(lambda *args: None)
        print(stopped(os.system, "exit 0"), stopped(open, "x", "w"))
        """,
        tmp_path,
        SHARDGUIDE_GUARD="0",
        PYTHONDONTWRITEBYTECODE="",
    )
    assert out.split() == ["True", "True"]


def test_no_notebook_approves_nothing(tmp_path: Path) -> None:
    """Without a home folder the notebook's path is empty, and must not come to mean the working folder."""
    assert run("install(''); print(stopped(open, 'x', 'w'))", tmp_path, before="notebook = ''").split() == ["True"]


def test_swallowed_violations_are_remembered(tmp_path: Path) -> None:
    out = run(
        """
        try: os.system("exit 0")
        except Exception: pass
        print(len(violations()), violations()[0])
        for _ in range(100): stopped(eval, "1")
        print(len(violations()))
        """,
        tmp_path,
    )
    assert "1 Shardguide's guard stopped an attempt to start a process (os.system" in out
    assert out.rstrip().endswith("20")


def test_sentence_is_one_safe_line(tmp_path: Path) -> None:
    out = run(
        r"""
        try: open("a\nb\x1b[31m\u202e" + "c" * 5000, "w")
        except GuardViolation as error: print(str(error))
        """,
        tmp_path,
    )
    assert len(out.splitlines()) == 1
    assert out.isascii()
    assert "\x1b" not in out
    assert len(out) < 300


def test_optional_imports_of_a_dependency_count_as_not_installed(tmp_path: Path) -> None:
    """rich looks for attrs, markdown_it for linkify: refused, but as an ImportError that they expect."""
    package = tmp_path / "lib" / "site-packages" / "mdurl"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("try:\n import numpy\nexcept ImportError as error:\n found = error.name\n")
    before = "sys.path.insert(0, os.path.join(os.getcwd(), 'lib', 'site-packages'))"
    assert run("import mdurl; print(mdurl.found, violations())", tmp_path, before=before) == "numpy ()\n"


def test_bytecode_is_kept_only_for_trusted_modules(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "site-packages"
    (packages / "mdurl").mkdir(parents=True)
    (packages / "mdurl" / "__init__.py").write_text("x = 1")
    (packages / "markdown_it.py").write_text("x = 2")  # its cache would lie in a folder shared with others' modules
    before = "sys.path.insert(0, os.path.join(os.getcwd(), 'lib', 'site-packages'))"
    body = "import mdurl, markdown_it; print(mdurl.x, markdown_it.x, violations())"
    environment = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": ""}
    assert run(body, tmp_path, before=before, **environment) == "1 2 ()\n"
    assert len(list((packages / "mdurl").glob("__pycache__/*.pyc"))) == 1
    assert not (packages / "__pycache__").exists()
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path / "cache")
    assert run(body, tmp_path, before=before, **environment) == "1 2 ()\n"
    assert len(list((tmp_path / "cache").rglob("m*.pyc"))) >= 1


def test_further_packages_of_a_front_end(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "site-packages" / "serverkit"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("made = eval('6 * 7')\n")
    before = "sys.path.insert(0, os.path.join(os.getcwd(), 'lib', 'site-packages'))"
    body = """
    print(stopped(__import__, 'serverkit')); install(packages=['serverkit'])
    import serverkit; print(serverkit.made)
    """
    assert run(body, tmp_path, before=before).split() == ["True", "42"]


def test_source_avoids_what_raises_no_event() -> None:
    """Calls that CPython does not audit would slip past the guard, so the product's source has none of them."""
    unaudited = {"mkfifo", "mknod", "makedev", "fork_exec", "spawnv_passfds", "write_history_file",
                 "append_history_file", "pwrite", "sendfile", "load_dynamic", "find_class"}  # fmt: skip
    modules = {"ctypes", "_posixsubprocess", "multiprocessing", "dbm", "shelve", "marshal", "torch", "transformers"}
    found = []
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "patterns":
            continue  # code that is shown: nothing of ours imports or runs it
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in unaudited:
                found.append((path.name, node.lineno, node.attr))
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.append(node.module)
            found += [(path.name, node.lineno, name) for name in names if name.partition(".")[0] in modules]
    # The processes of --executor, which are started before the guard is on (tests/diagnose/test_executors.py).
    assert [one for one in found if one[0] != "workers.py"] == []
    assert {one[2] for one in found} <= {"multiprocessing"}


def test_cost(tmp_path: Path) -> None:
    """Loading and installing takes 0.6 ms of CPU, an open for reading 0.6 microseconds; the bounds leave room, also for a busy machine."""
    program = """
        import time, sys, os
        start = time.process_time()
        from shardguide.guard import install
        install("notebook.db")
        print(time.process_time() - start)
        start = time.process_time()
        for _ in range(100_000): sys.audit("open", "/some/file", "r", os.O_RDONLY | os.O_CLOEXEC)
        print(time.process_time() - start)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    runs = [subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout for _ in range(5)]
    install, reads = (min(float(run.split()[at]) for run in runs) for at in (0, 1))
    print(install, reads)
    assert install < 0.005
    assert reads / 100_000 < 5e-6
