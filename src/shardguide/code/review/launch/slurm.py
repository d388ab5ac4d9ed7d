"""Checks of a launch against what the job has: nodes, tasks, GPUs and CPUs, and the variables that are set for it."""

from __future__ import annotations

from . import torchrun
from .commands import Launch, gres, number
from .report import Report, replaced
from .words import Script, Setting, Text, Word

_RENAMED = ("NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT")
# Set to find a fault; what each takes away is said in the rule.
_LEFT = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_IB_DISABLE": "1",
    "CUDA_LAUNCH_BLOCKING": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
}


def batch(script: Script, text: Text, report: Report) -> None:
    """Lines of #SBATCH behind the first command."""
    late = [line for line in script.directives if script.first and line.line > script.first]
    if late and text.text.startswith("#!"):
        for line in late:
            option = (line.text.partition("=")[0].split() or ["#SBATCH"])[0]
            report.add("FSD014", text, line, True, option=option, first=script.first)


def check(launch: Launch, text: Text, report: Report, alone: bool, started: bool) -> None:
    """A torchrun beside its job. ``alone``: no other launch in the file; ``started``: something of the file starts more nodes."""
    srun = launch.srun or {}
    open_ = "open" in srun
    wide, tasks = _width(launch, open_)
    nodes = torchrun.node_count(launch)
    per_node = launch.number("--nproc-per-node")
    if launch.srun is not None:
        torchrun.fixed_rank(launch, text, report, max(nodes or 1, wide or 1))
        each_a_node = (
            tasks is not None and wide is not None and nodes == tasks * wide
        )  # every torchrun counts as a node
        if tasks is not None and tasks > 1 and per_node not in (None, 1) and not each_a_node:
            report.add("FSD010", text, launch.at, True, tasks=tasks, processes=tasks * (per_node or 1))
        elif wide is not None and nodes is not None and wide != nodes and _exact(launch) and not each_a_node:
            certain = nodes > 1
            report.add("FSD011", text, launch.get("--nnodes") or launch.at, certain, nodes=nodes, job=wide)
    elif launch.job.slurm and (launch.job.nodes or 1) > 1 and (nodes or 1) > 1 and not launch.wrapped and not started:
        report.add("FSD013", text, launch.at, False, nodes=launch.job.nodes)
    have, named = _gpus(launch, srun, open_)
    if have is not None and per_node is not None and have > 0:
        value = launch.get("--nproc-per-node") or launch.at
        if per_node > have:
            report.add(
                "FSD012", text, value, True, processes=per_node, gpus=have, whose=named, effect="more than one to a GPU"
            )
        elif per_node < have and alone and (tasks or 1) == 1:
            report.add(
                "FSD012",
                text,
                value,
                False,
                processes=per_node,
                gpus=have,
                whose=named,
                effect="the other GPUs are idle",
            )


def _exact(launch: Launch) -> bool:
    value = launch.get("--nnodes")
    return value is None or ":" not in value.text or len(set(value.text.split(":"))) == 1


def _width(launch: Launch, open_: bool) -> tuple[int | None, int | None]:
    """The nodes on which srun starts it, and how often on each."""
    srun, job = launch.srun or {}, launch.job
    nodes = number(srun["nodes"].text) if "nodes" in srun else None if open_ else job.nodes
    tasks = number(srun["tasks"].text) if "tasks" in srun else None
    if "ntasks" in srun:
        every = number(srun["ntasks"].text)
        if "nodes" not in srun and every is not None and tasks is None and nodes is not None and every <= nodes:
            return every, 1
        tasks = every // nodes if tasks is None and every is not None and nodes and every % nodes == 0 else tasks
        return nodes, tasks
    if tasks is None and "tasks" not in srun and not open_:
        tasks = job.tasks
    return nodes, tasks


def _gpus(launch: Launch, srun: dict[str, Word], open_: bool) -> tuple[int | None, str]:
    """The GPUs that a node's processes can see, and who says so."""
    for one in launch.before:
        if one.name == "CUDA_VISIBLE_DEVICES":
            return (
                (len(one.value.text.split(",")), "CUDA_VISIBLE_DEVICES")
                if one.value.known and one.value.text
                else (None, "")
            )
    if "gres" in srun:
        return gres(srun["gres"].text), "srun's --gres"
    if "gpus" in srun:
        return number(srun["gpus"].text.rpartition(":")[2]), "srun's --gpus-per-node"
    if open_ or "task_gpus" in srun or "all_gpus" in srun:
        return None, ""
    return launch.job.gpus, launch.job.kind or "the job"


def variables(settings: list[Setting], text: Text, report: Report, nodes: int) -> None:
    """Environment variables that are set for the processes."""
    # With AWS's plug-in NCCL uses no InfiniBand of its own.
    other = any(one.name.startswith(("FI_", "OFI_NCCL_")) for one in settings)
    for one in settings:
        if one.name == "NCCL_IB_DISABLE" and other:
            continue
        if one.name in _RENAMED:
            new, at = f"TORCH_{one.name}", one.value.column - len(one.name) - 1
            edits = replaced(text, one.value.line, at, f"{one.name}=", f"{new}=")
            report.add("FSD040", text, one.value, True, edits, name=one.name, new=new)
        elif one.name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") and one.value.text in ("lo", "=lo") and nodes > 1:
            report.add("FSD041", text, one.value, True, name=one.name, nodes=nodes)
        elif _LEFT.get(one.name) == one.value.text and not _explained(text, one.value.line):
            report.add("FSD042", text, one.value, False, name=one.name, value=one.value.text)


def _explained(text: Text, line: int) -> bool:
    """Whether a comment on the line or above it says why."""
    here = text.lines[line - 1] if line <= len(text.lines) else b""
    above = text.lines[line - 2].strip() if line > 1 else b""
    return b"#" in here.replace(b"# FSD", b"") or (above.startswith(b"#") and not above.startswith((b"#!", b"#SBATCH")))


def threads(settings: list[Setting], launch: Launch, text: Text, report: Report) -> None:
    """More threads for all processes of a node than the task has CPUs."""
    per_node, cpus = launch.number("--nproc-per-node"), launch.job.cpus
    if not per_node or per_node < 2:
        return
    for one in settings:
        if one.name != "OMP_NUM_THREADS":
            continue
        given = number(one.value.text)
        line = text.lines[one.value.line - 1] if one.value.line <= len(text.lines) else b""
        whole = b"SLURM_CPUS_PER_TASK" in line and b"/" not in line and not one.value.known
        if whole or (given and cpus and given * per_node > cpus and (launch.job.tasks or 1) == 1):
            have = f"the {cpus} CPUs of the task" if cpus else "the CPUs of the task"
            report.add("FSD043", text, one.value, False, processes=per_node, have=have)
