"""The hardware of a plan: a GPU name and a memory size to facts, and what about them has to be asked."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.named import NamedTuple
from shardguide.guidance.record import Question
from shardguide.knowledge.hardware.memory import Memory as Stated
from shardguide.knowledge.hardware.memory import parse_memory
from shardguide.knowledge.hardware.table import Gpu, find, narrow, partitions

from .fields import GPU_MEMORY
from .numbers import gib
from .situation import Memory


class Hardware(NamedTuple):
    """What is known about one GPU."""

    name: str
    device: str
    memory: Memory | None
    bf16: bool | None
    capability: str
    gpus: tuple[Gpu, ...]  # every row of the table that the name can mean
    questions: tuple[Question, ...] = ()
    notes: tuple[str, ...] = ()


def resolve(name: str, memory: str, device: str, said_by: str = "") -> Hardware:
    """Facts for ``name`` and the stated ``memory``, either of which may be "".

    ``said_by`` names the file that states the memory, "" when the user said both; then more memory than any GPU of that
    name has raises UnusableInput, since two options contradict each other.
    """
    size = parse_memory(memory) if memory else None
    if device == "cpu":
        return Hardware(name or "CPU", "cpu", stated(size), None, "", ())
    if not name:
        return Hardware("", device, stated(size), None, "", ())
    rows = find(name, every=size is not None)
    if not rows:
        return _unknown(name, size, device)
    if size is not None:
        return _sized(name, rows, size, said_by)
    return _named(name, rows)


def stated(size: Stated | None) -> Memory | None:
    """A size as said: the larger reading bounds, both are shown."""
    return (
        None
        if size is None
        else Memory(size.limit, f"{size.text}" if size.exact else f"{size.text} read as {gib(size.limit)}", str(size))
    )


def _unknown(name: str, size: Stated | None, device: str) -> Hardware:
    questions: tuple[Question, ...] = ()
    if size is None:
        ask = f"{name!r} is not in the table of GPUs: how much memory does one have?"
        questions = (Question("gpu_memory", ask, GPU_MEMORY.why, ()),)
    note = f"{name!r} is not in the table of GPUs, so its bfloat16 support is not known."
    return Hardware(name, device, stated(size), None, "", (), questions, (note,))


def _same(rows: tuple[Gpu, ...], field: str) -> object:
    """The value that all rows share, else None."""
    values = {getattr(row, field) for row in rows}
    return values.pop() if len(values) == 1 else None


def _facts(
    rows: tuple[Gpu, ...], memory: Memory | None, questions: tuple[Question, ...] = (), notes: tuple[str, ...] = ()
) -> Hardware:
    shown = rows[0].name if len(rows) == 1 else str(_same(rows, "model") or " or ".join(row.name for row in rows[:3]))
    bf16 = _same(rows, "bf16")
    return Hardware(
        shown,
        str(_same(rows, "device") or ""),
        memory,
        bf16 if isinstance(bf16, bool) else None,
        str(_same(rows, "capability") or ""),
        rows,
        questions,
        notes,
    )


def _named(name: str, rows: tuple[Gpu, ...]) -> Hardware:
    """Only the name is known: the memory is the table's, or asked where the name leaves it open."""
    sizes = {(row.memory, row.unit, row.devices) for row in rows}
    if len(sizes) > 1:
        choices = tuple(row.name for row in rows)
        ask = f"{name} can mean several GPUs: which one?"
        return _facts(rows, None, (Question("gpu", ask, "They differ in memory.", choices),))
    limit = max(row.limit for row in rows)
    if not limit:
        ask = f"The memory of {rows[0].name} is not in the table: how much does one have?"
        return _facts(rows, None, (Question("gpu_memory", ask, GPU_MEMORY.why),))
    return _facts(
        rows,
        Memory(
            limit,
            gib(limit),
            f"the largest total known of {rows[0].model}, {rows[0].memory}{rows[0].unit} as the vendor states it",
        ),
    )


def _sized(name: str, rows: tuple[Gpu, ...], size: Stated, said_by: str) -> Hardware:
    """Name and size are known: the rows that have it, else a partition, else a contradiction."""
    fitting = narrow(rows, size)
    if fitting:
        limit = max(row.limit for row in fitting)
        table = Memory(limit, gib(limit), f"the largest total known of {fitting[0].model}")
        # A total that a tool printed is this GPU's own; "80GB" is a name for what the table has.
        return _facts(fitting, stated(size) if size.exact or not limit else table)
    largest = max(row.limit for row in rows)
    known = " or ".join(dict.fromkeys(f"{row.memory}{row.unit}" for row in rows if row.memory))
    if largest and size.decimal > largest:
        text = f"{name} has {known}, not {size.text}: correct the name or the size of the GPU."
        if not said_by:
            raise UnusableInput(text)
        return _facts(rows, None, (Question("gpu_memory", text, GPU_MEMORY.why, tuple(known.split(" or "))),))
    profiles = tuple(dict.fromkeys(part.profile for part in partitions(rows, size)))
    what = (
        f"Is it a MIG partition ({', '.join(profiles)})?"
        if profiles
        else "Is it a partition of one (MIG), or another GPU?"
    )
    origin = f"{said_by} says" if said_by else "you say"
    ask = f"{name} has {known or 'another size'}, {origin} {size.text}. {what}"
    why = "Under MIG each process sees one partition, and NCCL's use across partitions is limited; the memory bounds the shards."
    found = _facts(rows, stated(size), (Question("gpu_memory", ask, why, (size.text, *known.split(" or "))),))
    return found._replace(name=name)


def agrees(name: str, memory: str) -> bool:
    """Whether a GPU of that name can have that memory."""
    return bool(narrow(find(name, every=True), parse_memory(memory)))
