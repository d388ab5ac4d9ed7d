"""The MCP server: CPU until the first list of tools against a one-tool server of the same SDK, then calls in process.

    python benchmarks/mcp_server.py

Needs the extra mcp. The first figure is the minimum of RUNS whole processes, child processes' CPU (user + system); the calls are
timed on the wall clock inside of one process, through the SDK's client in memory.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

RUNS = 12
ONE_TOOL = """
import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

async def tools(ctx, params):
    return types.ListToolsResult(tools=[types.Tool(name="hello", description="hello", input_schema={"type": "object"})])

async def call(ctx, params):
    return types.CallToolResult(content=[])

async def main():
    server = Server("one", on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())

anyio.run(main)
"""
HELLO = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize",
     "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "b", "version": "0"}}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
]  # fmt: skip


def first_list(command: list[str]) -> float:
    """CPU seconds of a process that is started, lists its tools and ends."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    for message in HELLO:
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        if "id" in message:
            process.stdout.readline()
    process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def calls(folder: Path) -> None:
    """Latency of single calls, and memory over a thousand."""
    from mcp import Client

    from shardguide.frontends.mcp.calls import Desk
    from shardguide.frontends.mcp.folders import Folders
    from shardguide.frontends.mcp.server import build

    plan = {"model": "7b", "gpus": 16, "nodes": 2, "gpu": "H100 SXM 80GB", "intra": "nvlink", "inter": "infiniband",
            "optimizer": "adamw", "param_dtype": "float32", "torch": "2.13"}  # fmt: skip
    async with Client(build(Desk(Folders((str(folder),)), str(folder / "n.db")), "0")) as client:
        for name, arguments in (("plan", plan), ("docs", {"names": ["fully_shard"]})):
            await client.call_tool(name, arguments)
            taken, spent = [], []
            for _ in range(200):
                start, used = time.perf_counter(), time.process_time()
                await client.call_tool(name, arguments)
                taken.append((time.perf_counter() - start) * 1000)
                spent.append((time.process_time() - used) * 1000)
            taken.sort()
            spent.sort()
            print(f"{name}: median {taken[100]:.1f} ms, 95th percentile {taken[190]:.1f} ms; "
                  f"of CPU {spent[100]:.1f} ms, 95th percentile {spent[190]:.1f} ms")  # fmt: skip
        sizes = []
        for number in range(1000):
            await client.call_tool("plan" if number % 2 else "docs", plan if number % 2 else {"names": ["fully_shard"]})
            if number % 250 == 249:
                sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6)
        print("memory over 1,000 calls, MB: " + ", ".join(f"{size:.1f}" for size in sizes))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = [sys.executable, "-m", "shardguide", "mcp", "--notebook", str(folder / "s.db")]
        one = [sys.executable, "-c", ONE_TOOL]
        figures = {"one tool": 1e9, "shardguide": 1e9}
        for _ in range(RUNS):
            figures["one tool"] = min(figures["one tool"], first_list(one))
            figures["shardguide"] = min(figures["shardguide"], first_list(ours))
        print(f"first list of tools: one-tool server {figures['one tool'] * 1000:.0f} ms CPU, shardguide "
              f"{figures['shardguide'] * 1000:.0f} ms, {figures['shardguide'] / figures['one tool']:.2f}x")  # fmt: skip
        anyio.run(calls, folder)


if __name__ == "__main__":
    main()
