"""What nvidia-smi says about the state of GPUs and about the processes on them: its table and its long form (``-q``).

``nvidia_smi`` reads what kind of GPUs a host has; this reads what may be wrong with them. The meaning of the fields:
``nvidia-smi --help-query-gpu`` and https://docs.nvidia.com/deploy/nvidia-smi/index.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from shardguide.guidance.hints import NamedTuple

MOST = 512  # findings and processes that are kept


class Finding(NamedTuple):
    """Something that the tool reports about one GPU."""

    kind: str  # "ecc", "error", "fabric", "remap pending", "remap failed", "retirement pending", "mig", "reset"
    gpu: str  # its number, or its bus in the long form
    value: str
    line: int


class OnGpu(NamedTuple):
    """A process that computes on a GPU."""

    gpu: str
    part: str  # MIG instance, "" for a whole GPU
    pid: str
    name: str
    mib: int
    line: int


_FIRST = re.compile(
    r"\|?\s*(?P<gpu>\d{1,4})\s+\S.*?\|\s*[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,2}:[0-9A-Fa-f]{2}\.\d\s+\S+\s*\|\s*(?P<ecc>\S+)\s*\|"
)
_PROCESS = re.compile(
    r"\|\s*(?P<gpu>\d{1,4})\s+(?:(?P<gi>N/A|\d{1,4})\s+(?P<ci>N/A|\d{1,4})\s+)?(?P<pid>\d{1,10})\s+(?P<type>C|C\+G|M\+C)\s+"
    r"(?P<name>\S.{0,200}?)\s+(?P<mib>\d{1,9})MiB\s*\|"
)
_VALUE = re.compile(r"(?P<indent>\s*)(?P<name>[A-Z][\w .()/-]{1,60}?)\s*:\s(?P<value>.*\S)\s*$")
_SECTION = re.compile(r"(?P<indent>\s+)(?P<name>[A-Z][\w .()/-]{1,60})\s*$")
_GPU = re.compile(r"GPU (?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")


def table(lines: Iterable[tuple[int, str]]) -> tuple[list[Finding], list[OnGpu]]:
    """The findings and processes of the table, the first where there are several."""
    found: list[Finding] = []
    running: list[OnGpu] = []
    gpu = ""
    heads = 0
    for number, text in lines:
        if "NVIDIA-SMI" in text:
            heads += 1
            if heads > 1:
                break
        elif not heads or len(found) + len(running) > MOST or len(text) > 400:
            continue
        process = _PROCESS.search(text)
        if process:
            part = "" if process["gi"] in (None, "N/A") else f"{process['gi']}/{process['ci']}"
            running.append(OnGpu(process["gpu"], part, process["pid"], process["name"], int(process["mib"]), number))
            continue
        first = _FIRST.search(text)
        if first:
            gpu = first["gpu"]
            if first["ecc"].isdigit() and int(first["ecc"]):
                found.append(Finding("ecc", gpu, first["ecc"], number))
        if "Processes:" in text:
            gpu = ""
        elif "ERR!" in text and gpu:
            found.append(Finding("error", gpu, "ERR!", number))
        elif gpu and re.search(r"\|\s*Enabled\*?\s*\|\s*$", text):
            found.append(Finding("mig", gpu, "Enabled", number))
    return found, running


def long_form(lines: Iterable[tuple[int, str]]) -> tuple[list[Finding], list[OnGpu]]:
    """The findings and processes of ``nvidia-smi -q``, the first where there are several."""
    found: list[Finding] = []
    running: list[OnGpu] = []
    path: list[tuple[int, str]] = []  # the sections around a line, by their indentation
    gpu = pid = kind = name = ""
    heads = at = 0
    for number, text in lines:
        if "NVSMI LOG" in text:
            heads += 1
            if heads > 1:
                break
            continue
        if not heads or len(text) > 400 or len(found) + len(running) > MOST:
            continue
        bus = _GPU.match(text)
        if bus:
            gpu, path = bus["bus"], []
            continue
        value = _VALUE.match(text)
        line = value or _SECTION.match(text)
        if line is None:
            continue
        indent = len(line["indent"])
        while path and path[-1][0] >= indent:
            path.pop()
        if value is None:
            path.append((indent, line["name"].strip()))
            continue
        sections = " / ".join(one for _, one in path)
        key, said = value["name"].strip(), value["value"]
        kept = _judged(sections, key, said)
        if kept and gpu:
            found.append(Finding(kept, gpu, f"{sections.rpartition(' / ')[2]} {key}: {said}".strip(), number))
        if key == "Process ID":
            pid, kind, name, at = said, "", "", number
        elif key == "Type" and pid:
            kind = said
        elif key == "Name" and pid:
            name = said
        elif key == "Used GPU Memory" and pid and gpu:
            used = re.match(r"(\d{1,9}) MiB", said)
            if used and kind in ("C", "C+G", "M+C"):
                running.append(OnGpu(gpu, "", pid, name, int(used[1]), at))
            pid = ""
    return found, running


def _judged(sections: str, key: str, value: str) -> str:
    """The kind of finding that a value is; "" for none."""
    last = sections.rpartition(" / ")[2]
    if last == "Fabric" and key == "State" and value in ("In Progress", "Not Started"):
        return "fabric"
    if last == "Fabric" and key == "Status" and value not in ("N/A", "Success", "Not Supported"):
        return "fabric"
    if last == "Remapped Rows" and value == "Yes":
        return {"Pending": "remap pending", "Remapping Failure Occurred": "remap failed"}.get(key, "")
    if last == "Retired Pages" and key.startswith("Pending") and value == "Yes":
        return "retirement pending"
    if last == "MIG Mode" and key == "Current" and value == "Enabled":
        return "mig"
    if sections.startswith("GPU Reset Status") and key == "Reset Required" and value == "Yes":
        return "reset"
    if "Volatile" in sections and "ncorrectable" in key and value.isdigit() and int(value):
        return "ecc"
    return ""
