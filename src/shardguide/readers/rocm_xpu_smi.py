"""What is simple in the tools of the other vendors: ``rocm-smi``, ``amd-smi static``, ``xpu-smi discovery``."""

from __future__ import annotations

import re

from shardguide.guidance.errors import UnusableInput

from .hw_evidence import GpuSeen, HardwareEvidence, Seen, bounded, clean_lines

_ROCM = re.compile(r"^GPU\[(\d{1,3})\]\s*:\s*(?:Device Name|Card [Ss]eries|Device name):\s*(\S.*?)\s*$")
_ROCM_TOTAL = re.compile(r"^GPU\[(\d{1,3})\]\s*:\s*VRAM Total Memory \(B\):\s*(\d{1,15})\s*$")
_ROCM_USED = re.compile(r"^GPU\[(\d{1,3})\]\s*:\s*VRAM Total Used Memory \(B\):\s*(\d{1,15})\s*$")
_AMD_GPU = re.compile(r"^GPU:\s*(\d{1,3})\s*$")
_AMD_NAME = re.compile(r"^\s*MARKET_NAME:\s*(\S.*?)\s*$")
_AMD_ARCH = re.compile(r"^\s*TARGET_GRAPHICS_VERSION:\s*(gfx\w+)\s*$")
_AMD_SIZE = re.compile(r"^\s*SIZE:\s*(\d{1,9}) MB\s*$")
_XPU = re.compile(r"^\|\s*(\d{1,3})\s*\|\s*Device Name:\s*(\S.*?)\s*\|\s*$")


def recognised(text: str) -> str:
    """``"rocm-smi"``, ``"amd-smi"``, ``"xpu-smi"`` or ""."""
    if "ROCm System Management Interface" in text or re.search(r"^GPU\[\d+\]\s*:", text, re.MULTILINE):
        return "rocm-smi"
    if re.search(r"^GPU:\s*\d+\s*$", text, re.MULTILINE) and "ASIC:" in text:
        return "amd-smi"
    return "xpu-smi" if re.search(r"^\|\s*\d+\s*\|\s*Device Name:", text, re.MULTILINE) else ""


def read(text: str, where: str) -> HardwareEvidence:
    """The evidence in the output. Raises UnusableInput when it names no GPU."""
    kind = recognised(text)
    gpus: dict[int, GpuSeen] = {}
    current: int | None = None
    for number, line in enumerate(clean_lines(text, where, 400), 1):
        named = (_ROCM.match(line) if kind == "rocm-smi" else None) or (_XPU.match(line) if kind == "xpu-smi" else None)
        if named:
            gpus.setdefault(int(named[1]), GpuSeen(int(named[1]), named[2], number))
        elif kind == "rocm-smi":
            total, used = _ROCM_TOTAL.match(line), _ROCM_USED.match(line)
            size = total or used
            if size:
                gpu = gpus.get(int(size[1])) or GpuSeen(int(size[1]), "", number)
                mib = int(size[2]) >> 20
                gpus[gpu.number] = gpu._replace(total_mib=mib) if total else gpu._replace(used_mib=mib)
        elif kind == "amd-smi":
            current = _amd(line, number, gpus, current)
    if not gpus:
        ask = "rocm-smi -i --showmeminfo vram" if kind != "xpu-smi" else "xpu-smi discovery"
        raise UnusableInput(f"{where}: no GPU is named in this output; hand over that of {ask}.")
    listed = bounded(list(gpus.values()), where)
    return HardwareEvidence(kind, where, gpus=listed, gpu_count=Seen(len(listed), listed[0].line))


def _amd(line: str, number: int, gpus: dict[int, GpuSeen], current: int | None) -> int | None:
    start = _AMD_GPU.match(line)
    if start:
        gpus[int(start[1])] = GpuSeen(int(start[1]), "", number)
        return int(start[1])
    if current is not None:
        name, arch, size = _AMD_NAME.match(line), _AMD_ARCH.match(line), _AMD_SIZE.match(line)
        if name:
            gpus[current] = gpus[current]._replace(name=name[1], line=number)
        elif arch:
            gpus[current] = gpus[current]._replace(capability=arch[1])
        elif size and gpus[current].total_mib is None:
            gpus[current] = gpus[current]._replace(total_mib=int(size[1]))
    return current
