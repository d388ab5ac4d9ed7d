"""The code and the launch block for a case. Plain strings; the tests run what is said to have run."""

from __future__ import annotations

from shardguide.guidance.record import Snippet, Verified

from .case import Case, url_of_file
from .fields import split_address

RAN = "2.13.0, 2 processes, Gloo, CPU"


def method_url(case: Case) -> str:
    """What the code passes as init_method; capitals stand for what is still to be answered."""
    if case.used == "tcp":
        return f"tcp://{case.address or 'HOST:PORT'}"
    if case.used == "file":
        return url_of_file(case.path, case.os) if case.path else "file:///FOLDER/FILE"
    return "env://"


def _call(case: Case, rank: str, world: str, device: str) -> list[str]:
    """The init_process_group call, one argument a line."""
    lines = ["    dist.init_process_group(", f'        "{case.backend}",']
    if case.main != "mpi":
        lines.append(f'        init_method="{method_url(case)}",')
        if case.used != "env" or rank == "rank":
            lines += [f"        rank={rank},", f"        world_size={world},"]
    lines.append(f"        timeout=timedelta(minutes={case.minutes}),  # the default, to be seen and changed here")
    if device and case.device_id:
        lines.append("        device_id=device,")
    return [*lines, "    )"]


def _device(case: Case, index: str) -> list[str]:
    if not case.device:
        return []
    lines = [f'    device = torch.device("{case.device}", {index})', f"    torch.{case.device}.set_device(device)"]
    return [*lines[:1], lines[1] + "  # this process's own, no other's"]


def _body(case: Case) -> list[str]:
    return [
        "    dist.barrier()",
        '    print(f"rank {dist.get_rank()} of {dist.get_world_size()} is ready")',
        "    # ... training ...",
        "    dist.destroy_process_group()  # every process, once, at the end of main",
        "",
        "",
    ]


def python(case: Case) -> Snippet:
    """The code that sets the group up and takes it down again."""
    spawn = case.launcher == "spawn"
    torch_used = bool(case.device)
    standard = ["import sys"] if spawn and not case.device and case.world_size is None else []
    if not spawn and (case.main != "mpi" or case.device):
        standard = ["import os"]
    elif spawn and case.used == "env":
        standard = ["import os", *standard]
    head = [
        *standard,
        "from datetime import timedelta",
        "",
        *(["import torch"] if torch_used else []),
        "import torch.distributed as dist",
    ]
    if spawn:
        head.append("import torch.multiprocessing as mp")
    code = _spawned(case) if spawn else _started(case)
    ran = case.backend == "gloo" and case.os != "windows" and case.complete
    if case.used == "tcp" and case.launcher == "torchrun":  # below 2.14 it has no store
        ran = False
    executed = RAN if ran else ""
    text = "\n".join([*head, "", "", *code, ""])
    return Snippet("init", "Set the process group up and take it down", "python", text, Verified(True, True, executed))


def _started(case: Case) -> list[str]:
    """Code for processes that something else starts."""
    lines = ["def main() -> None:"]
    if case.device:
        lines.append('    local_rank = int(os.environ["LOCAL_RANK"])  # within its node')
    lines += _device(case, "local_rank")
    lines.append("    # Blocks until every process is here; called from one thread only.")
    lines += _call(case, 'int(os.environ["RANK"])', 'int(os.environ["WORLD_SIZE"])', case.device)
    return [*lines, *_body(case), 'if __name__ == "__main__":', "    main()"]


def _spawned(case: Case) -> list[str]:
    """Code that starts its own processes, on one machine."""
    lines = ["def main(rank: int, world_size: int) -> None:"]
    if case.used == "env":
        host, port = split_address(case.address) if case.address else ("127.0.0.1", 29500)
        lines.append(f'    os.environ.setdefault("MASTER_ADDR", "{host}")')
        lines.append(f'    os.environ.setdefault("MASTER_PORT", "{port}")  # must be free')
    lines += _device(case, "rank")
    lines.append("    # Blocks until every process is here; called from one thread only.")
    lines += _call(case, "rank", "world_size", case.device)
    lines += [*_body(case), 'if __name__ == "__main__":']
    if case.world_size is not None:
        count = str(case.world_size)
    elif case.device:
        count = f"torch.{case.device}.device_count()"
    else:
        count = "int(sys.argv[1])"
    return [*lines, f"    world_size = {count}", "    mp.spawn(main, args=(world_size,), nprocs=world_size)"]


def _wrapped(names: dict[str, str]) -> str:
    """``bash -c '…'`` that gives a process the variables the code reads."""
    return (
        "bash -c '"
        + "export "
        + " ".join(f"{name}=${value}" for name, value in names.items())
        + "; exec python train.py'"
    )


def _master(case: Case, host: str) -> list[str]:
    """MASTER_ADDR and MASTER_PORT for env://."""
    if case.used != "env":
        return []
    if case.address:
        name, port = split_address(case.address)
        return [f"export MASTER_ADDR={name.strip('[]')} MASTER_PORT={port}"]
    return [host, 'export MASTER_PORT="${MASTER_PORT:-29500}"  # must be free on the machine of rank 0']


def environment(case: Case) -> Snippet:
    """How the processes are started, with the variables that they read."""
    count = str(case.world_size) if case.world_size is not None else ""
    asked = '"${NPROC:?set NPROC to the number of processes}"'
    if case.launcher == "torchrun":
        each = count or ("gpu" if case.device == "cuda" else asked)
        lines = [
            "# On one machine. torchrun sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process.",
            f"torchrun --standalone --nproc-per-node={each} train.py",
        ]
    elif case.launcher == "slurm":
        names = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}
        first = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p); export MASTER_ADDR'
        lines = [
            "# In the batch script: one task a process (#SBATCH --ntasks-per-node), on every node.",
            *_master(case, first),
            f"srun {_wrapped(names)}",
        ]
    elif case.launcher == "mpirun":
        names = {
            "RANK": "OMPI_COMM_WORLD_RANK",
            "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
            "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
        }
        np = count or asked
        if case.main == "mpi":
            lines = ["# The MPI runtime gives ranks and world size.", f"mpirun -np {np} python train.py"]
        else:
            first = ': "${MASTER_ADDR:?set it to the address of the machine of rank 0}"; export MASTER_ADDR'
            passed = " -x MASTER_ADDR -x MASTER_PORT" if case.used == "env" else ""
            lines = [
                "# Open MPI; other MPIs name these variables otherwise.",
                *_master(case, first),
                f"mpirun -np {np}{passed} {_wrapped(names)}",
            ]
    elif case.launcher == "spawn":
        lines = ["# One machine: the program starts its own processes."]
        number = " " + asked if not case.device and case.world_size is None else ""
        lines.append(f"python train.py{number}")
    else:
        first = ': "${MASTER_ADDR:?set it to the address of the machine of rank 0}"; export MASTER_ADDR'
        world = (
            f"export WORLD_SIZE={count}"
            if count
            else ': "${WORLD_SIZE:?set it to the number of processes}"; export WORLD_SIZE'
        )
        own = (
            f"export RANK={case.rank}"
            if case.rank is not None
            else ': "${RANK:?set it to the rank of this process, from 0}"; export RANK'
        )
        local = (
            # No default: with one, every process that a user starts on a machine would take the first device.
            [': "${LOCAL_RANK:?set it to the device of this process on its machine, from 0}"; export LOCAL_RANK']
            if case.device
            else []
        )
        lines = [
            "# Once for each process, each with a RANK of its own.",
            *_master(case, first),
            world,
            own,
            *local,
            "python train.py",
        ]
    return Snippet("environment", "Start the processes", "bash", "\n".join([*lines, ""]), Verified(True, True, ""))
