"""The table of ``nvidia-smi`` (drivers 331 to 610, with MIG devices) and the list of ``nvidia-smi -L``."""

from __future__ import annotations

import re

from shardguide.guidance.errors import UnusableInput

from .hw_evidence import GpuSeen, HardwareEvidence, MigSeen, Seen, bounded, clean_lines

_VERSION = re.compile(r"NVIDIA-SMI\s+(\d[\d.]*)")
_DRIVER = re.compile(r"(?:Driver|KMD) Version:\s*(\d[\d.]*)")  # "KMD Version" from driver 610 on
_CUDA = re.compile(r"CUDA (?:UMD )?Version:\s*(\d[\d.]*)")
# First line of a GPU: index, name (cut at the column's width), persistence mode or driver model, bus.
_GPU = re.compile(r"\s*(\d{1,4})\s+(.*\S)\s+(?:On|Off|N/A|WDDM|TCC|MCDM|ERR!)\s*$")
_BUS = re.compile(r"\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
_MEMORY = re.compile(r"(\d{1,9})MiB\s*/\s*(\d{1,9})MiB")
_MIG_MODE = re.compile(r"\|\s*(Enabled|Disabled)\*?\s*\|\s*$")
_MIG = re.compile(r"\|\s*(\d{1,4})\s+(\d{1,4})\s+(\d{1,4})\s+(\d{1,4})\s*\|\s*\d{1,9}MiB\s*/\s*(\d{1,9})MiB")
_LISTED = re.compile(r"^[^\S\n]*GPU (\d{1,4}): ([^()\n]+?) ?\(UUID: ", re.MULTILINE)
_WIDTH = 400  # characters of a line of the table, prompts and indentation included
_LISTED_MIG = re.compile(r"^\s*MIG (\S+)\s+Device\s+(\d{1,4}):")


def recognised(text: str) -> str:
    """``"nvidia-smi"`` for the table, ``"nvidia-smi -L"`` for the list, "" for neither."""
    if _VERSION.search(text) and "Bus-Id" in text:
        return "nvidia-smi"
    return "nvidia-smi -L" if _LISTED.search(text) else ""


def listed(text: str) -> bool:
    """Whether ``text`` holds the list of ``nvidia-smi -L``."""
    return _LISTED.search(text) is not None


def read(text: str, where: str) -> HardwareEvidence:
    """The evidence in the table. Raises UnusableInput when it is none, or lists no GPU."""
    lines = clean_lines(text, where, _WIDTH)
    driver = cuda = None
    gpus: dict[int, GpuSeen] = {}
    mig: list[MigSeen] = []
    notes: list[str] = []
    current: int | None = None  # the GPU whose further lines are being read
    known = in_mig = repeated = False
    for number, line in enumerate(lines, 1):
        if _VERSION.search(line):
            if known:
                repeated = True  # nvidia-smi -l, or several hosts in one file: the first table stands for itself
                break
            known = True
            driver = _seen(_DRIVER, line, number)
            cuda = _seen(_CUDA, line, number)
            continue
        if not known:
            continue
        if "MIG devices:" in line:
            in_mig, current = True, None
        elif "Processes:" in line:
            in_mig, current = False, None
        if in_mig:
            part = _MIG.search(line)
            if part:
                mig.append(MigSeen(int(part[1]), int(part[4]), "", int(part[5]), number))
            continue
        cells = line.split("|", 3)
        first = _GPU.match(cells[1]) if len(cells) == 4 and _BUS.match(cells[2]) else None
        if first:
            current = int(first[1])
            gpus[current] = GpuSeen(current, first[2], number)
        elif current is not None:
            gpus[current] = _further(gpus[current], line)
    if not known:
        raise UnusableInput(f"{where}: this is not the output of nvidia-smi.")
    if not gpus:
        raise UnusableInput(f"{where}: nvidia-smi's table lists no GPU; hand over the whole output.")
    if repeated:
        notes.append("the file holds several tables; the first is read")
    if len({(part.gpu, part.device) for part in mig}) < len(mig):
        notes.append("a MIG device is listed twice")
    found = bounded(list(gpus.values()), where)
    return HardwareEvidence(
        "nvidia-smi",
        where,
        gpus=found,
        mig=tuple(mig),
        gpu_count=Seen(len(found), found[0].line),
        driver=driver,
        cuda=cuda,
        notes=tuple(notes),
    )


def _seen(pattern: re.Pattern[str], line: str, number: int) -> Seen | None:
    match = pattern.search(line)
    return Seen(match[1], number) if match else None


def _further(gpu: GpuSeen, line: str) -> GpuSeen:
    """``gpu`` with what its second and third line add: memory in use and in total, MIG mode."""
    memory = _MEMORY.search(line)
    if memory and gpu.total_mib is None:
        return gpu._replace(used_mib=int(memory[1]), total_mib=int(memory[2]))
    mode = _MIG_MODE.search(line)
    if mode and gpu.mig is None:
        return gpu._replace(mig=mode[1] == "Enabled")
    return gpu


def read_list(text: str, where: str) -> HardwareEvidence:
    """The evidence in the list of ``nvidia-smi -L``. Raises UnusableInput when it is none."""
    gpus: dict[int, GpuSeen] = {}
    mig: list[MigSeen] = []
    current: int | None = None
    for number, line in enumerate(clean_lines(text, where, _WIDTH), 1):
        whole = _LISTED.search(line)
        part = _LISTED_MIG.search(line)
        if whole:
            current = int(whole[1])
            gpus.setdefault(current, GpuSeen(current, whole[2].strip(), number))
        elif part and current is not None:
            gpus[current] = gpus[current]._replace(mig=True)
            mig.append(MigSeen(current, int(part[2]), part[1], None, number))
    if not gpus:
        raise UnusableInput(f"{where}: this is not the output of nvidia-smi -L.")
    found = bounded(list(gpus.values()), where)
    return HardwareEvidence(
        "nvidia-smi -L",
        where,
        gpus=found,
        mig=tuple(mig),
        gpu_count=Seen(len(found), found[0].line),
    )
