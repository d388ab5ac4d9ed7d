"""Current settings: read from code without running it; what depends on the run is said to be unknown."""

from __future__ import annotations

import inspect
import random
import time
from pathlib import Path

import pytest

from shardguide.code.current import POSITIONS, Current, from_python, read_current
from shardguide.guidance.errors import UnusableInput

FSDP1 = """
import functools
import torch
import torch.distributed as dist
import torch.distributed.fsdp as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy, CPUOffload
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

bf16 = MixedPrecision(torch.bfloat16, reduce_dtype=torch.float32)


def main(args):
    dist.init_process_group("nccl")
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.float32)
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    model = FSDP(
        model,
        None,
        ShardingStrategy.HYBRID_SHARD,
        auto_wrap_policy=policy,
        mixed_precision=bf16,
        cpu_offload=CPUOffload(offload_params=True),
        backward_prefetch=F.BackwardPrefetch.BACKWARD_PRE,
        use_orig_params=args.orig,
        limit_all_gathers=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, betas=(0.9, 0.95), fused=True)
    scaler = ShardedGradScaler()
    for batch in batches:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        model.clip_grad_norm_(1.0)
"""

FSDP2 = """
import torch
from torch.distributed.device_mesh import init_device_mesh
try:
    from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy, CPUOffloadPolicy
except ImportError:
    from torch.distributed._composable.fsdp import fully_shard, MixedPrecisionPolicy, CPUOffloadPolicy

mesh = init_device_mesh("cuda", (2, 8), mesh_dim_names=("replicate", "shard"))


def apply(model, offload):
    mp_policy = MixedPrecisionPolicy(param_dtype=getattr(torch, "bfloat16"), reduce_dtype=torch.float32)
    options = {"mesh": mesh["replicate", "shard"], "mp_policy": mp_policy}
    if offload:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    for i, layer in enumerate(model.layers):
        fully_shard(layer, **options, reshard_after_forward=i < len(model.layers) - 1)
    fully_shard(model, **options, reshard_after_forward=2)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    model.set_requires_gradient_sync(False)
"""


def value(current: Current, kind: str, name: str) -> tuple[str, bool, int]:
    (setting,) = current.settings(kind, name)
    return setting.value, setting.known, int(setting.where.rpartition(":")[2])


def line(text: str, words: str) -> int:
    return next(i for i, row in enumerate(text.split("\n"), start=1) if words in row)


def test_fsdp1() -> None:
    current = from_python(FSDP1, "train.py")
    assert (current.language, current.strategy, current.notes) == ("python", "fsdp1", ())
    definition = line(FSDP1, "bf16 =")
    expected = {
        "sharding_strategy": ("HYBRID_SHARD", True, line(FSDP1, "HYBRID_SHARD")),
        "process_group": ("None", True, line(FSDP1, "        None,")),
        "auto_wrap_policy": ("transformer_auto_wrap_policy", True, line(FSDP1, "policy = functools")),
        "auto_wrap_policy.transformer_layer_cls": ("{LlamaDecoderLayer}", True, line(FSDP1, "policy = functools")),
        "mixed_precision": ("MixedPrecision", True, definition),
        "mixed_precision.param_dtype": ("bfloat16", True, definition),
        "mixed_precision.reduce_dtype": ("float32", True, definition),
        "cpu_offload.offload_params": ("True", True, line(FSDP1, "CPUOffload(")),
        "backward_prefetch": ("BACKWARD_PRE", True, line(FSDP1, "BACKWARD_PRE")),
        "use_orig_params": ("unknown", False, line(FSDP1, "use_orig")),
        "limit_all_gathers": ("True", True, line(FSDP1, "limit_all")),
    }
    assert {name: value(current, "fsdp1", name) for name in expected} == expected
    (orig,) = current.settings("fsdp1", "use_orig_params")
    assert orig.source == "args.orig" and orig.where == f"train.py:{line(FSDP1, 'use_orig')}"
    assert value(current, "optimizer", "lr")[0] == "0.0003" and value(current, "optimizer", "betas")[0] == "(0.9, 0.95)"
    assert value(current, "process_group", "backend")[0] == "nccl"
    assert value(current, "model_dtype", "torch_dtype")[0] == "float32"
    assert value(current, "autocast", "dtype")[0] == "bfloat16"
    assert value(current, "clipping", "max_norm")[0] == "1.0"
    kinds = {call.kind: call for call in current.calls}
    assert kinds["optimizer"].what == "torch.optim.AdamW" and kinds["fsdp1"].target == "model"
    assert kinds["grad_scaler"].what.endswith(".ShardedGradScaler")


def test_fsdp2() -> None:
    current = from_python(FSDP2, "train.py")
    layer, root = (call for call in current.calls if call.kind == "fsdp2")
    assert current.strategy == "fsdp2" and (layer.target, layer.repeated) == ("layer", True)
    assert (root.target, root.repeated, root.what) == ("model", False, "torch.distributed.fsdp.fully_shard")
    found = {setting.name: (setting.value, setting.known) for setting in root.settings}
    assert found["mesh.mesh_shape"] == ("(2, 8)", True)
    assert found["mesh.mesh_dim_names"] == ("(replicate, shard)", True)
    assert found["mp_policy.param_dtype"] == ("bfloat16", True) and found["mp_policy.reduce_dtype"] == ("float32", True)
    assert found["reshard_after_forward"] == ("2", True)
    # Set under a condition: whether it holds depends on the run.
    assert found["offload_policy"] == ("unknown", False)
    assert {s.name: s.value for s in layer.settings}["reshard_after_forward"] == "unknown"
    assert value(current, "accumulation", "value")[0] == "False" and value(current, "clipping", "max_norm")[0] == "1.0"


@pytest.mark.parametrize(
    ("text", "kind", "what"),
    [
        ("import torch\ntorch.nn.parallel.DistributedDataParallel(m)", "ddp", None),
        ("from torch.nn.parallel import DistributedDataParallel as DDP\nDDP(m)", "ddp", None),
        ("import torch.distributed.fsdp as f\nf.fully_shard(m)", "fsdp2", "torch.distributed.fsdp.fully_shard"),
        ("from torch.distributed import fsdp\nfsdp.fully_shard(m)", "fsdp2", None),
        ("from torch.distributed.fsdp import *\nfully_shard(m)", "fsdp2", "torch.distributed.fsdp.fully_shard"),
        ("from torch.distributed._composable.fsdp.fully_shard import fully_shard\nfully_shard(m)", "fsdp2", None),
        ("from functools import partial\nfrom torch.distributed.fsdp import FullyShardedDataParallel as F\n"
         "wrap = partial(F, use_orig_params=True)", "fsdp1", None),
        ("from torch.distributed.optim import ZeroRedundancyOptimizer as Z\nZ(p)", "optimizer", None),
        ("import bitsandbytes as bnb\nbnb.optim.AdamW8bit(p)", "optimizer", "bitsandbytes.optim.AdamW8bit"),
        ("import torch\nmodel = build().cuda()\nmodel.to(torch.bfloat16)", "model_dtype", "to"),
        ("model.gradient_checkpointing_enable()", "activation_checkpointing", None),
        ("import torch\nmodel = torch.compile(model)", "compile", "torch.compile"),
        ("from accelerate import Accelerator\nAccelerator(mixed_precision='bf16')", "accelerator", None),
    ],
)  # fmt: skip
def test_names_through_imports(text: str, kind: str, what: str | None) -> None:
    (call,) = from_python(text, "x.py").calls
    assert call.kind == kind and what in (None, call.what)


@pytest.mark.parametrize(
    "text",
    [
        "def fully_shard(m): pass\nfully_shard(model)",  # the user's own
        "self.fully_shard(model)",
        "fully_shard = load()\nfully_shard(model)",
        "import re\nre.compile('x')",
        "import torch\ntorch.optim.lr_scheduler.CosineAnnealingLR(o)",
        "x.to(torch.bfloat16)",
        "# FSDP(model)\n'fully_shard(model)'",
    ],
)
def test_what_only_looks_alike(text: str) -> None:
    current = from_python(text, "x.py")
    assert current.calls == () and len(current.notes) == 1


def test_wrappers_from_elsewhere_are_said_to_be_unread() -> None:
    current = from_python("from .utils import fully_shard\nfully_shard(model)", "x.py")
    assert current.calls == () and any(".utils" in note for note in current.notes)


@pytest.mark.parametrize(
    ("assignments", "known"),
    [
        ("s = ShardingStrategy.FULL_SHARD", "FULL_SHARD"),
        ("s = ShardingStrategy.FULL_SHARD\nif x:\n    s = ShardingStrategy.NO_SHARD", None),
        ("s = ShardingStrategy.NO_SHARD\ns = ShardingStrategy.NO_SHARD", "NO_SHARD"),
        ("a = ShardingStrategy.SHARD_GRAD_OP\ns = a", "SHARD_GRAD_OP"),
        ("s = ShardingStrategy['HYBRID_SHARD']", "HYBRID_SHARD"),
        ("s = getattr(ShardingStrategy, 'FULL_SHARD')", "FULL_SHARD"),
        ("s, t = ShardingStrategy.FULL_SHARD, 1", "FULL_SHARD"),
        ("s = t\nt = s", None),
        ("s = cfg.strategy", None),
        ("s = ShardingStrategy.FULL_SHARD if x else ShardingStrategy.NO_SHARD", None),
        ("for s in ShardingStrategy: pass", None),
        ("s = pick()", None),
        ("s: ShardingStrategy = ShardingStrategy.FULL_SHARD", "FULL_SHARD"),
        ("s = 1\ns += 1", None),
    ],
)
def test_values_are_followed_or_unknown(assignments: str, known: str | None) -> None:
    text = f"from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy\n{assignments}\n"
    current = from_python(f"{text}FullyShardedDataParallel(m, sharding_strategy=s)", "x.py")
    assert value(current, "fsdp1", "sharding_strategy")[:2] == (known or "unknown", known is not None)


def test_spread_of_something_unread() -> None:
    current = from_python("from torch.distributed.fsdp import fully_shard\nfully_shard(m, **make())", "x.py")
    assert value(current, "fsdp2", "**")[1] is False


def test_arguments_shadow_outer_names() -> None:
    text = (
        "from torch.distributed.fsdp import fully_shard\nr = True\n"
        "def f(m, r):\n    fully_shard(m, reshard_after_forward=r)\n"
    )
    assert value(from_python(text, "x.py"), "fsdp2", "reshard_after_forward")[:2] == ("unknown", False)


@pytest.mark.torch
def test_positions_are_those_of_the_release() -> None:
    """Positional arguments are named in the order of torch's own signatures."""
    import torch
    import torch.distributed as dist
    from torch.distributed import fsdp
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper
    from torch.distributed.fsdp import sharded_grad_scaler, wrap
    from torch.utils import checkpoint

    homes = (
        fsdp,
        wrap,
        sharded_grad_scaler,
        torch.nn.parallel,
        dist,
        dist.device_mesh,
        torch.nn.utils,
        torch.amp,
        torch,
    )
    for name, positions in POSITIONS.items():
        if name == "torch.optim":
            functions = [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD]
        elif "checkpoint" in name:
            functions = [getattr(checkpoint_wrapper, name, None) or getattr(checkpoint, name)]
        else:
            functions = [next(getattr(home, name) for home in homes if hasattr(home, name))]
        for function in functions:
            target = function.__init__ if isinstance(function, type) else function
            parameters = [p for p in inspect.signature(target).parameters if p != "self"]
            assert tuple(parameters[: len(positions)]) == positions, name


@pytest.mark.parametrize(
    ("name", "content", "strategy", "settings"),
    [
        (
            "a.yaml",
            "distributed_type: FSDP\nmixed_precision: bf16\n"
            "fsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n",
            "fsdp2",
            {"mixed_precision": "bf16", "fsdp.version": "2", "fsdp.offload_params": "True"},
        ),
        (
            "a.yml",
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n",
            "fsdp1",
            {"fsdp.sharding_strategy": "HYBRID_SHARD"},
        ),
        ("a.yaml", "distributed_type: DEEPSPEED\nmixed_precision: fp16\n", "deepspeed", {"mixed_precision": "fp16"}),
        ("a.yaml", "distributed_type: MULTI_GPU\nfsdp_config: {}\n", "ddp", {}),
        (
            "ds.json",
            '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": true}}',
            "deepspeed",
            {
                "zero_optimization.stage": "3",
                "zero_optimization.offload_optimizer.device": "cpu",
                "bf16.enabled": "True",
            },
        ),
        ("fsdp.json", '{"min_num_params": 2000, "version": 2}', "fsdp2", {"min_num_params": "2000"}),
    ],
)
def test_configuration_files(tmp_path: Path, name: str, content: str, strategy: str, settings: dict[str, str]) -> None:
    (tmp_path / name).write_text(content)
    current = read_current(str(tmp_path / name))
    assert current.strategy == strategy
    found = {s.name: s.value for call in current.calls for s in call.settings}
    assert {key: found.get(key) for key in settings} == settings
    assert any("DeepSpeed" in note for note in current.notes) == (strategy == "deepspeed")


def test_yaml_lines(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n")
    (setting,) = read_current(str(tmp_path / "a.yaml")).settings("accelerate", "fsdp.version")
    assert setting.where.endswith("a.yaml:3")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.py", b"", "empty"),
        ("t.py", b"print 'python 2'\n", "line 1: not valid Python 3"),
        ("t.py", b"def f(:\n", "not valid Python 3"),
        ("t.py", b"x = 1\n  y = 2\n", "line 2"),
        ("t.py", b"\x80\x04\x95", "pickle"),
        ("t.py", b"\x00\x01\x02", "binary"),
        ("t.py", b"x = '\xff'", "UTF-8"),
        ("t.py", b"a;" * 300_000, "too large"),
        ("t.py", b"x = 1\n" * 400_000, "MiB"),
        ("t.py", b"x = 'y" + b"y" * 600_000 + b"'", "too large"),
        ("t.py", b"(" * 5000 + b")" * 5000, "nested"),
        ("t.py", b"-" * 20_000 + b"1", "nested"),
        ("t.py", b"not " * 20_000 + b"x", "nested"),
        ("t.py", b"if x: pass\n" + b"elif x: pass\n" * 20_000, "nested"),
        ("t.py", b"1" * 5000, "Python 3"),
        ("n.ipynb", b'{"cells": [], "nbformat": 4}', "notebook"),
        ("n.json", b'{"a": 1}', "no settings"),
        ("n.json", b"[1]", "no settings"),
        ("n.json", b"{", "JSON"),
        ("n.json", b'{"a":' * 100 + b"1" + b"}" * 100, "nested"),
        ("a.yaml", b"a: &a [*a]\n", ""),
        ("a.yaml", b"distributed_type: [", ""),
        ("a.yaml", b"a: !!python/object/apply:os.system ['true']\n", ""),
        ("a.yaml", b"name: x\n", ""),
    ],
)
def test_unusable(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnusableInput) as caught:
        read_current(str(tmp_path / name))
    sentence = str(caught.value)
    assert says in sentence and sentence.endswith(".") and sentence.isprintable()


@pytest.mark.parametrize("text", ["a" + ".b" * 50_000, "f" + "()" * 50_000, "x = " + "+".join("1" * 70_000)])
def test_depth_that_only_some_pythons_refuse(text: str) -> None:
    """Python 3.10 builds trees of any depth; later ones raise RecursionError. Neither may reach the user."""
    try:
        assert from_python(text, "x.py").calls == ()
    except UnusableInput as error:
        assert "nested" in str(error)


def test_nothing_is_run(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nimport antigravity_of_the_user\n")
    read_current(str(tmp_path / "t.py"))
    assert not (tmp_path / "ran").exists()


def test_names_that_multiply_stay_bounded() -> None:
    rows = ["from torch.distributed.fsdp import fully_shard", "v0 = 1"]
    rows += [f"v{i} = ({', '.join([f'v{i - 1}'] * 40)})" for i in range(1, 12)]
    rows += ["fully_shard(m, reshard_after_forward=v11)"]
    start = time.process_time()
    current = from_python("\n".join(rows), "x.py")
    assert time.process_time() - start < 5
    assert value(current, "fsdp2", "reshard_after_forward")[1] is False


def test_mutations_end_in_settings_or_a_sentence() -> None:
    rng = random.Random(11)
    pieces = [
        "(",
        ")",
        "\n",
        "    ",
        ":",
        "*",
        "**",
        "=",
        "lambda",
        "import torch",
        "'",
        "[",
        "@",
        ":=",
        "\t",
        "é",
        "{",
        "f'{",
    ]
    read = 0
    for i in range(500):
        text = (FSDP1, FSDP2)[i % 2]
        for _ in range(rng.choice((1, 2, 5))):
            at = rng.randrange(len(text))
            cut = rng.choice((0, 0, 1, 7))
            text = text[:at] + rng.choice(pieces) + text[at + cut :]
        try:
            from_python(text, "x.py")
            read += 1
        except UnusableInput as error:
            assert str(error).isprintable()
    assert 0 < read < 500
