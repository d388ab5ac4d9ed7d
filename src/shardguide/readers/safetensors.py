"""safetensors headers: names, shapes and dtypes of a checkpoint's tensors. The weights are never read.

The layout and its rules (header of at most 100,000,000 bytes, no duplicate keys, no holes) are those of
https://github.com/huggingface/safetensors, README "Format" and safetensors/src/tensor.rs.
"""

from __future__ import annotations

import os

from shardguide.guidance.dtypes import dtype_name
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.guidance.model import Buffer, Parameter

from .files import (
    MIB,
    decode,
    exists,
    foreign,
    inside,
    open_binary,
    parse_json,
    quoted,
    read_text,
    shown,
    size_text,
    split,
)
from .shapes import MAX_TENSORS, Shapes, check_name, check_shape, check_total, natural_key, units_from_names

HEADER_LIMIT = 100_000_000  # bytes; MAX_HEADER_SIZE of the reference implementation
TOTAL_LIMIT = 4 * HEADER_LIMIT  # bytes of all headers of one checkpoint
INDEX_LIMIT = 128 * MIB
VALUES = 10 * MAX_TENSORS
MAX_FILES = 20_000

# Bits per element, Dtype::bitsize in tensor.rs. Those that Shardguide can count shards of also have a PyTorch name.
BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
NAMES: dict[str, str] = {
    "BOOL": "bool",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}


def is_safetensors(head: bytes, size: int) -> bool:
    """Whether a file beginning with ``head`` (9 bytes or more) can be safetensors: a sane length, then ``{``."""
    return len(head) > 8 and head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= min(HEADER_LIMIT, size)


def _header(path: str, budget: int) -> tuple[dict[str, Any], int]:
    """The parsed header of one file and its length in bytes, at most ``budget``."""
    where = shown(path)
    descriptor, size = open_binary(path)
    with os.fdopen(descriptor, "rb") as file:
        if size < 0:
            raise UnusableInput(f"{where}: safetensors are read from a file, not from a pipe.")
        head = file.read(64)
        what = foreign(head)
        if what:
            raise UnusableInput(f"{where}: this is {what}.")
        if len(head) < 8:
            raise UnusableInput(f"{where}: {size} bytes are too few for a safetensors file; it seems cut off.")
        length = int.from_bytes(head[:8], "little")
        if length > HEADER_LIMIT:
            raise UnusableInput(f"{where}: not safetensors, or damaged: it claims a header of {length} bytes.")
        if length > size - 8:
            raise UnusableInput(f"{where}: cut off: a header of {length} bytes is announced, {size - 8} are there.")
        if head[8:9] != b"{" or length < 2:
            raise UnusableInput(f"{where}: not safetensors: its header does not begin with {{.")
        if length > budget:
            raise UnusableInput(f"{where}: the headers of this checkpoint exceed {size_text(TOTAL_LIMIT)}.")
        file.seek(8)
        data = file.read(length)
    if len(data) != length:
        raise UnusableInput(f"{where}: it was cut off while it was read.")
    header = parse_json(decode(data, where).rstrip(" "), where, values=VALUES)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise UnusableInput(f"{where}: damaged: __metadata__ must map strings to strings.")
    _check_offsets(header, size - 8 - length, where)
    return header, length


def _check_offsets(header: dict[str, Any], weights: int, where: str) -> None:
    """The format's own rules: every tensor as large as its shape and dtype say, end to end, filling the file."""
    spans: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        check_name(name, where)
        if not isinstance(entry, dict):
            raise UnusableInput(f"{where}: damaged: {quoted(name)} is not described by an object.")
        dtype, offsets = entry.get("dtype"), entry.get("data_offsets")
        if not isinstance(dtype, str) or dtype not in BITS:
            raise UnusableInput(f"{where}: {quoted(name)} has the dtype {quoted(dtype)}, which safetensors lacks.")
        count = 1
        for extent in check_shape(entry.get("shape"), name, where):
            count *= extent
        if (
            not isinstance(offsets, list)
            or len(offsets) != 2
            or any(isinstance(o, bool) or not isinstance(o, int) or o < 0 for o in offsets)
        ):
            raise UnusableInput(f"{where}: damaged: the data_offsets of {quoted(name)} are not two byte positions.")
        begin, end = offsets
        if (end - begin) * 8 != count * BITS[dtype]:
            raise UnusableInput(
                f"{where}: damaged: {quoted(name)} takes {end - begin} bytes, but its shape and dtype need "
                f"{count * BITS[dtype] / 8:.0f}."
            )
        spans.append((begin, end, name))
    spans.sort()
    position = 0
    for begin, end, name in spans:
        if begin != position:
            raise UnusableInput(f"{where}: damaged: {quoted(name)} overlaps another tensor or leaves a hole before it.")
        position = end
    if position != weights:
        state = "cut off" if position > weights else "damaged"
        raise UnusableInput(f"{where}: {state}: its header describes {position} bytes of weights, {weights} are there.")


def _tensor(name: str, entry: dict[str, Any], where: str) -> Parameter:
    dtype = entry["dtype"]
    if dtype in ("C64", "F4", "F6_E2M3", "F6_E3M2"):
        raise UnusableInput(
            f"{where}: {quoted(name)} has the dtype {dtype}, which cannot be trained under FSDP as it is; hand over "
            "the model's config.json or a shape manifest instead."
        )
    return Parameter(name, tuple(entry["shape"]), NAMES.get(dtype) or dtype_name(dtype))


def _split(tensors: list[Parameter], where: str) -> tuple[tuple[Parameter, ...], tuple[Buffer, ...], tuple[str, ...]]:
    """Parameters and buffers, which a checkpoint does not tell apart, with the notes on how they were told apart.

    Only floating-point tensors can require gradients in PyTorch, and BatchNorm's statistics come with a counter.
    """
    names = {tensor.name for tensor in tensors}
    parameters: list[Parameter] = []
    buffers: list[Buffer] = []
    for tensor in tensors:
        module, _, last = tensor.name.rpartition(".")
        counted = last in ("running_mean", "running_var") and f"{module}.num_batches_tracked" in names
        if counted or "float" not in tensor.dtype:
            buffers.append(Buffer(tensor.name, tensor.shape, tensor.dtype))
        else:
            parameters.append(tensor)
    notes = [
        f"{where}: a checkpoint lists tensors without saying which are parameters and which are frozen: every "
        "floating-point tensor counts as a trainable parameter; tied weights appear once."
    ]
    if buffers:
        notes.append(
            f"{where}: {len(buffers)} tensors count as buffers (integers, and BatchNorm statistics), for example "
            f"{buffers[0].name}; a shape manifest tells exactly."
        )
    low = sum(t.dtype.startswith("float8") for t in parameters)
    if low:
        notes.append(f"{where}: {low} tensors are stored in float8: a quantised checkpoint, with scales of its own.")
    if any("lora_" in t.name for t in parameters):
        notes.append(f"{where}: it holds LoRA adapter weights, named for example {quoted(parameters[0].name)}.")
    return tuple(parameters), tuple(buffers), tuple(notes)


def _evidence(headers: dict[str, dict[str, Any]], where: str, notes: tuple[str, ...] = ()) -> Shapes:
    tensors: list[Parameter] = []
    home: dict[str, str] = {}
    for path, header in headers.items():
        for name, entry in header.items():
            if name in home:
                raise UnusableInput(f"{where}: {quoted(name)} is in both {shown(home[name])} and {shown(path)}.")
            home[name] = path
            tensors.append(_tensor(name, entry, shown(path)))
    if not tensors:
        raise UnusableInput(f"{where}: it holds no tensors.")
    tensors.sort(key=lambda tensor: natural_key(tensor.name))
    parameters, buffers, more = _split(tensors, where)
    check_total(parameters, where)
    units = units_from_names(parameter.name for parameter in parameters)
    return Shapes(where, "safetensors", parameters, buffers, units, "", tuple(headers), notes + more)


def read_safetensors(paths: list[str], where: str = "") -> Shapes:
    """The tensors of one checkpoint in one or several files; only their headers are read.

    Raises UnusableInput for a file that breaks the format's rules, and for a tensor found in two files.
    """
    if len(paths) > MAX_FILES:
        raise UnusableInput(f"{where or shown(paths[0])}: more than {MAX_FILES} files.")
    headers: dict[str, dict[str, Any]] = {}
    budget, count = TOTAL_LIMIT, 0
    for path in paths:
        headers[path], length = _header(path, budget)
        budget -= length
        count += len(headers[path])
        if count > MAX_TENSORS:
            raise UnusableInput(f"{where or shown(path)}: more than {MAX_TENSORS} tensors.")
    return _evidence(headers, where or shown(paths[0]))


def siblings(path: str) -> list[str]:
    """All files of the checkpoint that ``model-00001-of-00004.safetensors`` belongs to; the file itself otherwise.

    Raises UnusableInput naming the missing ones.
    """
    import re

    folder, name = split(path)
    found = re.fullmatch(r"(.*-)([0-9]{5})(-of-)([0-9]{5})(\.safetensors)", name, re.ASCII)
    if found is None or not 1 <= int(found[4]) <= MAX_FILES:
        return [path]
    names = [f"{found[1]}{i:05d}{found[3]}{found[4]}{found[5]}" for i in range(1, int(found[4]) + 1)]
    missing = [n for n in names if not exists(inside(folder, n))]
    if missing:
        raise UnusableInput(f"{shown(path)}: a part of a checkpoint whose other files are missing: {_list(missing)}.")
    return [inside(folder, n) for n in names]


def _list(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(shown(name) for name in names[:3]) + more


def read_index(path: str, text: str | None = None) -> Shapes:
    """The tensors of a sharded checkpoint, from ``model.safetensors.index.json`` and the headers of its files.

    The index holds names only; the shapes come from the files, which must lie beside it. Raises UnusableInput when one
    is missing or is not named plainly.
    """
    where = shown(path)
    index = parse_json(read_text(path, INDEX_LIMIT) if text is None else text, where, values=VALUES)
    weights = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weights, dict) or not weights:
        raise UnusableInput(f"{where}: not the index of a checkpoint: it has no weight_map.")
    expected: dict[str, list[str]] = {}
    for name, file in weights.items():
        if not isinstance(file, str) or not _plain(file):
            raise UnusableInput(f"{where}: {quoted(name)} is said to lie in {quoted(file)}, not beside the index.")
        expected.setdefault(file, []).append(name)
    if len(expected) > MAX_FILES or len(weights) > MAX_TENSORS:
        raise UnusableInput(f"{where}: it names {len(weights)} tensors in {len(expected)} files, more than are read.")
    if any(not file.endswith(".safetensors") for file in expected):
        raise UnusableInput(
            f"{where}: it names files that are not safetensors ({_list(sorted(expected))}), and pickles are never "
            "opened; hand over the config.json or a shape manifest."
        )
    folder = split(path)[0]
    missing = sorted(f for f in expected if not exists(inside(folder, f)))
    if missing:
        raise UnusableInput(
            f"{where}: it names {len(weights)} tensors but holds no shapes, and {len(missing)} of its {len(expected)} "
            f"files are not beside it ({_list(missing)}); add them or hand over the config.json."
        )
    shapes = read_safetensors([inside(folder, f) for f in sorted(expected)], where)
    return _compared(shapes, index, set(weights), where)


def _plain(file: str) -> bool:
    """Whether a name in a weight_map stays inside the index's folder."""
    parts = file.split("/")
    return file.isprintable() and len(file) < 400 and not ({"", ".", ".."} & set(parts)) and not set(file) & set("\\:")


def _compared(shapes: Shapes, index: dict[str, Any], names: set[str], where: str) -> Shapes:
    """``shapes`` against what the index says of them: names must agree, sums are noted when they do not."""
    from shardguide.guidance.dtypes import itemsize

    tensors = [*shapes.parameters, *(Parameter(b.name, b.shape, b.dtype) for b in shapes.buffers)]
    held = {tensor.name for tensor in tensors}
    absent = sorted(names - held)
    if absent:
        raise UnusableInput(f"{where}: {len(absent)} of its tensors are not in the files it names: {_list(absent)}.")
    notes = shapes.notes
    extra = sorted(held - names)
    if extra:
        notes += (f"{where}: the files also hold {len(extra)} tensors that it does not name, counted: {_list(extra)}.",)
    metadata = index.get("metadata")
    stated = metadata.get("total_size") if isinstance(metadata, dict) else None
    counted = sum(tensor.numel * itemsize(tensor.dtype) for tensor in tensors)
    if isinstance(stated, (int, float)) and not isinstance(stated, bool) and stated != counted:
        notes += (f"{where}: it states a total_size of {stated} bytes; its files hold {counted}, which is used.",)
    return shapes._replace(notes=notes)
