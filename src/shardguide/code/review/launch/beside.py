"""What stands beside a launch: the script that it starts, the mesh in it, the configuration that it names."""

from __future__ import annotations

import ast
import os

from shardguide.guidance.hints import TYPE_CHECKING

from ..project import Definition, File, Project
from . import torchrun
from .report import Report
from .words import Text

if TYPE_CHECKING:
    from .commands import Launch

_MESHES = ("torch.distributed.device_mesh.init_device_mesh", "torch.distributed.init_device_mesh")


def script_of(launch: Launch, text: Text, project: Project) -> File | None:
    """The file of the project that a launch starts; None where it is not there, or more than one may be meant."""
    if launch.script is None or not launch.script.known:
        return None
    name = launch.script.text
    if launch.get("--module") is not None:
        name = name.replace(".", "/") + ".py"
    here = os.path.join(os.path.dirname(os.path.abspath(text.path)), name)  # noqa: PTH100, PTH118, PTH120
    places = (os.path.normpath(here), os.path.abspath(name))  # noqa: PTH100
    for place in places:
        for file in project.files:
            if file.base + ".py" == place:
                return file
    tail = "/" + os.path.normpath(name).lstrip("./")
    found = [file for file in project.files if (file.base + ".py").endswith(tail)]
    return found[0] if len(found) == 1 and "/" in tail[1:] else None


def world(launch: Launch) -> int | None:
    """The number of processes, where the file tells it."""
    nodes, each = torchrun.node_count(launch), launch.number("--nproc-per-node")
    if each is None and launch.get("--nproc-per-node") is None and not launch.open:
        each = 1
    value = launch.get("--nnodes")
    if (
        nodes is None
        or each is None
        or (value is not None and ":" in value.text and len(set(value.text.split(":"))) > 1)
    ):
        return None
    return nodes * each


def mesh(launch: Launch, text: Text, report: Report) -> None:
    """A mesh whose size is written in the script, against the number of processes."""
    file, processes = script_of(launch, text, report.project), world(launch)
    if file is None or processes is None or "mesh" not in file.text:
        return
    parents: dict[ast.AST, ast.AST] = {}
    found: list[tuple[ast.Call, int]] = []
    calls = 0
    for node in ast.walk(file.tree):
        for child in ast.iter_child_nodes(node):
            parents[child] = node
        if isinstance(node, ast.Call) and _is_mesh(node, file, report.project):
            calls += 1
            size = _size(node, file)
            if size is not None:
                found.append((node, size))
    for node, size in found:
        sure = calls == 1 and not _conditional(node, parents)
        if size != processes and (sure or size > processes):
            at = launch.get("--nproc-per-node") or launch.at
            where = f"{os.path.basename(file.path)}:{node.lineno}"  # noqa: PTH119
            report.add("FSD015", text, at, sure and size > processes, processes=processes, size=size, where=where)


def _is_mesh(node: ast.Call, file: File, project: Project) -> bool:
    from ..project import dotted_text

    dotted = dotted_text(node.func)
    if "init_device_mesh" not in dotted:
        return False
    full = project.resolve(file, dotted)
    return not isinstance(full, Definition) and full in _MESHES


def _size(node: ast.Call, file: File) -> int | None:
    shape = next(
        (word.value for word in node.keywords if word.arg == "mesh_shape"), node.args[1] if len(node.args) > 1 else None
    )
    if isinstance(shape, ast.Name):
        shape = file.values.get(shape.id)
    if not isinstance(shape, (ast.Tuple, ast.List)) or not shape.elts:
        return None
    size = 1
    for part in shape.elts:
        if not isinstance(part, ast.Constant) or not isinstance(part.value, int) or part.value < 1:
            return None
        size *= part.value
    return size


def _conditional(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    here = parents.get(node)
    while here is not None:
        if isinstance(here, ast.If) and "__main__" not in ast.dump(here.test):
            return True
        if isinstance(here, (ast.Try, ast.IfExp, ast.For, ast.While, ast.ExceptHandler)):
            return True
        here = parents.get(here)
    return False


def mapped(launch: Launch, text: Text, report: Report) -> None:
    """``srun python`` with several tasks, of a script that takes its rank from the environment."""
    from .slurm import _width

    srun = launch.srun or {}
    nodes, tasks = _width(launch, "open" in srun)
    count = (nodes or 1) * (tasks or 1)
    file = script_of(launch, text, report.project)
    if count < 2 or file is None or "init_process_group" not in file.text:
        return
    if any(word in text.text for word in ("RANK=", "RANK ", "PMI", "mpi")) or any(
        "SLURM" in one.text for one in report.project.files
    ):
        return
    if "init_method" in file.text or "rank=" in file.text or "store=" in file.text or "os.environ[" in file.text:
        return
    report.add("FSD017", text, launch.at, False, tasks=count, script=os.path.basename(file.path))  # noqa: PTH119
