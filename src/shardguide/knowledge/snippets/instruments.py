"""The two snippets that bring facts back: what a run used (``measure``), and what a model is made of (``manifest``).

Their output is what ``shardguide.readers`` reads: ``measured.read_measured`` and ``manifest.read_manifest``.

Sources, all in PyTorch 2.13.0: torch/cuda/memory.py and torch/xpu/memory.py (the counters), torch/distributed/distributed_c10d.py
(all_gather_object), torch/nn/modules/module.py (named_parameters(remove_duplicate=False)).
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.record import Snippet, Verified

from .spec import TrainingSpec, check, version

# First release whose torch.cuda or torch.xpu has every counter used (API index; tests/snippets/test_instruments.py).
COUNTERS_SINCE = {"cuda": (2, 0), "xpu": (2, 5)}
LATEST = (2, 15)  # the newest release in the API index

_MEASURE = '''\
"""Step times%(and_memory)s of every rank, in shardguide-measured.json, which rank 0 writes.

Put this into the training script and wrap the batches of its loop:

    for step, batch in enumerate(measured(load_batches(...), device)):

Every rank has to take part; training goes on afterwards.
"""

import json
import time
from itertools import islice

import torch
import torch.distributed as dist

WARM_UP = 5  # steps before the measurement: they create the optimizer's state and fill caches
MEASURED = 10  # steps, of which each includes loading its batch


def measured(batches, device):
    batches = iter(batches)
    yield from islice(batches, WARM_UP)
%(before)s    seconds = []
    start = time.perf_counter()
    for batch in islice(batches, MEASURED):
        yield batch
%(wait)s        seconds.append(time.perf_counter() - start)
        start += seconds[-1]
    if seconds:
        write_measured(seconds, device%(pass_before)s)
    elif dist.get_rank() == 0:
        print(f"Nothing measured: there were no more than {WARM_UP} steps.")
    yield from batches


def write_measured(seconds, device%(pass_before)s):
%(after)s    mine = {
        "rank": dist.get_rank(),
%(memory)s        "step_seconds": seconds,
    }
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, mine)  # pickled, between the processes of this job only
    if dist.get_rank() == 0:
        with open("shardguide-measured.json", "w") as file:
            json.dump({"torch": torch.__version__, "ranks": ranks}, file)
'''


def measure(spec: TrainingSpec) -> Snippet:
    """The snippet ``measure``; without memory for CPU training, of which PyTorch keeps no count.

    Raises UnusableInput for releases whose torch.xpu has no memory counters (before 2.5).
    """
    release = check(spec)
    device = spec.device_type
    if device == "cpu":
        parts = dict.fromkeys(("and_memory", "before", "wait", "pass_before", "after", "memory"), "")
        code = _MEASURE % parts
        return Snippet(
            "measure",
            "Step times of every rank",
            "python",
            code,
            Verified(True, release <= LATEST, "2.13.0, 2 processes, Gloo, CPU"),
        )
    if release < COUNTERS_SINCE[device]:
        raise UnusableInput(f"torch.{device} counts memory only from PyTorch 2.5 on; {spec.release} does not.")
    parts = {
        "and_memory": " and peak memory",
        "before": (
            f"    torch.{device}.synchronize(device)\n"
            f"    torch.{device}.reset_peak_memory_stats(device)\n"
            f"    before = torch.{device}.memory_stats(device)\n"
        ),
        "wait": f"        torch.{device}.synchronize(device)  # the step's kernels run on after Python has queued them\n",
        "pass_before": ", before",
        "after": f"    after = torch.{device}.memory_stats(device)\n",
        "memory": (
            f'        "max_memory_allocated": torch.{device}.max_memory_allocated(device),\n'
            f'        "max_memory_reserved": torch.{device}.max_memory_reserved(device),\n'
            f'        "total_memory": torch.{device}.get_device_properties(device).total_memory,\n'
            '        "num_alloc_retries": after.get("num_alloc_retries", 0) - before.get("num_alloc_retries", 0),\n'
            '        "num_ooms": after.get("num_ooms", 0) - before.get("num_ooms", 0),\n'
        ),
    }
    title = "Peak memory and step times of every rank"
    return Snippet("measure", title, "python", _MEASURE % parts, Verified(True, release <= LATEST, ""))


_MANIFEST = '''\
"""Writes shardguide-manifest.json: names and shapes of a model, built on the meta device, so without memory for weights."""

import json

import torch
from torch import nn


def build_model():
    """Yours: return your torch.nn.Module; remove what you only add for training, such as compile or FSDP."""
    raise NotImplementedError("build_model is yours to write")


def parameters(model):
    """Each tensor once, under its first name; tied ones have the other names as aliases."""
    entries = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        if id(tensor) in entries:
            entries[id(tensor)].setdefault("aliases", []).append(name)
        else:
            entries[id(tensor)] = {**described(name, tensor), "requires_grad": tensor.requires_grad}
    return list(entries.values())


def buffers(model):
    saved = model.state_dict().keys()
    return [{**described(name, tensor), "persistent": name in saved} for name, tensor in model.named_buffers()]


def described(name, tensor):
    return {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).replace("torch.", "")}


def units(model):
    """Repeated layers, of which each gets a communication group: yours to change where your model has better ones."""
    found = []
    for name, module in model.named_modules():
        inside = any(name.startswith(unit["modules"][0] + ".") for unit in found)
        if inside or not isinstance(module, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
            continue
        layers = [(key, child) for key, child in module.named_children() if list(child.children())]
        classes = [type(child) for _, child in layers]
        for key, child in layers:
            if classes.count(type(child)) > 1 and any(True for _ in child.parameters()):
                path = f"{name}.{key}" if name else key
                found.append({"modules": [path], "module_class": type(child).__name__, "role": "block"})
    return found


if __name__ == "__main__":
    with torch.device("meta"):
        model = build_model()
    manifest = {
        "format": "shardguide-manifest/1",
        "architecture": type(model).__name__,
        "parameters": parameters(model),
        "buffers": buffers(model),
        "units": units(model),
    }
    with open("shardguide-manifest.json", "w") as file:
        json.dump(manifest, file)
'''


def manifest(release: str) -> Snippet:
    """The snippet ``manifest``. Raises UnusableInput for releases before 2.0, which have no ``with torch.device(...)``."""
    found = version(release)
    if found < (2, 0):
        raise UnusableInput(f"the snippet needs PyTorch 2.0 or newer for its meta device; {release} is older.")
    return Snippet(
        "manifest",
        "Shapes of your model",
        "python",
        _MANIFEST,
        Verified(True, found <= LATEST, "2.13.0, CPU, with models of transformers"),
    )
