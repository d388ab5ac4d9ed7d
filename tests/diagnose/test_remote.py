"""Files behind URLs: only where a URL says so, only through fsspec, and nothing opened in the guard beyond that."""

from __future__ import annotations

import functools
import gzip
import http.server
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.readers import remote
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose
from tests.diagnose.job import write_job

if importlib.util.find_spec("fsspec") is None:
    pytest.skip("fsspec is not installed: pip install 'shardguide[remote]'", allow_module_level=True)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write_job(folder, 8, 3)
    (folder / "packed.log.gz").write_bytes(gzip.compress(b"[rank1]: all is well\n" * 100))
    return folder


@pytest.fixture
def memory(job: Path) -> Iterator[Any]:
    import fsspec

    system = fsspec.filesystem("memory")
    for path in job.iterdir():
        with system.open(f"/runs/7/{path.name}", "wb") as file:
            file.write(path.read_bytes())
    yield system
    system.store.clear()


def of(*paths: str) -> dict[str, Any]:
    return diagnose(DiagnoseRequest(paths, torch="2.13")).extra


def test_memory_folder(memory: Any) -> None:
    first = of("memory://runs/7")["diagnoses"][0]
    assert (first["id"], first["ranks"]) == ("fr_rank_missing", [3])
    assert first["evidence"][0]["file"] == "memory:///runs/7/nccl_trace_rank_3"


def test_memory_wildcards(memory: Any) -> None:
    found = of("memory://runs/7/*.log")
    assert len(found["read"]) == 8 and found["outcome"] == "no_failure"
    assert [one["file"] for one in of("memory://runs/*/packed*")["read"]] == ["memory:///runs/7/packed.log.gz"]


def test_memory_file(memory: Any) -> None:
    (one,) = of("memory://runs/7/packed.log.gz")["read"]
    assert (one["lines"], one["rank"]) == (100, None)


def test_file_url(job: Path) -> None:
    assert of(f"file://{job}")["diagnoses"][0]["ranks"] == [3]


@pytest.mark.parametrize(
    "url",
    ["memory://nowhere/at/all.log", "memory://runs/nothing*", "nosuch://x/y", "simplecache::memory://runs/7", "zip://a::memory://b", "s3://bucket/x.log",
     "http://[::1", "file:///no/such/file.log"],
)  # fmt: skip
def test_unusable(url: str, memory: Any) -> None:
    if url.startswith("s3") and importlib.util.find_spec("s3fs"):
        pytest.skip("s3fs is installed, and this must not reach for the network")
    with pytest.raises(UnusableInput) as raised:
        of(url)
    assert "\n" not in str(raised.value)


def test_without_a_url_nothing_is_loaded(job: Path) -> None:
    text = (
        "import sys; from shardguide.workflows.diagnose import DiagnoseRequest, diagnose;"
        f"diagnose(DiagnoseRequest(({str(job)!r},), torch='2.13'));"
        "print([one for one in ('fsspec', 'aiohttp', 'dask', 'distributed', 'ray', 'asyncio', 'socket') if one in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shardguide", "diagnose", *options, "--torch", "2.13", "--no-input", "--json"]
    command += ["--notebook", str(folder.parent / "notebook.db")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("more", [(), ("--executor", "process:2")])
def test_command_line_file_url(more: tuple[str, ...], job: Path) -> None:
    done = run(job, f"file://{job}", *more)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["diagnoses"][0]["ranks"] == [3]
    assert f"file://{job} was opened through fsspec" in record["done"]


@pytest.fixture
def server(job: Path) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(job))) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_address[1]}"
        made.shutdown()


def test_command_line_over_the_network(server: str, job: Path) -> None:
    """A real connection, under the guard."""
    if importlib.util.find_spec("aiohttp") is None:
        pytest.skip("fsspec reads http with aiohttp, which is not installed")
    done = run(job, f"{server}/packed.log.gz", f"{server}/rank3.log")
    assert done.returncode == 1, done.stderr  # nothing failed there
    record = json.loads(done.stdout)
    assert [one["lines"] for one in record["read"]] == [100, 200]
    done = run(job, f"{server}/nothing.log")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be opened" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "url", ["s3://", "nosuch://x", "file:///dev/zero", "file://no", "http://127.0.0.1:1/x.log", "memory://x"]
)
def test_command_line_unusable(url: str, job: Path) -> None:
    if url.startswith("s3") and importlib.util.find_spec("s3fs"):
        pytest.skip("s3fs is installed, and this must not reach for the network")
    done = run(job, url)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1


def test_schemes() -> None:
    assert remote.scheme("s3://bucket/x") == "s3"
    assert remote.scheme("/var/log/a://b") == ""
    assert remote.scheme("C:/x") == ""
    with pytest.raises(UnusableInput):
        remote.scheme("dask://x")


GUARD = """
import sys
from shardguide import guard
from shardguide.readers import remote
packages = remote.load(["file"])
guard.install(packages=packages)
guard.permit("remote")
import os, pickle, subprocess
def stopped(action, *args):
    try: action(*args)
    except guard.GuardViolation: return True
    except BaseException as error: return type(error).__name__
    return False
class Evil:
    def __reduce__(self): return os.system, ("true",)
print(stopped(os.system, "true"), stopped(subprocess.Popen, ["true"]), stopped(pickle.loads, pickle.dumps(Evil())), stopped(open, "x", "w"), stopped(eval, "1"), stopped(__import__, "torch"))
print("torch" in packages, "fsspec" in packages)
"""


def test_guard_with_a_url(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", GUARD], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "True True True True True True\nFalse True\n"
