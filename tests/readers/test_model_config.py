"""config.json: what is kept, what is refused, and that the common path stays cheap."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge.families.index import build
from shardguide.readers.hf_config import HfConfig
from shardguide.readers.model import read_model

# Published values (meta-llama/Llama-3.1-8B, config.json).
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "rope_type": "llama3"},
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}


def read(tmp_path: Path, content: object, name: str = "config.json") -> HfConfig:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    evidence = read_model(str(path))
    assert isinstance(evidence, HfConfig)
    return evidence


def refused(tmp_path: Path, content: object, name: str = "config.json") -> str:
    with pytest.raises(UnusableInput) as caught:
        read(tmp_path, content, name)
    sentence = str(caught.value)
    assert sentence.endswith(".") and "\n" not in sentence and len(sentence) < 600
    return sentence


def test_every_field_is_kept(tmp_path: Path) -> None:
    evidence = read(tmp_path, LLAMA)
    assert evidence.config == LLAMA
    assert (evidence.model_type, evidence.architectures, evidence.dtype) == ("llama", ("LlamaForCausalLM",), "bfloat16")
    assert evidence.notes == () and evidence.quantization == ""


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({"dtype": "float16"}, "float16"),  # transformers 5 writes dtype
        ({"torch_dtype": "torch.bfloat16"}, "bfloat16"),
        ({"torch_dtype": None, "text_config": {"torch_dtype": "bfloat16"}}, "bfloat16"),
        ({"text_config": {"dtype": "float32"}, "vision_config": {"dtype": "float16"}}, "float32"),
        ({}, ""),
    ],
)
def test_dtype_is_found_where_files_have_it(tmp_path: Path, fields: dict[str, object], dtype: str) -> None:
    assert read(tmp_path, {"model_type": "gemma3", **fields}).dtype == dtype


def test_quantisation_and_remote_code_are_noted(tmp_path: Path) -> None:
    evidence = read(
        tmp_path,
        {
            "model_type": "deepseek_v3",
            "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
        },
    )
    assert evidence.quantization == "fp8"
    assert any("auto_map" in note for note in evidence.notes) and any("fp8" in note for note in evidence.notes)


def test_key_given_twice_counts_as_transformers_reads_it(tmp_path: Path) -> None:
    text = '{"model_type": "llama", "num_hidden_layers": 2, "num_hidden_layers": 32, "vocab_size": 9, "vocab_size": 9}'
    evidence = read(tmp_path, text.encode())
    assert evidence.config == json.loads(text)  # json.loads is what transformers uses
    assert [("num_hidden_layers" in note, "vocab_size" in note) for note in evidence.notes] == [(True, False)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_that_editors_write(tmp_path: Path, encoding: str) -> None:
    assert read(tmp_path, json.dumps(LLAMA).encode(encoding)).config == LLAMA


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"   \n", "empty"),
        (json.dumps(LLAMA).encode()[:-40], "cut off"),
        (b"{'model_type': 'llama'}", "not valid JSON"),
        (b"\x00\x01\x02\x03" * 20, "binary"),
        (b"[1, 2]", "list of objects"),
        (b'"llama"', "no JSON object"),
        (b'{"model_type": "llama", "hidden_size": NaN}', "NaN"),
        (b'{"model_type": "llama", "hidden_size": -Infinity}', "Infinity"),
        (b'{"model_type": "llama", "rope_theta": 1e999}', "too large"),
        (b'{"model_type": "llama", "hidden_size": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"model_type": "llama", "x": ' + b"[" * 65 + b"]" * 65 + b"}", "nested"),
        (b'{"model_type": "llama", "x": ' + b"[" * 200000 + b"]" * 200000 + b"}", "nested"),
        (b'{"model_type": "llama", "x": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}", "nested"),
        (b'{"model_type": "llama", "x": [' + b"1," * 500000 + b"1]}", "values"),
        (b'{"model_type": "llama", "a": {"$ref": "config.json"}}', "$ref"),
        (b'{"name": "left-pad", "version": "1.0.0"}', "neither model_type nor architectures"),
        (b'{"peft_type": "LORA", "r": 8}', "adapter"),
        (b'{"dim": 4096, "n_layers": 32, "n_heads": 32}', "params.json"),
        (b'{"_class_name": "FluxPipeline", "_diffusers_version": "0.30"}', "diffusers"),
        (b"<!DOCTYPE html><html></html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
        (b'{"model_type": "llama", "name": "\xff\xfe"}', "UTF-8"),
        (b"\xef\xbb\xbf\xef\xbb\xbf{}", "not JSON"),
    ],
)
def test_unusable_content_is_one_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in refused(tmp_path, content)


def test_too_large(tmp_path: Path) -> None:
    assert "4 MiB" in refused(tmp_path, b'{"model_type": "llama"' + b" " * (5 << 20) + b"}")
    assert "4 MiB" in refused(tmp_path, b'{"model_type": "llama"' + b" " * (5 << 20) + b"}", "other.json")


def test_folder_prefers_the_configuration_and_says_what_else_is_there(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    evidence = read_model(str(tmp_path))
    assert isinstance(evidence, HfConfig)
    assert any("index" in note for note in evidence.notes)


def test_circles_of_links_and_folders_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(UnusableInput, match="circle"):
        read_model(str(tmp_path / "a"))
    (tmp_path / "config.json").symlink_to("config.json")
    with pytest.raises(UnusableInput, match="circle"):
        read_model(str(tmp_path))
    loop = tmp_path / "loop"
    loop.mkdir()
    (loop / "again").symlink_to(loop)
    (loop / "config.json").write_text(json.dumps(LLAMA))
    assert isinstance(read_model(str(loop / "again" / "again")), HfConfig)
    other = tmp_path / "other"
    (other / "config.json").mkdir(parents=True)
    with pytest.raises(UnusableInput, match="folder"):
        read_model(str(other))


def test_common_path_imports_little() -> None:
    """Start-up is a budget: reading a config.json must not load the other readers, pathlib or dataclasses."""
    program = """
import json, sys, tempfile, os
sys.path[:0] = [{src!r}]
folder = sys.argv[1]
before = set(sys.modules)
from shardguide.readers.model import read_model
read_model(os.path.join(folder, "config.json"))
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    import shardguide

    src = str(Path(shardguide.__file__).parents[1])
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(LLAMA))
        code = "import sys\n" + program.format(src=src).replace(
            "import json, sys, tempfile, os", "import json, sys, os"
        )
        out = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, folder], capture_output=True, text=True, check=True
        )
    loaded = json.loads(out.stdout)
    ours = {name for name in loaded if name.startswith("shardguide.")}
    assert ours == {
        "shardguide.guidance",
        "shardguide.guidance.errors",
        "shardguide.guidance.hints",
        "shardguide.readers",
        "shardguide.readers.files",
        "shardguide.readers.hf_config",
        "shardguide.readers.model",
    }
    assert not {"pathlib", "dataclasses", "inspect", "yaml", "rich", "torch"} & set(loaded)


@pytest.mark.parametrize(
    ("content", "word"), [(b"null", "null"), (b" true\n", "true"), (b"12", "12"), (b'"llama"', "'llama'")]
)
@pytest.mark.parametrize("name", ["config.json", "other.json"])
def test_json_that_is_no_object(tmp_path: Path, content: bytes, word: str, name: str) -> None:
    (tmp_path / name).write_bytes(content)
    for path in (tmp_path / name, *([tmp_path] if name == "config.json" else [])):
        with pytest.raises(UnusableInput) as caught:
            read_model(str(path))
        assert word in str(caught.value) and "object" in str(caught.value) and "not JSON" not in str(caught.value)


WHOLE = {key: value for key, value in LLAMA.items() if key != "rope_scaling"}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        # LlamaConfig's, GPT2Config's and T5Config's signatures
        ({"model_type": "llama"}, ("vocab_size 32000", "hidden_size 4096", "num_hidden_layers 32", "num_attention_heads 32")),
        ({"model_type": "gpt2"}, ("n_embd 768", "n_layer 12")),
        ({"model_type": "t5"}, ("d_model 512",)),
        ({key: value for key, value in WHOLE.items() if key != "vocab_size"}, ("vocab_size 32000",)),
        ({"model_type": "gemma3"}, ("text_config as a whole",)),
        (WHOLE, ()),
    ],
)  # fmt: skip
def test_sizes_that_the_file_leaves_to_the_class_are_named(fields: dict[str, object], named: tuple[str, ...]) -> None:
    notes = "\n".join(build(fields, "transformers5", "config.json").notes)
    assert ("defaults of the" in notes) == bool(named)
    assert all(size in notes for size in named)
    if named == ("vocab_size 32000",):
        assert "hidden_size" not in notes
