"""The five decisions: method, ranks, device, timeout, shutdown. Each carries the conditions under which it goes wrong."""

from __future__ import annotations

from shardguide.guidance.record import Alternative, Decision

from .case import Case
from .text import method_url

_ENV = (
    "MASTER_ADDR and MASTER_PORT must be set for every process. The page excepts rank 0 from MASTER_ADDR; the code does not, and raises "
    "ValueError there.",
    "MASTER_PORT has to be free on the machine of rank 0; RANK and WORLD_SIZE come from the call or from the environment.",
)
_TCP = (
    "The address is that of rank 0's machine, reachable from all processes; multicast addresses are no longer supported.",
    "No ranks are assigned: every process passes its own rank and the world size; group_name is deprecated and ignored.",
)
_FILE = (
    "The file must not exist yet, in a folder that does, on a file system that all machines share and that locks with fcntl "
    "(local ones and NFS do). A folder that is missing is not reported: initialisation hangs (run on 2.13.0).",
    "No ranks are assigned: every process passes its own rank and the world size; group_name is deprecated and ignored.",
    "Every initialisation needs a new or empty file: with one that was left behind it fails or hangs.",
    "At a normal exit PyTorch mostly removes the file, even without destroy_process_group, but ranks that leave at the same moment can "
    "each take the other for still there; after a hard exit (a signal, os._exit, as at the end of a forked multiprocessing worker that "
    "destroyed nothing) it always stays. What stays is yours to remove (run on 2.13.0).",
)
_WHY_NOT = {
    "env": "It needs MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE in each process's environment; every launcher can set them.",
    "tcp": "The same store as env:// builds, with address, rank and world size passed by hand.",
    "file": "It needs a file system that all machines share, and a new file each time.",
}
_CLAIMS = {
    "env": ("init.env_default", "init.env_vars", "init.env.port", "init.env.rank", "init.env.world_size", "init.env.free_port",
            "init.store_on_rank0"),
    "tcp": ("init.tcp.address", "init.tcp.reachable", "init.tcp.multicast", "init.tcp.port", "init.tcp.rank", "init.port_range",
            "init.group_name", "init.store_on_rank0"),
    "file": ("init.file.new", "init.file.fcntl", "init.file.path", "init.file.url", "init.file.rank", "init.file.fresh", "init.file.stale",
             "init.file.yours", "init.group_name"),
}  # fmt: skip


def method(case: Case) -> Decision:
    """The URL, and what can go wrong with it."""
    reasons = list({"env": _ENV, "tcp": _TCP, "file": _FILE}[case.used])
    cited = [*_CLAIMS[case.used], "init.one_thread", "init.blocks"]
    others = [Alternative(f"{name}://", _WHY_NOT[name]) for name in ("env", "tcp", "file") if name != case.used]
    if case.no_store:
        under = (
            "torchrun's agent"
            if not case.release or case.minor >= (2, 4)
            else "Under torchrun's static rendezvous the agent"
        )
        reasons.insert(
            0,
            f"{under} serves the store itself, at MASTER_ADDR and MASTER_PORT: nobody serves one for another tcp:// address.",
        )
        why = "Under torchrun every rank times out connecting (run on 2.13.0); from 2.14 on rank 0 serves an address of yours."
        others = [Alternative("tcp://", why), others[-1]]
        cited.append("init.tcp.under_torchrun")
    elif case.used == "tcp" and case.launcher == "torchrun":
        reasons.insert(
            0,
            "Under torchrun it works from 2.14 on: rank 0 serves the address, which must be its machine's, on a port other than "
            "MASTER_PORT. env:// needs none of this: torchrun sets all four variables.",
        )
        cited.append("launch.env")
    if case.used == "env" and case.launcher == "torchrun":
        reasons.insert(0, "The default, and what torchrun prepares: it sets all four variables for each process.")
        cited.append("launch.env")
    if case.used == "file" and case.os == "windows":
        reasons.append(
            r"On Windows: file:///d:/tmp/x for a local file, file://////machine/share/x for a shared folder."
        )
        cited += ["init.file.windows", "init.file.windows_forms"]
    elif case.used == "file":
        reasons.append("Three slashes: of file://folder/x only /x would count.")
    elif case.os == "windows":
        cited.append("ships.windows_tcp")
    if case.main == "mpi":
        reasons.insert(
            0, "Under MPI none of this is used: the MPI runtime gives ranks and world size, and finds the processes."
        )
        cited.append("init.mpi_ranks")
    reasons.append("Call it from one thread only, in every process; it blocks until all have joined.")
    if "gloo" in case.backend:
        reasons.append(
            "TORCH_GLOO_LAZY_INIT makes Gloo connect on demand: a faster start with many processes, for all operations but all-to-all."
        )
        cited.append("init.lazy_gloo")
    return Decision(
        "method",
        method_url(case) if case.main != "mpi" else "by the MPI runtime",
        tuple(reasons),
        tuple(others),
        tuple(cited),
    )


def ranks(case: Case) -> Decision:
    """Who gives each process its rank and the world size."""
    world = f"{case.world_size} processes" if case.world_size is not None else "WORLD_SIZE processes"
    text = {
        "torchrun": f"torchrun: RANK, LOCAL_RANK and WORLD_SIZE for {world}",
        "slurm": f"Slurm: SLURM_PROCID, SLURM_LOCALID and SLURM_NTASKS, handed on as RANK, LOCAL_RANK and WORLD_SIZE for {world}",
        "mpirun": f"mpirun: the rank and size of its runtime, for {world}",
        "spawn": f"torch.multiprocessing.spawn: the rank is its first argument, for {world} on one machine",
        "hand": f"by hand: RANK and WORLD_SIZE in the environment of each of {world}",
    }[case.launcher]
    last = f" to {case.world_size - 1}" if case.world_size is not None else " to WORLD_SIZE - 1"
    reasons = [
        f"Ranks go from 0{last}, each once, and WORLD_SIZE is the same everywhere: a rank out of range is refused, while the others wait "
        "until their timeout."
    ]
    cited = ["init.rank_range"]
    if case.launcher == "torchrun":
        reasons.append("A rank is not stable over restarts; LOCAL_RANK is the index within the node.")
        cited += ["launch.env", "launch.local_rank", "launch.rank_not_stable"]
    elif case.launcher == "spawn":
        reasons.append("It starts processes on its own machine only.")
    if case.used in ("tcp", "file"):
        cited.append(f"init.{case.used}.rank")
    elif case.main != "mpi":
        cited += ["init.env.rank", "init.env.world_size"]
    return Decision("ranks", text, tuple(reasons), (), tuple(cited))


def device(case: Case) -> Decision:
    """The device of each process."""
    if case.main in ("mpi", "ucc"):
        name = case.main.upper()
        reasons = [
            f"{name} is registered for CPU and CUDA tensors; this code is for the CPU. With CUDA each process sets its own GPU first."
        ]
        return Decision(
            "device", "none: CPU tensors", tuple(reasons), (), (f"backend.{case.main}_devices", "launch.local_rank")
        )
    if not case.device:
        refused = ", and refused for the CPU" if (2, 3) <= case.minor < (2, 15) else ""
        reasons = [f"CPU tensors need no device of their own; device_id is for accelerators{refused}."]
        cited = ["init.device_id", "init.device_id.cpu", "init.device_id.cpu_2_15", "launch.local_rank"]
        return Decision("device", "none: CPU tensors", tuple(reasons), (), tuple(cited))
    index = "rank" if case.launcher == "spawn" else "LOCAL_RANK"
    reasons = [f"One process a device: torch.{case.device}.set_device with {index}, before the group is made."]
    cited = ["launch.local_rank"]
    if case.main == "nccl":
        reasons.append(
            "Under NCCL each process needs its GPUs to itself: shared ones deadlock, or fail as invalid usage."
        )
        cited.append("backend.nccl_exclusive")
    if case.device_id:
        reasons.append(
            "device_id binds the process to its device: under NCCL the communicator is formed at once, so errors show early, and "
            "subgroups are split off it. It needs an index."
        )
        cited += ["init.device_id", "init.device_id.index", "init.device_id.build"]
        text = f'torch.device("{case.device}", {index}), set as current and passed as device_id'
    else:
        since = "2.3" if case.device == "cuda" else "2.7"
        reasons.append(f"PyTorch {case.release} has no device_id for {case.device}: it came with {since}.")
        text = f'torch.device("{case.device}", {index}), set as current'
    return Decision("device", text, tuple(reasons), (), tuple(cited))


def timeout(case: Case) -> Decision:
    """The default, written out."""
    reasons = [
        "It is the backend's default, written where it can be seen; it takes a datetime.timedelta, a number raises TypeError."
    ]
    if case.minor >= (2, 2):
        reasons.append(
            "After it the collectives are aborted and the process ends: a longer one only delays the news of a hang."
        )
    text = f"timedelta(minutes={case.minutes})"
    return Decision(
        "timeout", text, tuple(reasons), (), ("init.timeout", "init.timeout.before_2_2", "init.timeout.type")
    )


def shutdown(case: Case) -> Decision:
    """The end."""
    reasons = [
        "Every process calls it, once, at the end of main: not the launcher. Without it, or not on every rank within the timeout, "
        "processes can hang at exit, above all with several groups.",
        "It destroys all groups, in an order that is the same on every rank.",
        "Initialising again in one process is unsupported and untested.",
    ]
    cited = (
        "init.destroy",
        "init.destroy.each",
        "init.destroy.hang",
        "init.destroy.order",
        "init.reinit",
        "init.twice",
    )
    return Decision(
        "shutdown", "dist.destroy_process_group() at the end of main, in every process", tuple(reasons), (), cited
    )
