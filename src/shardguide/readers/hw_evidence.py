"""What files say about the hardware, as typed evidence: every value with the line it stands on.

Readers of single formats make a ``HardwareEvidence``; ``environment`` recognises the format and merges several.
Nothing is judged here: whether a name is a known product is looked up by the workflow.
"""

from __future__ import annotations

import re

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple

LIMIT = 8 << 20  # bytes of one file; real ones have some kilobytes
MOST_LINES = 200_000
LONGEST = 32_768  # characters of a line; a report pasted without line breaks has some 10,000
MOST_GPUS = 256  # on one host; real hosts have up to 16, or 64 when partitioned


class Seen(NamedTuple):
    """A value with its place."""

    value: Any
    line: int  # 1-based


class GpuSeen(NamedTuple):
    """One GPU, or one device that PyTorch sees, as a file lists it."""

    number: int  # as the tool counts, from 0
    name: str  # as printed; may be cut short by "..."
    line: int
    total_mib: int | None = None
    used_mib: int | None = None
    mig: bool | None = None  # MIG mode; None: not said, or the GPU has none
    capability: str = ""  # "9.0" or "gfx942"


class MigSeen(NamedTuple):
    """One MIG device."""

    gpu: int  # number of the GPU that it is a part of
    device: int
    profile: str  # "1g.10gb"; "" in the table of nvidia-smi, which does not print it
    total_mib: int | None  # of its GPU instance, which several devices may share
    line: int


class PathSeen(NamedTuple):
    """The connection of two devices as ``nvidia-smi topo -m`` names it."""

    first: str  # "GPU0"
    second: str  # "NIC0"
    kind: str  # "NV18", "PIX", "PXB", "PHB", "NODE", "SYS"
    line: int


class NicSeen(NamedTuple):
    """A network adapter."""

    id: str  # "NIC0", or its device name
    name: str  # "mlx5_0"; "" unknown
    rdma: bool | None  # whether it can do RDMA; None: not visible
    note: str
    line: int


class HardwareEvidence(NamedTuple):
    """What one file says about one host. Empty or None: the file does not say."""

    kind: str  # "collect_env", "nvidia-smi", "nvidia-smi -L", "topology", "gpu-csv", "accelerate", "rocm-smi", …
    file: str  # name for people
    gpus: tuple[GpuSeen, ...] = ()
    mig: tuple[MigSeen, ...] = ()
    gpu_count: Seen | None = None  # GPUs (for Intel and AMD: devices) of this host
    driver: Seen | None = None
    cuda: Seen | None = None  # newest CUDA that the driver serves ("CUDA Version" of nvidia-smi)
    torch: Seen | None = None  # "2.13.0+cu130"
    torch_build: Seen | None = None  # "cpu", "cuda", "rocm", "xpu"
    built_with: Seen | None = None  # version of CUDA, ROCm or oneAPI that PyTorch was built with
    available: Seen | None = None  # whether PyTorch saw an accelerator
    os: Seen | None = None
    paths: tuple[PathSeen, ...] = ()
    nics: tuple[NicSeen, ...] = ()
    intra: Seen | None = None  # "nvlink" or "pcie", when all pairs of GPUs agree
    settings: tuple[tuple[str, Seen], ...] = ()  # accelerate: "num_processes", "fsdp.version", …
    notes: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """The distinct names, in order: more than one means mixed GPUs."""
        return tuple(dict.fromkeys(gpu.name for gpu in self.gpus if gpu.name))

    @property
    def totals(self) -> tuple[int, ...]:
        """The distinct totals in MiB, ascending: more than one means mixed memory."""
        return tuple(sorted({gpu.total_mib for gpu in self.gpus if gpu.total_mib}))

    def place(self, line: int) -> str:
        """``file, line N``."""
        return f"{self.file}, line {line}"


# What terminals, CI logs and chat leave around the lines of a tool.
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_STAMP = re.compile(r"^\s*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?\]?[ \t]")
_QUOTE = re.compile(r"^(?:[ \t]*>)+[ \t]?")


def clean_lines(text: str, where: str, width: int = LONGEST) -> list[str]:
    """The lines of ``text`` without colour codes, carriage returns, time stamps of a log and quotation marks of a mail.

    Numbering stays that of the file; longer lines are cut at ``width``. Raises UnusableInput for text that no tool
    writes.
    """
    if text.count("\n") > MOST_LINES:
        raise UnusableInput(f"{where}: more than {MOST_LINES} lines; hand over only the output of the tool.")
    found = []
    for line in text.removeprefix("\ufeff").split("\n"):
        if len(line) > LONGEST:
            raise UnusableInput(f"{where}: a line of {len(line)} characters; that is not the output of such a tool.")
        line = _ANSI.sub("", line) if "\x1b" in line else line
        line = line.rstrip("\r").replace("\xa0", " ")
        found.append(_QUOTE.sub("", _STAMP.sub("", line))[:width])
    return found


def bounded(gpus: list[GpuSeen], where: str) -> tuple[GpuSeen, ...]:
    """``gpus``, refused above what a host can have."""
    if len(gpus) > MOST_GPUS:
        raise UnusableInput(f"{where}: lists {len(gpus)} GPUs, more than one host has; hand over one host's output.")
    return tuple(gpus)
