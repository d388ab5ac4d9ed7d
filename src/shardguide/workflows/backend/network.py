"""Decision ``network``: the interface, debugging and tuning of the chosen backend, and the file that sets them."""

from __future__ import annotations

from shardguide.guidance.record import Alternative, Decision, Snippet, Verified
from shardguide.knowledge.hardware.links import INTER

from .choose import Choice
from .host import Host


def network(host: Host, choice: Choice) -> Decision:
    """What to set, and when."""
    names = [name for name in (choice.main, choice.beside) if name]
    if choice.main == "mpi":
        return Decision(
            "network", "what the MPI runtime is configured with",
            ("The variables of NCCL and Gloo do not reach MPI; mpirun's own settings choose the interface.",), (), ("backend.mpi",),
        )  # fmt: skip
    variables = [f"{name.upper()}_SOCKET_IFNAME" for name in names if name in ("nccl", "gloo")]
    reasons, cited = [], []
    if host.inter == "none":
        text = "nothing to set on one node"
        reasons.append("All processes are on one machine.")
        cited.append("network.automatic" if variables else "backend.xccl")
    elif variables:
        text = f"the interface that is found; {' and '.join(variables)} only if it is the wrong one"
        reasons.append(
            "NCCL and Gloo look for the right interface themselves; each variable is for its own backend only."
        )
        cited += ["network.automatic", "network.override"]
    else:
        text = "XCCL's own choice: PyTorch's documentation names no variables for it"
        reasons.append("The documented variables are those of NCCL and Gloo.")
        cited += ["network.override", "backend.xccl"]
    alternatives = []
    if "gloo" in names and host.inter != "none":
        reasons.append(
            "GLOO_SOCKET_IFNAME may name several interfaces, separated by commas: operations go over them round-robin."
        )
        reasons.append("Every process must then name the same number of interfaces.")
        cited += ["network.gloo_round_robin", "network.gloo_same_number"]
        alternatives.append(
            Alternative(
                "several Gloo interfaces",
                "Only where each host has several networks; the same number on every process.",
            )
        )
    if "nccl" in names:
        reasons.append(
            "When NCCL fails: NCCL_DEBUG=INFO. For hangs by a mismatched collective or size also NCCL_DEBUG_SUBSYS=COLL."
        )
        reasons.append("For a topology that was not detected: NCCL_DEBUG_SUBSYS=GRAPH.")
        cited += [
            "network.nccl_debug",
            "network.nccl_debug_coll",
            "network.nccl_debug_graph",
            "practice.nccl_debug_only",
        ]
        link = INTER.get(host.inter)
        if link and link.rdma is False and host.inter != "gpudirect-tcpx":
            reasons.append(
                "NCCL tunes itself by topology. On socket networks NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD may still help; "
                "on some clouds (AWS, GCP) NCCL has set them already."
            )
            cited += ["network.nccl_sockets", "network.nccl_pretuned"]
        if link and link.rdma:
            cited.append("practice.nccl_ib_hca")
        reasons.append(
            "Finer settings of a communicator go through ProcessGroupNCCL.Options (its config is an NCCLConfig), given as pg_options."
        )
        cited += ["backend.nccl_options", "backend.nccl_config"]
    return Decision("network", text, tuple(reasons), tuple(alternatives), tuple(cited))


def environment(host: Host, choice: Choice) -> Snippet | None:
    """The variables as a shell file, all of them commented out: each is for a case of its own."""
    names = {choice.main, choice.beside}
    lines: list[str] = []
    if host.inter != "none" and names & {"nccl", "gloo"}:
        lines.append("# Only if the interface that was found is the wrong one (ip -brief address lists them):")
        if "nccl" in names:
            lines.append("# export NCCL_SOCKET_IFNAME=eth0")
        if "gloo" in names:
            lines.append("# export GLOO_SOCKET_IFNAME=eth0  # several: eth0,eth1 - the same number on every process")
    if "nccl" in names:
        lines += [
            "# If NCCL fails:",
            "# export NCCL_DEBUG=INFO",
            "# If it hangs, by a collective or a size that differs between ranks:",
            "# export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL",
            "# If the topology is detected wrongly:",
            "# export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH",
        ]
    if not lines:
        return None
    code = "\n".join(["# Sourced on every node before the launch. Nothing is set until you take a # away.", *lines, ""])
    return Snippet("environment", "Network and debugging variables", "bash", code, Verified(True, True, ""))


def ask_build(host: Host) -> Snippet:
    """Code that asks the installed PyTorch what it has; it uses what every release from 2.0 on has, and more where there is more."""
    xccl, xpu = host.minor >= (2, 6), host.minor >= (2, 3)
    lines = [
        "# Run it in the environment that trains, on a node that trains.",
        "import torch",
        "import torch.distributed as dist",
        "",
        'print("PyTorch", torch.__version__, "distributed:", dist.is_available())',
        "if dist.is_available():",
        '    print("NCCL:", dist.is_nccl_available())',
        '    print("Gloo:", dist.is_gloo_available())',
        '    print("MPI:", dist.is_mpi_available())',
    ]
    if xccl:
        lines.append('    print("XCCL:", dist.is_xccl_available())')
    lines.append('print("CUDA or ROCm devices:", torch.cuda.device_count(), "usable:", torch.cuda.is_available())')
    if xpu:
        lines.append('print("XPU devices:", torch.xpu.device_count(), "usable:", torch.xpu.is_available())')
    executed = "2.13.0, 1 process, CPU" if xccl and xpu else ""
    return Snippet(
        "build", "What the installed PyTorch has", "python", "\n".join([*lines, ""]), Verified(True, True, executed)
    )
