"""Two snippets that bring facts back: what a run really used, and what shapes a model really has.

Sources: docstrings of torch.cuda.max_memory_allocated, max_memory_reserved, memory_stats and torch.distributed.gather_object;
torch.nn.Module.named_parameters (remove_duplicate) and named_children.
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.record import Snippet

from .record import verified
from .spec import TrainingSpec, check

_MEASURE = '''"""Measures what a training step really takes: call measure(...) once, on every rank, instead of the training loop."""

import json
import resource
import time

import torch
import torch.distributed as dist


def measure(run_step, steps=20, path="measured.json"):
    """Runs ``run_step()`` ``steps`` times; rank 0 writes every rank's peak memory (bytes) and step times (seconds).

    The first steps are in: they allocate the optimizer's state, and warm up. Then: shardguide plan --measured FILE.
    """
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        run_step()
@SYNCHRONIZE@        seconds.append(time.perf_counter() - start)
    mine = {
        "rank": dist.get_rank(),
@MEMORY@        "host_max_resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # Linux counts in KiB
        "step_seconds": seconds,
    }
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    if dist.get_rank() == 0:
        with open(path, "w") as file:
            json.dump({"torch": torch.__version__, "ranks": everyone}, file, indent=1)
'''

_MANIFEST = '''"""Writes the shapes of a model, for shardguide plan MANIFEST: names, shapes, dtypes and layers, no values."""

import json
import sys

import torch


def build_model():
    """Yours: return your torch.nn.Module as your training code builds it."""
    raise NotImplementedError("build_model is yours to write")


def dtype(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def layers(module, prefix=""):
    """The repeated layers in a module: members of the outermost numbered lists (nn.ModuleList and the like)."""
    children = list(module.named_children())
    numbered = [(name, child) for name, child in children if name.isdecimal()]
    blocks = [(name, child) for name, child in numbered if any("." in inner for inner, _ in child.named_parameters())]
    if blocks and len(numbered) > 1:
        return [{"modules": [prefix + name], "module_class": type(child).__name__} for name, child in blocks]
    return [unit for name, child in children for unit in layers(child, f"{prefix}{name}.")]


def describe(model):
    names = {}  # every name of each tensor, the first one first: tied weights are one tensor with several names
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    parameters = [
        {
            "name": first,
            "shape": list(parameter.shape),
            "dtype": dtype(parameter),
            "requires_grad": parameter.requires_grad,
            "aliases": aliases,
        }
        for parameter, (first, *aliases) in names.items()
    ]
    kept = model.state_dict()
    buffers = [
        {"name": name, "shape": list(buffer.shape), "dtype": dtype(buffer), "persistent": name in kept}
        for name, buffer in model.named_buffers()
    ]
    return {
        "format": "shardguide-manifest/1",
        "architecture": type(model).__name__,
        "parameters": parameters,
        "buffers": buffers,
        "units": layers(model),
    }


def main(path):
    with torch.device("meta"):  # takes no memory, whatever the size
        model = build_model()
    with open(path, "w") as file:
        json.dump(describe(model), file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "manifest.json")
'''


def measure(spec: TrainingSpec) -> Snippet:
    """The snippet ``measure``: ``{"torch", "ranks": [{"rank", "max_memory_allocated", …, "step_seconds"}]}``, sizes in bytes.

    On the CPU there is only the host's peak. Nothing is estimated.
    """
    release = check(spec)
    device = spec.device_type
    if device == "xpu" and release < (2, 5):
        raise UnusableInput(f"torch.xpu reports its memory from PyTorch 2.5 on; {spec.release} does not.")
    synchronize, memory = "", ""
    if device != "cpu":
        synchronize = f"        torch.{device}.synchronize()\n"
        memory = (
            f'        "max_memory_allocated": torch.{device}.max_memory_allocated(),\n'
            f'        "max_memory_reserved": torch.{device}.max_memory_reserved(),\n'
            f'        "num_alloc_retries": torch.{device}.memory_stats().get("num_alloc_retries"),\n'
            f'        "num_ooms": torch.{device}.memory_stats().get("num_ooms"),\n'
            f'        "total_memory": torch.{device}.get_device_properties().total_memory,\n'
        )
        if device == "cuda":  # before 2.6 the device is required
            memory = memory.replace("get_device_properties()", "get_device_properties(torch.cuda.current_device())")
    code = _MEASURE.replace("@SYNCHRONIZE@", synchronize).replace("@MEMORY@", memory)
    checked = verified("measure", (f"device={device}",), spec.release)
    return Snippet("measure", "Measure peak memory and step times", "python", code, checked)


def manifest(release: str = "2.13") -> Snippet:
    """The snippet ``manifest``: writes ``shardguide-manifest/1`` from the model on the meta device, with tied names and layers."""
    return Snippet(
        "manifest",
        "Write the model's shape manifest",
        "python",
        _MANIFEST,
        verified("manifest", ("form=only",), release),
    )
