"""The table of GPUs: names to facts.

``gpus.toml`` beside this file is what people edit; ``scripts/build_hardware.py`` checks it and writes
``../data/hardware.json``, which is read here.
"""

from __future__ import annotations

import json
import os
import re

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Source

from .memory import Memory

_FILE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", "hardware.json")  # noqa: PTH118, PTH120 - start-up budget


class Evidence(NamedTuple):
    """Where facts of a row come from."""

    covers: str  # names of the fields, e.g. "memory, reported_mib"
    id: str  # e.g. "mig-gpus"
    title: str
    url: str
    says: str  # what the source says, in short


class Match(NamedTuple):
    """How a row is found, worked out by scripts/build_hardware.py."""

    names: frozenset[str]  # full names as ``plain`` has them
    words: frozenset[str]  # every word that may stand in a short form
    model: frozenset[str]  # those that name the model; a short form has at least one


class Gpu(NamedTuple):
    """What is known about a product. A field without a source is empty, zero or None: it must be asked or measured."""

    id: str  # "" when several rows were folded into one
    name: str  # "NVIDIA H100 SXM 80GB"
    model: str  # the name without its form factor, "NVIDIA H100 80GB"
    aliases: tuple[str, ...]  # as nvidia-smi, rocminfo and torch print it
    device: str  # "cuda", "rocm" or "xpu"
    memory: int  # of one card as the vendor states it, in ``unit``; 0: unknown
    unit: str  # "GB" or "GiB"
    devices: int  # how many devices PyTorch sees on one card; the memory is divided among them
    reported_mib: tuple[int, ...]  # totals of one device that nvidia-smi or torch print, in MiB; drivers differ
    ecc: bool  # those totals are with ECC on; with ECC off the card shows more
    capability: str  # CUDA compute capability ("9.0") or LLVM target ("gfx942")
    bf16: bool | None  # computes bfloat16 in hardware
    fp16: bool | None
    fp8: bool | None
    link: str  # between the GPUs of one host: "nvlink", "pcie", "xgmi", "xelink"; "" depends on the host
    mig: tuple[str, ...]  # partition profiles, e.g. "1g.10gb"
    note: str
    sources: tuple[Evidence, ...]
    qualified: bool  # never meant by the plain model name alone ("H100" is not the H100 NVL)
    match: Match

    @property
    def limit(self) -> int:
        """Bytes of one PyTorch device that must be exceeded before a plan is refused; 0 when nothing is known.

        The largest total known: of several reported ones the largest, and where only totals with ECC on are known, the
        vendor's figure read as GiB.
        """
        largest = max(self.reported_mib, default=0) << 20
        if not largest or self.ecc:
            largest = max(largest, (self.memory << 30) // self.devices)
        return largest


class Partition(NamedTuple):
    """A MIG profile that would explain a stated size."""

    gpu: Gpu
    profile: str  # "1g.24gb"
    gb: int  # the memory that NVIDIA names it by


_cache: tuple[Gpu, ...] | None = None


def gpus() -> tuple[Gpu, ...]:
    """All rows, in the order of the table."""
    global _cache
    if _cache is None:
        with open(_FILE, encoding="utf-8") as file:  # noqa: PTH123 - start-up budget
            data = json.load(file)
        _cache = tuple(_row(row, data["source"]) for row in data["gpu"])
    return _cache


def _row(row: dict[str, Any], sources: dict[str, dict[str, str]]) -> Gpu:
    return Gpu(
        id=row["id"],
        name=row["name"],
        model=row["model"],
        aliases=tuple(row.get("aliases", ())),
        device=row["device"],
        memory=row.get("memory", 0),
        unit=row.get("unit", ""),
        devices=row.get("devices", 1),
        reported_mib=tuple(row.get("reported_mib", ())),
        ecc=row.get("ecc", False),
        capability=row.get("capability", ""),
        bf16=row.get("bf16"),
        fp16=row.get("fp16"),
        fp8=row.get("fp8"),
        link=row.get("link", ""),
        mig=tuple(row.get("mig", ())),
        note=row.get("note", ""),
        sources=tuple(Evidence(c, i, sources[i]["title"], sources[i]["url"], s) for c, i, s in row["sources"]),
        qualified=row.get("qualified", False),
        match=Match(*(frozenset(row["match"][key]) for key in ("names", "words", "model"))),
    )


# ---------------------------------------------------------------------------------------------------- names to rows

_SPLIT = re.compile(r"\b(rtx|max|arc)(?=\d)|(?<=[a-z]\d\d\d)(?=sxm|pcie|nvl)")
_SIZE = re.compile(r"\b(\d+) ?g(?:i?b)?\b")
_MIG = re.compile(r"\bmig\b.*")
# Words that names carry and that distinguish nothing.
_NOISE_WORDS = (
    "nvidia tesla geforce amd instinct intel corporation inc advanced micro devices graphics gpu tensor core the "
    "accelerator generation edition data center series superchip grace"
)
_NOISE = frozenset(_NOISE_WORDS.split())


def plain(text: str) -> str:
    """``text`` in lower case, marks and punctuation gone, sizes as ``80gb``, a MIG suffix cut off."""
    text = text.lower().replace("(r)", " ").replace("(tm)", " ")
    text = re.sub(r"[^a-z0-9]+", " ", _MIG.sub(" ", text))
    text = _SPLIT.sub(lambda match: f"{match[1] or ''} ", text)
    return " ".join(_SIZE.sub(r"\1gb", text).split())


def words(text: str) -> frozenset[str]:
    """The words of a name that distinguish it."""
    return frozenset(plain(text).split()) - _NOISE


def find(text: str, *, every: bool = False) -> tuple[Gpu, ...]:
    """Every row that ``text`` can mean: a product name, a name as tools print it, or a short form (``a100 40gb``).

    One row when the name is clear, several when it is not ("A100" exists with 40 and with 80 GB), none when it is
    unknown. A name that nvidia-smi cut short ("NVIDIA A100-SXM...") matches every row it can be the beginning of. Rows
    that always carry a qualifier ("H100 NVL") are found by the plain model name only with ``every``, which suits when
    the memory is stated too and ``narrow`` follows.
    """
    text = text[:200]
    wanted = plain(text)
    if not wanted:
        return ()
    if text.rstrip().endswith("..."):
        # Longer than what is printed: "NVIDIA GeForce RTX 4090 ..." is the laptop's GPU, not the RTX 4090.
        cut = [gpu for gpu in gpus() if any(name.startswith(wanted) and name != wanted for name in gpu.match.names)]
        return tuple(gpu for gpu in cut if wanted not in gpu.match.names)
    exact = tuple(gpu for gpu in gpus() if wanted in gpu.match.names)
    if exact and not every:
        return exact
    asked = words(text)
    found = tuple(gpu for gpu in gpus() if asked <= gpu.match.words and asked & gpu.match.model)
    open_ = tuple(gpu for gpu in found if not gpu.qualified)
    return found if every or not open_ else open_


def lookup(text: str) -> Gpu | None:
    """The one product that ``text`` means; None when it is unknown or its memory is not clear from the name.

    Rows that differ in their form factor only ("A100 40GB": SXM4 or PCIe) are folded into one, whose ``link`` is "".
    """
    found = find(text)
    if not found or len({(gpu.device, gpu.memory, gpu.devices, gpu.capability) for gpu in found}) > 1:
        return None
    return fold(found)


def fold(found: tuple[Gpu, ...]) -> Gpu:
    """What all of ``found`` have in common: fields that differ are empty, totals are united."""
    first = found[0]
    if len(found) == 1:
        return first

    def same(field: str, empty: Any) -> Any:
        values = [getattr(gpu, field) for gpu in found]
        return values[0] if all(value == values[0] for value in values) else empty

    return first._replace(
        id="",
        name=" or ".join(dict.fromkeys(gpu.model for gpu in found)),
        model=same("model", ""),
        aliases=tuple(alias for gpu in found for alias in gpu.aliases),
        device=same("device", ""),
        memory=same("memory", 0),
        unit=same("unit", ""),
        devices=same("devices", 1),
        reported_mib=tuple(dict.fromkeys(total for gpu in found for total in gpu.reported_mib)),
        ecc=any(gpu.ecc for gpu in found),
        capability=same("capability", ""),
        bf16=same("bf16", None),
        fp16=same("fp16", None),
        fp8=same("fp8", None),
        link=same("link", ""),
        mig=same("mig", ()),
        note=same("note", ""),
        sources=tuple(dict.fromkeys(source for gpu in found for source in gpu.sources)),
    )


# -------------------------------------------------------------------------------------------------- memory of a row

_NEAR = 0.03  # drivers differ by less than this in the total they report; products differ by more


def _sizes(gpu: Gpu) -> list[int]:
    """Every number of bytes that somebody may call this product's memory: of the card, of one device, as reported."""
    sizes = [total << 20 for total in gpu.reported_mib]
    for parts in {1, gpu.devices}:
        sizes += [(gpu.memory << 30) // parts, gpu.memory * 10**9 // parts] if gpu.memory else []
    return sizes


def narrow(found: tuple[Gpu, ...], memory: Memory) -> tuple[Gpu, ...]:
    """Those of ``found`` whose whole memory is the stated one; the nearest if none is exact, () if none is near."""
    stated = {memory.decimal, memory.binary}
    exact = tuple(gpu for gpu in found if stated & set(_sizes(gpu)))
    if exact:
        return exact
    distance = {
        gpu.id: min((abs(size - said) / size for size in _sizes(gpu) for said in stated), default=1.0) for gpu in found
    }
    best = min(distance.values(), default=1.0)
    return tuple(gpu for gpu in found if distance[gpu.id] == best <= _NEAR)


def partitions(found: tuple[Gpu, ...], memory: Memory) -> tuple[Partition, ...]:
    """The MIG profiles of ``found`` that a stated size would be: an "H100 of 24 GB" is one, and a question.

    nvidia-smi shows an instance a little below its name (a 3g.40gb instance has 40448 MiB, a 1g.18gb one 16384 MiB).
    """
    profiles = [
        Partition(gpu, profile, int(profile.rsplit(".", 1)[1].removesuffix("gb")))
        for gpu in found
        for profile in gpu.mig
    ]
    return tuple(
        part
        for part in profiles
        if part.gb < part.gpu.memory
        and any(0.94 * part.gb * 10**9 <= size <= part.gb << 30 for size in {memory.decimal, memory.binary})
    )


# --------------------------------------------------------------------------------------------------------- the rules


def native_bf16(capability: str) -> bool | None:
    """Whether a CUDA device or an AMD GPU computes bfloat16 in hardware; None for an unknown capability.

    ``torch.cuda.is_bf16_supported(including_emulation=False)``: True for every ROCm build, else the major compute
    capability is at least 8. Without that argument it also answers True where bfloat16 is only emulated (V100, T4).
    """
    if capability.startswith("gfx"):
        return True
    major = capability.partition(".")[0]
    return int(major) >= 8 if major.isdigit() else None


def sources(gpu: Gpu) -> tuple[Source, ...]:
    """The sources of a row in the form that a Guidance carries."""
    kept: dict[str, Source] = {}
    for entry in gpu.sources:
        kept.setdefault(entry.id, Source(f"hardware:{entry.id}", entry.title, entry.url, "", ""))
    return tuple(kept.values())
