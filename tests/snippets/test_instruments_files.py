"""The snippets that bring facts back, run as their reader would, and their files read by Shardguide's own readers."""

from __future__ import annotations

import ast
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge import api, releases
from shardguide.knowledge.snippets import TrainingSpec, manifest, measure
from shardguide.knowledge.snippets.verify import problems
from shardguide.readers.measured import _FIELDS, read_measured
from shardguide.readers.model import read_model

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytestmark = pytest.mark.torch

# First release with every memory counter, from the API index and not from the code under test.
COUNTERS = ("max_memory_allocated", "max_memory_reserved", "memory_stats", "get_device_properties", "synchronize")


def load(code: str, folder: Path, name: str) -> Any:
    file = folder / f"{name}.py"
    file.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_processes_measure_their_steps(tmp_path: Path) -> None:
    from . import gloo

    code = measure(TrainingSpec(device_type="cpu", backend="gloo")).code
    path = tmp_path / "measured.json"

    def body(rank: int) -> Any:
        gloo.init()
        module = load(code, tmp_path, f"measure_{rank}")
        calls: list[int] = []

        def step() -> None:
            calls.append(rank)
            time.sleep(0.01 * (rank + 1))

        started = time.monotonic()
        module.measure(step, steps=4, path=str(path))
        return len(calls), time.monotonic() - started

    (first, whole), (second, other) = gloo.run(2, body)
    assert (first, second) == (4, 4)
    found = read_measured(str(path))
    assert found.torch == torch.__version__
    by_rank = {rank: [step.seconds for step in found.steps if step.rank == rank] for rank in (0, 1)}
    assert [len(times) for times in by_rank.values()] == [4, 4]
    for rank, times in by_rank.items():  # each rank's own times, in seconds: sleep never returns early
        assert min(times) >= 0.01 * (rank + 1) - 1e-4 and sum(times) < (whole, other)[rank]
    assert found.memory == ()  # the CPU has no allocator that counts: nothing is claimed
    assert found.notes == ()


@pytest.mark.parametrize("device", ["cuda", "xpu", "cpu"])
@pytest.mark.parametrize("release", releases.known())
def test_every_release_has_what_is_measured(device: str, release: str) -> None:
    spec = TrainingSpec(release=release, device_type=device)
    if device != "cpu" and not all(api.exists(f"torch.{device}.{name}", release) for name in COUNTERS):
        with pytest.raises(UnusableInput):
            measure(spec)
        return
    assert problems(ast.parse(measure(spec).code), release) == []


def written_keys(code: str) -> set[str]:
    """Keys of the dictionary with one rank's values."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Dict):
            keys = {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
            if "step_seconds" in keys:
                return keys
    raise AssertionError("no entry for a rank")


@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_the_reader_knows_every_counter(device: str) -> None:
    """A key that the reader does not know would be measured and then lost without a word."""
    known = {key for keys in _FIELDS.values() for key in keys} | {"rank", "step_seconds", "host_max_resident"}
    keys = written_keys(measure(TrainingSpec(device_type=device)).code)
    assert {
        "rank",
        "max_memory_allocated",
        "max_memory_reserved",
        "total_memory",
        "num_alloc_retries",
        "num_ooms",
    } <= keys
    assert keys - known == set()


LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}
# Configuration, class, sizes, and the repeated layers (list, class, number) as the classes' own source has them.
MODELS: dict[str, tuple[str, str, dict[str, Any], list[tuple[str, str, int]]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", LLAMA, [("model.layers", "LlamaDecoderLayer", 3)]),
    "llama-tied": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {**LLAMA, "tie_word_embeddings": True},
        [("model.layers", "LlamaDecoderLayer", 3)],
    ),
    "mixtral": (
        "MixtralConfig",
        "MixtralForCausalLM",
        {**LLAMA, "num_local_experts": 4},
        [("model.layers", "MixtralDecoderLayer", 3)],
    ),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64},
        [("transformer.h", "GPT2Block", 2)],
    ),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {"d_model": 32, "d_ff": 48, "num_layers": 2, "vocab_size": 64},
        [("encoder.block", "T5Block", 2), ("decoder.block", "T5Block", 2)],
    ),
    "bert": (
        "BertConfig",
        "BertForMaskedLM",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64},
        [("bert.encoder.layer", "BertLayer", 2)],
    ),
}


def build(name: str) -> Any:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    config, architecture, values, _ = MODELS[name]
    return getattr(transformers, architecture)(getattr(transformers, config)(**values))


def written(model: Callable[[], Any], folder: Path) -> Any:
    """What the reader of MODEL arguments finds in the manifest that the snippet wrote for ``model()``."""
    module = load(manifest("2.13").code, folder, "manifest_snippet")
    module.build_model = model
    module.main(str(folder / "manifest.json"))
    return read_model(str(folder / "manifest.json"))


@pytest.mark.parametrize("name", MODELS)
def test_the_manifest_holds_the_model(name: str, tmp_path: Path) -> None:
    found = written(lambda: build(name), tmp_path)
    assert found.kind == "manifest" and found.notes == ()
    model = build(name)  # with real weights: what the meta device must not have changed
    expected = {key: (tuple(p.shape), str(p.dtype)[6:], p.requires_grad) for key, p in model.named_parameters()}
    assert [p.name for p in found.parameters] == list(expected)
    assert {p.name: (p.shape, p.dtype, p.requires_grad) for p in found.parameters} == expected
    same: dict[int, list[str]] = {}
    for key, parameter in model.named_parameters(remove_duplicate=False):
        same.setdefault(id(parameter), []).append(key)
    assert [(p.name, *p.aliases) for p in found.parameters] == [tuple(names) for names in same.values()]
    assert any(p.aliases for p in found.parameters) is (name not in ("llama", "mixtral"))
    kept = model.state_dict()
    buffers = {key: (tuple(b.shape), str(b.dtype)[6:], key in kept) for key, b in model.named_buffers()}
    assert {b.name: (b.shape, b.dtype, b.persistent) for b in found.buffers} == buffers
    _, architecture, _, lists = MODELS[name]
    assert found.architecture == architecture
    assert [(unit.modules, unit.module_class, unit.role) for unit in found.units] == [
        ((f"{container}.{i}",), kind, "block") for container, kind, count in lists for i in range(count)
    ]


def own() -> Any:
    """Layers in a ModuleDict, with a list of experts in each; a list of one; numbered modules without inner ones."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(3))

    class Own(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
            self.layers = nn.ModuleDict({str(i): Block() for i in range(2)})
            self.alone = nn.ModuleList([nn.TransformerEncoderLayer(4, 2, 8)])
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2, enable_nested_tensor=False)

    return Own()


def test_layers_are_the_outermost_lists(tmp_path: Path) -> None:
    found = written(own, tmp_path)
    assert found.architecture == "Own"
    assert [(unit.modules, unit.module_class) for unit in found.units] == [
        (("layers.0",), "Block"),
        (("layers.1",), "Block"),
        (("encoder.layers.0",), "TransformerEncoderLayer"),
        (("encoder.layers.1",), "TransformerEncoderLayer"),
    ]


def test_a_frozen_parameter_stays_frozen(tmp_path: Path) -> None:
    def frozen() -> Any:
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2, bias=False))
        model[0].weight.requires_grad_(False)
        return model

    parameters = written(frozen, tmp_path).parameters
    assert {p.name: p.requires_grad for p in parameters} == {"0.weight": False, "0.bias": True, "1.weight": True}


@pytest.mark.parametrize("release", releases.known())
def test_every_release_can_write_a_manifest(release: str) -> None:
    assert problems(ast.parse(manifest(release).code), release) == []


def test_the_model_is_the_readers_to_write(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        load(manifest("2.13").code, tmp_path, "manifest_unfilled").main(str(tmp_path / "manifest.json"))
