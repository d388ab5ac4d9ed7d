"""Pickles of plain data, read without ever building anything else.

A pickle is a program for a small machine; what makes it dangerous is that it may name any function and call it. Here every
name is refused, so that only dicts, lists, tuples, strings, numbers and None can come out, and the memory that reading may take
is bounded by the file's size.
"""

from __future__ import annotations

import gc
import io
import pickle
from _thread import allocate_lock
from collections.abc import Callable

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NoReturn

LARGEST = 1 << 30  # bytes of one file
PER_BYTE = 64  # memory that plain data may take for each byte of its pickle
SPARE = 1 << 28


class _Plain(pickle.Unpickler):
    """Builds plain data only."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse: no class and no function is needed for plain data."""
        raise UnusableInput(f"it names {module}.{name}"[:120])

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refuse: plain data refers to nothing outside."""
        raise UnusableInput("it refers to something outside itself")


def loads(data: bytes, name: str, then: Callable[[Any], Any] | None = None) -> Any:
    """The plain data of a pickle, or what ``then`` makes of it under the same limits. ``name`` is the file, for the sentence.

    Raises UnusableInput for a pickle that is cut off, damaged, too large, or asks for anything but plain data.
    """
    if len(data) > LARGEST:
        raise UnusableInput(f"{name} is larger than {LARGEST >> 20} MiB.")
    with Bounded(len(data)):
        content = _content(data, name)
        if then is None:
            return content
        try:
            made = then(content)
        except (RecursionError, MemoryError):
            raise UnusableInput(
                f"{name} holds values inside values, far more than a dump has; it is not read."
            ) from None
        del content  # before the garbage collector is back
        return made


def _content(data: bytes, name: str) -> Any:
    try:
        return _Plain(io.BytesIO(data)).load()
    except UnusableInput as error:
        raise UnusableInput(f"{name} is no plain dump: {error}; nothing of it was executed.") from None
    except MemoryError:
        raise UnusableInput(f"{name} asks for far more memory than its size allows; it is not read.") from None
    except RecursionError:
        raise UnusableInput(f"{name} is nested too deeply to be read.") from None
    except Exception as error:  # a damaged pickle raises anything: KeyError, IndexError, UnpicklingError, ...
        raise UnusableInput(f"{name} is damaged or cut off ({type(error).__name__}).") from None


class Bounded:
    """Limits what the process may allocate while a file of ``size`` bytes is read, where the system can.

    A few bytes can ask for gigabytes. The garbage collector rests meanwhile: plain data needs none, and it would look at
    millions of objects again and again. One at a time: the limit is the whole process's.
    """

    lock = allocate_lock()

    def __init__(self, size: int) -> None:
        self.more = size * PER_BYTE + SPARE
        self.before: tuple[int, int] | None = None

    def __enter__(self) -> None:
        self.lock.acquire()
        self.collected = gc.isenabled()
        gc.disable()
        try:
            import resource

            with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
                now = int(file.read().split()[0]) * resource.getpagesize()
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            wanted = now + self.more
            if soft == resource.RLIM_INFINITY or soft > wanted:
                resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
                self.before = (soft, hard)
        except (ImportError, OSError, ValueError):
            return  # no such limit here (macOS): the size of the file is the only bound

    def __exit__(self, *_: object) -> None:
        try:
            if self.before is not None:
                import resource

                resource.setrlimit(resource.RLIMIT_AS, self.before)
        finally:
            if self.collected:
                gc.enable()
            self.lock.release()
