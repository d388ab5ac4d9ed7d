"""Output of ``nvidia-smi --query-gpu=... --format=csv``, with or without header and units."""

from __future__ import annotations

import re

from shardguide.guidance.errors import UnusableInput

from .hw_evidence import GpuSeen, HardwareEvidence, Seen, bounded, clean_lines

# Fields of --help-query-gpu that are read; the aliases in parentheses there are listed as well.
_NAMES = {"name": "name", "gpu_name": "name", "index": "index", "uuid": "uuid", "gpu_uuid": "uuid", "count": "count",
    "memory.total": "total", "memory.used": "used", "driver_version": "driver", "compute_cap": "capability",
    "mig.mode.current": "mig", "pci.bus_id": "bus", "gpu_bus_id": "bus"}  # fmt: skip
_PRODUCT = re.compile(r"^(?:NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID|A100|AMD|Intel)\b.*[A-Za-z0-9]", re.IGNORECASE)
_MIB = re.compile(r"^(\d{1,9}) MiB$")
_DRIVER = re.compile(r"^\d{3}\.\d{1,3}(?:\.\d{1,3})?$")
_DRIVER_IN_THREE = re.compile(r"^\d{3}\.\d{1,3}\.\d{1,3}$")  # without a header "176.98" may be watts
_CAPABILITY = re.compile(r"^\d{1,2}\.\d$")
_UUID = re.compile(r"^(?:GPU|MIG)-[0-9a-f-]+$", re.IGNORECASE)
_HELP = "query it with nvidia-smi --query-gpu=index,name,memory.total --format=csv"


def _cells(line: str) -> list[str]:
    return [cell.strip().strip('"').strip() for cell in line.split(",")]


def _header(line: str) -> list[str]:
    """The fields that a header line names ("" for one that is not read); [] when it is none."""
    if len(line) > 16_384:
        return []
    cells = [cell.partition(" [")[0].lower() for cell in _cells(line)]  # "memory.total [MiB]"
    fields = [_NAMES.get(cell, "") for cell in cells]
    plausible = all(re.fullmatch(r"[a-z][a-z0-9_.]*", cell) for cell in cells)
    return fields if plausible and any(fields) else []


def recognised(text: str) -> bool:
    """Whether ``text`` holds such a table: a header, or lines that name a product and hold something else of it."""
    lines = text[:65_536].split("\n")[:200]
    if any("," in line and _header(line) for line in lines):
        return True
    return any(_bare(line) for line in lines)


def _bare(line: str) -> bool:
    """Whether a line without header is a row: one cell names a product, another is a number, an id or a size."""
    cells = _cells(line)
    return (
        len(cells) > 1
        and sum(bool(_PRODUCT.match(cell)) for cell in cells) == 1
        and all(len(cell) < 80 for cell in cells)
        and any(
            _MIB.match(c) or _DRIVER_IN_THREE.match(c) or _UUID.match(c) or re.fullmatch(r"\d+|0x[0-9A-Fa-f]+", c)
            for c in cells
        )
    )


def read(text: str, where: str) -> HardwareEvidence:
    """The evidence in the table. Raises UnusableInput when it is none, or names neither product nor memory."""
    fields: list[str] = []
    gpus: dict[str, GpuSeen] = {}
    driver: Seen | None = None
    notes: list[str] = []
    for number, line in enumerate(clean_lines(text, where), 1):
        if "," not in line and not (fields and line.strip()):
            if not fields and _header(line):
                fields = _header(line)
            continue
        header = _header(line)
        if header:
            if fields and header != fields:
                notes.append(f"line {number}: a second table begins; the first is read")
                break
            fields = header
            continue
        cells = _cells(line)
        if fields and len(cells) == len(fields):
            row = {field: cell for field, cell in zip(fields, cells, strict=True) if field}
        elif not fields and _bare(line):
            row = _guess(cells, notes)
        else:
            continue
        gpu, key = _gpu(row, len(gpus), number)
        if key not in gpus:  # the same GPU again: nvidia-smi -l repeats the rows
            gpus[key] = gpu
        if driver is None and _DRIVER.match(row.get("driver", "")):
            driver = Seen(row["driver"], number)
    if not gpus:
        raise UnusableInput(f"{where}: this is not a table of nvidia-smi --query-gpu; {_HELP}.")
    if not any(gpu.name or gpu.total_mib for gpu in gpus.values()):
        raise UnusableInput(f"{where}: the table has neither the name nor the total memory of a GPU; {_HELP}.")
    listed = bounded(list(gpus.values()), where)
    return HardwareEvidence(
        "gpu-csv",
        where,
        gpus=listed,
        gpu_count=Seen(len(listed), listed[0].line),
        driver=driver,
        notes=tuple(dict.fromkeys(notes)),
    )


def _gpu(row: dict[str, str], position: int, line: int) -> tuple[GpuSeen, str]:
    """The GPU of a row, and what tells it from others."""
    number = int(row["index"]) if re.fullmatch(r"\d{1,4}", row.get("index", "")) else position
    name = row.get("name", "")
    key = row.get("uuid") or row.get("bus") or row.get("index") or str(position)
    if _UUID.match(key) and set(key[4:]) <= {"0", "-"}:
        key = row.get("bus") or row.get("index") or str(position)  # ids that somebody has masked
    return (
        GpuSeen(
            number=number,
            name="" if name.startswith("[") else name,
            line=line,
            total_mib=_number(row.get("total", "")),
            used_mib=_number(row.get("used", "")),
            mig={"enabled": True, "disabled": False}.get(row.get("mig", "").lower()),
            capability=row.get("capability", "") if _CAPABILITY.match(row.get("capability", "")) else "",
        ),
        key,
    )


def _number(cell: str) -> int | None:
    match = re.fullmatch(r"(\d{1,9})(?: MiB)?", cell)
    return int(match[1]) if match else None


def _guess(cells: list[str], notes: list[str]) -> dict[str, str]:
    """Fields of a row without header, as far as the cells tell them by themselves."""
    row: dict[str, str] = {}
    sizes = [cell for cell in cells if _MIB.match(cell)]
    for position, cell in enumerate(cells):
        if _PRODUCT.match(cell):
            row["name"] = cell
        elif _UUID.match(cell):
            row["uuid"] = cell
        elif _DRIVER_IN_THREE.match(cell):
            row["driver"] = cell
        elif _CAPABILITY.match(cell):
            row["capability"] = cell
        elif position == 0 and re.fullmatch(r"\d{1,3}", cell):
            row["index"] = cell
    if sizes:
        row["total"] = max(sizes, key=lambda cell: int(cell.split()[0]))
        notes.append("the table has no header: the largest size of a row is taken as the GPU's total memory")
    else:
        notes.append("the table has no header, so its numbers cannot be told apart; leave out noheader and nounits")
    return row
