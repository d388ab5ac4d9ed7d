"""Whatever bytes arrive as a model: evidence or one sentence, quickly and in bounded memory."""

from __future__ import annotations

import json
import random
import struct
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardguide.guidance.errors import UnusableInput
from shardguide.readers.model import read_model

CONFIG = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
    "text_config": {"model_type": "llama", "dtype": "bfloat16", "layer_types": ["full_attention"] * 4},
    "quantization_config": {"quant_method": "fp8"},
    "torch_dtype": "bfloat16",
}
MANIFEST = {
    "format": "shardguide-manifest/1",
    "parameters": [
        {
            "name": f"layers.{i}.w.weight",
            "shape": [4, i],
            "dtype": "float32",
            "requires_grad": True,
            "aliases": [f"a{i}"],
        }
        for i in range(3)
    ],
    "buffers": [{"name": "b", "shape": [2], "dtype": "int64", "persistent": False}],
    "units": [{"modules": ["layers.0"], "module_class": "Block", "role": "block"}],
}
_HEADER = json.dumps(
    {
        "__metadata__": {"format": "pt"},
        "layers.0.a.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "layers.1.a.weight": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    }
).encode()
SEEDS = {
    "config.json": json.dumps(CONFIG).encode(),
    "shapes.json": json.dumps(MANIFEST).encode(),
    "model.safetensors": struct.pack("<Q", len(_HEADER)) + _HEADER + b"\0" * 32,
    "model.safetensors.index.json": json.dumps(
        {"metadata": {"total_size": 32}, "weight_map": {"layers.0.a.weight": "one.safetensors"}}
    ).encode(),
}
# What tends to break parsers, spliced in where a mutation inserts.
PIECES = [
    *(
        b"[",
        b"]",
        b"{",
        b"}",
        b'"',
        b",",
        b":",
        b"\\",
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"null",
        b"true",
    ),
    *(b"-1", b"1e999", b"NaN", b"9" * 50, b"0.5", b"[" * 300, b'{"a":' * 300, b'"' * 50, b"\\ud800", b"\x1b[31m", b" "),
    *(
        b'"../x"',
        b'"parameters"',
        b'"weight_map"',
        b'"$ref"',
        b"PK\x03\x04",
        b"\x80\x04",
        b"GGUF",
        b"18446744073709551616",
    ),
]


def mutated(seed: bytes, rng: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[at % len(data)] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = rng.choice(PIECES)
        elif kind == 2:
            del data[at : at + rng.choice((1, 2, 8, 64))]
        elif kind == 3:
            data[at:at] = data[at : at + rng.randrange(1, 40)]
        else:
            del data[at:]
    return bytes(data)


def check(path: Path, content: bytes) -> bool:
    """Writes and reads; whether it was accepted. Anything but evidence or one sentence fails the test."""
    path.write_bytes(content)
    try:
        read_model(str(path))
    except UnusableInput as error:
        sentence = str(error)
        assert sentence.endswith(".") and sentence.isprintable() and len(sentence) < 1500, sentence
        return False
    return True


def run(folder: Path, count: int) -> None:
    rng = random.Random(20261129)
    (folder / "one.safetensors").write_bytes(SEEDS["model.safetensors"])
    accepted = dict.fromkeys(SEEDS, 0)
    for name, seed in SEEDS.items():
        assert check(folder / name, seed)
        for _ in range(count // len(SEEDS)):
            content = mutated(seed, rng)
            start = time.process_time()
            accepted[name] += check(folder / name, content)
            assert time.process_time() - start < 5, content[:200]
    # The mutations reach past the parsers: some survive every check, most do not.
    assert all(0 < n < count // len(SEEDS) for n in accepted.values()), accepted


def test_mutations(tmp_path: Path) -> None:
    run(tmp_path, 1500)


@pytest.mark.slow
def test_many_mutations(tmp_path: Path) -> None:
    run(tmp_path, 100_000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = (
    "model_type",
    "architectures",
    "text_config",
    "dtype",
    "quantization_config",
    "auto_map",
    "parameters",
    "format",
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(value=JSON | st.dictionaries(st.sampled_from([*KEYS, "buffers", "units", "weight_map", "metadata"]), JSON))
def test_any_json(tmp_path: Path, value: object) -> None:
    check(tmp_path / "config.json", json.dumps(value).encode())


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(header=st.dictionaries(st.text(max_size=6), JSON, max_size=4), length=st.none() | st.integers(0, 2**64 - 1))
def test_any_header(tmp_path: Path, header: dict[str, object], length: int | None) -> None:
    data = json.dumps(header).encode()
    check(tmp_path / "m.safetensors", struct.pack("<Q", len(data) if length is None else length) + data)


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=40) | st.from_regex(r"[0-9.,_]{1,9}[a-zA-Z ]{0,9}", fullmatch=True))
def test_any_argument(text: str) -> None:
    try:
        read_model(text) if text != "-" else None
    except UnusableInput as error:
        assert str(error).endswith(".") and str(error).isprintable()
