"""Tuning: what is read from the current settings, the table's bytes, and the rules of fp16, offload and clipping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.serialise import to_dict
from shardguide.workflows.request import PlanRequest
from shardguide.workflows.tune import TuneRequest, tune

from .test_plan import BASE

FSDP1 = """
import torch
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
policy = MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float16, buffer_dtype=torch.float16)
model = FSDP(model, sharding_strategy=ShardingStrategy.FULL_SHARD, mixed_precision=policy, cpu_offload=CPUOffload(offload_params=True))
"""
FSDP2 = """
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
mesh = init_device_mesh("cuda", (16,), mesh_dim_names=("shard",))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for layer in model.layers:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
"""
ACCELERATE = """
distributed_type: FSDP
mixed_precision: fp16
num_machines: 2
num_processes: 16
fsdp_config:
  fsdp_version: 2
  fsdp_offload_params: true
  fsdp_reshard_after_forward: true
"""


def tuned(current: str = "", now: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    extra = {name: changes.pop(name) for name in ("measured",) if name in changes}
    given = {name: value for name, value in (BASE | changes).items() if value is not None}
    return to_dict(tune(TuneRequest(PlanRequest(given=given, current=current, **extra), now)))


def rows(record: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {row["name"]: (row["before"], row["after"]) for row in record["before_after"]}


def decided(record: dict[str, Any]) -> dict[str, str]:
    return {decision["id"]: decision["choice"] for decision in record["decisions"]}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    out = {}
    for name, text in (("fsdp1.py", FSDP1), ("fsdp2.py", FSDP2), ("accelerate.yaml", ACCELERATE)):
        (tmp_path / name).write_text(text)
        out[name] = str(tmp_path / name)
    return out


def test_fsdp1_code_before_and_after(files: dict[str, str]) -> None:
    """Llama-3.1-8B over 16 ranks: 501,891,328 elements a rank, 4 bytes each for parameters and gradients, 8 for AdamW."""
    table = rows(tuned(files["fsdp1.py"]))
    assert table["param_dtype"] == ("float16", "bfloat16")
    assert table["reduce_dtype"] == ("float16", "float32")
    assert table["CPU offload"] == ("CPUOffloadPolicy", "no")
    shards = 501_891_328 * 16
    before, after = table["held on the host, per rank"][0], table["held on the device"][1]
    assert 0 <= before - shards < 4096  # the optimizer's step scalars and buffers beside the shards
    assert 0 <= after - shards < 4096
    assert table["copied device to host a step"] == (501_891_328 * 4, 0)


def test_moved_bytes_of_the_layers(files: dict[str, str]) -> None:
    """Under FSDP2 a layer is gathered twice a step, the last group once; all in bfloat16, reduced once in float32."""
    table = rows(tuned(files["fsdp2.py"]))
    layers, embedding, head = 32 * 218_112_000, 128_256 * 4096, 128_256 * 4096 + 4096
    assert table["all-gathered a step"][1] == 2 * (2 * layers + 2 * embedding + head)
    assert table["reduce-scattered a step"] == (2 * 8_030_261_248, 4 * 8_030_261_248)


def test_reduce_dtype_none_depends_on_the_release(files: dict[str, str]) -> None:
    """Up to 2.14 reduce_dtype=None reduces in param_dtype, from 2.15 on in the parameters' own dtype."""
    assert rows(tuned(files["fsdp2.py"], torch="2.14"))["reduce-scattered a step"][0] == 2 * 8_030_261_248
    assert rows(tuned(files["fsdp2.py"], torch="2.15"))["reduce-scattered a step"][0] == 4 * 8_030_261_248


def test_accelerate_yaml(files: dict[str, str]) -> None:
    """accelerate gives fp16 to computation, reduction and outputs, and scales gradients."""
    table = rows(tuned(files["accelerate.yaml"]))
    assert table["param_dtype"][0] == table["reduce_dtype"][0] == table["output_dtype"][0] == "float16"
    assert table["CPU offload"][0] == "CPUOffloadPolicy"


def test_settings_in_words() -> None:
    record = tuned(now=("api=fsdp2", "param=bf16", "reduce=bf16", "offload=yes", "strategy=full"))
    assert rows(record)["reduce_dtype"] == ("bfloat16", "float32")
    assert record["current"]["api"] == "fsdp2"


def test_without_current_settings_they_are_asked() -> None:
    record = tuned()
    assert record["status"] == "needs_answers" and "current" in [q["id"] for q in record["questions"]]
    assert rows(record)["param_dtype"] == (None, "bfloat16")


def test_fp16_hardware_needs_a_scaler(files: dict[str, str]) -> None:
    assert decided(tuned(files["fsdp2.py"], gpu="V100 32GB"))["gradient_scaling"] == "torch.amp.GradScaler"
    assert decided(tuned(files["fsdp1.py"], gpu="V100 32GB"))["gradient_scaling"] == "ShardedGradScaler"
    assert decided(tuned(files["fsdp2.py"]))["gradient_scaling"] == "none"


def test_clipping_follows_the_api(files: dict[str, str]) -> None:
    assert "FullyShardedDataParallel.clip_grad_norm_" in decided(tuned(files["fsdp1.py"]))["gradient_clipping"]
    assert decided(tuned(files["fsdp2.py"]))["gradient_clipping"] == "torch.nn.utils.clip_grad_norm_"


def test_offload_asked_for_brings_the_cpu_backend(files: dict[str, str]) -> None:
    record = tuned(files["fsdp2.py"], offload="yes")
    assert decided(record)["backend"] == "cpu:gloo,cuda:nccl"
    assert rows(record)["pin_memory"][1] == "True"


@pytest.mark.parametrize(("peak", "choice"), [(20 << 30, "no"), (75 << 30, "CPUOffloadPolicy stays")])
def test_measurement_decides_about_present_offload(
    tmp_path: Path, files: dict[str, str], peak: int, choice: str
) -> None:
    """Peak with offload plus 7.48 GiB of shards against 79.19 GiB: 27.5 is well below, 82.5 above."""
    path = tmp_path / "memory.json"
    path.write_text(json.dumps({"ranks": [{"rank": 0, "max_memory_allocated": peak, "total_memory": 85_024_112_640}]}))
    assert decided(tuned(files["fsdp1.py"], measured=(str(path),)))["cpu_offload"] == choice


@pytest.mark.parametrize(
    "words", ["param", "param=float3", "offload=maybe", "strategy=best", "colour=blue", "api=fsdp3", "scaler=perhaps"]
)
def test_nonsense_in_words(words: str) -> None:
    with pytest.raises(UnusableInput):
        tuned(now=(words,))


def test_every_decision_has_sources(files: dict[str, str]) -> None:
    for release in ("2.1", "2.4", "2.8", "2.13", "2.15"):
        for decision in tuned(files["fsdp2.py"], torch=release)["decisions"]:
            assert decision["because"] and decision["sources"], (release, decision["id"])
