"""Files that start the training code: torchrun, Slurm, Kubernetes; and the configuration of accelerate and torchtitan.

Nothing is invented: a host, an image, a partition or an account is a variable or a marked gap, never a made-up name.

Sources: torchrun's own --help and torch/distributed/run.py of 2.13.0 (options; OMP_NUM_THREADS=1 unless set); sbatch and srun
manual pages (since Slurm 22.05 srun does not inherit --cpus-per-task); the CustomResourceDefinitions of Kubeflow Trainer 2.3.0
(TrainJob, trainer.kubeflow.org/v1alpha1) and Training Operator 1.9 (PyTorchJob, kubeflow.org/v1).
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.record import Snippet

from .record import verified
from .spec import LaunchSpec

KINDS = ("torchrun", "sbatch", "kubernetes", "kubernetes-v1", "accelerate", "torchtitan", "torchtitan-toml")


def render(kind: str, spec: LaunchSpec) -> Snippet:
    """One launch file. Raises UnusableInput for an unknown kind, or for what the launcher cannot express."""
    if spec.nodes < 1 or spec.per_node < 1:
        raise UnusableInput("a launch needs at least one node and one process on it.")
    safe = spec.script.replace("/", "").replace(".", "").replace("_", "").replace("-", "")
    if not safe.isascii() or not safe.isalnum() or spec.script.startswith("-"):
        raise UnusableInput(f"the script name {spec.script[:60]!r} has characters that a shell would read otherwise.")
    label = spec.name.replace("-", "")
    if not (label.isascii() and label.isalnum() and spec.name == spec.name.lower().strip("-") and len(spec.name) <= 63):
        raise UnusableInput(
            f"the job name {spec.name[:70]!r} must be lower-case letters, digits and hyphens, for Kubernetes."
        )
    if kind == "torchrun":
        form, title, language, code = (
            "multi" if spec.nodes > 1 else "single",
            "Start with torchrun",
            "bash",
            _torchrun(spec),
        )
    elif kind == "sbatch":
        form, title, language, code = (
            "multi" if spec.nodes > 1 else "single",
            "Slurm batch script",
            "bash",
            _sbatch(spec),
        )
    elif kind == "kubernetes":
        form, title, language, code = "v2", "Kubeflow TrainJob", "yaml", _trainjob(spec)
    elif kind == "kubernetes-v1":
        form, title, language, code = "v1", "Kubeflow PyTorchJob (Training Operator v1)", "yaml", _pytorchjob(spec)
    elif kind == "accelerate":
        from .frameworks import accelerate, unsharded

        form, title, language, code = (
            "ddp" if unsharded(spec.training) else "fsdp2",
            "accelerate configuration",
            "yaml",
            accelerate(spec),
        )
    elif kind == "torchtitan":
        from .frameworks import torchtitan

        form, title, language, code = "python", "torchtitan configuration", "python", torchtitan(spec)
    elif kind == "torchtitan-toml":
        from .frameworks import torchtitan_toml

        form, title, language, code = "toml", "torchtitan configuration (v0.2.2)", "toml", torchtitan_toml(spec)
    else:
        raise UnusableInput(f"{kind[:40]!r} is not a kind of launch file; one of {', '.join(KINDS)}.")
    return Snippet(kind, title, language, code, verified(kind, (f"form={form}",), spec.release))


def _threads(spec: LaunchSpec, cores: str) -> list[str]:
    """Torchrun sets OMP_NUM_THREADS=1 when nobody else does: right for GPU work, slow where the CPU does the optimizer step."""
    if not spec.cpu_work:
        return []
    return [
        "# The CPU works here too (offload): torchrun would give each process one thread.",
        f"export OMP_NUM_THREADS=$(( {cores} / {spec.per_node} > 0 ? {cores} / {spec.per_node} : 1 ))",
    ]


def _torchrun(spec: LaunchSpec) -> str:
    threads = _threads(spec, "$(nproc)")
    if spec.nodes == 1:
        return "\n".join([*threads, f"torchrun --standalone --nproc-per-node={spec.per_node} {spec.script}", ""])
    return "\n".join(
        [
            f"# The same command on each of the {spec.nodes} nodes.",
            "# HEAD: name or address of one of them, the same everywhere, reachable from all; PORT: free there.",
            ': "${HEAD:?set HEAD to the name or address of one of the nodes}"',
            *threads,
            "torchrun \\",
            f"  --nnodes={spec.nodes} \\",
            f"  --nproc-per-node={spec.per_node} \\",
            f'  --rdzv-id="${{JOB_ID:-{spec.name}}}" \\',
            "  --rdzv-backend=c10d \\",
            '  --rdzv-endpoint="$HEAD:${PORT:-29500}" \\',
            f"  {spec.script}",
            "",
        ]
    )


def _sbatch(spec: LaunchSpec) -> str:
    gpus = [f"#SBATCH --gpus-per-node={spec.per_node}"] if spec.device_type != "cpu" else []
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={spec.name}",
        f"#SBATCH --nodes={spec.nodes}",
        "#SBATCH --ntasks-per-node=1",
        *gpus,
        "#SBATCH --exclusive",
        "# One task per node: its torchrun starts the processes.",
        "# Add what your cluster asks for: --partition, --account, --time, --mem.",
        "set -euo pipefail",
        "",
        "# The first node of the job hosts the rendezvous.",
        'HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)',
        *_threads(spec, "SLURM_CPUS_ON_NODE"),
        "",
        "# --cpus-per-task: without it each torchrun, with all its processes, would be bound to one core.",
        'srun --cpus-per-task="$SLURM_CPUS_ON_NODE" torchrun \\',
        '  --nnodes="$SLURM_JOB_NUM_NODES" \\',
        f"  --nproc-per-node={spec.per_node} \\",
        '  --rdzv-id="$SLURM_JOB_ID" \\',
        "  --rdzv-backend=c10d \\",
        '  --rdzv-endpoint="$HEAD:${PORT:-29500}" \\',
        f"  {spec.script}",
        "",
    ]
    return "\n".join(lines)


def _resource(spec: LaunchSpec, indent: str) -> list[str]:
    if spec.device_type == "cpu":
        return []
    key = spec.gpu_resource
    plain = key.replace(".", "").replace("/", "").replace("-", "")
    if not plain.isascii() or not plain.isalnum():
        raise UnusableInput(f"{key[:60]!r} is not the name of a Kubernetes resource.")
    return [f"{indent}limits:", f"{indent}  {key}: {spec.per_node}"]


def _trainjob(spec: LaunchSpec) -> str:
    lines = [
        "# Kubeflow Trainer 2.x. The runtime torch-distributed comes with it and tells torchrun nodes, ranks and rendezvous.",
        "apiVersion: trainer.kubeflow.org/v1alpha1",
        "kind: TrainJob",
        "metadata:",
        f"  name: {spec.name}",
        "spec:",
        "  runtimeRef:",
        "    name: torch-distributed",
        "  trainer:",
        f"    # Yours: an image with PyTorch {spec.release} and {spec.script}; without it the runtime's own image is used.",
        "    # image:",
        f"    numNodes: {spec.nodes}",
        f"    numProcPerNode: {spec.per_node}",
        "    command:",
        "      - torchrun",
        f"      - {spec.script}",
    ]
    resource = _resource(spec, "      ")
    if resource:
        lines += ["    resourcesPerNode:", *resource]
    return "\n".join([*lines, ""])


def _pytorchjob(spec: LaunchSpec) -> str:
    def replica(count: int) -> list[str]:
        lines = [
            f"      replicas: {count}",
            "      restartPolicy: OnFailure",
            "      template:",
            "        spec:",
            "          containers:",
            "            - name: pytorch  # the operator looks for this name",
            f"              image: IMAGE  # Yours: with PyTorch {spec.release} and {spec.script}",
            "              command:",
            "                - torchrun",
            f"                - {spec.script}",
        ]
        resource = _resource(spec, "                ")
        return [*lines, "              resources:", *resource] if resource else lines

    lines = [
        "# Training Operator v1 (its successor is Kubeflow Trainer 2.x with TrainJob).",
        "apiVersion: kubeflow.org/v1",
        "kind: PyTorchJob",
        "metadata:",
        f"  name: {spec.name}",
        "spec:",
        f'  nprocPerNode: "{spec.per_node}"',
        "  pytorchReplicaSpecs:",
        "    Master:",
        *replica(1),
    ]
    if spec.nodes > 1:
        lines += ["    Worker:", *replica(spec.nodes - 1)]
    return "\n".join([*lines, ""])
