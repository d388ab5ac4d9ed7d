# ruff: noqa: PTH112, PTH117, PTH119
# (pathlib costs more at start-up than the whole guard)
"""The audit hook: one table from event to handler; an event without a handler returns at once.

Events, and what they carry, are those of https://docs.python.org/3/library/audit_events.html; which frame raises them
was tried on CPython 3.10 to 3.13 (``tests/guard`` runs every one of them).
"""

from __future__ import annotations

import os
import sys

from shardguide.guard.approved import DATABASE, REWRITE, Approved
from shardguide.guard.exchange import ERRORS, RECORDS
from shardguide.guard.trust import FORKING, Trust

TYPE_CHECKING = False  # typing itself takes longer to load than the guard
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Any

PERMITS = frozenset({"executor", "http", "remote", "results"})

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_IMPORTER = "<frozen importlib._bootstrap>"
_LOADER = "<frozen importlib._bootstrap_external>"
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_KEPT_VIOLATIONS = 20


class GuardViolation(Exception):
    """The product tried what it promises not to do; the message is one sentence, shown without a traceback."""


class RefusedImport(GuardViolation, ModuleNotFoundError):
    """An optional import of a dependency (rich looks for attrs): refused as if it were not installed."""


class RefusedCache(GuardViolation, PermissionError):
    """Bytecode that the import system may not keep; it goes on without, as with a folder that is read-only."""


def _shown(value: object) -> str:
    """A bounded, printable form of what an event carries."""
    return ascii(value)[:120]


class _Guard:
    """State and handlers. The hook holds the handlers themselves, so replacing an attribute does not change it."""

    def __init__(self) -> None:
        self.trust = Trust()
        self.approved = Approved()
        self.permits: frozenset[str] = frozenset()
        self.children: frozenset[int] = frozenset()
        self.violations: list[str] = []
        self.cache_prefix = sys.pycache_prefix
        process = self.process
        foreign = self.foreign
        owner = self.owner
        self.handlers: dict[str, Callable[[str, tuple[Any, ...]], None]] = {
            "open": self.open,
            "import": self.import_,
            "exec": self.exec,
            "compile": self.compile,
            "marshal.loads": self.unmarshal,
            "marshal.load": self.unmarshal,
            "code.__new__": self.build,
            "function.__new__": self.build,
            "pickle.find_class": self.unpickle,
            "sqlite3.connect": self.database,
            "sqlite3.enable_load_extension": foreign,
            "ctypes.dlopen": foreign,
            "ctypes.dlsym": foreign,
            "builtins.breakpoint": foreign,
            "subprocess.Popen": process,
            "os.system": process,
            "os.exec": process,
            "os.fork": process,
            "os.forkpty": process,
            "os.posix_spawn": process,
            "os.kill": self.kill,
            "os.killpg": self.kill,
            "socket.__new__": self.socket,
            "socket.bind": self.bind,
            "socket.connect": self.connect,
            "socket.sendto": self.connect,
            "socket.sendmsg": self.connect,
            "socket.getaddrinfo": self.resolve,
            "socket.gethostbyname": self.resolve,
            "socket.gethostbyaddr": self.resolve,
            "socket.getnameinfo": self.resolve,
            "syslog.syslog": self.system,
            "os.mkdir": self.mkdir,
            "os.remove": self.entry,
            "os.rmdir": self.entry,
            "os.rename": self.rename,
            "os.link": self.link,
            "os.symlink": self.link,
            "os.truncate": self.truncate,
            "os.chmod": owner,
            "os.chown": owner,
            "os.chflags": owner,
            "os.utime": owner,
            "os.setxattr": owner,
            "os.removexattr": owner,
        }

    def hook(self) -> Callable[[str, tuple[Any, ...]], None]:
        """The function that CPython calls, bound to the handlers as they are now."""
        find = self.handlers.get

        def hook(event: str, args: tuple[Any, ...]) -> None:
            handler = find(event)
            if handler is not None:
                handler(event, args)

        return hook

    def refuse(self, what: str, advice: str = "please report this as a bug of Shardguide") -> None:
        """Record and raise."""
        sentence = f"Shardguide's guard stopped an attempt to {what}; {advice}."
        if len(self.violations) < _KEPT_VIOLATIONS:
            self.violations.append(sentence)
        raise GuardViolation(sentence)

    def caller(self) -> tuple[str, str]:
        """File and function of the Python frame that raised the event (handler and hook lie above it)."""
        try:
            code = sys._getframe(3).f_code
        except ValueError:
            return "", ""
        return code.co_filename, code.co_name

    # Code ------------------------------------------------------------------------------------------------------------

    def import_(self, event: str, args: tuple[Any, ...]) -> None:
        """A module is looked for, or (with a file name) an extension module is about to be loaded."""
        name, file = str(args[0]), args[1]
        origin = self.caller()[0]
        if self.trust.name(name) and (file is None or self.trust.file(str(file))) and self.may_fork(name, origin):
            return
        if origin != _IMPORTER and (self.trust.in_library(origin) or self.trust.package(origin)):
            raise RefusedImport(f"{name} may not be loaded by Shardguide.", name=name)
        where = f" from {_shown(file)}" if file else ""
        self.refuse(f"load the module {_shown(name)}{where}")

    def may_fork(self, name: str, origin: str) -> bool:
        """Modules that start processes in C without an event: only subprocess, which raises its own, may have one."""
        if "executor" in self.permits or name not in FORKING:
            return True
        return name == "_posixsubprocess" and (origin == _IMPORTER or os.path.basename(origin) == "subprocess.py")

    def exec(self, event: str, args: tuple[Any, ...]) -> None:
        """A code object is about to run: a module's while it is imported, or text."""
        origin = self.caller()[0]
        file = getattr(args[0], "co_filename", "")
        if origin == _IMPORTER:
            if self.trust.file(file):
                return
            self.refuse(f"run the module {_shown(file)}", "if it stands in for a library's, start from another folder")
        if not self.trust.generates(origin):
            self.refuse(f"run code that it read or made ({_shown(file)})")

    def compile(self, event: str, args: tuple[Any, ...]) -> None:
        """Text becomes code, or a syntax tree. The event does not say which, so only ast.parse may ask for trees."""
        origin, function = self.caller()
        if origin == self.trust.ast and function == "parse":
            return
        if origin == _IMPORTER and self.trust.file(str(args[1])):
            return
        if not self.trust.generates(origin):
            self.refuse(f"compile text to code ({_shown(args[1])})")

    def unmarshal(self, event: str, args: tuple[Any, ...]) -> None:
        """Bytecode is read. Only the import system reads it; what it reads must pass exec() before it runs."""
        if self.caller()[0] not in (_LOADER, _IMPORTER, "<frozen zipimport>"):
            self.refuse("read marshalled data")

    def build(self, event: str, args: tuple[Any, ...]) -> None:
        """A code object or a function is put together by hand; types.coroutine does so."""
        origin = self.caller()[0]
        if not (self.trust.in_library(origin) or self.trust.package(origin)):
            self.refuse(f"build executable code ({event})")

    def unpickle(self, event: str, args: tuple[Any, ...]) -> None:
        """A pickle names a class or function to call. Permit "results": what reading processes exchange."""
        if "results" in self.permits and len(args) == 2:
            module, name = args
            if name in RECORDS.get(module, ()) or (module == "builtins" and name in ERRORS):
                return
        self.refuse(f"load {_shown('.'.join(map(str, args)))} from a pickle")

    def foreign(self, event: str, args: tuple[Any, ...]) -> None:
        """Ways out of this interpreter that are never needed."""
        self.refuse(f"leave the interpreter ({event}: {_shown(args[-1] if args else '')})")

    # Processes and network -------------------------------------------------------------------------------------------

    def process(self, event: str, args: tuple[Any, ...]) -> None:
        """A process is started."""
        if "executor" not in self.permits:
            self.refuse(f"start a process ({event}: {_shown(args[0] if args else '')})")

    def system(self, event: str, args: tuple[Any, ...]) -> None:
        """The machine is changed outside of any file."""
        self.refuse(f"change the system ({event})")

    def kill(self, event: str, args: tuple[Any, ...]) -> None:
        """A signal is sent. To itself is fine: that is how a program ends properly after Ctrl-C; to its own readers as well."""
        if event == "os.kill" and (args[0] == os.getpid() or args[0] in self.children):
            return
        if "executor" not in self.permits:
            self.refuse(f"send a signal to process {_shown(args[0])}")

    def socket(self, event: str, args: tuple[Any, ...]) -> None:
        """A socket is made. Local pairs are how asyncio wakes itself up; they lead nowhere."""
        if args[1] != 1 and not ("http" in self.permits or "remote" in self.permits):  # 1: AF_UNIX, everywhere
            self.refuse("open a network socket")

    def bind(self, event: str, args: tuple[Any, ...]) -> None:
        """A server's address. Permit "http": loopback only."""
        address = args[1]
        if "http" in self.permits and isinstance(address, tuple) and address[0] in _LOOPBACK:
            return
        self.refuse(f"listen on {_shown(address)}")

    def connect(self, event: str, args: tuple[Any, ...]) -> None:
        """A connection, or a datagram. On a connected socket the address is None."""
        address = args[1]
        if "remote" in self.permits or address is None:
            return
        self.refuse(f"connect to {_shown(address)}")

    def resolve(self, event: str, args: tuple[Any, ...]) -> None:
        """A name is looked up."""
        host = args[0].decode("ascii", "replace") if isinstance(args[0], bytes) else args[0]
        if "remote" in self.permits or ("http" in self.permits and host in _LOOPBACK):
            return
        self.refuse(f"look up the address {_shown(host)}")

    # Files -----------------------------------------------------------------------------------------------------------

    def open(self, event: str, args: tuple[Any, ...]) -> None:
        """Opening for reading is free; os.open carries no mode, the others carry both."""
        path, mode, flags = args
        if not (flags or 0) & _WRITING and (mode is None or not any(letter in mode for letter in "wax+")):
            return
        if isinstance(path, int):
            return  # an open descriptor: whoever opened it was asked
        name = os.fsdecode(path)
        if mode is None and not os.path.isabs(name):
            self.refuse(f"write to {_shown(name)} by a relative path")  # dir_fd may be meant, and the event hides it
        self.written(name, follow=True)

    def written(self, name: str, follow: bool) -> None:
        """Let approved paths pass, and the bytecode that the import system keeps of trusted modules; else refuse."""
        if self.approved.covers(name, follow):
            return
        try:
            writer = sys._getframe(3).f_code.co_filename
        except ValueError:
            writer = ""
        if writer == _LOADER:
            if self.cache_prefix and (name + os.sep).startswith(self.cache_prefix + os.sep):
                return
            if self.trust.file(name.partition(os.sep + "__pycache__")[0] + os.sep):
                return
            raise RefusedCache(f"{name} is not Shardguide's to write.")
        self.refuse(f"write to {_shown(name)}")

    def entry(self, event: str, args: tuple[Any, ...]) -> None:
        """A directory entry goes: the link itself counts, not what it points to."""
        self.no_descriptor(event, args[-1])
        self.written(os.fsdecode(args[0]), follow=False)

    def mkdir(self, event: str, args: tuple[Any, ...]) -> None:
        """A folder is made: inside an approved path, or on the way to one."""
        self.no_descriptor(event, args[-1])
        name = os.fsdecode(args[0])
        if not self.approved.leads_to(name):
            self.written(name, follow=False)

    def rename(self, event: str, args: tuple[Any, ...]) -> None:
        """Both ends must be approved."""
        self.no_descriptor(event, args[2], args[3])
        self.written(os.fsdecode(args[0]), follow=False)
        self.written(os.fsdecode(args[1]), follow=False)

    def link(self, event: str, args: tuple[Any, ...]) -> None:
        """Links would let an approved path reach outside; nothing of ours needs one."""
        self.refuse(f"make a link at {_shown(args[1])}")

    def truncate(self, event: str, args: tuple[Any, ...]) -> None:
        """By descriptor it was opened for writing before."""
        if not isinstance(args[0], int):
            self.written(os.fsdecode(args[0]), follow=True)

    def owner(self, event: str, args: tuple[Any, ...]) -> None:
        """Mode, owner, times and attributes can be changed through a descriptor opened for reading."""
        if isinstance(args[0], int):
            self.refuse(f"change a file by its descriptor ({event})")
        if event in ("os.chmod", "os.chown", "os.utime"):
            self.no_descriptor(event, args[-1])
        self.written(os.fsdecode(args[0]), follow=True)

    def no_descriptor(self, event: str, *descriptors: int) -> None:
        """Paths relative to an open folder cannot be checked."""
        if any(descriptor != -1 for descriptor in descriptors):
            self.refuse(f"change a file relative to an open folder ({event})")

    def database(self, event: str, args: tuple[Any, ...]) -> None:
        """SQLite opens its files in C. A URI could name anything, so only plain paths and memory pass."""
        name = os.fsdecode(args[0])
        if name == ":memory:":
            return
        if name == "" or name.startswith("file:"):
            self.refuse(f"open the database {_shown(name)}")
        self.written(name, follow=True)


_guard: _Guard | None = None


def install(notebook: str | None = None, packages: Iterable[str] = ()) -> None:
    """Switch the guard on for the rest of the process; a further call only adds its notebook and packages.

    ``notebook`` is the path of the notebook's database, the one file that may be written without asking. ``packages``
    are top-level module names that a front end needs besides pyproject.toml's plain dependencies (an extra's); they may
    also run source text that they generate, as validation libraries do.
    """
    global _guard
    if _guard is None:
        _guard = _Guard()
        sys.addaudithook(_guard.hook())
    if notebook:  # find_place() gives "" where there is no home; the real path of "" would be the working folder
        _guard.approved.add(notebook, DATABASE)
    names = frozenset(packages)
    if names:
        _guard.trust.add(names)


def installed() -> bool:
    """Whether the guard is on."""
    return _guard is not None


def permit(name: str) -> None:
    """Allow what one option of the user's stands for, until the process ends.

    "executor": processes. "results": records that processes started before the guard read for us. "http": a server on the
    loopback interface. "remote": connections to other machines. Only the code of a front end that has read the option from
    the user may call this; nothing read from a file leads here.
    """
    if name not in PERMITS:
        raise ValueError(f"{name!r} is no permit; there are {', '.join(sorted(PERMITS))}.")
    if _guard is not None:
        _guard.permits |= {name}


def own(children: Iterable[int]) -> None:
    """Processes that the front end itself started before the guard, by their numbers: it may end them."""
    if _guard is not None:
        _guard.children |= frozenset(children)


class allow_write:
    """``with allow_write(path):`` lets the product write a file, or all below a folder, that the user has approved.

    Links are resolved at each write, so a link inside the folder does not lead out of it. Folders missing above the
    path may be made. For a file its temporary and backup neighbours (``approved.REWRITE``) are approved with it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._entry: tuple[str, tuple[str, ...]] | None = None

    def __enter__(self) -> str:
        """The real path."""
        if _guard is None:
            return os.path.realpath(self.path)
        self._entry = _guard.approved.add(self.path, () if os.path.isdir(self.path) else REWRITE)
        return self._entry[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Takes the approval back."""
        if _guard is not None and self._entry is not None:
            _guard.approved.remove(self._entry)
            self._entry = None


def violations() -> tuple[str, ...]:
    """What was stopped so far, in case an exception was swallowed on the way; the first twenty."""
    return tuple(_guard.violations) if _guard is not None else ()
