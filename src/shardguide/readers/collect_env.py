"""Output of ``python -m torch.utils.collect_env``, PyTorch 1.7 to 2.15, also pasted without its line breaks.

Source of the format: ``env_info_fmt`` and ``get_env_info`` in torch/utils/collect_env.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from shardguide.guidance.errors import UnusableInput

from .hw_evidence import GpuSeen, HardwareEvidence, MigSeen, Seen, bounded, clean_lines

# Labels of the report; each value runs to the next label. vLLM's report pads them before the colon.
_LABELS = (
    "PyTorch version", "Is debug build", "CUDA used to build PyTorch", "ROCM used to build PyTorch",
    "XPU used to build PyTorch", "GCC version", "Clang version", "CMake version", "Libc version", "Python version",
    "Python platform", "Is CUDA available", "CUDA runtime version", "CUDA_MODULE_LOADING set to",
    "GPU models and configuration", "Nvidia driver version", "cuDNN version", "Is XPU available",
    "Intel GPU driver version", "Intel GPU models onboard", "Intel GPU models detected", "HIP runtime version",
    "MIOpen runtime version", "Is XNNPACK available", "Caching allocator config", "Versions of relevant libraries",
)  # fmt: skip
_LABEL = re.compile(rf"(?:^|(?<=\s))(?:({'|'.join(_LABELS)})\s*:|^(OS|CPU)\s*:)", re.MULTILINE)
_GPU = re.compile(r"\bGPU (\d{1,4}):")
_MIG = re.compile(r"MIG (\S+)\s+Device\s+(\d+):")
_XPU = re.compile(r"\[(\d+)\] _XpuDeviceProperties\(name='([^'\n]*)'(?:[^\n]*?total_memory=(\d+)MB)?")
_YES = ("True", "Yes")  # pretty_str writes Yes for a boolean, and leaves text as it is
_NOTHING = {"", "n/a", "none", "no cuda", "could not collect", "unknown"}


def recognised(text: str) -> bool:
    """Whether ``text`` holds such a report, whole or in part."""
    return len({match[1] or match[2] for match in _LABEL.finditer(text)}) >= 3


def read(text: str, where: str) -> HardwareEvidence:
    """The evidence in a report. Raises UnusableInput when it is none."""
    text = "\n".join(clean_lines(text, where))
    fields: dict[str, tuple[str, int]] = {}
    matches = list(_LABEL.finditer(text))
    line, at = 1, 0
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        line += text.count("\n", at, match.start())
        at = match.start()
        value = text[match.end() : following.start() if following else len(text)]
        fields.setdefault(match[1] or match[2], (value, line))
    if len(fields) < 3:
        raise UnusableInput(f"{where}: this is not the output of python -m torch.utils.collect_env.")

    def first(label: str) -> Seen | None:
        """The value on the label's own line; None where the report has none."""
        value, number = fields.get(label, ("", 0))
        value = value.split("\n", 1)[0].strip()
        return None if value.lower() in _NOTHING else Seen(value, number)

    notes: list[str] = []
    gpus, mig, count = _cuda_gpus(fields, notes)
    if not gpus:
        gpus, count = _xpus(fields, notes)
    torch = first("PyTorch version")
    build, built_with = _build(torch, first, fields)
    available = None
    for label in ("Is CUDA available", "Is XPU available"):
        seen = first(label)
        if seen and (available is None or seen.value in _YES):
            available = Seen(seen.value in _YES, seen.line)
    if build and build.value == "cpu" and gpus:
        notes.append("the PyTorch that made the report is a CPU build, although the host has GPUs")
    return HardwareEvidence(
        "collect_env",
        where,
        gpus=bounded(gpus, where),
        mig=tuple(mig),
        gpu_count=count,
        driver=first("Nvidia driver version"),
        torch=torch,
        torch_build=build,
        built_with=built_with,
        available=available,
        os=first("OS"),
        notes=tuple(notes),
    )


def _cuda_gpus(
    fields: dict[str, tuple[str, int]], notes: list[str]
) -> tuple[list[GpuSeen], list[MigSeen], Seen | None]:
    value, start = fields.get("GPU models and configuration", ("", 0))
    gpus: list[GpuSeen] = []
    mig: list[MigSeen] = []
    for number, line in enumerate(value.split("\n"), start):
        parts = _GPU.split(line)  # text before, number, name, number, name … : a paste may have lost its line breaks
        for at in range(1, len(parts), 2):
            name = parts[at + 1].partition("(UUID")[0].strip()
            gpus.append(GpuSeen(int(parts[at]), name, number))
        part = _MIG.search(line)
        if part and gpus:
            mig.append(MigSeen(gpus[-1].number, int(part[2][:6]), part[1], None, number))
    if gpus:
        partitioned = {part.gpu for part in mig}
        gpus = [gpu._replace(mig=True) if gpu.number in partitioned else gpu for gpu in gpus]
        return gpus, mig, Seen(len(gpus), gpus[0].line)
    # A ROCm build prints the name of the current device only, with its architecture: "AMD Instinct MI300X (gfx942:…)".
    name, _, arch = value.split("\n", 1)[0].strip().partition(" (gfx")
    if name.lower() in _NOTHING:
        return [], [], None
    notes.append("a ROCm build's report names one device and not how many there are")
    return [GpuSeen(0, name, start, capability=f"gfx{re.split('[:)]', arch)[0]}" if arch else "")], [], None


def _xpus(fields: dict[str, tuple[str, int]], notes: list[str]) -> tuple[list[GpuSeen], Seen | None]:
    value, start = fields.get("Intel GPU models detected", ("", 0))
    devices = [
        GpuSeen(int(match[1][:6]), match[2], number, total_mib=int(match[3][:9]) if match[3] else None)
        for number, line in enumerate(value.split("\n"), start)
        for match in _XPU.finditer(line)
    ]
    value, start = fields.get("Intel GPU models onboard", ("", 0))
    cards = [
        (line.strip()[1:].strip(), number)
        for number, line in enumerate(value.split("\n"), start)
        if line.strip().startswith("*") and "N/A" not in line
    ]
    if devices and len(devices) >= len(cards):
        return devices, Seen(len(devices), devices[0].line)
    if cards:
        notes.append(f"{len(cards)} cards are listed; PyTorch may see several devices on each")
        if devices:
            notes.append("fewer devices than cards are listed: the report seems to be cut off")
            return devices, None
        return [GpuSeen(index, name, number) for index, (name, number) in enumerate(cards)], None
    return [], None


def _build(
    torch: Seen | None, first: Callable[[str], Seen | None], fields: dict[str, tuple[str, int]]
) -> tuple[Seen | None, Seen | None]:
    """Which accelerator PyTorch was built for, and with which version of its toolkit."""
    tags = (("CUDA", "cuda"), ("ROCM", "rocm"), ("XPU", "xpu"))
    with_ = {name: first(f"{tag} used to build PyTorch") for tag, name in tags}
    suffix = str(torch.value).partition("+")[2] if torch else ""
    for start, name in (("cpu", "cpu"), ("cu", "cuda"), ("rocm", "rocm"), ("xpu", "xpu")):
        if torch and suffix.startswith(start):
            return Seen(name, torch.line), with_.get(name)
    for name, seen in with_.items():
        if seen and str(seen.value)[0].isdigit():
            return Seen(name, seen.line), seen
    # get_env_info writes None for torch.version.cuda of a build without CUDA, and N/A where it is ROCm's or there is no torch.
    value, line = fields.get("CUDA used to build PyTorch", ("", 0))
    if torch and value.split("\n", 1)[0].strip() in ("None", "Could not collect"):
        return Seen("cpu", line), None
    return None, None
