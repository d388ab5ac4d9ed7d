"""The later parts of a long result: handed out as they were worked out, and only while the files that it rests on are the same."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from shardguide.frontends.mcp import bounded, calls, kept
from shardguide.readers.logs.source import WATCH

from .test_results import FSDP1, SAVED

pytestmark = pytest.mark.anyio
LONG: dict[str, Any] = {"paths": ["big"], "migrate": True, "torch": "2.13"}


@pytest.fixture
def ran(desk: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tools that really worked, in a folder with a large project."""
    Path("big").mkdir()
    for number in range(12):
        Path(f"big/part{number}.py").write_text(FSDP1.replace("def wrap", f"def wrap{number}") * 3 + SAVED)
    made: list[str] = []
    real = calls.call

    def call(desk: Any, tool: Any, *rest: Any) -> Any:
        made.append(tool.name)
        return real(desk, tool, *rest)

    monkeypatch.setattr(calls, "call", call)
    return made


async def _page(client: Any, number: int | None = None, **arguments: Any) -> dict[str, Any]:
    page = {} if number is None else {"page": number}
    result = await client.call_tool("review", {**LONG, **arguments, **page})
    assert not result.is_error, result.content
    found: dict[str, Any] = result.structured_content
    return found


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_reading_on_works_nothing_out_again(server: Any, ran: list[str], mode: str) -> None:
    async with Client(server, mode=mode) as client:
        first = await _page(client)
        count = first["page"]["of"]
        parts = [first, *[await _page(client, number) for number in range(2, count + 1)]]
        assert count > 2 and ran == ["review"]
        beyond = await _page(client, count + 1)
        assert "diff" not in beyond and beyond["page"] == {"number": count + 1, "of": count}
        again = await _page(client, 1)  # asked anew, and known from before
        assert ran == ["review"] * 2 and again["earlier"]["same"]
        assert [await _page(client, number) for number in range(2, count + 1)] == [
            {**part, "earlier": again["earlier"]} for part in parts[1:]
        ]
    diff = "".join(part.get("diff", "") for part in parts)
    whole = calls.call(server_desk(server), calls.tools()["review"], LONG)
    assert diff == whole["diff"] and diff.count("+++ ") == 12


def server_desk(server: Any) -> Any:
    """A desk of the folder that the server works in."""
    from shardguide.frontends.mcp.folders import Folders

    return calls.Desk(Folders((str(Path.cwd()),)), str(Path.cwd().parent / "other.db"))


@pytest.mark.parametrize("change", ["contents", "another file", "a file less"])
async def test_what_has_changed_in_between_is_read_again(server: Any, ran: list[str], change: str) -> None:
    async with Client(server) as client:
        first = await _page(client)
        if change == "contents":
            Path("big/part3.py").write_text(Path("big/part3.py").read_text().replace("1.0", "2.0"))
        elif change == "another file":
            Path("big/new.py").write_text(FSDP1)
        else:
            Path("big/part3.py").unlink()
        second = await _page(client, 2)
    assert ran == ["review"] * 2 and second["id"] != first["id"]


async def test_other_arguments_are_another_result(server: Any, ran: list[str]) -> None:
    async with Client(server) as client:
        await _page(client)
        await _page(client, 2, torch="2.12")
        await _page(client, 3, torch="2.12")
        await _page(client, 2)
    assert ran == ["review"] * 2


async def test_a_notebook_in_the_folder_does_not_count(desk: Any, ran: list[str]) -> None:
    from shardguide.frontends.mcp.server import build

    inside = desk._replace(notebook=str(Path.cwd() / "notebook.db"))
    async with Client(build(inside, "0")) as client:
        await _page(client)
        await client.call_tool("backend", {"device": "cpu", "torch": "2.13"})  # which is written there
        await _page(client, 2)
    assert ran == ["review", "backend"]


async def test_what_fails_or_is_cancelled_is_not_kept(
    server: Any, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(server) as client:
        assert (await client.call_tool("review", {**LONG, "paths": ["nowhere"]})).is_error
        Path("nowhere").mkdir()
        Path("nowhere/train.py").write_text(FSDP1)
        assert not (await client.call_tool("review", {**LONG, "paths": ["nowhere"], "page": 2})).is_error
        before = len(ran)
        reading, ended = anyio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def read_on(*rest: Any) -> Any:
            """As a long log is read: piece by piece, until the call is cancelled."""
            loop.call_soon_threadsafe(reading.set)
            try:
                while True:
                    take = WATCH.get()
                    assert take is not None
                    take(1)
                    time.sleep(0.01)
            finally:
                ended.set()

        with monkeypatch.context() as patched:
            patched.setattr(calls, "_answered", read_on)
            async with anyio.create_task_group() as group:
                group.start_soon(_page, client)
                await reading.wait()
                group.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(ended.wait, 20)
        await _page(client, 2)
    assert len(ran) == before + 2


def test_what_is_kept_is_bounded() -> None:
    results, seen = kept.Results(), kept.Seen()
    long = bounded.cut({"summary": "x", "diff": "y" * 1_500_000})
    assert len(long.bodies) > 60
    for number in range(30):
        results.keep(f"{number}", long, seen)
        results.keep(f"short {number}", bounded.cut({"summary": "x"}), seen)
    found = [number for number in range(30) if results.part(f"{number}", 2)]
    assert found == list(range(30 - len(found), 30)) and 3 <= len(found) <= 5  # the last ones, of 1.5 MB each
    assert not any(results.part(f"short {number}", 2) for number in range(30))
    results.keep("huge", bounded.cut({"summary": "x", "diff": "y" * 9_000_000}), seen)
    assert results.part("huge", 2) is None and results.part("29", 2)


def test_clients_do_not_share_results() -> None:
    arguments = {"paths": ["big"], "torch": None}
    assert kept.key_of("a", "review", arguments) != kept.key_of("b", "review", arguments)
    assert kept.key_of("a", "review", arguments) == kept.key_of("a", "review", {"paths": ["big"]})
    assert kept.key_of("a", "diagnose", arguments) != kept.key_of("a", "review", arguments)
