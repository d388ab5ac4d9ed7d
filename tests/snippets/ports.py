"""Ports for programs that must be told one.

A port that was bound to 0 and closed again belongs to nobody: the kernel may hand it to the next listener or connection on the
machine before the program under test takes it. These ports lie below the range that the kernel hands out, and a UDP socket of the
same number, held until this process ends, keeps them from the other processes of the tests.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

_held: list[socket.socket] = []
_LAST = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port that nobody listens on and that no other call returns, in any process, while this one lives."""
    end = int(_LAST.read_text().split()[0]) if _LAST.exists() else 32768
    first, end = (20_000, end) if end > 21_000 else (20_000, 32_768)
    count = end - first
    for turn in range(count):
        port = first + (os.getpid() * 101 + len(_held) + turn) % count
        lock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            lock.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: who has ended is no matter
                probe.bind(("", port))
        except OSError:
            lock.close()
            continue
        _held.append(lock)
        return port
    raise RuntimeError("every port is taken")
