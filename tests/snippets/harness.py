"""Runs a snippet as its reader would: saves it, fills in what is marked as theirs, calls main() on every rank."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from shardguide.knowledge.snippets import TrainingSpec

from . import gloo, models, reference
from .scenarios import MODULES, Scenario

STEPS = 3
# Large enough to move 16-bit weights within three steps; small where a step divides by the gradient's own size, which blows
# up the rounding of gradients near zero.
RATES = {"sgd": 0.5, "sgd_momentum": 0.3, "rmsprop": 1e-3, "adagrad": 1e-2, "adam": 3e-3, "adamw": 3e-3, "muon": 1e-2}


def load(code: str, path: Path) -> ModuleType:
    """The snippet as a module of its own."""
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def prepare(scenario: Scenario, folder: Path) -> torch.nn.Module:
    """Writes the model's folder and, where needed, a distributed checkpoint; returns the model they hold."""
    import torch.distributed.checkpoint as dcp

    model = models.build(scenario.family, getattr(torch, scenario.spec.param_dtype))
    if scenario.spec.architecture:
        model.config.use_cache = True  # as published configurations have it
        model.save_pretrained(folder / "model")
        model.config.use_cache = False
    if scenario.spec.weights == "dcp":
        dcp.save(model.state_dict(), checkpoint_id=folder / "dcp", no_dist=True)
    return model


def loss_of(family: str) -> Any:
    """The loss that fits the family."""
    return {"own": models.own_loss, "llama_base": models.base_loss}.get(family, models.model_loss)


def execute(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """Trains with the snippet on every rank and once without parallelism from the same weights; both histories."""
    spec = scenario.spec
    original = prepare(scenario, folder)
    code = MODULES[scenario.kind].render(spec).code
    tp = dict(spec.mesh).get("tp", 1)
    ranks = scenario.world // tp
    # The same batches in every step, so that a loss that changes is a weight that changed. fp16 skips steps until the scale fits.
    half = spec.mp_param == "float16"
    steps, rate = (8, RATES[spec.optimizer] / 4) if half else (STEPS, RATES[spec.optimizer])
    data = [models.batches(scenario.family, ranks, spec.accumulation)] * steps

    def body(rank: int) -> Any:
        module: Any = load(code, folder / f"snippet_{rank}.py")
        module.LEARNING_RATE = rate
        if spec.architecture:
            module.MODEL = str(folder / "model")
        else:
            module.build_model = lambda: _own(spec, meta=scenario.kind == "fsdp2" and spec.meta_init)
            if hasattr(module, "blocks"):
                module.blocks = lambda model: model.layers
            if hasattr(module, "read_checkpoint"):
                module.read_checkpoint = original.state_dict
        if spec.weights == "dcp":
            module.CHECKPOINT = str(folder / "dcp")
        if not models_have_loss(spec):
            module.compute_loss = loss_of(scenario.family)
        if spec.ignored:  # sensible only for parameters that are not trained: nobody reduces their gradients
            build = module.build_model
            module.build_model = lambda: _freeze(build(), spec.ignored)

        def load_batches(index: int, count: int, device: Any) -> Any:
            assert count == ranks
            for step in data:
                yield step[index] if spec.accumulation > 1 else step[index][0]

        module.load_batches = load_batches
        history: list[tuple[float, float]] = []
        step = module.train_step

        def train_step(*arguments: Any) -> Any:
            loss, norm = step(*arguments)
            history.append((float(loss), 0.0 if norm is None else float(norm)))
            return loss, norm

        module.train_step = train_step
        start: dict[str, torch.Tensor] = {}
        name = "build_optimizers" if hasattr(module, "build_optimizers") else "build_optimizer"
        optimizer = getattr(module, name)

        def build_optimizer(model: Any) -> Any:
            start.update(whole(model))
            return optimizer(model)

        setattr(module, name, build_optimizer)
        module.main()
        return history, start

    results = gloo.run(scenario.world, body)
    start = results[0][1]
    for other in results[1:]:  # every rank sees the same whole model: replicas agree, shards fit together
        assert start.keys() == other[1].keys()
        for key, value in start.items():
            assert torch.equal(value, other[1][key]), f"{key} differs between ranks"
    if spec.weights != "random":
        expected = dict(original.named_parameters())
        for key, value in start.items():
            if key in expected:
                assert torch.equal(value, expected[key].detach()), f"{key} is not what the checkpoint holds"
    single = models.build(scenario.family, getattr(torch, spec.param_dtype))
    names = [name for name, _ in [*single.named_parameters(), *single.named_buffers()]]
    assert set(names) == set(start), "tied weights are one tensor, before and after sharding"
    for key, value in single.named_buffers():
        torch.testing.assert_close(start[key], value, rtol=0, atol=0, msg=f"buffer {key}")
    with torch.no_grad():
        for key, tensor in [*single.named_parameters(), *single.named_buffers()]:
            tensor.data = start[key].clone()
    expected_history = reference.train(
        single,
        spec,
        data,
        loss_of(scenario.family),
        rate,
        autocast=scenario.kind == "ddp",
        frozen=(*spec.frozen, *spec.ignored),
    )
    return {"ranks": [history for history, _ in results], "reference": expected_history, "tp": tp}


def models_have_loss(spec: TrainingSpec) -> bool:
    """Whether the snippet takes the loss from the model."""
    return "For" in spec.architecture or "LMHead" in spec.architecture


def _own(spec: TrainingSpec, *, meta: bool) -> torch.nn.Module:
    with torch.device("meta" if meta else "cpu"):
        return models.build("own", getattr(torch, spec.param_dtype))


def _freeze(model: torch.nn.Module, patterns: tuple[str, ...]) -> torch.nn.Module:
    from fnmatch import fnmatchcase

    for name, parameter in model.named_parameters():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
    return model


def whole(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and buffer, unsharded, under its plain name."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    result = {}
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model, writeback=False):
            for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
                result[_plain(name)] = tensor.detach().clone()
        return result
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        result[_plain(name)] = full.detach().clone()
    return result


def _plain(name: str) -> str:
    for prefix in ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module."):
        name = name.replace(prefix, "")
    return name.removeprefix("module.")
