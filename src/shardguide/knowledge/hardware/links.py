"""Words for interconnects, and whether the counts that were stated agree.

No bandwidth is claimed here. ``rdma`` says whether data moves by remote direct memory access, as far as the kind of
network alone decides it.
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Source


class Link(NamedTuple):
    """A kind of interconnect."""

    name: str  # canonical, e.g. "infiniband"
    title: str  # for people, e.g. "InfiniBand"
    rdma: bool | None  # None: depends on the device or the instance
    transport: str  # how the collective library reaches it
    sources: tuple[Source, ...]


class Counts(NamedTuple):
    """How many GPUs there are; None where nothing was said and nothing follows."""

    gpus: int | None  # over all nodes
    nodes: int | None
    per_node: int | None


_NCCL_ENV = Source(
    "link:nccl-env",
    "NCCL user guide: Environment Variables",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    "",
    "",
)
_NCCL_IB = Source(
    "link:nccl-ib",
    "NCCL source, src/transport/net_ib/common.h: link layer InfiniBand is IB, Ethernet is RoCE, otherwise unspecified",
    "https://github.com/NVIDIA/nccl/blob/5067397c2676d5aed50042fc39e5c8ee96eb0027/src/transport/net_ib/common.h",
    "",
    "",
)
_NCCL_TOPO = Source(
    "link:nccl-topo",
    "NCCL source, src/include/graph.h: kinds of path (NVL, PIX, PXB, PHB, SYS, NET)",
    "https://github.com/NVIDIA/nccl/blob/5067397c2676d5aed50042fc39e5c8ee96eb0027/src/include/graph.h",
    "",
    "",
)
_NVSWITCH = Source(
    "link:nvswitch",
    "NVIDIA AI Enterprise 8.0: NVIDIA NVSwitch",
    "https://docs.nvidia.com/ai-enterprise/release-8/8.0/infra-software/vgpu/features/nvswitch.html",
    "",
    "",
)
_XGMI = Source(
    "link:xgmi",
    "AMD Instinct MI250 microarchitecture (ROCm documentation): Infinity Fabric links between GPUs",
    "https://rocm.docs.amd.com/en/docs-7.14.0/reference/gpu-arch/mi250.html",
    "",
    "",
)
_XELINK = Source(
    "link:xelink",
    "Intel Data Center GPU Max Series Technical Overview: Xe Link tile for scale-up and scale-out",
    "https://www.intel.com/content/www/us/en/developer/articles/technical/intel-data-center-gpu-max-series-overview.html",
    "",
    "",
)
_OFI = Source(
    "link:aws-ofi-nccl",
    "aws-ofi-nccl: a plug-in that lets NCCL and RCCL use libfabric as network provider",
    "https://github.com/aws/aws-ofi-nccl",
    "",
    "",
)
_EFA = Source(
    "link:efa",
    "AWS ParallelCluster: Elastic Fabric Adapter, a network device with OS bypass, exposed through Libfabric",
    "https://docs.aws.amazon.com/parallelcluster/latest/ug/efa-v3.html",
    "",
    "",
)
_TCPX = Source(
    "link:gpudirect-tcpx",
    "NVIDIA AI Cluster Runtime: GKE TCPXO networking prerequisites (without it NCCL falls back to TCP)",
    "https://docs.nvidia.com/aicr/latest/integrator-guide/gke-tcpxo-networking.md",
    "",
    "",
)
_MNNVL = Source(
    "link:nvlink5",
    "NVIDIA Mission Control: NVLink connects GPUs within and across the compute trays of GB200 and GB300",
    "https://docs.nvidia.com/base-command-manager/product-manuals/nvidia-mission-control/nvlinkinfo",
    "",
    "",
)

INTRA: dict[str, Link] = {
    link.name: link
    for link in (
        Link("nvlink", "NVLink", None, "peer-to-peer over NVLink", (_NCCL_TOPO, _NVSWITCH)),
        Link("nvswitch", "NVLink through NVSwitch", None, "peer-to-peer over NVLink, all to all", (_NVSWITCH,)),
        Link("pcie", "PCIe", None, "peer-to-peer over PCIe, or through host memory", (_NCCL_TOPO, _NCCL_ENV)),
        Link("xgmi", "AMD Infinity Fabric (xGMI)", None, "peer-to-peer over xGMI", (_XGMI,)),
        Link("xelink", "Intel Xe Link", None, "peer-to-peer over Xe Link", (_XELINK,)),
        Link("none", "one GPU to a node", None, "", ()),
    )
}

INTER: dict[str, Link] = {
    link.name: link
    for link in (
        Link("infiniband", "InfiniBand", True, "verbs (NCCL's NET/IB)", (_NCCL_IB, _NCCL_ENV)),
        Link("roce", "RDMA over Converged Ethernet (RoCE)", True, "verbs (NCCL's NET/IB)", (_NCCL_IB, _NCCL_ENV)),
        Link("ethernet", "Ethernet", False, "TCP sockets (NCCL's NET/Socket)", (_NCCL_ENV,)),
        Link("ipoib", "IP over InfiniBand", False, "TCP sockets (NCCL's NET/Socket)", (_NCCL_ENV,)),
        Link("efa", "AWS Elastic Fabric Adapter", None, "libfabric plug-in (aws-ofi-nccl)", (_EFA, _OFI)),
        Link("slingshot", "HPE Slingshot", None, "libfabric plug-in (aws-ofi-nccl)", (_OFI,)),
        Link("gpudirect-tcpx", "GPUDirect-TCPX or TCPXO", False, "TCP straight from GPU memory, by plug-in", (_TCPX,)),
        Link("nvlink", "multi-node NVLink", None, "NVLink across nodes", (_MNNVL,)),
        Link("none", "one node", None, "", ()),
    )
}

_INTRA_WORDS = {
    "nvlink": "nvlink", "nvl": "nvlink", "nvlinkbridge": "nvlink", "nvlinkc2c": "nvlink", "sxm": "nvlink",
    "nvswitch": "nvswitch", "nvlinkswitch": "nvswitch", "nvlinknvswitch": "nvswitch", "nvlinkandnvswitch": "nvswitch",
    "pcie": "pcie", "pci": "pcie", "pciexpress": "pcie",
    "pix": "pcie", "pxb": "pcie", "phb": "pcie", "node": "pcie", "sys": "pcie",
    "xgmi": "xgmi", "infinityfabric": "xgmi", "amdinfinityfabric": "xgmi",
    "xelink": "xelink", "intelxelink": "xelink",
    "none": "none", "no": "none",
}  # fmt: skip
_INTER_WORDS = {
    "infiniband": "infiniband", "ib": "infiniband",
    "fdr": "infiniband", "edr": "infiniband", "hdr": "infiniband", "ndr": "infiniband", "xdr": "infiniband",
    "roce": "roce", "rocev": "roce", "rdmaoverconvergedethernet": "roce", "rdmaoverethernet": "roce",
    "ethernet": "ethernet", "eth": "ethernet", "tcp": "ethernet", "tcpip": "ethernet", "socket": "ethernet",
    "sockets": "ethernet", "gbe": "ethernet", "gigabitethernet": "ethernet", "gbethernet": "ethernet",
    "gbitethernet": "ethernet", "gethernet": "ethernet",
    "ipoib": "ipoib", "ipoverib": "ipoib", "ipoverinfiniband": "ipoib",
    "efa": "efa", "elasticfabricadapter": "efa", "awsefa": "efa",
    "slingshot": "slingshot", "hpeslingshot": "slingshot", "cxi": "slingshot",
    "gpudirecttcpx": "gpudirect-tcpx", "tcpx": "gpudirect-tcpx", "tcpxo": "gpudirect-tcpx",
    "gpudirecttcpxo": "gpudirect-tcpx",
    "nvlink": "nvlink", "mnnvl": "nvlink", "multinodenvlink": "nvlink", "nvlnvl": "nvlink",
    "none": "none", "no": "none",
}  # fmt: skip


def _normal(text: str) -> str:
    """Letters only: "PCIe Gen5 x16" and "RoCE v2" lose what names a speed or a version."""
    text = text.lower()
    for noise in ("gen", "generation", "version", " x", "nvidia", "mellanox"):
        text = text.replace(noise, " ")
    return "".join(letter for letter in text if letter.isascii() and letter.isalpha())


def _pick(text: str, words: dict[str, str], links: dict[str, Link], what: str) -> Link:
    name = words.get(_normal(text[:80]))
    if name is None:  # "InfiniBand NDR": several words that all mean the same
        meant = {words.get(_normal(part)) for part in text[:80].replace("/", " ").split() if _normal(part)}
        name = meant.pop() if len(meant) == 1 else None
    if name is None:
        known = ", ".join(links)
        raise UnusableInput(f"{text.strip()[:40]!r} is not a link {what} that Shardguide knows; use one of {known}.")
    return links[name]


def intra_link(text: str) -> Link:
    """The link between the GPUs of one node. Raises UnusableInput for an unknown word."""
    if text.strip().lower().startswith("nv") and text.strip()[2:].isdigit():  # NV18, as nvidia-smi topo -m prints it
        return INTRA["nvlink"]
    return _pick(text, _INTRA_WORDS, INTRA, "within a node")


def inter_link(text: str) -> Link:
    """The link between nodes. Raises UnusableInput for an unknown word."""
    return _pick(text, _INTER_WORDS, INTER, "between nodes")


_MOST = 1 << 24  # far above any cluster; catches slips of the keyboard


def check_counts(gpus: int | None = None, nodes: int | None = None, gpus_per_node: int | None = None) -> Counts:
    """What follows from the counts that were stated (``gpus`` is over all nodes).

    Raises UnusableInput when they contradict each other (17 GPUs on 2 nodes) or make no sense.
    """
    for name, count in (("GPUs", gpus), ("nodes", nodes), ("GPUs per node", gpus_per_node)):
        if count is not None and (isinstance(count, bool) or not 1 <= count <= _MOST):
            raise UnusableInput(f"The number of {name} must be between 1 and {_MOST}, not {str(count)[:40]}.")
    if gpus is not None and nodes is not None:
        if gpus % nodes:
            each, rest = divmod(gpus, nodes)
            near = f"{each * nodes} or {(each + 1) * nodes}" if each else str(nodes)
            raise UnusableInput(
                f"{gpus} GPU{'s' if gpus != 1 else ''} cannot be spread evenly over {nodes} nodes ({rest} would be left over); "
                f"give {near} GPUs or another number of nodes."
            )
        if gpus_per_node is not None and gpus_per_node * nodes != gpus:
            raise UnusableInput(
                f"{nodes} nodes of {gpus_per_node} GPUs are {nodes * gpus_per_node} GPUs, not {gpus}; "
                "correct one of the three numbers."
            )
        return Counts(gpus, nodes, gpus // nodes)
    if gpus is not None and gpus_per_node is not None:
        if gpus % gpus_per_node:
            raise UnusableInput(
                f"{gpus} GPUs are not a whole number of nodes of {gpus_per_node} GPUs; correct one of the two numbers."
            )
        return Counts(gpus, gpus // gpus_per_node, gpus_per_node)
    if nodes is not None and gpus_per_node is not None:
        return check_counts(nodes * gpus_per_node, nodes, gpus_per_node)
    return Counts(gpus, nodes, gpus_per_node)
