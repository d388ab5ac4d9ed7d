"""The files that start a training script: torchrun, Slurm, Kubernetes; accelerate and torchtitan are in configs.py.

What a site decides (hosts, partitions, images, wall time) is never invented: it is a variable that must be set, or a line marked
"Yours".

Sources: torch/distributed/run.py (options of torchrun; those used are the same from 2.0 to 2.15); sbatch(1), srun(1) and
scontrol(1) of Slurm; CRD trainer.kubeflow.org/v1alpha1 TrainJob and pkg/runtime/framework/plugins/torch/torch.go of
kubeflow/trainer (2.0.0 to 2.3.0); CRD kubeflow.org/v1 PyTorchJob and pkg/controller.v1/pytorch of its 1.9.4.
"""

from __future__ import annotations

from collections.abc import Callable

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.record import Snippet, Verified

from .spec import LaunchSpec, version

PORT = 29500  # torchrun's own default for --rdzv-endpoint
# How tests/snippets/test_launch.py ran them.
_RAN = "2.13.0, 2 processes, CPU, with a script that only looks at its environment"
_STOOD_IN = "bash, with stand-ins for scontrol, srun and torchrun"


def render(kind: str, spec: LaunchSpec) -> Snippet:
    """The launch file ``kind``. Raises UnusableInput for an unknown kind and for values that would break its syntax."""
    check(spec)
    if kind in ("accelerate", "torchtitan", "torchtitan-toml"):
        from . import configs

        return configs.render(kind, spec)
    try:
        title, language, make, executed = _KINDS[kind]
    except KeyError:
        known = ", ".join([*_KINDS, "accelerate", "torchtitan", "torchtitan-toml"])
        raise UnusableInput(f"{kind[:40]!r} is not a launch file that is offered; one of {known}.") from None
    code = "\n".join([*make(spec), ""])
    if spec.cpu_work:
        executed = executed and _STOOD_IN if kind == "sbatch" else ""
    return Snippet(kind, title, language, code, Verified(True, version(spec.release) <= (2, 15), executed))


def check(spec: LaunchSpec) -> None:
    """Raises UnusableInput for counts below 1 and for names that a shell or YAML would read as something else."""
    if version(spec.release) < (2, 0):
        raise UnusableInput(f"launch files are offered from PyTorch 2.0 on, not for {spec.release}.")
    if not 1 <= spec.nodes < 1 << 24 or not 1 <= spec.per_node < 1 << 16:
        raise UnusableInput("a launch needs at least one node and at least one process on it.")
    for what, text, extra in (("script", spec.script, "._-/"), ("resource name", spec.gpu_resource, "._-/")):
        if not _plain(text, extra) or text.startswith("-"):
            raise UnusableInput(f"the {what} {text[:60]!r} has characters that a launch file cannot hold.")
    # RFC 1123 label, which Kubernetes wants; 50, because the controllers add suffixes for the pods.
    if not _plain(spec.name, "-") or spec.name != spec.name.lower() or spec.name[:1] == "-" or spec.name[-1:] == "-":
        raise UnusableInput(f"the job name {spec.name[:60]!r} must be lower-case letters, digits and hyphens.")
    if len(spec.name) > 50:
        raise UnusableInput("the job name is longer than 50 characters.")


def _plain(text: str, extra: str) -> bool:
    return text.isascii() and "".join(c for c in text if c not in extra).isalnum() and len(text) < 250


def described(spec: LaunchSpec) -> str:
    """``2 nodes of 8 GPUs``."""
    what = "process" if spec.device_type == "cpu" else "GPU"
    plural = "" if spec.per_node == 1 else "es" if what == "process" else "s"
    return f"{spec.nodes} node{'' if spec.nodes == 1 else 's'} of {spec.per_node} {what}{plural}"


def _threads(spec: LaunchSpec, cores: str) -> list[str]:
    """Threads for work on the CPU: torchrun sets OMP_NUM_THREADS to 1 where several processes share a node."""
    if not spec.cpu_work:
        return []
    return [
        "# The processes share the node's CPUs; torchrun would give each one thread.",
        f"threads=$(( {cores} / {spec.per_node} ))",
        'export OMP_NUM_THREADS="$(( threads > 0 ? threads : 1 ))"',
    ]


def torchrun_options(spec: LaunchSpec, rdzv_id: str = "$JOB_ID") -> list[str]:
    """``--standalone`` on one node, a c10d rendezvous on the head node otherwise."""
    if spec.nodes == 1:
        return ["--standalone", f"--nproc-per-node={spec.per_node}"]
    return [
        f"--nnodes={spec.nodes}",
        f"--nproc-per-node={spec.per_node}",
        "--rdzv-backend=c10d",
        f'--rdzv-endpoint="$HEAD_NODE:{PORT}"',
        f'--rdzv-id="{rdzv_id}"',
    ]


def by_hand(spec: LaunchSpec, what: list[str], comments: tuple[str, ...] = ()) -> list[str]:
    """A shell script that runs ``torchrun … what``, on every node by hand where there are several."""
    lines = ["#!/usr/bin/env bash", "set -eu"]
    if spec.nodes == 1:
        lines.append(f"# {described(spec)}.")
    else:
        lines.append(f"# {described(spec)}: run this on every node, with the same two variables on all of them.")
    lines += [f"# {comment}" for comment in comments]
    if spec.nodes > 1:
        lines += [
            ': "${HEAD_NODE:?the host name of one of the nodes, as every node can reach it}"',
            ': "${JOB_ID:?any text that no other job uses at the same time}"',
        ]
    lines += _threads(spec, "$(nproc)")
    if spec.nodes == 1 and len(what) == 1:
        return [*lines, " ".join(["torchrun", *torchrun_options(spec), *what])]
    return [*lines, *_continued(["torchrun", *torchrun_options(spec), *what])]


def _continued(words: list[str]) -> list[str]:
    last = len(words) - 1
    return [f"{'  ' if i else ''}{word}{' ' + chr(92) if i < last else ''}" for i, word in enumerate(words)]


def _torchrun(spec: LaunchSpec) -> list[str]:
    return by_hand(spec, [spec.script])


def _sbatch(spec: LaunchSpec) -> list[str]:
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={spec.name}",
        f"#SBATCH --nodes={spec.nodes}",
        "#SBATCH --ntasks-per-node=1",
    ]
    if spec.device_type != "cpu":
        lines.append(f"#SBATCH --gpus-per-node={spec.per_node}")
    lines.append("# Yours, as your site wants them: --partition, --account, --time, --cpus-per-task (for all processes of a node).")
    if spec.device_type != "cpu":
        lines.append(f"# Where --gpus-per-node is not known: --gres=gpu:{spec.per_node}.")
    lines += ["", "set -eu", "# One torchrun per node starts the processes there."]
    lines += _threads(spec, "SLURM_CPUS_ON_NODE")
    words = [
        "srun --kill-on-bad-exit=1",
        # From Slurm 22.05 on, srun does not take --cpus-per-task from sbatch.
        '${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"}',
        "torchrun",
        *torchrun_options(spec, "$SLURM_JOB_ID"),
        spec.script,
    ]
    if spec.nodes > 1:
        lines += [
            'HEAD_NODE="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
            f"# Jobs that share the head node need different ports; {PORT} is torchrun's default.",
        ]
    lines.append("# srun does not take --cpus-per-task from sbatch (Slurm 22.05 and newer), so it is passed on.")
    return [*lines, *_continued(words)]


def _resources(spec: LaunchSpec, key: str, indent: str) -> list[str]:
    if spec.device_type == "cpu":
        return [f"{indent}# Yours: {key} with the CPUs and the memory of one node."]
    return [
        f"{indent}{key}:  # Yours to add: cpu and memory",
        f"{indent}  limits:",
        f"{indent}    {spec.gpu_resource}: {spec.per_node}",
    ]


_SHM = "# Pods have 64 MiB of /dev/shm unless a memory-backed emptyDir is mounted there; DataLoader workers and NCCL use it."


def _threads_env(spec: LaunchSpec, indent: str) -> list[str]:
    if not spec.cpu_work:
        return []
    return [
        f"{indent}# Yours to add: env with OMP_NUM_THREADS, the CPUs of a node divided by {spec.per_node}; torchrun would set 1.",
    ]


def _kubernetes(spec: LaunchSpec) -> list[str]:
    return [
        f"# Kubeflow Trainer 2 (checked with 2.0 to 2.3): {described(spec)}. kubectl apply -f FILE",
        _SHM,
        "apiVersion: trainer.kubeflow.org/v1alpha1",
        "kind: TrainJob",
        "metadata:",
        f"  name: {spec.name}",
        "spec:",
        "  runtimeRef:",
        "    name: torch-distributed  # comes with Kubeflow Trainer; it tells torchrun the nodes and the rendezvous",
        "  trainer:",
        f"    image: YOUR_IMAGE  # Yours: PyTorch {spec.release}, your packages and {spec.script}",
        f'    command: ["torchrun", "{spec.script}"]',
        f"    numNodes: {spec.nodes}",
        f"    numProcPerNode: {spec.per_node}",
        *_threads_env(spec, "    "),
        *_resources(spec, "resourcesPerNode", "    "),
    ]


def _kubernetes_v1(spec: LaunchSpec) -> list[str]:
    lines = [
        f"# Kubeflow Training Operator 1 (checked with 1.9; Trainer 2 succeeds it): {described(spec)}. kubectl apply -f FILE",
        _SHM,
        "apiVersion: kubeflow.org/v1",
        "kind: PyTorchJob",
        "metadata:",
        f"  name: {spec.name}",
        "spec:",
        f'  nprocPerNode: "{spec.per_node}"  # the operator tells torchrun this, the nodes and the rendezvous',
        "  pytorchReplicaSpecs:",
    ]
    for role, replicas in (("Master", 1), ("Worker", spec.nodes - 1)):
        if not replicas:
            continue
        lines += [
            f"    {role}:",
            f"      replicas: {replicas}",
            "      restartPolicy: Never",
            "      template:",
            "        spec:",
            "          containers:",
            "            - name: pytorch  # the operator looks for this name",
            f"              image: YOUR_IMAGE  # Yours: PyTorch {spec.release}, your packages and {spec.script}",
            f'              command: ["torchrun", "{spec.script}"]',
            *_threads_env(spec, " " * 14),
            *_resources(spec, "resources", " " * 14),
        ]
    return lines


_KINDS: dict[str, tuple[str, str, Callable[[LaunchSpec], list[str]], str]] = {
    "torchrun": ("Start with torchrun", "bash", _torchrun, _RAN),
    "sbatch": ("Slurm batch script", "bash", _sbatch, _STOOD_IN),
    "kubernetes": ("Kubernetes: Kubeflow TrainJob", "yaml", _kubernetes, ""),
    "kubernetes-v1": ("Kubernetes: Kubeflow PyTorchJob", "yaml", _kubernetes_v1, ""),
}
