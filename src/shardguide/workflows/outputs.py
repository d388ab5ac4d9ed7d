"""What the commands of ``find_out`` print, read back: the answer to one field, or nothing where the output doesn't say it."""

from __future__ import annotations

import re

from shardguide.guidance.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST = 1 << 20  # characters

_PROMPT = re.compile(
    r"^\s*(?:\(\S+\) ?)?(?:\S+@\S+[^$#\n]*|[\w.~/-]*)[$#] .*$|^>>> .*$", re.MULTILINE
)  # the command itself, pasted along


def read(field: str, text: str) -> str:
    """The answer to a field in the output of its command; "" where it says none, or two that contradict each other."""
    reader = _READERS.get(field)
    if reader is None or len(text) > LONGEST:
        return ""
    return reader(_PROMPT.sub("", text).strip())


def _only(found: list[str]) -> str:
    """The one value that was found."""
    kinds = set(found)
    return kinds.pop() if len(kinds) == 1 else ""


def _torch(text: str) -> str:
    named = re.findall(r"(?:py)?torch\S*[^\n\d]{0,12}?(2\.\d{1,2}(?:\.\d+)?)", text, re.IGNORECASE)
    named += re.findall(r"^(?:Version:\s*)?v?(2\.\d{1,2}(?:\.\d+)?)(?:[+a-z]\S*)?$", text, re.MULTILINE)
    return _only(named)


def _count(names: str) -> Callable[[str], str]:
    def reader(text: str) -> str:
        return _only(re.findall(rf"^(?:{names})?\s*(\d{{1,6}})$", text, re.MULTILINE))

    return reader


def _nodes(text: str) -> str:
    found = _count(r"\w*NUM_NODES=|\w*NNODES=|NumNodes=")(text) or _only(re.findall(r"\bNumNodes=(\d+)", text))
    hosts = text.split()
    if not found and len(hosts) > 1 and len(set(hosts)) == len(hosts) == len(text.splitlines()):
        return str(len(hosts))  # scontrol show hostnames: one name a line
    return found


def _host_memory(text: str) -> str:
    found = re.findall(r"^Mem:\s+(\d{9,16})\b", text, re.MULTILINE) or re.findall(r"^(\d{9,16})$", text, re.MULTILINE)
    if found:
        return f"{_only(found)}B"
    rounded = _only(
        re.findall(r"^Mem:\s+(\d+(?:\.\d+)?[GT])i?\b", text, re.MULTILINE)
    )  # free -h counts in powers of two
    return f"{rounded}iB" if rounded else ""


def _inter(text: str) -> str:
    layers = {one.lower() for one in re.findall(r"link_layer:\s*(\w+)", text, re.IGNORECASE)}
    if layers:
        return "infiniband" if layers == {"infiniband"} else "roce" if layers == {"ethernet"} else ""
    if re.search(r"\befa\b|\brdmap\d", text, re.IGNORECASE):
        return "efa"
    return "ethernet" if re.search(r"/sys/class/infiniband.*No such file|No IB devices found", text) else ""


# What is named in code, by the name that the workflows give it; the longer ones first.
_OPTIMIZERS = ("AdamW8bit", "Adam8bit", "AdamW", "Adafactor", "Adagrad", "Adam", "SGD", "Muon", "RMSprop", "Lion")


def _optimizer(text: str) -> str:
    found = re.findall(rf"\b({'|'.join(_OPTIMIZERS)})\s*\(", text)
    return _only([one.lower() for one in found])


def _dtype(text: str) -> str:
    return _only(re.findall(r"\btorch\.(float32|float16|bfloat16|float64)\b", text))


def _device(text: str) -> str:
    found = re.search(r"^(None|\d[\w.]*) (None|\d[\w.-]*) (True|False)$", text, re.MULTILINE)
    if found is None:
        return ""
    return "cuda" if found[1] != "None" else "rocm" if found[2] != "None" else "xpu" if found[3] == "True" else "cpu"


def _os(text: str) -> str:
    named = re.search(r"^(Linux|Darwin|MINGW|MSYS|CYGWIN|Microsoft Windows)", text, re.MULTILINE)
    return {"Linux": "linux", "Darwin": "macos"}.get(named[1], "windows") if named else ""


def _ipoib(text: str) -> str:
    lines = re.findall(r"^(?:\d+: )?ib\S*.*$", text, re.MULTILINE)
    if not lines:
        return ""
    return "yes" if any(re.search(r"\b\d+\.\d+\.\d+\.\d+|\b[0-9a-f]{1,4}:[0-9a-f:]+/", one) for one in lines) else "no"


def _method(text: str) -> str:
    names = set(re.findall(r"^(RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)=\S", text, re.MULTILINE))
    return "env" if len(names) == 4 else ""


def _with(text: str) -> str:
    names = {
        "ddp": r"DistributedDataParallel", "zero": r"ZeroRedundancyOptimizer", "fsdp": r"fully_shard|FullyShardedDataParallel",
        "own": r"\(\s*(?:\w+,\s*)*Joinable\b",
    }  # fmt: skip
    return ",".join(name for name, words in names.items() if re.search(words, text))


def _uneven(text: str) -> str:
    if re.search(r"has no len\(\)", text):
        return "unknown"
    pairs = re.findall(r"^(?:\[rank\d+\]:? ?)?(\d+)\s+(\d+)$", text, re.MULTILINE)
    if len({rank for rank, _ in pairs}) < 2:
        return ""
    return "yes" if len({count for _, count in pairs}) > 1 else "no"


def _collectives(text: str) -> str:
    # Whether a call stands inside of the loop is not to be seen in grep's output.
    return "yes" if "SyncBatchNorm" in text else ""


_READERS: dict[str, Callable[[str], str]] = {
    "torch": _torch, "gpus": _count("WORLD_SIZE=|SLURM_NTASKS=|gpus:"), "nodes": _nodes, "host_memory": _host_memory, "inter": _inter,
    "optimizer": _optimizer, "param_dtype": _dtype, "device": _device, "os": _os, "ipoib": _ipoib, "method": _method, "with": _with,
    "uneven": _uneven, "collectives": _collectives, "world_size": _count("WORLD_SIZE=|SLURM_NTASKS="),
}  # fmt: skip
