"""What ``init`` can be told."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput

from ..backend.fields import SYSTEM, one_of
from ..fields import Field

METHODS = ("env", "tcp", "file")
LAUNCHERS = ("torchrun", "slurm", "mpirun", "spawn", "hand")
NAMES = ("nccl", "gloo", "mpi", "xccl", "ucc")
DEVICES = ("cpu", "cuda", "xpu", "mps")
_METHOD_WORDS = {"environment": "env", "env://": "env", "tcp://": "tcp", "file://": "file"}
_LAUNCHER_WORDS = {
    "srun": "slurm",
    "sbatch": "slurm",
    "mpi": "mpirun",
    "mpiexec": "mpirun",
    "elastic": "torchrun",
    "manual": "hand",
}
MOST_OF_A_CALL = 20_000  # characters; a call has some hundred
MOST = 1 << 20  # processes, far above any cluster


def _method(text: str) -> str:
    return one_of("method", text, METHODS, _METHOD_WORDS)


def _launcher(text: str) -> str:
    return one_of("launcher", text, LAUNCHERS, _LAUNCHER_WORDS)


def backend_text(text: str) -> str:
    """``nccl``, or one backend for each kind of device: ``cpu:gloo,cuda:nccl``. Raises UnusableInput for anything else."""
    word = text.strip().lower()
    if ":" not in word:
        if word not in NAMES:
            raise UnusableInput(
                f"--backend must be one of {', '.join(NAMES)}, or such as cpu:gloo,cuda:nccl, not {text.strip()[:40]!r}."
            )
        return word
    pairs: dict[str, str] = {}
    for part in word.split(","):
        device, _, name = part.strip().partition(":")
        if device not in DEVICES or name not in NAMES:
            raise UnusableInput(
                f"--backend {text.strip()[:60]!r}: each part must be a device and a backend, such as cuda:nccl."
            )
        if device in pairs:
            raise UnusableInput(f"--backend {text.strip()[:60]!r} names {device} twice; PyTorch refuses that.")
        pairs[device] = name
    return ",".join(f"{device}:{name}" for device, name in pairs.items())


def _number(name: str, least: int, text: str) -> int:
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9 or not least <= int(digits) <= MOST:
        raise UnusableInput(f"--{name} must be a whole number from {least} to {MOST:,}, not {text.strip()[:40]!r}.")
    return int(digits)


def _world_size(text: str) -> int:
    return _number("world-size", 1, text)


def _rank(text: str) -> int:
    return _number("rank", 0, text)


def multicast(host: str) -> bool:
    """Whether an address is a multicast one: 224.0.0.0 to 239.255.255.255, or ff00::/8 (RFC 1112 and RFC 4291)."""
    bare = host.strip("[]").lower()
    if ":" in bare:
        first = bare.partition(":")[0]
        return len(first) == 4 and first.startswith("ff")
    parts = bare.split(".")
    return len(parts) == 4 and all(part.isdigit() for part in parts) and 224 <= int(parts[0]) <= 239


def split_address(text: str) -> tuple[str, int]:
    """Host and port of ``10.0.0.1:29500`` or ``[fd00::1]:29500``; the port is -1 where there is none that can be."""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        return text, -1
    good = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16
    return host, int(port) if good else -1


def address(text: str) -> str:
    """host:port of ``10.0.0.1:29500`` or ``tcp://10.0.0.1:29500``. Raises UnusableInput for anything else."""
    bare = text.strip().removeprefix("tcp://").rstrip("/")
    host, port = split_address(bare)
    if (
        not host
        or not host.isascii()
        or not host.strip("[]").replace(".", "").replace("-", "").replace("_", "").replace(":", "").isalnum()
    ):
        raise UnusableInput(f"--address must be host:port of rank 0, such as node0:29500, not {text.strip()[:60]!r}.")
    if port < 0:
        raise UnusableInput(f"--address {bare[:60]} needs a port from 1 to 65535: host:port.")
    if multicast(host):
        raise UnusableInput(
            f"--address {bare[:60]} is a multicast address, which PyTorch no longer supports; give rank 0's own."
        )
    return bare


def path_text(text: str) -> str:
    """The path of ``/shared/x`` or ``file:///shared/x``. Raises UnusableInput for one that a URL or a string would not carry."""
    bare = text.strip().removeprefix("file://")
    if not bare or len(bare) > 1000 or any(char in bare for char in "\x00\n\r\"'?#%{}$`"):
        raise UnusableInput(
            "--path must be the path of a file that does not exist yet, without quotes, '?', '#' or '%'."
        )
    return bare


METHOD = Field(
    "method", _method, "env, tcp or file", "How do the processes find each other?",
    "env:// reads the environment (the default), tcp:// an address of rank 0, file:// a file on a shared file system.", METHODS,
    "NAME",
)  # fmt: skip
BACKEND = Field(
    "backend", backend_text, "nccl, gloo, xccl, mpi, ucc, or such as cpu:gloo,cuda:nccl", "Which backend carries the collectives?",
    "The call, the device and the timeout depend on it; shardguide backend chooses one.", ("nccl", "gloo", "xccl", "mpi"), "NAME",
)  # fmt: skip
LAUNCHER = Field(
    "launcher", _launcher, "what starts the processes: torchrun, slurm, mpirun, spawn, hand", metavar="NAME",
)  # fmt: skip
WORLD_SIZE = Field("world_size", _world_size, "number of processes in all", metavar="N")
RANK = Field("rank", _rank, "rank of one process, for the environment block of --launcher hand", metavar="R")
ADDRESS = Field(
    "address", address, "host:port of rank 0, for tcp and env", "Which address and port has rank 0?",
    "It must belong to the machine of rank 0, be free there and reachable from all processes.", (), "HOST:PORT",
)  # fmt: skip
PATH = Field(
    "path", path_text, "file for --method file: it must not exist yet, in a folder that does", "Which file do the processes share?",
    "It must not exist yet, in an existing folder, on a file system that all machines share.", (), "FILE",
)  # fmt: skip

# In the order in which they are asked.
FIELDS = (METHOD, BACKEND, LAUNCHER, WORLD_SIZE, RANK, ADDRESS, PATH, SYSTEM)
