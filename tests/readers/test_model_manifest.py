"""Shape manifests: what a real model writes comes back exactly; contradictions are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.model import Buffer, Parameter, Unit
from shardguide.readers.model import read_model
from shardguide.readers.shapes import Shapes


def read(tmp_path: Path, value: Any) -> Shapes:
    path = tmp_path / "shapes.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    evidence = read_model(str(path))
    assert isinstance(evidence, Shapes)
    return evidence


def refused(tmp_path: Path, value: Any) -> str:
    with pytest.raises(UnusableInput) as caught:
        read(tmp_path, value)
    sentence = str(caught.value)
    assert sentence.endswith(".") and sentence.isprintable() and len(sentence) < 600
    return sentence


@pytest.mark.torch
def test_manifest_of_a_real_model(tmp_path: Path) -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(n_layer=3))
    model.transformer.wte.weight.requires_grad_(False)
    first: dict[int, dict[str, Any]] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        seen = first.get(id(tensor))
        if seen is None:
            first[id(tensor)] = {
                "name": name,
                "shape": list(tensor.shape),
                "dtype": str(tensor.dtype),
                "requires_grad": tensor.requires_grad,
            }
        else:
            seen.setdefault("aliases", []).append(name)
    persistent = set(model.state_dict())
    evidence = read(
        tmp_path,
        {
            "format": "shardguide-manifest/1",
            "architecture": type(model).__name__,
            "parameters": list(first.values()),
            "buffers": [
                {"name": n, "shape": list(b.shape), "dtype": str(b.dtype), "persistent": n in persistent}
                for n, b in model.named_buffers()
            ],
        },
    )
    assert [(p.name, p.shape, p.requires_grad) for p in evidence.parameters] == [
        (n, tuple(p.shape), p.requires_grad) for n, p in model.named_parameters()
    ]
    assert sum(p.numel for p in evidence.parameters) == sum(p.numel() for p in model.parameters())
    assert evidence.parameters[0].aliases == ("lm_head.weight",) and evidence.parameters[0].dtype == "float32"
    assert [u.modules[0] for u in evidence.units] == ["transformer.h.0", "transformer.h.1", "transformer.h.2"]
    assert evidence.architecture == "GPT2LMHeadModel"


def test_everything_a_manifest_can_state(tmp_path: Path) -> None:
    evidence = read(
        tmp_path,
        {
            "format": "shardguide-manifest/1",
            "parameters": [
                {"name": "a", "shape": [3, 0], "dtype": "torch.bfloat16", "requires_grad": False, "ignored": True},
                {"name": "b.w", "shape": [], "aliases": ["c.w"], "comment": "left alone"},
            ],
            "buffers": [{"name": "n", "shape": [2], "dtype": "int64", "persistent": False}],
            "units": [{"modules": ["b", "c"], "module_class": "Linear+Linear", "role": "head"}],
        },
    )
    assert evidence.parameters == (
        Parameter("a", (3, 0), "bfloat16", False, (), True),
        Parameter("b.w", (), "", True, ("c.w",), False),
    )
    assert evidence.buffers == (Buffer("n", (2,), "int64", False),)
    assert evidence.units == (Unit(("b", "c"), "Linear+Linear", "head"),)
    assert any("scalar" in note for note in evidence.notes)


@pytest.mark.torch
def test_scalars_are_refused_by_fully_shard() -> None:
    """The note about scalars says what PyTorch does."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(1.0))

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        with pytest.raises(ValueError, match="scalar"):
            fully_shard(Scaled(), mesh=torch.distributed.init_device_mesh("cpu", (2,)))
    finally:
        dist.destroy_process_group()


def test_bare_list(tmp_path: Path) -> None:
    evidence = read(tmp_path, [{"name": "w", "shape": [2, 3], "dtype": "float32", "requires_grad": True}])
    assert evidence.parameters == (Parameter("w", (2, 3), "float32"),) and evidence.kind == "manifest"


W = {"name": "w", "shape": [2]}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "no parameters"),
        ({"parameters": []}, "no parameters"),
        ({"parameters": {"w": [2]}}, "list of objects"),
        ([1], "list of objects"),
        ([{"shape": [1]}], "name"),
        ([{"name": "w"}], "shape"),
        ([{"name": "", "shape": [1]}], "name"),
        ([{"name": "w\n", "shape": [1]}], "name"),
        ([{"name": 3, "shape": [1]}], "name"),
        ([{"name": "w", "shape": [-1]}], "extent"),
        ([{"name": "w", "shape": [2.0]}], "extent"),
        ([{"name": "w", "shape": [True]}], "extent"),
        ([{"name": "w", "shape": ["2"]}], "extent"),
        ([{"name": "w", "shape": [10**30]}], "extent"),
        ([{"name": "w", "shape": [2**30, 2**30]}], "elements"),
        ([{"name": "w", "shape": [1] * 33}], "shape"),
        ([{"name": f"w{i}", "shape": [2**52]} for i in range(3)], "together"),
        ([W, W], "twice"),
        ([{**W, "aliases": ["w"]}], "twice"),
        ([{**W, "aliases": ["v"]}, {"name": "v", "shape": [2]}], "twice"),
        ({"parameters": [W], "buffers": [{"name": "w", "shape": [1]}]}, "twice"),
        ([{**W, "aliases": "v"}], "lists"),
        ([{**W, "dtype": "float31"}], "float31"),
        ([{**W, "dtype": 32}], "string"),
        ([{**W, "requires_grad": "yes"}], "true or false"),
        ([{**W, "ignored": 1}], "true or false"),
        ({"format": "shardguide-manifest/2", "parameters": [W]}, "not known"),
        ({"format": ["shardguide-manifest/1"], "parameters": [W]}, "not known"),
        ({"parameters": [W], "units": [{"modules": [], "role": "block"}]}, "modules"),
        ({"parameters": [W], "units": [{"modules": ["a"], "role": "king"}]}, "roles"),
        ({"parameters": [W], "units": [{"modules": ["a"], "role": ["block"]}]}, "roles"),
        ({"parameters": [W], "units": [{"modules": ["a"]}, {"modules": ["a"]}]}, "two units"),
        ({"parameters": [W], "architecture": 5}, "name"),
        ('[{"name": "w", "name": "v", "shape": [1]}]', "twice"),
        ('[{"name": "w", "shape": [1]}', "cut off"),
        ('[{"name": "w", "shape": [NaN]}]', "NaN"),
        ("[" * 100_000, "nested"),
        ("[" + "{}," * 600_000 + "{}]", "more than the 500000"),
        ("[" + "[]," * 3_000_000 + "{}]", "JSON values"),
    ],
)
def test_contradictions(tmp_path: Path, value: Any, says: str) -> None:
    assert says in refused(tmp_path, value)
