"""Element sizes of the dtypes that parameters, gradients and optimizer states can have."""

from __future__ import annotations

from .errors import UnusableInput

# Bytes per element, as torch.dtype.itemsize gives them (checked against PyTorch in tests/guidance/test_dtypes.py).
ITEMSIZE: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}

# Short forms that people type and that files carry (safetensors, torch's own repr, accelerate).
ALIASES: dict[str, str] = {
    "fp64": "float64", "f64": "float64", "double": "float64",
    "fp32": "float32", "f32": "float32", "float": "float32", "32": "float32",
    "bf16": "bfloat16", "fp16": "float16", "f16": "float16", "half": "float16",
    "f8_e4m3": "float8_e4m3fn", "f8_e5m2": "float8_e5m2",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8",
}  # fmt: skip


def dtype_name(text: str) -> str:
    """The canonical dtype name (``bfloat16``) of any common spelling (``bf16``, ``torch.bfloat16``, ``BF16``).

    Raises UnusableInput for a name that PyTorch does not have.
    """
    name = text.strip().lower().removeprefix("torch.")
    name = ALIASES.get(name, name)
    if name not in ITEMSIZE:
        raise UnusableInput(
            f"{text[:40]!r} is not a dtype that Shardguide knows; use one of float32, bfloat16, float16."
        )
    return name


def itemsize(dtype: str) -> int:
    """Bytes per element of a canonical dtype name."""
    return ITEMSIZE[dtype]
