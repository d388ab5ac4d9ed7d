"""One look at all launch files of a review."""

from __future__ import annotations

import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, NamedTuple
from shardguide.readers.files import read_text, shown

from ..records import Finding, Problem
from . import accelerate, beside, commands, shell, slurm, torchrun
from .accelerate import Config, Entry
from .report import Report
from .words import Script, Setting, Text

if TYPE_CHECKING:
    from ..project import Project
    from .commands import Launch
    from .titan import Degrees

SHELL = (".sh", ".bash", ".sbatch", ".slurm", ".zsh")
YAML = (".yaml", ".yml")
TOML = (".toml",)
LIMIT = 1 << 20
_COUNTS = ("num_processes", "num_machines")
_DOUBLED = ("--gradient_checkpointing", "--gradient-checkpointing", "--activation_checkpointing")
_MARKS = ("torchrun", "torch.distributed", "accelerate", "srun", "#SBATCH", "NCCL_", "TORCH_", "CUDA_LAUNCH")


class Looked(NamedTuple):
    """What the launch files gave."""

    findings: list[Finding]
    problems: list[Problem]
    texts: list[Text]
    lines: int


def look(names: list[str], project: Project, release: str) -> Looked:
    """Read the files and check them, the project's Python beside them."""
    report = Report(project, release)
    problems: list[Problem] = []
    texts: list[Text] = []
    configs: list[Config] = []
    degrees: list[Degrees] = []
    started: list[tuple[Launch, Text]] = []
    lines = 0
    for name in names:
        where = shown(name)
        try:
            text = Text(name, read_text(name, LIMIT).replace("\r\n", "\n"))
            lines += text.text.count("\n") + (not text.text.endswith("\n"))
            ending = os.path.splitext(name)[1].lower()  # noqa: PTH122
            if ending in TOML:
                if "parallel" in text.text:
                    from . import titan

                    found = titan.read(text, where)
                    if found is not None:
                        degrees.append(found)
                        texts.append(text)
            elif ending in YAML:
                if any(
                    mark in text.text
                    for mark in ("distributed_type", "torchrun", "torch.distributed", "accelerate launch")
                ):
                    texts.append(text)
                    started.extend(_yaml(text, where, report, configs))
            elif any(mark in text.text for mark in _MARKS):
                texts.append(text)
                started.extend(_shell(text, where, report))
        except UnusableInput as error:
            problems.append(_problem(name, where, str(error)))
        except RecursionError:
            problems.append(Problem(name, 0, "nested too deeply to be read."))
    for config in configs:
        accelerate.check(config, report)
    for found in degrees:
        _titan(found, started, report)
    for launch, text in started:
        if launch.kind == "accelerate":
            _accelerate(launch, text, configs, report)
    return Looked(report.findings, problems, texts, lines)


def inside(text: Text, project: Project, release: str) -> list[Finding]:
    """The findings of shell commands that stand inside another file: lines of a notebook that begin with ``!``."""
    report = Report(project, release)
    _shell(text, shown(text.path), report)
    return report.findings


def _problem(path: str, where: str, words: str) -> Problem:
    line = words.partition(", line ")[2].partition(":")[0]
    return Problem(path, int(line) if line.isdigit() else 0, words.partition(": ")[2] or words.removeprefix(where))


def _shell(text: Text, where: str, report: Report) -> list[tuple[Launch, Text]]:
    script = shell.read(text.text, where, batch="#SBATCH" in text.text)
    job = commands.job(script)
    slurm.batch(script, text, report)
    found = commands.launches(script, where, job, report.release)
    settings = [*script.settings, *(one for command in script.commands for one in command.before)]
    _launches(
        found,
        text,
        report,
        settings,
        any(word.text == "srun" for one in script.commands for word in one.words[:1]),
        True,
    )
    _ports(script, found, text, report)
    return [(launch, text) for launch in found]


def _yaml(text: Text, where: str, report: Report, configs: list[Config]) -> list[tuple[Launch, Text]]:
    from . import yaml_files

    read = yaml_files.read(text, where)
    if read.config is not None:
        configs.append(read.config)
    out: list[tuple[Launch, Text]] = []
    for at, (script, job) in enumerate(read.scripts):
        found = commands.launches(script, where, job, report.release)
        settings = [*script.settings, *(one for command in script.commands for one in command.before)]
        _launches(found, text, report, [*settings, *(read.settings if not at else [])], True, False)
        out.extend((launch, text) for launch in found)
    return out


def _launches(
    found: list[Launch], text: Text, report: Report, settings: list[Setting], srun: bool, as_written: bool
) -> None:
    nodes = 1
    for launch in found:
        if launch.kind in ("torchrun", "launch"):
            torchrun.check(launch, text, report, as_written)
            slurm.check(launch, text, report, len(found) == 1, srun)
            slurm.threads(settings, launch, text, report)
            beside.mesh(launch, text, report)
            nodes = max(nodes, torchrun.node_count(launch) or 1)
            if launch.job.kind and not launch.job.slurm and launch.job.nodes is not None:
                _replicas(launch, text, report)
        elif launch.kind == "python":
            beside.mapped(launch, text, report)
        nodes = max(nodes, launch.job.nodes or 1)
    slurm.variables(settings, text, report, nodes)


def _replicas(launch: Launch, text: Text, report: Report) -> None:
    """``--nnodes`` of a command in a Kubernetes job against its replicas."""
    value, nodes = launch.get("--nnodes"), torchrun.node_count(launch)
    if value is not None and nodes is not None and ":" not in value.text and nodes != launch.job.nodes:
        report.add("FSD011", text, value, True, nodes=nodes, job=launch.job.nodes)


def _ports(script: Script, found: list[Launch], text: Text, report: Report) -> None:
    """Jobs that run at once on one host and meet on one port."""
    waits = [command.words[0].line for command in script.commands if command.words[0].text == "wait"]
    running: dict[str, Launch] = {}
    last = 0
    for launch in found:
        if any(last < line < launch.at.line for line in waits):
            running.clear()
        last = launch.at.line
        if launch.depth or launch.srun is not None or launch.wrapped or launch.kind == "accelerate" or launch.open:
            continue
        port = launch.get("--master-port")
        endpoint = launch.get("--rdzv-endpoint")
        if launch.get("--standalone") is not None or (endpoint is not None and endpoint.text.endswith(":0")):
            continue
        said = (
            port.text
            if port is not None and port.known
            else endpoint.text
            if endpoint is not None and endpoint.known
            else ""
        )
        if said in running:
            report.add("FSD018", text, port or endpoint or launch.at, True, port=said, line=running[said].at.line)
        elif said and launch.background:
            running[said] = launch


def _titan(found: Degrees, started: list[tuple[Launch, Text]], report: Report) -> None:
    from . import titan

    titan.alone(found, report)
    name = os.path.basename(found.text.path)  # noqa: PTH119
    for launch, text in started:
        processes = beside.world(launch) if launch.kind == "torchrun" else None
        named = any(os.path.basename(word.text.partition("=")[2] or word.text) == name for word in launch.arguments)  # noqa: PTH119
        overridden = any("parallel" in word.text for word in launch.arguments)
        unsure = any(not word.known for word in launch.arguments)
        if processes is not None and named and not overridden and not unsure:
            titan.beside(found, processes, f"{os.path.basename(text.path)}:{launch.at.line}", report)  # noqa: PTH119


def _accelerate(launch: Launch, text: Text, configs: list[Config], report: Report) -> None:
    """The options of accelerate launch as a configuration, together with the file that it names."""
    entries = {
        one.name.removeprefix("--"): Entry(one.value.text if one.value is not None else True, one.value or one.word)
        for one in launch.options
        if one.value is None or one.value.known
    }
    unknown = {one.name.removeprefix("--") for one in launch.options if one.value is not None and not one.value.known}
    fsdp = {name.removeprefix("fsdp_"): entry for name, entry in entries.items() if name.startswith("fsdp_")}
    named = entries.get("config_file")
    accelerate.check(Config(text, entries, fsdp if named is None else {}, False), report)
    base = os.path.basename(str(named.value)) if named is not None else ""  # noqa: PTH119
    config = [one for one in configs if os.path.basename(one.text.path) == base]  # noqa: PTH119
    if "config_file" in unknown or (named is not None and len(config) != 1):
        return  # a file that is not at hand
    below = config[0].top if config else {}
    merged = {name: entry for name, entry in below.items() if name not in unknown} | entries
    _shares(launch, merged, text, report)
    if not launch.open and "main_process_ip" not in unknown:
        accelerate.machines(Config(text, merged, {}, False), launch.at, bool(config), report)
    doubled = [word for word in launch.arguments if word.text.partition("=")[0] in _DOUBLED]
    own = config[0].fsdp.get("activation_checkpointing") if config else None
    if doubled and own is not None and own.value is True:
        at = launch.arguments.index(doubled[0])
        following = launch.arguments[at + 1].text if at + 1 < len(launch.arguments) else ""
        if (doubled[0].text.partition("=")[2] or following).lower() not in ("false", "0", "no"):
            report.add("FSD030", text, doubled[0], False, config=base)


def _shares(launch: Launch, entries: dict[str, Entry], text: Text, report: Report) -> None:
    """The processes that accelerate starts on a machine against the GPUs of a node."""
    total, over = (accelerate.whole(entries[name].value) if name in entries else None for name in _COUNTS)
    gpus = launch.job.gpus if not launch.srun or not {"gres", "gpus", "open"} & set(launch.srun) else None
    over = 1 if over is None and "num_machines" not in entries and launch.job.nodes in (None, 1) else over
    if total is None or over is None or gpus is None or total // over <= gpus:
        return
    report.add(
        "FSD012",
        text,
        launch.at,
        True,
        processes=total // over,
        gpus=gpus,
        whose="the job",
        effect="more than one to a GPU",
    )
