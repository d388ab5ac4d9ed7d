"""``shardguide mcp``: the server for coding agents."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING

from .parser import add_common

if TYPE_CHECKING:
    import socket

EPILOG = """examples:
  shardguide mcp                                stdio, as most hosts start it
  shardguide mcp --allow ~/runs --allow ./src   which folders it may read (default: the working folder)
  shardguide mcp --http 8900                    streamable HTTP on http://127.0.0.1:8900/mcp
  shardguide mcp --print-config claude-code     the lines that a host's configuration needs

Needs the extra mcp: pip install '.[mcp]' in Shardguide's folder"""

# Packages of the extra and what they require; the guard lets them load.
PACKAGES = (
    "ahocorasick_rs", "mcp", "mcp_types", "anyio", "pydantic", "pydantic_core", "pydantic_settings",
    "annotated_types", "typing_inspection", "starlette", "sse_starlette", "uvicorn", "h11", "click", "httpx",
    "httpx2", "httpcore", "httpcore2", "httpx_sse", "jsonschema", "jsonschema_specifications", "referencing", "rpds",
    "attr", "attrs", "jwt", "cryptography", "cffi", "_cffi_backend", "opentelemetry", "sniffio", "idna", "certifi",
    "truststore", "python_multipart", "multipart", "dotenv", "typing_extensions",
)  # fmt: skip


def configure(parser: ArgumentParser) -> None:
    """Where it listens and what it may read."""
    parser.epilog = EPILOG
    parser.add_argument(
        "--allow", action="append", default=[], metavar="FOLDER", help="folder whose files may be read (repeatable)"
    )
    parser.add_argument("--http", type=int, metavar="PORT", help="serve streamable HTTP on the loopback interface")
    parser.add_argument("--print-config", metavar="HOST", help="print the configuration for a host, and end")
    add_common(parser)


def prepare(arguments: Namespace) -> None:
    """Everything that the guard would look at one by one is loaded, and the index of questions opened, before it is on."""
    if arguments.print_config:
        return
    try:
        import anyio._backends._asyncio
        import mcp.server.stdio

        import shardguide.frontends.mcp.server
    except ImportError as error:
        if (error.name or "").startswith("shardguide"):
            raise
        raise UnusableInput(
            "shardguide mcp needs the extra mcp: pip install '.[mcp]' in Shardguide's folder."
        ) from None
    if arguments.http is not None:
        if not 0 < arguments.http < 1 << 16:
            raise UnusableInput("--http takes a port from 1 to 65535.")
        import uvicorn.lifespan.on
        import uvicorn.protocols.http.h11_impl

        _ = uvicorn
    from shardguide.knowledge import ask_store

    ask_store.connection()
    _ = anyio, mcp, shardguide


def call(arguments: Namespace) -> int:
    """Serve until the client leaves."""
    if arguments.print_config:
        from shardguide.frontends.mcp.hosts import configuration

        where, body = configuration(arguments.print_config)
        print(f"{where}:", file=sys.stderr)
        print(body, end="")  # alone, so that it can go into a file as it is
        return 0
    import anyio

    from shardguide import guard
    from shardguide.frontends.mcp import server
    from shardguide.frontends.mcp.calls import Desk
    from shardguide.frontends.mcp.folders import Folders
    from shardguide.notebook import find_place

    from .main import VERSION

    guard.install(find_place(arguments.notebook).path or None, PACKAGES)
    here = () if os.path.realpath(os.curdir) == os.sep else (os.curdir,)  # hosts may start it in /: that is no project
    desk = Desk(Folders(tuple(arguments.allow) or here), arguments.notebook, arguments.site_packages)
    made = server.build(desk, VERSION)
    if arguments.http is None:
        import signal

        # A thread waits in a read of standard input, which nothing but the end of the process ends.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            anyio.run(server.over_stdio, made)
        except BaseException as error:
            if not _gone(error):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
        return 0
    guard.permit("http")
    listening = _listening(arguments.http)
    print(f"Serving on http://127.0.0.1:{arguments.http}/mcp, for this machine only; Ctrl-C ends it.", file=sys.stderr)
    anyio.run(server.over_http, made, listening)
    return 0


def _gone(error: BaseException) -> bool:
    """Whether all that happened is that the client has closed its end."""
    within = getattr(error, "exceptions", None)  # of a group; Python 3.10 has none of its own
    return all(map(_gone, within)) if within else isinstance(error, BrokenPipeError)


def _listening(port: int) -> socket.socket:
    """A socket on the loopback interface. Raises UnusableInput where the port is not to be had."""
    import socket

    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
    except OSError as error:
        made.close()
        raise UnusableInput(f"--http {port}: {(error.strerror or str(error)).lower()}.") from None
    return made
