"""The hardware of a plan: a GPU name and a memory size to facts, and what about them has to be asked."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Question, Source
from shardguide.knowledge.hardware.links import INTRA
from shardguide.knowledge.hardware.memory import Memory as Stated
from shardguide.knowledge.hardware.memory import parse_memory
from shardguide.knowledge.hardware.table import Gpu, find, narrow, partitions

from .fields import GPU_MEMORY
from .numbers import gib
from .situation import Memory

# Links of one vendor's GPUs, which another vendor's never have.
_FOREIGN = {"cuda": ("xgmi", "xelink"), "rocm": ("nvlink", "nvswitch", "xelink"), "xpu": ("nvlink", "nvswitch", "xgmi")}
KINDS = {"cuda": "an NVIDIA (cuda)", "rocm": "an AMD (rocm)", "xpu": "an Intel (xpu)"}


MIG_LINK = Source(
    "link:mig",
    "RAPIDS deployment guide, Multi-Instance GPU: no NVLink or NVSwitch between instances, only by way of the host's memory",
    "https://docs.rapids.ai/deployment/stable/guides/mig",
    "",
    "",
)


class Hardware(NamedTuple):
    """What is known about one GPU, that is one device as PyTorch sees it."""

    name: str
    device: str
    memory: Memory | None
    bf16: bool | None
    capability: str
    gpus: tuple[Gpu, ...]  # every row of the table that the name can mean
    questions: tuple[Question, ...] = ()
    notes: tuple[str, ...] = ()
    partition: bool = False  # a MIG partition of that GPU
    sources: tuple[Source, ...] = ()  # of the rows and of the links between GPUs and between nodes


def mig(name: str) -> tuple[str, int] | None:
    """A partition's GPU and the size in its profile (0 if unsaid), as "H100 MIG" or torch's "NVIDIA A100-SXM4-40GB MIG 1g.5gb"."""
    if "mig" not in name.lower():
        return None
    import re  # compiled for the few names that need it: every command pays for what is compiled at import

    found = re.search(r"\bMIG\b(?:\s+(?:\dc\.)?\dg\.(\d{1,3})gb\S*)?", name, re.IGNORECASE)
    return (name[: found.start()].strip(), int(found[1] or 0)) if found else None


class Origins(NamedTuple):
    """The file or notebook that states the GPU and its memory; "" for the user."""

    name: str = ""
    memory: str = ""


def resolve(
    name: str,
    memory: str,
    device: str,
    by: Origins = Origins(),  # noqa: B008 - immutable
    partition: str = "",
    mixed: tuple[str, ...] = (),
) -> Hardware:
    """Facts for ``name`` and the stated ``memory``, either of which may be "".

    ``partition`` names the report that shows MIG mode, ``mixed`` the GPUs of a host where they differ. More memory than
    any GPU of that name has raises UnusableInput if the user said both, since two options contradict each other.
    """
    size = parse_memory(memory) if memory else None
    if device == "cpu":
        return Hardware("CPU", "cpu", stated(size), None, "", ())
    if not name:
        return _mixed(mixed, size) if mixed else Hardware("", device, stated(size), None, "", ())
    if partition or mig(name):
        return _partition(name, size, device, by, partition)
    rows = find(name, every=size is not None)
    if not rows:
        return _unknown(name, size, device)
    if size is not None:
        return _sized(name, rows, size, by)
    return _named(name, rows)


def stated(size: Stated | None) -> Memory | None:
    """A size as said: the larger reading bounds, both are shown."""
    if size is None:
        return None
    return Memory(size.limit, gib(size.limit) if size.exact else f"{size.text} read as {gib(size.limit)}", str(size))


def _unknown(name: str, size: Stated | None, device: str) -> Hardware:
    questions: tuple[Question, ...] = ()
    if size is None:
        ask = f"{name!r} is not in the table of GPUs: how much memory does one have?"
        questions = (Question("gpu_memory", ask, GPU_MEMORY.why, GPU_MEMORY.choices),)
    note = f"{name!r} is not in the table of GPUs, so its bfloat16 support is not known."
    return Hardware(name, device, stated(size), None, "", (), questions, (note,))


def _same(rows: tuple[Gpu, ...], field: str) -> object:
    """The value that all rows share, else None."""
    values = {getattr(row, field) for row in rows}
    return values.pop() if len(values) == 1 else None


def _facts(name: str, rows: tuple[Gpu, ...], memory: Memory | None, questions: tuple[Question, ...] = ()) -> Hardware:
    """What the rows have in common; where several products remain without a common name, the name stays as it was typed."""
    bf16 = _same(rows, "bf16")
    return Hardware(
        rows[0].name if len(rows) == 1 else str(_same(rows, "model") or name),
        str(_same(rows, "device") or ""),
        memory,
        bf16 if isinstance(bf16, bool) else None,
        str(_same(rows, "capability") or ""),
        rows,
        questions,
        _devices_note(rows),
    )


def _devices_note(rows: tuple[Gpu, ...]) -> tuple[str, ...]:
    """What --gpus counts where a card is more than one device."""
    count = _same(rows, "devices")
    if not isinstance(count, int) or count < 2:
        return ()
    return (
        f"PyTorch sees one {_same(rows, 'model') or rows[0].name} card as {count} devices: --gpus counts devices (ranks), {count} "
        f"a card, and the memory is that of one device ({gib(max(row.limit for row in rows))}).",
    )


def _total(rows: tuple[Gpu, ...]) -> Memory | None:
    """The memory of one device of the rows that nothing can exceed, with where the figure comes from."""
    row = max(rows, key=lambda one: one.limit)
    if not row.limit:
        return None
    shown = sorted(row.reported_mib)
    range_ = f"{shown[0]} to {shown[-1]} MiB" if len(shown) > 1 else f"{shown[0]} MiB" if shown else ""
    vendor = f"the vendor's {row.memory}{row.unit}{' read as GiB' if row.unit == 'GB' else ''}"
    if shown and shown[-1] << 20 == row.limit:
        detail = f"{row.name}: tools show {range_}"
    elif shown:  # the table has totals with ECC on only
        detail = f"{row.name}: {vendor}; tools show {range_} with ECC on, and more with it off"
    else:
        detail = f"{row.name}: {vendor}; which total tools show is not known"
    if row.devices > 1:
        detail += f"; one of the {row.devices} devices of a card of {row.memory}{row.unit}"
    if len({one.limit for one in rows}) > 1:
        detail += "; the largest of the products that the name can mean"
    return Memory(row.limit, gib(row.limit), detail)


def _named(name: str, rows: tuple[Gpu, ...]) -> Hardware:
    """Only the name is known: the memory is the table's, or asked where the name leaves it open."""
    sizes = {(row.memory, row.unit, row.devices) for row in rows}
    if len(sizes) > 1:
        choices = tuple(row.name for row in rows)
        ask = f"{name} can mean several GPUs: which one?"
        return _facts(name, rows, None, (Question("gpu", ask, "They differ in memory.", choices),))
    total = _total(rows)
    if total is None:
        ask = f"The memory of {rows[0].name} is not in the table: how much does one have?"
        return _facts(name, rows, None, (Question("gpu_memory", ask, GPU_MEMORY.why),))
    return _facts(name, rows, total)


def _sized(name: str, rows: tuple[Gpu, ...], size: Stated, by: Origins) -> Hardware:
    """Name and size are known: the rows that have it, else a partition, else a contradiction."""
    fitting = narrow(rows, size)
    if fitting:
        table = _total(fitting)
        # A total that a tool printed is this GPU's own; "80GB" is a name for what the table has, and a card's for two devices.
        own = size.exact and (table is None or size.limit <= 1.03 * table.bound)
        return _facts(name, fitting, stated(size) if own or table is None else table)
    if size.decimal > max(row.limit for row in rows) > 0:
        return _too_much(name, rows, size, by, _known(rows))
    known = _known(rows)
    profiles = tuple(dict.fromkeys(part.profile for part in partitions(rows, size)))
    what = f"a MIG partition ({', '.join(profiles)})" if profiles else "a partition of one (MIG)"
    ask = f"{name} has {known or 'another size'}, {_says(by.memory)} {size.text}. Is it {what}, or another GPU?"
    why = (
        f'Say --gpu "{name} MIG" if it is a partition, else correct the name or the size. Under MIG each process sees one '
        "partition, and NCCL's use across partitions is limited; the memory bounds the shards."
    )
    found = _facts(name, rows, stated(size), (Question("gpu", ask, why, (f"{name} MIG",)),))
    return found._replace(name=name)


def _known(rows: tuple[Gpu, ...]) -> str:
    return " or ".join(dict.fromkeys(f"{row.memory}{row.unit}" for row in rows if row.memory))


def _says(origin: str) -> str:
    return f"{origin} says" if origin else "you say"


def _too_much(name: str, rows: tuple[Gpu, ...], size: Stated, by: Origins, known: str) -> Hardware:
    """More memory than the GPU has: refused if the user said both, else asked."""
    if not by.name and not by.memory:
        raise UnusableInput(f"{name} has {known}, not {size.text}: correct the name or the size of the GPU.")
    ask = f"{_says(by.name)} {name}, which has {known}; {_says(by.memory)} {size.text}: which holds?"
    return _facts(
        name,
        rows,
        None,
        (Question("gpu_memory", ask[0].upper() + ask[1:], GPU_MEMORY.why, tuple(known.split(" or "))),),
    )


def _partition(name: str, size: Stated | None, device: str, by: Origins, report: str) -> Hardware:
    """A MIG partition: the GPU's kind from the table, the memory of the partition alone."""
    rows = find(name)
    if not rows:
        return _unknown(name, size, device)
    whole, gigabytes = mig(name) or (name, 0)
    own = parse_memory(f"{gigabytes}GB") if gigabytes else None
    size = size or own
    largest = own.limit if own else max(row.limit for row in rows)
    if size is not None and 0 < largest < size.decimal:
        return _too_much(name, rows, size, by, own.text if own else _known(rows))
    found = _facts(whole, rows, stated(size))
    found = found._replace(name=f"{found.name} (MIG partition)", partition=True)
    if size is not None:
        return found
    where = f" ({report})" if report else ""
    ask = f"MIG is on{where}, and no partition is listed: how much memory has the partition that a process uses?"
    gb = sorted({int(part.rpartition(".")[2].removesuffix("gb")) for row in rows for part in row.mig})
    return found._replace(questions=(Question("gpu_memory", ask, GPU_MEMORY.why, tuple(f"{one}GB" for one in gb)),))


def _mixed(names: tuple[str, ...], size: Stated | None) -> Hardware:
    """A host whose GPUs differ: what all have in common, and the least memory."""
    kinds = [find(name) for name in names]
    rows = tuple(dict.fromkeys(row for rows in kinds for row in rows))
    totals = [_total(rows) for rows in kinds if rows]
    least = min((total for total in totals if total), key=lambda total: total.bound, default=None)
    memory = stated(size) or (least if all(kinds) and all(totals) else None)
    questions: tuple[Question, ...] = ()
    if memory is None:
        ask = f"How much memory has the smallest of the GPUs ({', '.join(names)})?"
        questions = (Question("gpu_memory", ask, GPU_MEMORY.why, GPU_MEMORY.choices),)
    label = ", ".join(names)
    if not all(kinds):
        return Hardware(label, str(_same(rows, "device") or ""), memory, None, "", (), questions)
    return _facts(label, rows, memory, questions)._replace(name=label)


def agrees(name: str, memory: str) -> bool:
    """Whether a GPU of that name can have that memory; an unknown name can have any."""
    size = parse_memory(memory)
    if mig(name):
        return size.decimal <= max((row.limit for row in find(name)), default=size.decimal)
    rows = find(name, every=True)
    return not rows or bool(narrow(rows, size))


def kind(name: str) -> str:
    """The device kind of every GPU that the name can mean: cuda, rocm or xpu; "" if unknown."""
    return str(_same(find(name, every=True), "device") or "")


def refused_link(intra: str, name: str, device: str, partition: bool = False) -> str:
    """Why GPUs of that name or kind cannot have that link, "" if they can or it is not known."""
    rows = find(name) if name else ()
    device = str(_same(rows, "device") or "") or device
    title = INTRA[intra].title if intra in INTRA else intra
    if intra in _FOREIGN.get(device, ()):
        return f"{name or 'The GPU'} is {KINDS[device]} device, which has no {title}"
    if intra in ("nvlink", "nvswitch") and (partition or mig(name)):
        return f"{title} does not join MIG partitions"
    if intra in ("nvlink", "nvswitch") and _same(rows, "link") == "pcie":
        return f"{name} has no {title}: its link is PCIe"
    return ""


# ------------------------------------------------------------------------------------------ all answers taken together
