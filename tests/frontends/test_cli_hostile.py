"""Input that is missing, truncated, huge, binary, cyclic or hostile: one sentence, status 2, and quickly."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import ROOT, Shardguide

CONFIG = (ROOT / "examples" / "llama-3.1-8b" / "config.json").read_text()
REST = [
    "--gpus",
    "8",
    "--nodes",
    "1",
    "--gpu-memory",
    "80GB",
    "--intra",
    "nvlink",
    "--optimizer",
    "adamw",
    "--param-dtype",
    "float32",
    "--torch",
    "2.13",
]


def _text(name: str, text: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        (folder / name).write_text(text)
        return str(folder / name)

    return make


def _bytes(name: str, data: bytes) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        (folder / name).write_bytes(data)
        return str(folder / name)

    return make


def _changed(**changes: object) -> str:
    return json.dumps(json.loads(CONFIG) | changes)


def _loop(folder: Path) -> str:
    (folder / "loop").symlink_to(folder / "loop")
    return str(folder / "loop")


def _cycle(folder: Path) -> str:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").symlink_to(folder / "model" / "config.json")
    return str(folder / "model")


def _pipe(folder: Path) -> str:
    os.mkfifo(folder / "config.json")
    return str(folder / "config.json")


def _huge(folder: Path) -> str:
    with (folder / "config.json").open("wb") as file:
        file.write(b'{"model_type": "llama", "x": "')
        file.truncate(3 << 30)  # sparse: nothing is read of it beyond the bound
    return str(folder / "config.json")


def _traversal(folder: Path) -> str:
    index = {"metadata": {}, "weight_map": {"a.weight": "../../../../etc/passwd"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return str(folder / "model.safetensors.index.json")


HOSTILE: dict[str, Callable[[Path], str]] = {
    "empty": _text("config.json", ""),
    "truncated": _text("config.json", CONFIG[: len(CONFIG) // 2]),
    "binary": _bytes("config.json", bytes(range(256)) * 40),
    "null bytes": _bytes("config.json", b"\x00" * 4096),
    "not an object": _text("config.json", "[1, 2, 3]"),
    "nested deeply": _text("config.json", "[" * 100_000),
    "huge": _huge,
    "huge integer": _text("config.json", CONFIG.replace("4096", "9" * 5000)),
    "infinite": _text("config.json", CONFIG.replace("4096", "1e999")),
    "negative": _text("config.json", _changed(hidden_size=-4096)),
    "text for a number": _text("config.json", _changed(num_hidden_layers="thirty-two")),
    "endless layers": _text("config.json", _changed(num_hidden_layers=2**40)),
    "unknown family": _text("config.json", _changed(model_type="nonesuch")),
    "family as a path": _text("config.json", _changed(model_type="../../os")),
    "no family": _text("config.json", "{}"),
    "symlink loop": _loop,
    "folder whose config is a loop": _cycle,
    "pipe": _pipe,
    "pickle": _bytes("model.bin", b"\x80\x02cos\nsystem\nq\x00X\x04\x00\x00\x00echoq\x01\x85q\x02Rq\x03."),
    "safetensors, header of 2^63": _bytes("m.safetensors", struct.pack("<Q", 1 << 63) + b"{}"),
    "safetensors, header past the end": _bytes("m.safetensors", struct.pack("<Q", 1 << 20) + b"{}"),
    "safetensors, header not JSON": _bytes("m.safetensors", struct.pack("<Q", 4) + b"\xff\xfe\x00\x01"),
    "safetensors, lying about its data": _bytes(
        "m.safetensors",
        struct.pack("<Q", 60) + b'{"a":{"dtype":"F32","shape":[9,9],"data_offsets":[0,4]}}'.ljust(60) + b"\x00" * 4,
    ),
    "index that leaves its folder": _traversal,
    "manifest with a negative shape": _text("m.json", '{"format": "shardguide-manifest/1", "parameters": [{"name": "a", "shape": [-1], "dtype": "float32"}]}'),
    "manifest with a name twice": _text("m.json", '[{"name": "a", "shape": [2], "dtype": "float32"}, {"name": "a", "shape": [2], "dtype": "float32"}]'),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_model(shardguide: Shardguide, tmp_path: Path, name: str) -> None:
    ran = shardguide("plan", HOSTILE[name](tmp_path), *REST)
    assert ran.status == 2, ran.out[:200]
    assert ran.out == ""
    assert ran.err.startswith("shardguide: ") and ran.err.count("\n") == 1 and len(ran.err) < 700


@pytest.mark.parametrize("option", ["--from", "--measured", "--current"])
@pytest.mark.parametrize(
    "content", [b"", bytes(range(256)) * 10, b"[" * 50_000, b"a: &a [*a, *a]\n" * 30, b"nothing of interest\n"]
)
def test_hostile_files(shardguide: Shardguide, tmp_path: Path, option: str, content: bytes) -> None:
    path = tmp_path / ("handed.py" if option == "--current" else "handed.txt")
    path.write_bytes(content)
    ran = shardguide("plan", "7b", *REST, option, str(path))
    # Text without any FSDP in it is valid Python of no interest only where it parses; everything else is refused.
    assert ran.status in ((0, 2) if option == "--current" else (2,))
    if ran.status == 2:
        assert ran.err.startswith("shardguide: ") and ran.err.count("\n") == 1
