"""Decision ``backend``: what carries the collectives, and why not the others."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Alternative, Decision, Source
from shardguide.knowledge import backends
from shardguide.knowledge.backends.table import NO, YES
from shardguide.knowledge.hardware.links import INTER

from .host import Host


class Choice(NamedTuple):
    """The backend for each kind of tensor."""

    text: str  # what init_process_group gets
    main: str  # the backend of the tensors that are trained on
    kind: str  # those tensors, as the table has them: "cpu" or "gpu"
    beside: str  # the backend of CPU tensors beside it, "" for none
    decision: Decision
    sources: tuple[Source, ...]  # of the network


def choose(host: Host) -> Choice:
    """The backend for a host whose device is known."""
    name, kind, reasons, cited, open_ = _main(host)
    beside = "gloo" if host.offload and name != "gloo" else ""
    text = f"cpu:{beside},{host.torch_device}:{name}" if beside else name
    if beside:
        reasons.append(
            "Offloaded parameters and gradients are CPU tensors: collectives on them, such as the norm of gradient clipping, "
            f"need a backend of their own. Several backends in one group are experimental. {name.upper()} has nothing for the CPU."
        )
        cited += ["backend.per_device", "backend.experimental", "backend.nccl_devices", "backend.pairs"]
    elif host.offload:
        reasons.append("Gloo serves the offloaded CPU tensors as well: one backend is enough.")
        cited.append("backend.gloo_devices")
    others, more = _others(host, {name, beside})
    decision = Decision("backend", text, tuple(reasons), tuple(others), tuple(dict.fromkeys(cited + more)), open_)
    link = INTER.get(host.inter)
    return Choice(text, name, kind, beside, decision, link.sources if link and kind == "gpu" else ())


def _main(host: Host) -> tuple[str, str, list[str], list[str], bool]:
    """Backend, kind of tensor, reasons, claims, and whether the choice is open."""
    if host.device in ("cuda", "rocm"):
        return _nccl_or_gloo(host)
    if host.device == "xpu":
        return _xccl(host)
    if host.device == "mps":
        reasons = ["Gloo is what macOS builds have for collectives; they run on CPU tensors."]
        if host.minor >= (2, 8):
            reasons.append(
                "From 2.8 on it is the default for mps; whether it takes MPS tensors is not documented: try it."
            )
        return "gloo", "cpu", reasons, ["backend.mps_default", "ships.systems"], True
    return _cpu(host)


def _nccl_or_gloo(host: Host) -> tuple[str, str, list[str], list[str], bool]:
    if host.os == "windows":
        reasons = [
            "Windows builds have every backend but NCCL, so Gloo carries the GPU's collectives, slower than NCCL would."
        ]
        if host.device == "rocm":
            reasons.append(
                "Whether a ROCm build for Windows has torch.distributed at all is not documented: ask it (snippet build)."
            )
        cited = ["ships.windows", "ships.systems", "host.gloo_slower", "backend.gloo_devices"]
        return "gloo", "gpu", reasons, cited, host.device == "rocm"
    reasons = [
        "NCCL is the backend for training on CUDA GPUs; every operation of the capability table runs on it there."
    ]
    cited = ["host.rule_cuda", "backend.nccl_fastest", "ships.linux", "backend.nccl_exclusive"]
    if host.device == "rocm":
        reasons.append("ROCm builds call their own library by the same name, nccl.")
    if host.inter == "infiniband":
        reasons.append("InfiniBand: NCCL is the only backend that uses it, and GPUDirect, for GPU tensors.")
        cited.append("host.gpu_infiniband")
    elif host.inter in ("ethernet", "ipoib"):
        reasons.append(
            "Ethernet and other IP networks: NCCL is fastest there too, with Gloo as the slower fallback if NCCL makes problems."
        )
        cited += ["host.gpu_ethernet", "host.gloo_slower"]
    elif host.inter == "none":
        reasons.append("On one node NCCL uses the links between the GPUs; no network is involved.")
    elif host.inter:
        link = INTER[host.inter]
        reasons.append(
            f"{link.title}: NCCL reaches it by {link.transport}; PyTorch's page names only InfiniBand and Ethernet."
        )
    reasons.append("Each process needs its GPUs to itself under NCCL: shared ones deadlock, or fail as invalid usage.")
    return "nccl", "gpu", reasons, cited, False


def _xccl(host: Host) -> tuple[str, str, list[str], list[str], bool]:
    if host.minor < (2, 6):
        reasons = [
            f"PyTorch {host.release} has no XCCL (it came with 2.6), and no other built-in backend for XPU tensors: "
            "Gloo carries collectives of CPU tensors only.",
            "Intel's oneCCL bindings are a plug-in of their own for such releases, which Shardguide does not describe.",
        ]
        return "gloo", "cpu", reasons, ["host.rule_cpu"], True
    reasons = ["XCCL is the backend for training on Intel GPUs (XPU tensors)."]
    reasons.append("Not every build has it: torch.distributed.is_xccl_available() says whether yours does.")
    if host.os == "windows":
        reasons.append("Whether Windows builds have it is not documented: ask the build (snippet build).")
    return "xccl", "gpu", reasons, ["host.rule_xpu", "backend.xccl", "backend.is_xccl"], host.os == "windows"


def _cpu(host: Host) -> tuple[str, str, list[str], list[str], bool]:
    reasons, cited = ["Gloo is the backend for training on CPUs."], ["host.rule_cpu"]
    if host.inter == "infiniband" and host.ipoib == "no":
        reasons = [
            "CPU hosts with InfiniBand and without IP over IB: MPI, since Gloo cannot use that network.",
            "It is only there when PyTorch was built from source on a host that has MPI; ranks come from the MPI runtime.",
        ]
        return "mpi", "cpu", reasons, ["host.cpu_infiniband", "backend.mpi", "init.mpi_ranks"], False
    if host.inter in ("infiniband", "ipoib"):
        known = host.ipoib == "yes" or host.inter == "ipoib"
        reasons.append(
            "InfiniBand with IP over IB: Gloo uses it as an IP network."
            if known
            else "InfiniBand: Gloo if IP over IB is enabled, otherwise MPI; that is still to be answered."
        )
        return "gloo", "cpu", reasons, [*cited, "host.cpu_infiniband"], not known
    if host.inter == "ethernet":
        reasons.append("Ethernet: Gloo, unless there is a specific reason for MPI.")
        cited.append("host.cpu_ethernet")
    if host.os == "windows":
        reasons.append("Windows is a prototype in torch.distributed; it has every backend but NCCL.")
        cited += ["ships.systems", "ships.windows"]
    return "gloo", "cpu", reasons, cited, False


def _lacks(backend: str, kind: str, release: str) -> list[str]:
    return [one for one in backends.OPERATIONS if backends.cell(one, backend, kind, release).mark == NO]


def _others(host: Host, taken: set[str]) -> tuple[list[Alternative], list[str]]:
    """Every backend that was not taken, with why."""
    out: list[Alternative] = []
    cited: list[str] = []
    if "nccl" not in taken:
        if host.device in ("cuda", "rocm"):
            out.append(Alternative("nccl", "Windows builds do not have it."))
        else:
            out.append(Alternative("nccl", "It serves CUDA tensors only."))
            cited.append("backend.nccl_devices")
    if "gloo" not in taken:
        if host.device in ("cuda", "rocm"):
            lacking = ", ".join(_lacks("gloo", "gpu", host.release))
            out.append(
                Alternative(
                    "gloo", f"The fallback: slower on GPUs, and without {lacking} for GPU tensors (capability table)."
                )
            )
            cited.append("host.gpu_ethernet")
        elif host.device == "xpu":
            out.append(Alternative("gloo", "It is registered for CPU and CUDA tensors, not for XPU."))
            cited.append("backend.gloo_devices")
        else:
            out.append(Alternative("gloo", "It would need an IP network between the hosts."))
    if "mpi" not in taken:
        why = "Only in a PyTorch built from source on a host that has MPI"
        if host.device != "cpu":
            why += '; for GPU tensors the table says "?": it depends on that build'
        out.append(Alternative("mpi", why + "."))
        cited += ["backend.mpi"]
    if "xccl" not in taken:
        there = host.minor >= (2, 6)
        out.append(
            Alternative("xccl", "It serves XPU tensors only." if there else f"PyTorch {host.release} does not have it.")
        )
        cited.append("backend.xccl")
    out.append(Alternative("ucc", "It is experimental."))
    cited += ["backend.ucc", "backend.ucc_devices"]
    return out, cited


def who_has(operation: str, kind: str, release: str) -> list[str]:
    """The backends that have an operation for such tensors, by the table."""
    return [one for one in backends.BACKENDS if backends.cell(operation, one, kind, release).mark == YES]
