"""Entry point: picks the command, installs the guard, turns every failure into one sentence and an exit status.

Kept free of imports that a ``--help`` does not need: start-up is a feature.
"""

from __future__ import annotations

import sys

from shardguide import guard
from shardguide.guidance.errors import UnusableInput

# command -> (module, one line of help); the module has ``configure(parser)`` and ``call(arguments) -> int``
COMMANDS: dict[str, tuple[str, str]] = {
    "plan": ("plan", "an FSDP configuration for a model and a cluster, exact and with sources"),
    "tune": ("tune", "mixed precision and CPU offload for what you run now"),
    "backend": ("backend", "NCCL, XCCL, Gloo or MPI for a device and a network, by the official table"),
    "init": ("init", "the init_process_group call, its environment and its end; or a check of yours"),
    "join": ("join", "uneven inputs: Join for your loop and its flags, or what to do where FSDP is in it"),
    "fsdp2": ("fsdp2", "FSDP2 or not for your release and goals; FSDP1 and FSDP2 compared, name by name"),
    "explain": ("explain", "a subject with its sources, and code for it that was run"),
    "ask": ("ask", "a question in your words, answered from the sources, or honestly not known"),
    "diagnose": ("diagnose", "logs and dumps of a failed job: the rank, the cause and the fix"),
    "review": ("review", "your training code, read and never run: what hangs, fails or goes wrong, and the fix"),
    "migrate": ("migrate", "FSDP1 code as FSDP2 code: a diff, and what you must decide"),
    "docs": ("docs", "look up a name, what changed between releases, or check every claim"),
    "answers": ("answers", "show, set or forget what was answered before"),
    "history": ("history", "earlier guidance"),
    "approve": ("approve", "confirm guidance for use"),
    "reject": ("reject", "turn guidance down"),
    "apply": ("apply", "write what an answer proposed, after showing it and a yes"),
    "chat": ("chat", "the guided conversation; shardguide alone opens it on a terminal or a pipe"),
    "skill": ("skill", "the agent skill: show it, or install it for an agent"),
    "completion": ("completion", "completion for bash or zsh"),
    "mcp": ("mcp", "the server for coding agents (Model Context Protocol)"),
}

VERSION = "0.1.0"
_PATIENCE = 5.0  # seconds in which the first line of a pipe is to arrive

EPILOG = """exit status:
  0  answered
  1  findings, or claims that were not found again
  2  unusable input
  3  answers are missing

Shardguide never runs your code, never starts training, never connects anywhere
but to a URL or a cluster that you name to diagnose, and writes only its notebook, or what you
approved (apply, plan --write, skill install)."""


def _usage() -> str:
    width = max(len(name) for name in COMMANDS)
    lines = [f"  {name:<{width}}  {help_line}" for name, (_, help_line) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: shardguide COMMAND [options]     (shardguide COMMAND --help for its options)",
            "",
            "Plans, configures and troubleshoots PyTorch FSDP training, with its sources.",
            "",
            "commands:",
            *lines,
            "",
            EPILOG,
        ]
    )


def _prepare_output() -> None:
    """Output that can be written: UTF-8 where the locale says ASCII (JSON is UTF-8), "?" for what another encoding lacks."""
    if sys.stdout is None:  # closed by the caller: shardguide ... >&-
        import os

        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open as long as the process
    encoding = (sys.stdout.encoding or "utf-8").lower()
    if encoding not in ("utf-8", "utf8"):
        ascii_ = encoding in ("ascii", "us-ascii", "ansi_x3.4-1968", "646")
        sys.stdout.reconfigure(encoding="utf-8" if ascii_ else None, errors="replace")  # type: ignore[union-attr]


def _let_go() -> None:
    """Drop output that nobody takes: Python would complain about it once more while it closes stdout."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _settle() -> None:
    """Write out what is buffered, or let go of it where that is what failed."""
    try:
        sys.stdout.flush()
    except OSError:
        _let_go()


def _fail(message: str) -> int:
    """One sentence on stderr, exit status 2."""
    from shardguide.frontends.render.safe import one_line

    print(f"shardguide: {one_line(message)}", file=sys.stderr)
    return 2


def _spoken_to() -> bool:
    """Whether somebody talks to the bare command: on a terminal, or by lines in a file or a pipe."""
    import os
    import select
    import stat

    if sys.stdin is None or sys.stdin.isatty():
        return sys.stdin is not None and sys.stdout.isatty()
    try:
        found = os.fstat(sys.stdin.fileno())
        if stat.S_ISREG(found.st_mode):
            return found.st_size > os.lseek(sys.stdin.fileno(), 0, os.SEEK_CUR)
        if not stat.S_ISFIFO(found.st_mode):
            return False
        # An empty pipe whose other end is still open may be one that nobody will ever write to: then what can be done is said.
        ready = select.select([sys.stdin], [], [], _PATIENCE)[0]
        return bool(ready and sys.stdin.buffer.peek(1))  # type: ignore[union-attr]
    except (OSError, ValueError):
        return False


def _no_command(name: str, rest: list[str]) -> str:
    """What to type instead: words are for ask and chat, a slip of the keyboard has a command near it."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), COMMANDS, 1, 0.7)
    if near:
        return f"there is no command {name!r}; did you mean shardguide {near[0]}?"
    words = " ".join((name, *rest)).replace("'", "")
    if " " in words.strip():
        said = words if len(words) <= 60 else f"{words[:60]}…"
        return (
            f"words go to a command: shardguide chat '{said}' finds out what they are about, shardguide ask '…' answers a question, "
            "shardguide diagnose FILE reads a log; shardguide help lists all."
        )
    return f"there is no command {name!r}; the commands are {', '.join(COMMANDS)}."


def _run(arguments: list[str]) -> int:
    """Find the command's module and let it work."""
    if not arguments and _spoken_to():
        arguments = ["chat"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"shardguide {VERSION}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        raise UnusableInput(_no_command(name, rest))
    from importlib import import_module

    from .parser import Parser

    module = import_module(f"{__package__}.{COMMANDS[name][0]}")
    parser = Parser(prog=f"shardguide {name}", description=COMMANDS[name][1][:1].upper() + COMMANDS[name][1][1:] + ".")
    module.configure(parser)
    parsed = parser.parse_args(rest)
    # The command's own modules are loaded before the guard is on, which would look at each of them; nothing of the user's
    # but the command line has been read so far, and nothing is read before it is on.
    if hasattr(module, "load"):
        module.load()
    # Processes and connections that the command line asks for: once the guard is on, nobody can start one.
    if hasattr(module, "prepare"):
        module.prepare(parsed)
    guard.install()
    status: int = module.call(parsed)
    return status


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status; no traceback reaches the user."""
    _prepare_output()
    try:
        try:
            status = _run(sys.argv[1:] if arguments is None else arguments)
        except SystemExit as leaving:  # argparse, after the help of a command
            status = leaving.code if isinstance(leaving.code, int) else 0
        sys.stdout.flush()
        return status
    except UnusableInput as error:
        return _fail(str(error))
    except guard.GuardViolation as error:
        return _fail(str(error))
    except BrokenPipeError:
        _let_go()  # the reader of our output (head, less) has left
        return 0
    except KeyboardInterrupt:
        return 130
    except (RecursionError, MemoryError):
        return _fail("the input is nested too deeply or too large to be read.")
    except OSError as error:
        _settle()
        return _fail(f"{error.strerror or error}{': ' + str(error.filename) if error.filename else ''}.")
    except Exception as error:
        import os

        if "SHARDGUIDE_TRACEBACK" in os.environ:
            raise
        return _fail(
            f"internal error ({type(error).__name__}: {error}); this is a bug in Shardguide. "
            "Set SHARDGUIDE_TRACEBACK=1 to see where, and report it."
        )


def run() -> None:
    """The console script.

    The process ends at once when everything is written: taking every module and object apart again would cost a tenth of a
    plan's time. The cyclic garbage collector may wait as well, since a command makes no garbage worth its passes.
    """
    import gc
    import os

    gc.set_threshold(50_000, 20, 100)
    status = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
    os._exit(status)
