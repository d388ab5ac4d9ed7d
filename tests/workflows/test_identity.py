"""Two different inputs never share an id: what was read is in it, byte by byte, in every workflow that reads files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.record import Guidance
from shardguide.workflows import catalogue

FSDP1 = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nmodel = FSDP(m)\n# note %d\n"
JOINABLE = """
import torch
from torch.distributed.algorithms.join import Joinable, JoinHook
class Mine(Joinable):
    def join_hook(self, **kwargs): return JoinHook()
    @property
    def join_device(self): return torch.device("cpu")
    @property
    def join_process_group(self): return None
seed = %d
"""
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000,
    "max_position_embeddings": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
ENVIRONMENT = "PyTorch version: 2.13.0\nIs debug build: False\nGPU 0: NVIDIA H100 80GB HBM3\nPython version: 3.11.%d\n"
SMI = "name, memory.total [MiB]\nNVIDIA H100 80GB HBM3, 81559 MiB\nNVIDIA H100 80GB HBM3, 8155%d MiB\n"
YAML = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nmixed_precision: bf16\nnum_processes: 8\n# note %d\n"
STACK = 'Process 1%d: python train.py\nPython v3.11.1 (/usr/bin/python)\n\nThread 1 (idle): "MainThread"\n    f (train.py:1)\n'
RUN = {"model": "7b", "gpus": 8, "nodes": 1, "gpu": "H100"}

# Workflow, name and text of the file (%d is the one digit that differs), the argument that it is, the others.
READ: dict[str, tuple[str, str, str, str, dict[str, Any]]] = {
    "review": ("review", "train.py", FSDP1, "paths", {}),
    "review, nothing found": ("review", "a.py", "seed = %d\n", "paths", {}),
    "migrate": ("migrate", "train.py", FSDP1, "paths", {}),
    "join": ("join", "mine.py", JOINABLE, "paths", {}),
    "plan, configuration": ("plan", "config.json", json.dumps({**CONFIG, "note": "N"}).replace('"N"', "%d"), "model", {"gpus": 8}),
    "plan, GPUs": ("plan", "smi.csv", SMI, "from", {"model": "7b"}),
    "plan, environment": ("plan", "env.txt", ENVIRONMENT, "from", {"model": "7b"}),
    "tune, environment": ("tune", "env.txt", ENVIRONMENT, "from", RUN),
    "tune, code": ("tune", "train.py", FSDP1, "current", RUN),
    "tune, accelerate": ("tune", "accelerate.yaml", YAML, "current", RUN),
    "diagnose, an error": ("diagnose", "train.log", "FlumoxError: unit %d\n", "paths", {}),
    "diagnose, nothing": ("diagnose", "train.log", "step 1 loss %d\n", "paths", {}),
    "diagnose, stacks": ("diagnose", "rank0.txt", STACK, "paths", {}),
    "diagnose, a report": ("diagnose", "env.txt", ENVIRONMENT, "paths", {}),
    "diagnose, the code": ("diagnose", "train.py", FSDP1, "code", {"text": "FlumoxError: unit 1"}),
}  # fmt: skip
PASTED = {
    "review": ("review", FSDP1),
    "diagnose": ("diagnose", "FlumoxError: unit %d"),
    "diagnose, nothing": ("diagnose", "step 1 loss %d"),
}


def run(task: str, arguments: dict[str, Any]) -> Guidance:
    return catalogue.run(task, {**arguments, "torch": "2.13"}, {}, None)


def with_file(task: str, name: str, argument: str, others: dict[str, Any], folder: Path) -> Callable[[str], Guidance]:
    path = folder / name

    def made(text: str) -> Guidance:
        path.write_text(text, encoding="utf-8")
        value = str(path) if argument in ("model", "current") else [str(path)]
        return run(task, {argument: value, **others})

    return made


@pytest.mark.parametrize("name", READ)
def test_one_byte_of_a_file_is_another_id(name: str, tmp_path: Path) -> None:
    task, file, text, argument, others = READ[name]
    made = with_file(task, file, argument, others, tmp_path)
    first, other, again = (made(text % digit) for digit in (1, 2, 1))
    assert first.id != other.id and first.request != other.request
    assert (first.id, first.request) == (again.id, again.request)


@pytest.mark.parametrize("name", PASTED)
def test_one_character_of_what_was_pasted_is_another_id(name: str) -> None:
    task, text = PASTED[name]
    first, other, again = (run(task, {"text": text % digit}) for digit in (1, 2, 1))
    assert first.id != other.id and first.request != other.request
    assert first.id == again.id


def test_two_unrecognised_errors_of_equal_length() -> None:
    """Sixty bytes each: name, size and number of lines are the same."""
    one, two = (
        "ValueError: expected sequence of length 12 at dim 1 (got 9)",
        "AssertionError: FSDP requires the root module to be in sync",
    )
    assert len(one) == len(two)
    assert run("diagnose", {"text": one}).id != run("diagnose", {"text": two}).id


def test_the_release_is_part_of_the_id_and_not_of_the_request() -> None:
    arguments = {"text": "FlumoxError: unit 1"}
    new, old = (catalogue.run("diagnose", {**arguments, "torch": release}, {}, None) for release in ("2.13", "2.8"))
    assert new.id != old.id
    assert new.request == old.request
