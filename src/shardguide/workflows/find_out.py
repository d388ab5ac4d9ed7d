"""How to find out what somebody doesn't know: a command, and what its output says. Answers to "I don't know"."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple


class FindOut(NamedTuple):
    """One way to learn an answer."""

    command: str  # to be run where training runs
    reads: str  # what to look at in its output
    pasted: bool = False  # whether Shardguide reads the output itself


_SMI = "nvidia-smi --query-gpu=name,memory.total --format=csv"

BY_FIELD: dict[str, FindOut] = {
    "model": FindOut("ls PATH/OF/THE/CHECKPOINT", "give the path of its config.json or of the folder"),
    "torch": FindOut('python -c "import torch; print(torch.__version__)"', "the release is the answer", True),
    "gpus": FindOut("nvidia-smi -L", "one line for each GPU of this node; times the number of nodes"),
    "nodes": FindOut("echo $SLURM_JOB_NUM_NODES", "under Slurm; else the number of hosts that you start the job on", True),
    "gpu": FindOut(_SMI, "paste the output", True),
    "gpu_memory": FindOut(_SMI, "paste the output", True),
    "host_memory": FindOut("free -b | awk '/Mem:/ {print $2}'", "the number of bytes; with a B after it, it is the answer"),
    "intra": FindOut("nvidia-smi topo -m", "paste the output: NV# is NVLink; PIX, PXB, PHB, NODE and SYS are PCIe", True),
    "inter": FindOut("ls /sys/class/infiniband; ibv_devinfo | grep link_layer",
                     "InfiniBand or Ethernet (RoCE) as the link layer; nothing there: plain Ethernet"),
    "optimizer": FindOut("grep -n optim train.py", "the class that is constructed"),
    "param_dtype": FindOut("print(next(model.parameters()).dtype)  # in your script, just before sharding", "the dtype is the answer"),
    "device": FindOut('python -c "import torch; print(torch.version.cuda, torch.version.hip, torch.xpu.is_available())"',
                      "the first that is not None or False: cuda, rocm, xpu; else cpu"),
    "os": FindOut("uname -s", "Linux or Darwin (macOS)", True),
    "ipoib": FindOut("ip -brief address | grep ib", "an ib interface with an address: yes"),
    "method": FindOut("env | grep -E '^(RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)='", "all four are set on every process: env"),
    "backend": FindOut("shardguide backend", "it chooses one for the device, the network and the operating system"),
    "address": FindOut("hostname -I  # on the machine of rank 0", "an address that all machines reach, and a free port"),
    "path": FindOut("df -hT", "a folder on a file system that all machines share; the file itself must not exist yet"),
    "with": FindOut("grep -nE 'DistributedDataParallel|ZeroRedundancyOptimizer|fully_shard|FullyShardedDataParallel|Joinable' train.py",
                    "those that are there"),
    "uneven": FindOut("print(torch.distributed.get_rank(), len(loader))  # on every rank", "different numbers: yes; no length: unknown"),
    "collectives": FindOut("grep -nE 'dist\\.|SyncBatchNorm' train.py", "anything inside of the loop: yes"),
    "goal": FindOut("shardguide explain fsdp1-or-fsdp2", "what FSDP2 does differently"),
    "current": FindOut("ls *.py *.yaml", "the script with the FSDP calls, or the accelerate configuration"),
}  # fmt: skip
