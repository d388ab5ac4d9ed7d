"""Decisions ``backend`` and ``launch``: what carries the collectives, and what starts the processes."""

from __future__ import annotations

from shardguide.guidance.record import Alternative, Decision

from ..numbers import Layout
from ..situation import Situation

_BACKENDS = {"cuda": "nccl", "rocm": "nccl", "xpu": "xccl", "cpu": "gloo", "": "nccl"}


def backend_string(s: Situation, offload: bool) -> str:
    """What init_process_group gets: with CPU offload a backend for either kind of tensor."""
    name = _BACKENDS[s.device]
    return f"cpu:gloo,{s.torch_device}:{name}" if offload and name != "gloo" else name


def backend(s: Situation, offload: bool) -> Decision:
    """NCCL, XCCL or Gloo."""
    name = _BACKENDS[s.device]
    choice = backend_string(s, offload)
    reasons, sources, alternatives = [], [], []
    if name == "nccl":
        who = "On ROCm builds the backend keeps that name. " if s.device == "rocm" else ""
        reasons.append(f"{who}NCCL is the backend for CUDA tensors; every collective of FSDP runs on it.")
        sources += ["backend.nccl_fastest", "backend.nccl_exclusive"]
        alternatives.append(Alternative("gloo", "A slower fallback for GPU tensors, and the backend for CPU tensors."))
    elif name == "xccl":
        reasons.append("XCCL is the backend for Intel GPUs (XPU).")
        sources.append("backend.xccl")
        if s.at_least(2, 6):
            reasons.append("Whether a build contains it: torch.distributed.is_xccl_available().")
        else:
            reasons = [
                "PyTorch has XCCL from 2.6 on; this release has no backend of its own for XPU: take a newer one."
            ]
            sources = ["backend.gloo_devices"]
            newer = "It is what XPU needs; until then the check of this plan fails."
            alternatives.append(Alternative("the same with PyTorch 2.6 or newer", newer))
        alternatives.append(Alternative("gloo", "It is the backend for CPU tensors."))
    else:
        reasons.append("Gloo is the backend for CPU tensors.")
        sources.append("backend.gloo_devices")
        alternatives.append(Alternative("mpi", "Only when PyTorch was built from source with it."))
    if offload and name != "gloo":
        reasons.append("CPU offload brings collectives on CPU tensors, so the group gets Gloo for those.")
        sources += ["backend.per_device", "backend.nccl_devices", "practice.cpu_backend"]
    if s.nodes > 1 and name == "gloo":
        reasons.append(
            "If Gloo picks the wrong interface, name it in GLOO_SOCKET_IFNAME, the same number of interfaces on every process."
        )
    elif s.nodes > 1 and name == "nccl" and s.inter in ("infiniband", "roce"):
        reasons.append(
            "NCCL uses RDMA over this network when it finds it; NCCL_DEBUG=INFO shows which transport it took."
        )
        sources += ["practice.nccl_ib_hca", "practice.nccl_debug_only"]
    elif s.nodes > 1 and name == "nccl" and s.inter == "ethernet":
        reasons.append(
            "If NCCL picks the wrong interface, name it in NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO shows the choice."
        )
        sources += ["practice.nccl_ifname", "practice.nccl_sockets", "practice.nccl_debug_only"]
    return Decision("backend", choice, tuple(reasons), tuple(alternatives), tuple(sources))


def command(s: Situation, script: str) -> str:
    """The torchrun line, short form; the files to write carry the whole of it."""
    if s.nodes <= 1:
        return f"torchrun --standalone --nproc-per-node={max(1, s.per_node)} {script}"
    return (
        f"torchrun --nnodes={s.nodes} --nproc-per-node={s.per_node} --rdzv-backend=c10d "
        f'--rdzv-endpoint="$HEAD:29500" --rdzv-id="$JOB_ID" {script}'
    )


def launch(s: Situation, layout: Layout, script: str) -> Decision:
    """``torchrun`` on every node."""
    if not s.nodes:
        why = "On how many nodes the GPUs are decides between --standalone and a rendezvous."
        return Decision(
            "launch", "torchrun, as soon as the number of nodes is known", (why,), (), ("launch.env",), open=True
        )
    reasons = [
        f"One process a GPU: {s.world} ranks. torchrun sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each."
    ]
    if s.nodes > 1:
        reasons.append("The same command runs on each node; the c10d rendezvous on the head node assigns the ranks.")
    if layout.replicate > 1 and layout.strategy == "hybrid" and s.nodes > 1:
        reasons.append("torchrun numbers a node's ranks consecutively, which the mesh of this plan relies on.")
    return Decision(
        "launch",
        command(s, script),
        tuple(reasons),
        (
            Alternative(
                "sbatch",
                "On a Slurm cluster: the same torchrun, started once a node by srun; the snippet sbatch is it.",
            ),
            Alternative(
                "a Kubernetes job",
                "On Kubernetes: the operator starts the nodes and sets the rendezvous; the snippet kubernetes is it.",
            ),
        ),
        ("launch.env", "launch.multi_node", "launch.c10d", "launch.endpoint")
        if s.nodes > 1
        else ("launch.env", "launch.standalone"),
    )
