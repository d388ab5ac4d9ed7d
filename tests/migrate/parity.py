"""The training programs of this folder, and how one is run with two processes over Gloo.

Each program stands in ``programs`` as a user writes it with FSDP1: a file, or a folder whose ``train.py`` is the program. Its
``main`` gives (loss, gradient norm) for every step of one rank.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from pathlib import Path
from typing import Any, NamedTuple

RELEASE = "2.13"  # what the tests run on
FOLDER = Path(__file__).parent / "programs"
World = list[list[tuple[float, float]]]  # of each rank, of each step: loss and gradient norm


class Program(NamedTuple):
    """One program: its file or folder, its arguments, and how far the two forms may differ."""

    name: str
    argv: tuple[str, ...] | None = None  # None: main() takes none
    tolerance: float = 1e-6
    world: int = 2  # ranks

    @property
    def id(self) -> str:
        return " ".join((self.name, *(self.argv or ())))


# In fp32 only the order of some sums differs. With 16 bit a difference of 1e-7 in a weight may round the other way, which is
# 2**-8 (bf16) or 2**-11 (fp16) of a value, and the next step starts from there. Measured: 2.2e-7 at most, in 16 bit too.
BF16, FP16 = 2e-2, 2e-3

PROGRAMS = (
    Program("full_shard"),
    Program("grad_op_accumulate", ()),
    # With one rank in each group of shards FSDP1 would not sync the replicas: it switches to NO_SHARD within that group.
    Program("hybrid", world=4),
    Program("hybrid_grad_op_mesh", world=4),
    Program("bf16", tolerance=BF16),
    Program("trainer", ()),
    Program("sharded_checkpoint", ()),
    Program("full_optimizer_state", ()),
    Program("manual_wrap"),
    Program("nested_assign"),
    Program("transformer_policy", ()),
    Program("size_policy"),
    Program("lambda_policy"),
    Program("enable_wrap"),
    Program("tied"),
    Program("frozen_lora"),
    Program("ignored_teacher"),
    Program("checkpointed_blocks"),
    Program("sync_states"),
    Program("meta_init"),
    Program("prefetch"),
    Program("scaler", tolerance=FP16),
    Program("summon_eval"),
    Program("isinstance_checks"),
    Program("schedule_groups"),
    Program("config_strategy", ("--strategy", "full")),
    Program("config_strategy", ("--strategy", "grad_op")),
    Program("config_strategy", ("--bf16",), BF16),
    Program("offload"),
    Program("early_optimizer"),
    Program("or_policy"),
    Program("set_state_type", ()),
    Program("legacy_optim_state", ()),
    Program("two_models"),
    Program("batch_norm_bf16", tolerance=BF16),
    Program("side_inputs_bf16", tolerance=BF16),
    Program("mixed_contexts"),
    Program("default_state"),
    Program("class_calls"),
    Program("old_dcp", ()),
    Program("several_files", ()),
    Program("composable"),  # FSDP2 already, in the form of older releases
    Program("hybrid_groups", world=4),
    Program("custom_policy"),
    # Written after the migration was, in the ways of tutorials, recipes and frameworks.
    Program("mnist_tutorial", ()),
    Program("recipes", ()),
    Program("own_strategy", ()),
    Program("module_settings"),
    Program("single_script", ()),
    Program("partial_wrap"),
    Program("wrapper_kwargs"),
    Program("average_of_weights", ("--evaluate",)),
    Program("set_type_resume", ()),
    Program("rekeyed"),
    Program("self_wrapping"),
    Program("engine_of_modules", ()),
    Program("hybrid_pair", world=4),
    Program("generation"),
    Program("vision"),
    Program("distill"),
    Program("fsdp_or_ddp", ()),
    Program("fsdp_or_ddp", ("--ddp",)),
    Program("base_trainer", ()),
    Program("checkpoint_manager", ()),
)
# What migration must leave as it is, with a reason.
REFUSED = (Program("no_shard"),)
# What review says of a program before its migration, and rightly.
SAID = {
    "no_shard": {"FSD305"},
    "set_state_type": {"FSD903"},
    "legacy_optim_state": {"FSD903"},
    "composable": {"FSD906"},
    "old_dcp": {"FSD903"},
    "recipes": {"FSD314", "FSD903"},
    "rekeyed": {"FSD903"},
    "set_type_resume": {"FSD903"},
    "engine_of_modules": {"FSD301"},
    "fsdp_or_ddp": {"FSD903"},
}
# Where a function of FSDP1 stays, since it works on any module.
KEPT = ("rekeyed",)
# They take --save, --resume and --first.
RESUMED = (
    "trainer",
    "full_optimizer_state",
    "several_files",
    "sharded_checkpoint",
    "set_state_type",
    "legacy_optim_state",
    "recipes",
    "own_strategy",
    "single_script",
    "average_of_weights",
    "set_type_resume",
    "engine_of_modules",
    "fsdp_or_ddp",
    "base_trainer",
    "checkpoint_manager",
)


def source(name: str) -> Path:
    """The file, or the folder, of a program."""
    file = FOLDER / f"{name}.py"
    return file if file.exists() else FOLDER / name


def _cpu_as_accelerator() -> None:
    """Where PyTorch takes for granted that there is an accelerator: on this machine the CPU is the device that trains."""
    import torch
    from torch.distributed.fsdp import _flat_param, _init_utils, _optim_utils

    # FSDP1's sync_module_states wants CUDA tensors before it broadcasts, though Gloo can broadcast these.
    assert hasattr(_init_utils, "_check_module_states_for_sync_module_states")
    _init_utils._check_module_states_for_sync_module_states = lambda states: None
    # FSDP1's offload_to_cpu frees the parameters after moving them, without a copy where they are on the CPU already.
    assert hasattr(_flat_param.FlatParamHandle, "to_cpu")
    _flat_param.FlatParamHandle.to_cpu = lambda self: contextlib.nullcontext()
    # Neither does offloading the optimizer's state, which is gathered into one buffer again and again.
    unflatten = _optim_utils._unflatten_orig_param_states
    _optim_utils._unflatten_orig_param_states = lambda *given: unflatten(*given[:-1], False)  # False: clones
    # Both forms of offloading parameters pin memory, and FSDP1 then waits for a stream.
    torch.Tensor.pin_memory = lambda self, *_: self
    torch.cpu.Stream.synchronize = lambda self: None
    # How many ranks FSDP1 takes for those of one node, and shards over, when it makes the groups of HYBRID_SHARD itself.
    torch.cpu.device_count = lambda: 2


def train(place: Path, argv: tuple[str, ...] | None, world: int = 2) -> World:
    """Runs the program at ``place`` (a file or a folder) with ``world`` processes."""
    import torch.distributed as dist

    from tests.snippets import gloo

    folder, module = (place, "train") if place.is_dir() else (place.parent, place.stem)

    def body(_: int) -> list[tuple[float, float]]:
        _cpu_as_accelerator()
        sys.path.insert(0, str(folder))
        sys.dont_write_bytecode = True
        sys.stdout = io.StringIO()
        # A model that goes after its Gloo group can abort the process or hang it (a race of PyTorch's); the process ends anyway.
        dist.destroy_process_group = lambda *_, **__: None
        main = importlib.import_module(module).main
        return main() if argv is None else main(list(argv))

    return gloo.run(world, body)


def difference(before: World, after: World) -> float:
    """The largest difference of a loss or a norm, relative to 1 or to the value where that is larger."""
    assert len(before) == len(after)
    largest = 0.0
    for one, two in zip(before, after):
        assert len(one) == len(two) and one
        for step_one, step_two in zip(one, two):
            for a, b in zip(step_one, step_two):
                assert a == a and b == b
                largest = max(largest, abs(a - b) / max(1.0, abs(a)))
    return largest


def place(name: str, folder: Path, text: dict[str, str] | None = None) -> Path:
    """A copy of the program in ``folder``, with the ``text`` of some files changed; what ``train`` takes."""
    where = source(name)
    if not where.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / where.name).write_text((text or {}).get(str(where), where.read_text()))
        return folder / where.name
    for file in sorted(where.rglob("*.py")):
        copy = folder / name / file.relative_to(where)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((text or {}).get(str(file), file.read_text()))
    return folder / name


def migrate(where: Path) -> tuple[dict[str, str], Any]:
    """The new text of each file of a program by its path, and the whole result."""
    from shardguide.code.migrate.engine import migrate as run

    result = run((str(where),), RELEASE)
    return {change.path: change.after for change in result.changes}, result
