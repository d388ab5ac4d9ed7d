"""A real client of the SDK: in the same process, over stdio, or over HTTP."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

anyio = pytest.importorskip("anyio", reason="the MCP SDK is the extra mcp")
mcp = pytest.importorskip("mcp", reason="the MCP SDK is the extra mcp")

from mcp import Client, StdioServerParameters  # noqa: E402
from mcp.client.stdio import stdio_client  # noqa: E402

from ..snippets.ports import free_port  # noqa: E402

ENV = {
    name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
}


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A desk in a folder of its own, with no PyTorch at hand."""
    from shardguide.frontends.mcp.calls import Desk
    from shardguide.frontends.mcp.folders import Folders

    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Desk(Folders((str(folder),)), str(tmp_path / "notebook.db"))


@pytest.fixture
def server(desk: Any) -> Any:
    from shardguide.frontends.mcp.server import build

    return build(desk, "0")


@pytest.fixture
def over_stdio(tmp_path: Path) -> Callable[..., Any]:
    """``async with over_stdio(mode=..., elicitation_callback=...) as client``: the command itself, in a process of its own."""
    folder = tmp_path / "stdio"
    folder.mkdir()

    @asynccontextmanager
    async def connect(*more: str, **options: Any) -> AsyncIterator[Client]:
        arguments = ["-m", "shardguide", "mcp", "--notebook", str(tmp_path / "stdio.db"), *more]
        parameters = StdioServerParameters(command=sys.executable, args=arguments, cwd=str(folder), env=ENV)
        async with Client(stdio_client(parameters), **options) as client:
            client.folder = folder  # type: ignore[attr-defined]
            yield client

    return connect


@pytest.fixture
def http_url(tmp_path: Path) -> Any:
    """The address of ``shardguide mcp --http``, running."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "shardguide", "mcp", "--http", str(port), "--notebook", str(tmp_path / "http.db")],
        cwd=tmp_path, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    until = time.monotonic() + 60
    try:
        while True:
            assert process.poll() is None and time.monotonic() < until, "the server did not start"
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(60)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
