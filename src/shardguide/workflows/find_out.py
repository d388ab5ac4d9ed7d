"""How to find out what somebody doesn't know: a command, and what its output says. Answers to "I don't know".

What its output says is read by ``outputs``, where it is pasted back.
"""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple


class FindOut(NamedTuple):
    """One way to learn an answer."""

    command: str  # to be run where training runs
    reads: str  # what to look at in its output
    pasted: bool = False  # whether Shardguide reads the output itself


_SMI = "nvidia-smi --query-gpu=name,memory.total --format=csv"
_ROCM = "rocm-smi --showproductname --showmeminfo vram"
_XPU = "xpu-smi discovery"

BY_FIELD: dict[str, FindOut] = {
    "model": FindOut("ls PATH/OF/THE/CHECKPOINT", "give the path of its config.json or its folder; a size such as 7b will do at first"),
    "torch": FindOut('python -c "import torch; print(torch.__version__)"', "the release is the answer", True),
    "gpus": FindOut("nvidia-smi -L", "one line for each GPU of this node; times the number of nodes", True),
    "nodes": FindOut("echo $SLURM_JOB_NUM_NODES", "under Slurm; else the number of hosts that you start the job on", True),
    "gpu": FindOut(_SMI, "the name is the answer", True),
    "gpu_memory": FindOut(_SMI, "the memory is the answer", True),
    "host_memory": FindOut("free -b", "the total in the line Mem:", True),
    "intra": FindOut("nvidia-smi topo -m", "NV# between GPUs is NVLink; PIX, PXB, PHB, NODE and SYS are PCIe", True),
    "inter": FindOut("ls /sys/class/infiniband; ibv_devinfo | grep link_layer",
                     "InfiniBand is infiniband, Ethernet is RoCE; no such folder: plain Ethernet", True),
    "optimizer": FindOut("grep -n optim train.py", "the class that is constructed", True),
    "param_dtype": FindOut("print(next(model.parameters()).dtype)  # just before sharding", "the dtype is the answer", True),
    "device": FindOut('python -c "import torch; print(torch.version.cuda, torch.version.hip, torch.xpu.is_available())"',
                      "the first that is not None or False: cuda, rocm, xpu; else cpu", True),
    "os": FindOut("uname -s", "Linux or Darwin (macOS)", True),
    "ipoib": FindOut("ip -brief address | grep ib", "an ib interface with an address: yes", True),
    "method": FindOut("env | grep -E '^(RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)='  # in a process of the job",
                      "all four are set: env, which is also what torchrun needs", True),
    "backend": FindOut("shardguide backend", "it chooses one for the device and the network: CUDA: nccl, CPU: gloo, XPU: xccl"),
    "address": FindOut("hostname -I  # on the machine of rank 0", "an address that all machines reach, and a free port, as ADDRESS:29500"),
    "path": FindOut("df -hT", "a folder on a file system that all machines share; the file itself must not exist yet"),
    "with": FindOut("grep -nE 'DistributedDataParallel|ZeroRedundancyOptimizer|fully_shard|FullyShardedDataParallel|Joinable' train.py",
                    "those that are there", True),
    "uneven": FindOut("print(torch.distributed.get_rank(), len(loader))  # on every rank",
                      "different numbers: yes; a loader without a length: unknown", True),
    "on_exhausted": FindOut("shardguide explain join-early-termination",
                            "drain if every sample must be used; stop if some may be left over"),
    "collectives": FindOut("grep -nE 'dist\\.|SyncBatchNorm' train.py", "SyncBatchNorm, or any of these in the loop: yes; nothing: no"),
    "goal": FindOut("shardguide explain fsdp1-or-fsdp2", "what FSDP2 does differently; memory is what most come for"),
    "current": FindOut("ls *.py *.yaml", "the path of the script with the FSDP calls or of the accelerate configuration, or such as "
                       "api=fsdp1,param=fp16"),
    "shard_size": FindOut("nvidia-smi topo -m", "the number of GPUs that share the fast link"),
    "tp_plan": FindOut("print(model._tp_plan)  # of transformers", "the pairs of module pattern and style, as a JSON file"),
}  # fmt: skip

# The same question on another vendor's machine.
_OTHERS: dict[tuple[str, str], FindOut] = {
    ("gpu", "rocm"): FindOut(_ROCM, "the card is the answer", True),
    ("gpu_memory", "rocm"): FindOut(_ROCM, "the memory is the answer", True),
    ("gpus", "rocm"): FindOut(_ROCM, "the cards of this node; times the number of nodes", True),
    ("intra", "rocm"): FindOut("rocm-smi --showtopo", "XGMI or PCIE as the link type"),
    ("gpu", "xpu"): FindOut(_XPU, "the device's name is the answer", True),
    ("gpu_memory", "xpu"): FindOut(_XPU, "the device's name tells it", True),
    ("gpus", "xpu"): FindOut(_XPU, "the devices of this node; times the number of nodes", True),
    ("intra", "xpu"): FindOut("xpu-smi topology -m", "XL is Xe Link; the others are PCIe"),
}


def how(field: str, device: str = "") -> FindOut | None:
    """How to find an answer out, on a machine with this kind of device; None where no command tells it."""
    return _OTHERS.get((field, device)) or BY_FIELD.get(field)
