"""What ``backend`` can be told."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge.backends import OPERATIONS, operation

from ..fields import INTER, Field

SYSTEMS = ("linux", "macos", "windows")
DEVICES = ("cuda", "rocm", "xpu", "cpu", "mps")
# What fully_shard and FSDP1 call: gathers and reduce-scatters of shards, the all-reduce of hybrid sharding and of the norm in
# gradient clipping, the broadcast of states from rank 0.
FSDP = ("all_gather", "reduce_scatter", "all_reduce", "broadcast")
_DEVICE_WORDS = {"nvidia": "cuda", "amd": "rocm", "hip": "rocm", "intel": "xpu", "gpu": "cuda", "metal": "mps"}
_SYSTEM_WORDS = {"darwin": "macos", "mac": "macos", "osx": "macos", "win32": "windows", "win": "windows"}


def one_of(name: str, text: str, allowed: tuple[str, ...], words: dict[str, str]) -> str:
    """One of the allowed words, or what ``words`` takes for one. Raises UnusableInput for anything else."""
    word = text.strip().lower()
    word = words.get(word, word)
    if word not in allowed:
        raise UnusableInput(f"--{name} must be one of {', '.join(allowed)}, not {text.strip()[:40]!r}.")
    return word


def _device(text: str) -> str:
    return one_of("device", text, DEVICES, _DEVICE_WORDS)


def _system(text: str) -> str:
    return one_of("os", text, SYSTEMS, _SYSTEM_WORDS)


def _yes_or_no(name: str, text: str) -> str:
    return one_of(name, text, ("yes", "no"), {"true": "yes", "on": "yes", "false": "no", "off": "no"})


def _ipoib(text: str) -> str:
    return _yes_or_no("ipoib", text)


def _offload(text: str) -> str:
    return _yes_or_no("offload", text)


def _needs(text: str) -> str:
    """Comma-separated operations, as they were asked for; ``fsdp`` stands for its four, ``all`` for the whole table."""
    if len(text) > 1000:
        raise UnusableInput("--needs is too long; it takes the names of operations, separated by commas.")
    names: list[str] = []
    for part in text.split(","):
        word = part.strip().lower().replace("-", "_").rpartition(".")[2]
        if word in ("fsdp", "all"):
            names.extend(FSDP if word == "fsdp" else OPERATIONS)
        elif word:
            operation(word)  # refuses what the table does not have
            names.append(word)
    if not names:
        raise UnusableInput(
            "--needs takes the names of operations, separated by commas, such as all_gather,reduce_scatter."
        )
    return ",".join(dict.fromkeys(names))


DEVICE = Field(
    "device", _device, "what trains: cuda, rocm, xpu, cpu, mps", "On which kind of device do you train?",
    "Each backend serves some kinds of tensors only.", DEVICES, "KIND",
)  # fmt: skip
SYSTEM = Field(
    "os", _system, "linux, macos or windows", "Which operating system do the hosts run?",
    "What PyTorch ships differs: Windows has no NCCL.", SYSTEMS, "NAME",
)  # fmt: skip
IPOIB = Field(
    "ipoib", _ipoib, "whether IP over InfiniBand is enabled, for CPU hosts: yes or no", "Is IP over InfiniBand enabled on the hosts?",
    "Gloo needs it to use that network; without it the documentation names MPI.", ("yes", "no"), "WORD",
)  # fmt: skip
OFFLOAD = Field(
    "offload", _offload, "yes if parameters are offloaded to the CPU: CPU tensors need a backend as well", metavar="WORD",
)  # fmt: skip
NEEDS = Field(
    "needs", _needs, "operations, comma-separated, or fsdp (default) or all", metavar="OPS",
)  # fmt: skip

# In the order in which they are asked; the network has the name that the other workflows give it.
FIELDS = (DEVICE, INTER, SYSTEM, IPOIB, OFFLOAD, NEEDS)
