"""The text of the snippets: short, formatted, safe with hostile names, and true to the model."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.model import Unit
from shardguide.knowledge.snippets import (
    TrainingSpec,
    manifest,
    measure,
    render_ddp,
    render_fsdp1,
    render_fsdp2,
)

from .record import rendered

LLAMA = TrainingSpec(
    architecture="LlamaForCausalLM",
    units=(
        *(Unit((f"model.layers.{i}",), "LlamaDecoderLayer", "block") for i in range(4)),
        Unit(("model.embed_tokens",), "Embedding", "embedding"),
        Unit(("model.norm", "lm_head"), "LlamaRMSNorm+Linear", "head"),
    ),
)


def calls(code: str, function: str) -> list[str]:
    """The calls of a function, as text."""
    return [
        ast.unparse(n) for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Call) and ast.unparse(n.func) == function
    ]


def test_units_become_calls_bottom_up() -> None:
    spec = LLAMA._replace(reshard_after_forward=(("head", False), ("block", 4)))
    assert calls(render_fsdp2(spec).code, "fully_shard") == [
        "fully_shard(model.model.embed_tokens, **options)",
        "fully_shard([model.model.norm, model.lm_head], reshard_after_forward=False, **options)",
        "fully_shard(model, **options)",
        "fully_shard(layer, reshard_after_forward=4, **options)",
    ]


def test_units_inside_layers_and_layers_of_two_forms() -> None:
    units = []
    for i in range(4):
        if i >= 2:
            units.append(Unit((f"model.layers.{i}.mlp.experts",), "Experts", "block"))
        units.append(Unit((f"model.layers.{i}",), "Layer", "block"))
    code = render_fsdp2(TrainingSpec(units=tuple(units))).code
    assert "for layer in [model.model.layers[i] for i in range(2, 4)]:  # 2 x Experts, Layer" in code
    assert (
        "for layer in [model.model.layers[i] for i in range(0, 2)]:" in code
        or "for layer in model.model.layers:" in code
    )
    assert code.index("fully_shard(layer.mlp.experts, **options)") < code.rindex("fully_shard(layer, **options)")


def test_a_list_of_modules_needs_2_5() -> None:
    code = render_fsdp2(LLAMA._replace(release="2.4")).code
    assert "from torch.distributed._composable.fsdp import fully_shard" in code
    assert "fully_shard(model.lm_head, **options)" in calls(code, "fully_shard")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"release": "2.2"}, "no fully_shard"),
        ({"release": "two"}, "not a PyTorch release"),
        ({"release": "2.3", "offload": "pinned"}, "offload_policy came with PyTorch 2.4"),
        ({"release": "2.5", "placements": (("a.*", 1),)}, "shard_placement_fn came with PyTorch 2.6"),
        ({"release": "2.6", "ignored": ("a.*",)}, "ignored_params came with PyTorch 2.7"),
        ({"placements": (("a", 1),), "reshard_after_forward": (("block", 2),)}, "fails in backward"),
        ({"optimizer": "adafactor"}, "no code is offered"),
        ({"optimizer": "muon", "release": "2.8"}, "came with PyTorch 2.9"),
        ({"mesh": (("shard", 2), ("tp", 2))}, "needs a tensor-parallel plan"),
        ({"mesh": (("shard", 2), ("replicate", 2))}, "in this order"),
        ({"architecture": "X; import os"}, "not a Python name"),
        ({"architecture": "import"}, "not a Python name"),
        ({"placements": (('a"b', 1),)}, "no parameter name has"),
        ({"backend": 'x"); evil("'}, "not a backend"),
        ({"clip_norm": float("nan")}, "positive number"),
    ],
)
def test_what_is_not_offered_is_one_sentence(change: dict[str, object], says: str) -> None:
    with pytest.raises(UnusableInput, match=says):
        render_fsdp2(LLAMA._replace(**change))  # type: ignore[arg-type]


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_names_from_files_never_become_other_code(module: str, kind: str, architecture: str) -> None:
    spec = TrainingSpec(
        architecture=architecture,
        units=(Unit((module,), kind, "block"),),
        placements=((module, 1),),
        tied=((module, kind),),
    )
    for render in (render_fsdp2, render_fsdp1, render_ddp):
        try:
            code = render(spec).code
        except UnusableInput:
            continue
        harmless = {"Import", "ImportFrom", "FunctionDef", "Assign", "Expr", "If"}
        assert {type(node).__name__ for node in ast.parse(code).body} <= harmless
        assert len([n for n in ast.parse(code).body if isinstance(n, ast.Expr)]) == 1  # the docstring


def test_every_snippet_is_formatted_and_lints(tmp_path: Path) -> None:
    for i, (kind, _, code) in enumerate(rendered("2.13")):
        (tmp_path / f"{kind}_{i}.py").write_text(code, encoding="utf-8")
    (tmp_path / "measure_.py").write_text(measure(TrainingSpec()).code, encoding="utf-8")
    (tmp_path / "manifest_.py").write_text(manifest().code, encoding="utf-8")
    command = [sys.executable, "-m", "ruff"]
    options = ["--isolated", "--line-length=120", "--target-version=py310"]
    check = subprocess.run(
        [*command, "check", *options, "--select=E,F,I,W,B", str(tmp_path)], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stdout[:3000]
    form = subprocess.run([*command, "format", *options[:2], "--diff", str(tmp_path)], capture_output=True, text=True)
    assert form.returncode == 0, form.stdout[:3000]


@pytest.mark.torch
def test_names_outside_the_index_are_in_the_installed_torch() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    import importlib

    from shardguide.knowledge.snippets.verify import BASIC, PRIVATE

    importlib.import_module("torch.distributed.fsdp")
    for name in BASIC | PRIVATE:
        value: object = torch
        for part in name.split(".")[1:]:
            value = getattr(value, part)
