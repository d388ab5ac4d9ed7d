"""Launch files started where that can be done on one machine; test_launch_parsers.py has them read by their programs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.model import Unit
from shardguide.knowledge.snippets import LaunchSpec, TrainingSpec, render_launch

from .ports import free_port

TRAINING = TrainingSpec(
    units=tuple(Unit((f"model.layers.{i}",), "LlamaDecoderLayer", "block") for i in range(2)),
    mesh=(("replicate", 2), ("shard", 8)),
    mp_param="bfloat16",
    mp_reduce="float32",
    offload="pinned",
    activation_checkpointing=True,
    clip_norm=1.0,
)
SPEC = LaunchSpec(nodes=2, per_node=8, training=TRAINING)
SCRIPT = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
with open(f"rank{dist.get_rank()}", "w") as file:
    file.write(f"{int(x.item())} {os.environ.get('OMP_NUM_THREADS')}")
dist.destroy_process_group()
"""


def start(script: str, folder: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Runs a launch file with the Python of this test run first on the path."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    for name, text in {
        "torchrun": f'exec {shlex.quote(sys.executable)} -m torch.distributed.run "$@"',
        "scontrol": 'test "$1 $2 $3" = "show hostnames node[1-2]" && printf "localhost\\nelsewhere\\n"',
        "srun": 'test "$1" = "--cpus-per-task=2" && shift && exec "$@"',
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    (folder / "train.py").write_text(SCRIPT)
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "GLOO_SOCKET_IFNAME": "lo",
        **extra,
    }
    environment.pop("OMP_NUM_THREADS", None)
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def both_nodes(code: str) -> str:
    """The same file started twice at once, as on two nodes; fails if one does."""
    return f"({code}) & first=$!\n({code}) & second=$!\nwait $first && wait $second"


@pytest.mark.torch
@pytest.mark.parametrize("cpu_work", [False, True])
def test_torchrun_on_one_node(tmp_path: Path, cpu_work: bool) -> None:
    done = start(render_launch("torchrun", LaunchSpec(per_node=2, cpu_work=cpu_work)).code, tmp_path)
    assert done.returncode == 0, done.stderr[-6000:]
    threads = str(max(1, len(os.sched_getaffinity(0)) // 2)) if cpu_work else "1"
    assert [(tmp_path / f"rank{i}").read_text() for i in range(2)] == [f"2 {threads}"] * 2


@pytest.mark.torch
def test_torchrun_on_two_nodes(tmp_path: Path) -> None:
    code = render_launch("torchrun", LaunchSpec(nodes=2, per_node=1)).code
    assert start(code, tmp_path).returncode != 0  # no HEAD, no start
    port = str(free_port())
    done = start(both_nodes(code), tmp_path, HEAD="localhost", PORT=port)
    assert done.returncode == 0, done.stderr[-6000:]
    assert [(tmp_path / f"rank{i}").read_text().split()[0] for i in range(2)] == ["2", "2"]


@pytest.mark.torch
@pytest.mark.parametrize("nodes", [1, 2])
def test_slurm_script(tmp_path: Path, nodes: int) -> None:
    code = render_launch("sbatch", LaunchSpec(nodes=nodes, per_node=2 // nodes)).code
    assert f"#SBATCH --nodes={nodes}" in code and f"#SBATCH --gpus-per-node={2 // nodes}" in code
    job = {
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_CPUS_ON_NODE": "2",
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_JOB_ID": "7",
    }
    script = code if nodes == 1 else both_nodes(code)
    done = start(script, tmp_path, PORT=str(free_port()), **job)
    assert done.returncode == 0, done.stderr[-6000:]
    assert [(tmp_path / f"rank{i}").read_text().split()[0] for i in range(2)] == ["2", "2"]


@pytest.mark.parametrize(
    ("kind", "spec", "says"),
    [
        ("ssh", SPEC, "not a kind of launch file"),
        ("torchrun", SPEC._replace(script="a; rm -rf x"), "a shell would read otherwise"),
        ("torchrun", SPEC._replace(script="$(x).py"), "a shell would read otherwise"),
        ("kubernetes", SPEC._replace(name="a\nb"), "job name"),
        ("kubernetes", SPEC._replace(gpu_resource="x: {y"), "not the name of a Kubernetes resource"),
        (
            "accelerate",
            SPEC._replace(training=TRAINING._replace(reshard_after_forward=(("block", 4),))),
            "smaller number",
        ),
        ("torchtitan", SPEC._replace(training=TRAINING._replace(mp_param="float16")), "not in float16"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(kind: str, spec: LaunchSpec, says: str) -> None:
    with pytest.raises(UnusableInput, match=says):
        render_launch(kind, spec)
