"""The command itself: over stdio in a process with the guard on, over HTTP on the loopback interface, and what it loads."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from .conftest import ENV

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("mode", ["auto", "legacy"])
ASKED = {"device": "cuda", "inter": "infiniband", "os": "linux", "torch": "2.13"}


@BOTH
async def test_stdio(over_stdio: Callable[..., Any], mode: str) -> None:
    async with over_stdio(mode=mode) as client:
        assert len((await client.list_tools()).tools) == 12
        record = (await client.call_tool("backend", ASKED)).structured_content
        assert record["decisions"][0]["choice"] == "nccl"
        (client.folder / "run.log").write_text("RuntimeError: trying to initialize the default process group twice!\n")
        found = (
            await client.call_tool("start", {"words": "it fails, see the log", "files": ["run.log"], "torch": "2.13"})
        ).structured_content
        assert found["understood"]["tool"] == "diagnose" and found["outcome"] == "diagnosed"
        asked = (
            await client.call_tool("start", {"words": "how do I clip gradients with FSDP2?", "torch": "2.13"})
        ).structured_content
        assert asked["workflow"] == "ask" and asked["statements"]


@BOTH
async def test_http(http_url: str, mode: str) -> None:
    async with Client(http_url, mode=mode) as client:
        assert len((await client.list_tools()).tools) == 12
        record = (await client.call_tool("backend", ASKED)).structured_content
        assert record is not None and record["decisions"][0]["choice"] == "nccl"


def test_http_refuses_other_origins(http_url: str) -> None:
    """A page of the web that is open in the user's browser must not reach the server (DNS rebinding)."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        request = urllib.request.Request(
            http_url,
            body,
            {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers},
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        assert refused.value.code in (403, 421)


async def test_a_long_diagnosis_reports_progress_and_can_be_cancelled(over_stdio: Callable[..., Any]) -> None:
    seen: list[float] = []
    scope = anyio.CancelScope()

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append(done)
        scope.cancel()

    async with over_stdio() as client:
        line = b"step 1000 loss 2.31 " + b"x" * 180 + b"\n"
        with (client.folder / "long.log").open("wb") as file:
            for _ in range(20):
                file.write(line * 100_000)  # 20 MB at a time
        reading = {"paths": ["long.log"], "torch": "2.13"}
        with scope:
            await client.call_tool("diagnose", reading, progress_callback=progress)
        assert scope.cancelled_caught and len(seen) == 1, "no progress was reported before the end"
        with anyio.fail_after(60):
            assert not (await client.call_tool("docs", {"names": ["fully_shard"]})).is_error


def test_nothing_but_the_protocol_on_standard_output(tmp_path: Path) -> None:
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}},
    }  # fmt: skip
    lines = [
        hello,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "shardguide", "mcp", "--notebook", str(tmp_path / "n.db")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=ENV,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    got = []
    for line in lines:
        process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()
        if "id" in line:
            got.append(json.loads(process.stdout.readline())["id"])
    rest, err = process.communicate(timeout=60)
    assert got == [1, 2] and rest == "" and err == "" and process.returncode == 0


def test_what_the_first_list_of_tools_loads() -> None:
    code = """
import sys, anyio
from mcp import Client
from shardguide.frontends.mcp.calls import Desk
from shardguide.frontends.mcp.folders import Folders
from shardguide.frontends.mcp.server import build

async def main():
    async with Client(build(Desk(Folders((".",))), "0")) as client:
        await client.list_tools()

anyio.run(main)
from shardguide.knowledge import api
print([name for name in ("torch", "rich", "prompt_toolkit", "yaml", "ahocorasick_rs") if name in sys.modules], bool(api._lines._text))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=ENV)
    assert ran.stdout.strip() == "[] False", ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--allow", "/no/such/folder"], "is not a folder"),
        (["--http", "0"], "--http takes a port"),
        (["--print-config", "emacs"], "--print-config takes"),
        (["--http", "x"], "--help"),
    ],
)
def test_a_wrong_start_is_one_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "shardguide", "mcp", *arguments],
        input="",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=ENV,
        check=False,
    )
    assert ran.returncode == 2 and words in ran.stderr and "Traceback" not in ran.stderr and not ran.stdout


@pytest.mark.parametrize("host", ["claude-code", "codex", "cursor", "vscode", "gemini"])
def test_configurations_of_hosts(tmp_path: Path, host: str) -> None:
    import tomllib

    ran = subprocess.run(
        [sys.executable, "-m", "shardguide", "mcp", "--print-config", host],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=ENV,
        check=True,
    )
    if host == "claude-code":
        assert ran.stdout.startswith("claude mcp add shardguide -- ") and ran.stdout.strip().endswith(
            "-m shardguide mcp"
        )
        return
    body = ran.stdout
    assert ran.stderr.endswith(":\n") and {"vscode": ".vscode/mcp.json"}.get(host, "") in ran.stderr
    data = tomllib.loads(body) if host == "codex" else json.loads(body)
    (servers,) = data.values()
    assert (
        servers["shardguide"]["args"] == ["-m", "shardguide", "mcp"] and Path(servers["shardguide"]["command"]).exists()
    )


def _started(tmp_path: Path, *more: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "shardguide", "mcp", "--notebook", str(tmp_path / "n.db"), *more],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=ENV,
    )  # fmt: skip
    return process


def _greeted(process: subprocess.Popen[str]) -> None:
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}},
    }  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(hello) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_and_without_a_word(tmp_path: Path, sent: signal.Signals) -> None:
    process = _started(tmp_path)
    _greeted(process)
    process.send_signal(sent)
    assert process.wait(60) == -sent  # standard input is still open
    assert process.communicate() == ("", "")


def test_a_client_that_is_gone_is_no_error(tmp_path: Path) -> None:
    process = _started(tmp_path)
    _greeted(process)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdout.close()
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}) + "\n")
    process.stdin.flush()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    assert process.wait(60) == 0 and process.stderr.read() == ""
    process.stderr.close()


def test_what_is_no_message_does_not_end_it(tmp_path: Path) -> None:
    process = _started(tmp_path)
    _greeted(process)
    call = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": "docs", "arguments": {"names": ["fully_shard"]}},
    }
    lines = "\n".join(["garbage", "{}", "[]", '{"jsonrpc": "2.0"', json.dumps(call)])
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{lines}\n")
    process.stdin.flush()
    got: list[dict[str, Any]] = []
    for line in iter(process.stdout.readline, ""):
        got.append(json.loads(line))
        if got[-1].get("id") == 7:
            break
    assert got[-1]["result"]["structuredContent"]["name"] == "torch.distributed.fsdp.fully_shard"
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("", "", 0)


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = _started(tmp_path, "--http", str(taken.getsockname()[1]))
        out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and out == "" and err.count("\n") == 1 and "address already in use" in err


async def test_two_clients_at_once_over_http(http_url: str) -> None:
    got: list[tuple[str, str]] = []

    async def one(client: Client, inter: str) -> None:
        for _ in range(5):
            record = (await client.call_tool("backend", {**ASKED, "inter": inter})).structured_content
            assert record is not None
            got.append((inter, record["answers"]["inter"]["value"]))

    async with Client(http_url) as first, Client(http_url, mode="legacy") as second, anyio.create_task_group() as group:
        group.start_soon(one, first, "infiniband")
        group.start_soon(one, second, "ethernet")
    assert sorted(got) == [("ethernet", "ethernet")] * 5 + [("infiniband", "infiniband")] * 5


async def test_the_guard_is_on_in_the_server(over_stdio: Callable[..., Any]) -> None:
    """Every tool in the real process; afterwards nothing but the notebook has been written."""
    async with over_stdio() as client:
        before = {path: path.stat().st_mtime_ns for path in client.folder.parent.rglob("*")}
        (client.folder / "train.py").write_text(
            'import torch.distributed as dist\n\ndist.init_process_group("nccl", group_name="x")\n'
        )
        for name, arguments in (
            ("plan", {"model": "7b", "gpus": 8, "torch": "2.13"}),
            ("review", {"paths": ["train.py"], "torch": "2.13"}),
            ("review", {"paths": ["train.py"], "migrate": True, "torch": "2.13"}),
            ("explain", {"topic": "join", "torch": "2.13"}),
            ("docs", {"action": "changes", "names": ["2.12", "2.15"]}),
        ):
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content
        found = (await client.call_tool("review", {"paths": ["train.py"], "torch": "2.13"})).structured_content
        assert (await client.call_tool("apply", {"id": found["id"]})).is_error
        new = {path for path in client.folder.parent.rglob("*") if path not in before}
    assert {path.name for path in new if "stdio.db" not in path.name} == {"train.py"}
