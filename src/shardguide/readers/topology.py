"""The matrix of ``nvidia-smi topo -m``: how GPUs and network adapters of one host are connected.

Its legend: X self; NV# a bonded set of # NVLinks; PIX at most one PCIe bridge; PXB several PCIe bridges; PHB a PCIe
host bridge; NODE the interconnect between host bridges of a NUMA node; SYS the interconnect between NUMA nodes.
"""

from __future__ import annotations

import re

from shardguide.guidance.errors import UnusableInput

from .hw_evidence import MOST_GPUS, GpuSeen, HardwareEvidence, NicSeen, PathSeen, Seen, clean_lines

_DEVICE = re.compile(r"^(?:GPU|NIC)\d{1,4}$|^[a-z][a-z0-9_]*\d$")
_KIND = re.compile(r"^(?:NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|PSB|SOC|C2C)$")
_P2P = re.compile(r"^(?:OK|CNS|GNS|TNS|NS|DR|U)$")
_NIC = re.compile(r"^\s*(NIC\d{1,4}):\s*(\S+)\s*$")
_MLX = (
    "driven by mlx5 (NVIDIA ConnectX or BlueField), which can do RDMA; whether its link is InfiniBand or Ethernet "
    "(RoCE) is not visible here: `cat /sys/class/infiniband/*/ports/*/link_layer` says it"
)


def _header(line: str) -> list[str]:
    """The devices that a header line names as columns; [] when it is none."""
    words = line.split()
    if not words or words[0] != "GPU0":
        return []
    columns: list[str] = []
    for word in words:
        if not _DEVICE.match(word):
            break
        columns.append(word)
    # A row begins with GPU0 as well, but goes on with X.
    return columns if len(columns) == len(words) or words[len(columns)] in {"CPU", "NUMA", "GPU"} else []


def recognised(text: str) -> bool:
    """Whether ``text`` holds such a matrix."""
    return (
        "GPU0" in text and re.search(r"^[^\S\n]*(?:\x1b\[[\d;]*m)*[^\S\n]*GPU0\s+X\b", text, re.MULTILINE) is not None
    )


def read(text: str, where: str) -> HardwareEvidence:
    """The evidence in the matrix. Raises UnusableInput when it is none, or another of topo's matrices."""
    columns: list[str] = []
    paths: list[PathSeen] = []
    rows: dict[str, int] = {}
    names: dict[str, tuple[str, int]] = {}
    notes: list[str] = []
    for number, line in enumerate(clean_lines(text, where), 1):
        nic = _NIC.match(line)
        if nic:
            names[nic[1]] = (nic[2], number)
            continue
        if not columns:
            columns = _header(line)
            if len(columns) > MOST_GPUS:
                raise UnusableInput(f"{where}: the matrix has {len(columns)} columns, more than one host has devices.")
            continue
        words = line.split()
        if not words or words[0] not in columns or words[0] in rows:
            continue
        rows[words[0]] = number
        _row(words, columns, number, paths, notes, where)
    if not columns or not rows:
        raise UnusableInput(f"{where}: this is not the output of nvidia-smi topo -m.")
    gpu_columns = [name for name in columns if name.startswith("GPU")]
    if any(name not in rows for name in gpu_columns):
        notes.append("rows of the matrix are missing: the output seems to be cut off")
    between = [path for path in paths if path.first.startswith("GPU") and path.second.startswith("GPU")]
    if len(gpu_columns) > 1 and not between:
        raise UnusableInput(
            f"{where}: the rows of this nvidia-smi topo -m are cut off or damaged; hand over all of it."
        )
    intra, note = _intra(between)
    return HardwareEvidence(
        "topology",
        where,
        gpus=tuple(GpuSeen(index, "", rows.get(name, 0)) for index, name in enumerate(gpu_columns)),
        gpu_count=Seen(len(gpu_columns), next(iter(rows.values()))),
        paths=tuple(paths),
        nics=tuple(_nics(columns, rows, names)),
        intra=intra,
        notes=(*notes, *note),
    )


def _row(words: list[str], columns: list[str], line: int, paths: list[PathSeen], notes: list[str], where: str) -> None:
    """Adds the paths of one row, each pair once (the matrix is symmetric)."""
    own = words[0]
    at = columns.index(own)
    for position, (column, kind) in enumerate(zip(columns, words[1:], strict=False)):
        if kind == "X":
            continue
        if _P2P.match(kind):
            raise UnusableInput(f"{where}: this is the peer-to-peer matrix (topo -p2p); hand over nvidia-smi topo -m.")
        if not _KIND.match(kind):
            notes.append(f"line {line}: the row of {own} is cut off or damaged")
            return
        if at < position:
            paths.append(PathSeen(own, column, kind, line))
    if len(words) - 1 < len(columns):
        notes.append(f"line {line}: the row of {own} is cut off or damaged")


def _intra(between: list[PathSeen]) -> tuple[Seen | None, tuple[str, ...]]:
    """What connects the GPUs, when all pairs agree on NVLink or on PCIe."""
    if not between:
        return None, ()
    nvlink = [path for path in between if path.kind.startswith("NV")]
    if len(nvlink) == len(between):
        return Seen("nvlink", between[0].line), ()
    if not nvlink:
        return Seen("pcie", between[0].line), ()
    bare = next(path for path in between if not path.kind.startswith("NV"))
    text = (
        f"NVLink joins {len(nvlink)} of {len(between)} pairs of GPUs; {bare.first} and {bare.second} have {bare.kind}"
    )
    return None, (text,)


def _nics(columns: list[str], rows: dict[str, int], names: dict[str, tuple[str, int]]) -> list[NicSeen]:
    nics = []
    for column in columns:
        if column.startswith("GPU"):
            continue
        name, line = names.get(column, ("" if column.startswith("NIC") else column, rows.get(column, 0)))
        mlx = name.startswith("mlx5")
        note = _MLX if mlx else "" if name else "the legend that names this adapter is missing"
        nics.append(NicSeen(column, name, True if mlx else None, note, line))
    return nics
