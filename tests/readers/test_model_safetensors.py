"""safetensors: headers read exactly as the reference implementation wrote them, hostile ones refused."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.dtypes import itemsize
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.model import Unit
from shardguide.readers.model import read_model
from shardguide.readers.safetensors import BITS, NAMES
from shardguide.readers.shapes import Shapes, units_from_names


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def pack(header: Any, weights: int, length: int | None = None) -> bytes:
    """A file as the format lays it out; ``header`` is JSON or bytes, ``length`` what the file claims it to be."""
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(data) if length is None else length) + data + b"\0" * weights


def read(path: Path, content: bytes) -> Shapes:
    path.write_bytes(content)
    evidence = read_model(str(path))
    assert isinstance(evidence, Shapes)
    return evidence


def refused(path: Path, content: bytes) -> str:
    with pytest.raises(UnusableInput) as caught:
        read(path, content)
    sentence = str(caught.value)
    assert sentence.endswith(".") and sentence.isprintable() and len(sentence) < 800
    return sentence


@pytest.mark.torch
def test_real_file_equals_what_was_saved(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import _TYPES, save_file

    tensors = {
        "model.embed_tokens.weight": torch.zeros(10, 4, dtype=torch.bfloat16),
        "model.layers.10.w.weight": torch.zeros(4, 3),
        "model.layers.2.w.weight": torch.zeros(3, 2, 2, dtype=torch.float16),
        "model.norm.weight": torch.zeros(0),
        "scalar": torch.tensor(1.0),
        "e4m3": torch.zeros(3, dtype=torch.float8_e4m3fn),
        "e8m0": torch.zeros(3, dtype=torch.float8_e8m0fnu),
        "bn.running_mean": torch.zeros(7),
        "bn.running_var": torch.zeros(7),
        "bn.num_batches_tracked": torch.tensor(0),
        "mask": torch.zeros(2, dtype=torch.bool),
    }
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    evidence = read_model(str(tmp_path / "model.safetensors"))
    assert isinstance(evidence, Shapes)
    found = {t.name: (t.shape, t.dtype) for t in (*evidence.parameters, *evidence.buffers)}
    assert found == {k: (tuple(t.shape), str(t.dtype).removeprefix("torch.")) for k, t in tensors.items()}
    assert {b.name for b in evidence.buffers} == {
        "bn.running_mean",
        "bn.running_var",
        "bn.num_batches_tracked",
        "mask",
    }
    names = [p.name for p in evidence.parameters]
    assert names.index("model.layers.2.w.weight") < names.index("model.layers.10.w.weight")
    # Every dtype of the library that PyTorch has is known here under PyTorch's name and size.
    for name, dtype in _TYPES.items():
        assert BITS[name] == dtype.itemsize * 8
        if name != "C64":
            from shardguide.guidance.dtypes import dtype_name

            canonical = NAMES.get(name) or dtype_name(name)
            assert canonical == str(dtype).removeprefix("torch.") and itemsize(canonical) == dtype.itemsize


@pytest.mark.torch
def test_sharded_checkpoint_equals_the_model(tmp_path: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=12,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=500,
        )
    ).to(torch.bfloat16)
    model.save_pretrained(tmp_path, max_shard_size="200KB")
    index = tmp_path / "model.safetensors.index.json"
    assert index.exists()
    expected = {name: (tuple(p.shape), "bfloat16") for name, p in model.named_parameters()}
    folder = read_model(str(tmp_path), prefer_checkpoint=True)
    one = read_model(str(next(iter(sorted(tmp_path.glob("model-*.safetensors"))))))
    for evidence in (read_model(str(index)), folder, one):
        assert isinstance(evidence, Shapes)
        assert {p.name: (p.shape, p.dtype) for p in evidence.parameters} == expected
        assert [u.modules for u in evidence.units] == [(f"model.layers.{i}",) for i in range(12)]
        assert {u.module_class for u in evidence.units} == {""}
    assert not any("total_size" in note for note in read_model(str(index)).notes)
    changed = json.loads(index.read_text())
    changed["metadata"]["total_size"] += 2
    index.write_text(json.dumps(changed))
    assert any("total_size" in note for note in read_model(str(index)).notes)


GOOD = {"a.weight": entry("F32", [2, 3], 0, 24), "b.weight": entry("BF16", [4], 24, 32)}


def test_hand_made_file(tmp_path: Path) -> None:
    evidence = read(tmp_path / "m.safetensors", pack({"__metadata__": {"format": "pt"}, **GOOD}, 32))
    assert [(p.name, p.shape, p.dtype) for p in evidence.parameters] == [
        ("a.weight", (2, 3), "float32"),
        ("b.weight", (4,), "bfloat16"),
    ]
    padded = json.dumps(GOOD).encode() + b" " * 20
    assert read(tmp_path / "no-ending", pack(padded, 32)).parameters == evidence.parameters


@pytest.mark.parametrize("length", [640, 896, 1152, 1408, 0x121C08])
def test_lengths_that_look_like_another_format(tmp_path: Path, length: int) -> None:
    """A header of 640 bytes makes a file begin like a pickle, one of 1186824 like ONNX."""
    content = pack(json.dumps(GOOD).encode().ljust(length), 32)
    assert content[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x08\x1c")
    assert len(read(tmp_path / "m.safetensors", content).parameters) == 2
    assert len(read(tmp_path / "no-ending", content).parameters) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "too few"),
        (b"\x10\0\0", "too few"),
        (pack(GOOD, 32, length=2**63), "claims a header of 9223372036854775808 bytes"),
        (pack(GOOD, 32, length=2**64 - 1), "claims a header"),
        (pack(GOOD, 32, length=100_000_001), "claims a header"),
        (pack(GOOD, 32, length=99_000_000), "cut off"),
        (pack(GOOD, 32, length=0), "does not begin"),
        (pack(GOOD, 32)[:60], "cut off"),
        (pack(GOOD, 31), "cut off"),
        (pack(GOOD, 33), "damaged"),
        (pack(b"[1]", 0), "does not begin"),
        (pack(b"{" + b"[" * 100000, 0), "JSON"),
        (pack(b'{"a":1}', 0), "not described"),
        (pack(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{}}', 4), "twice"),
        (pack({"a": entry("F31", [1], 0, 4)}, 4), "F31"),
        (pack({"a": entry("F32", [1], 4, 8)}, 8), "hole"),
        (pack({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 0, 4)}, 4), "overlaps"),
        (pack({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 6, 10)}, 10), "hole"),
        (pack({"a": entry("F32", [1], -4, 0)}, 0), "byte positions"),
        (pack({"a": entry("F32", [1], 4, 0)}, 0), "takes -4 bytes"),
        (pack({"a": entry("F32", [2], 0, 4)}, 4), "takes 4 bytes, but its shape and dtype need 8"),
        (pack({"a": entry("F32", [-1], 0, 4)}, 4), "possible extent"),
        (pack({"a": entry("F32", [True], 0, 4)}, 4), "possible extent"),
        (pack({"a": entry("F32", [1.0], 0, 4)}, 4), "possible extent"),
        (pack({"a": entry("F32", [2**40, 2**40], 0, 2**82)}, 0), "elements"),
        (pack({"a": entry("F32", [1] * 40, 0, 4)}, 4), "list of whole numbers"),
        (pack({"a": {**entry("F32", [1], 0, 4), "shape": "1"}}, 4), "list of whole numbers"),
        (pack({"a": {"dtype": "F32", "shape": [1]}}, 4), "byte positions"),
        (pack({"a": {**entry("F32", [1], 0, 4), "data_offsets": [0, 2, 4]}}, 4), "byte positions"),
        (pack({"a": {**entry("F32", [1], 0, 4), "data_offsets": ["0", "4"]}}, 4), "byte positions"),
        (pack({"a\x1b[31m": entry("F32", [1], 0, 4)}, 4), "name"),
        (pack({"a" * 2000: entry("F32", [1], 0, 4)}, 4), "name"),
        (pack({"__metadata__": {"format": 1}}, 0), "__metadata__"),
        (pack({"__metadata__": [], **GOOD}, 32), "__metadata__"),
        (pack({}, 0), "no tensors"),
        (pack({"a": entry("F4", [2], 0, 1)}, 1), "F4"),
        (pack({"a": entry("F4", [3], 0, 1)}, 1), "need 2"),
        (pack({"a": entry("C64", [1], 0, 8)}, 8), "C64"),
        (pack(b'{"a": ' + b"1" * 5000 + b"}", 0), "digits"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "pickle"),
        (b"PK\x03\x04" + b"\0" * 60, "pickle"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git lfs pull"),
    ],
)
def test_hostile_headers(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in refused(tmp_path / "m.safetensors", content)


@pytest.mark.torch
@pytest.mark.parametrize("cut", range(0, 200, 7))
def test_the_reference_refuses_what_is_cut_off_too(tmp_path: Path, cut: int) -> None:
    from safetensors import SafetensorError, safe_open

    content = pack(GOOD, 32)[:cut]
    path = tmp_path / "m.safetensors"
    refused(path, content) if cut < len(pack(GOOD, 32)) else read(path, content)
    if cut < len(pack(GOOD, 32)):
        with pytest.raises((SafetensorError, OSError, ValueError)), safe_open(path, "pt"):
            pass


def test_a_header_of_the_largest_size_is_bounded(tmp_path: Path) -> None:
    """90 MB of JSON made to be as costly as possible: refused before anything is built from it."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    says = refused(tmp_path / "m.safetensors", pack(b'{"a":' + b"[]," * 30_000_000 + b"1}", 0))
    assert "JSON values" in says
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 450_000 * (1 if sys.platform == "linux" else 1024)  # kB: the file as bytes and as text, twice


def index(folder: Path, weight_map: dict[str, object], **metadata: object) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}))
    return path


@pytest.mark.parametrize(
    "file",
    [
        "../secret.safetensors",
        "/etc/passwd",
        "sub/../../x.safetensors",
        "..\\x.safetensors",
        "C:x.safetensors",
        "",
        ".",
        "..",
        "a//b.safetensors",
        "\x1b.safetensors",
        "a\x00.safetensors",
        "x" * 500 + ".safetensors",
        7,
        None,
    ],
)
def test_index_stays_in_its_folder(tmp_path: Path, file: object) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "secret.safetensors").write_bytes(pack(GOOD, 32))
    with pytest.raises(UnusableInput, match="beside the index"):
        read_model(str(index(folder, {"a.weight": file})))


def test_index_without_its_files(tmp_path: Path) -> None:
    names = {f"model.layers.{i}.w": f"model-{i + 1:05d}-of-00005.safetensors" for i in range(5)}
    with pytest.raises(UnusableInput) as caught:
        read_model(str(index(tmp_path, names)))
    assert "no shapes" in str(caught.value) and "and 2 more" in str(caught.value)
    assert "model-00001-of-00005.safetensors" in str(caught.value)


def test_index_of_pickles(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="never opened"):
        read_model(str(index(tmp_path, {"a": "pytorch_model-00001-of-00002.bin"})))


def test_index_and_files_that_disagree(tmp_path: Path) -> None:
    (tmp_path / "one.safetensors").write_bytes(pack(GOOD, 32))
    with pytest.raises(UnusableInput, match=r"c\.weight"):
        read_model(str(index(tmp_path, {"a.weight": "one.safetensors", "c.weight": "one.safetensors"})))
    evidence = read_model(str(index(tmp_path, {"a.weight": "one.safetensors"}, total_size=32)))
    assert [p.name for p in evidence.parameters] == ["a.weight", "b.weight"]
    assert any("b.weight" in note for note in evidence.notes)
    (tmp_path / "two.safetensors").write_bytes(pack({"a.weight": entry("F32", [1], 0, 4)}, 4))
    with pytest.raises(UnusableInput, match=r"a\.weight.*both"):
        read_model(str(index(tmp_path, {"a.weight": "one.safetensors", "b.weight": "two.safetensors"})))


def test_a_lone_part_is_not_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model-00002-of-00003.safetensors"
    path.write_bytes(pack(GOOD, 32))
    with pytest.raises(UnusableInput, match=r"model-00001-of-00003"):
        read_model(str(path))


def test_folder_with_several_unrelated_files(tmp_path: Path) -> None:
    (tmp_path / "one.safetensors").write_bytes(pack(GOOD, 32))
    (tmp_path / "two.safetensors").write_bytes(pack(GOOD, 32))
    with pytest.raises(UnusableInput, match="name one file"):
        read_model(str(tmp_path))


@pytest.mark.parametrize(
    ("names", "modules"),
    [
        (
            ["transformer.h.0.ln.weight", "transformer.h.1.ln.weight", "wte.weight"],
            ["transformer.h.0", "transformer.h.1"],
        ),
        (  # experts inside a layer belong to the layer; layers sort as numbers
            [f"model.layers.{i}.mlp.experts.{j}.up.weight" for i in (0, 1, 10, 2) for j in range(3)],
            ["model.layers.0", "model.layers.1", "model.layers.2", "model.layers.10"],
        ),
        (  # t5: two stacks, each with a list inside its blocks
            [f"{s}.block.{i}.layer.{j}.norm.weight" for s in ("encoder", "decoder") for i in (0, 1) for j in (0, 1)],
            ["encoder.block.0", "encoder.block.1", "decoder.block.0", "decoder.block.1"],
        ),
        (["features.0.weight", "features.2.weight", "classifier.0.weight", "classifier.3.weight"], []),  # VGG
        (
            ["0.auto_model.layer.0.a.weight", "0.auto_model.layer.1.a.weight"],
            ["0.auto_model.layer.0", "0.auto_model.layer.1"],
        ),
        (["0.a.weight", "1.a.weight"], ["0", "1"]),  # nn.Sequential of blocks
        (["layer.0.a.weight"], []),  # nothing is repeated
        (["scales.0", "scales.1", "w"], []),  # nn.ParameterList
        (["layers.٣.a.w", "layers.٤.a.w"], []),  # not numbers to PyTorch
    ],
)
def test_units_from_names(names: list[str], modules: list[str]) -> None:
    assert units_from_names(names) == tuple(Unit((module,), "", "block") for module in modules)


@pytest.mark.torch
@pytest.mark.parametrize("family", ["llama", "mixtral", "t5", "bert", "gpt_neox", "vit"])
def test_units_of_real_models(family: str) -> None:
    """The layers found by name are the children of the real model's outermost lists of modules with parameters."""
    import torch
    from transformers import AutoConfig, AutoModel

    small = {
        "hidden_size": 32,
        "intermediate_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_layers": 3,
    }
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(family, **small))
    lists = [n for n, m in model.named_modules() if isinstance(m, torch.nn.ModuleList)]
    outermost = [n for n in lists if not any(n.startswith(f"{other}.") for other in lists)]
    expected = [f"{n}.{i}" for n in outermost for i in range(len(model.get_submodule(n)))]
    found = units_from_names(name for name, _ in model.named_parameters())
    assert [unit.modules[0] for unit in found] == expected and len(expected) >= 3
