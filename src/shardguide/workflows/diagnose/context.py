"""What reports about the machine add to a diagnosis: collect_env, nvidia-smi, its topology, nccl-tests, alone or inside logs.

A report is no failure. What it proves is said as that; what it only makes more likely raises a diagnosis that the logs allow; and
where it was taken on another host or at another time than the failure, only the user knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Fact
from shardguide.knowledge import diagnosis_store, releases
from shardguide.readers import collect_env, gpu_csv, nccl_tests, nvidia_smi, smi_health, topology
from shardguide.readers.hw_evidence import HardwareEvidence
from shardguide.readers.logs.excerpt import excerpt
from shardguide.readers.logs.records import Evidence

from .files import Input
from .match import LEVELS, Candidate, Shown

# What a report is found by inside a log, and how many lines of it are read.
_WORDS = (
    ("NVIDIA-SMI ", 2_000),
    ("NVSMI LOG", 20_000),
    ("CPU Affinity", 200),
    ("algbw", 1_000),
    ("PyTorch version: ", 400),
    ("memory.total [", 80),
)
_BEFORE = 60  # lines in front of those words that belong to the report: nccl-tests names its devices there
_WHOLE = 30_000  # lines of a file that is nothing but a report
REPORTS = 64  # files that are read for reports
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html: the oldest driver of a CUDA major release.
DRIVERS = {11: 450, 12: 525, 13: 580}
_NO_NCCL = ("backend_not_built", "nccl_no_gpus", "cuda_not_compiled")
USED = 100  # MiB: less is what some drivers list for processes that only looked at a GPU


class Reported(NamedTuple):
    """What the reports in one file say."""

    file: str
    hardware: tuple[HardwareEvidence, ...]
    findings: tuple[smi_health.Finding, ...]
    running: tuple[smi_health.OnGpu, ...]
    tests: tuple[nccl_tests.BandwidthTest, ...]


def read(inputs: Sequence[Input], logs: Sequence[Evidence]) -> list[Reported]:
    """The reports in files of their own and inside logs. What is damaged says nothing."""
    out: list[Reported] = []
    alone = {one.path for one in inputs if one.kind == "report"}
    for log in logs:
        starts = [
            (event.line, length)
            for event in log.events
            for word, length in _WORDS
            if word in event.text and (word != "NVIDIA-SMI " or "Driver" in event.text)
        ]
        spans = (
            [(1, _WHOLE)] if log.file in alone else [(max(1, at - _BEFORE), at + length) for at, length in starts[:16]]
        )
        if spans and log.file != "-" and len(out) < REPORTS:
            found = _reported(log.file, spans)
            if found:
                out.append(found)
    return out


def _reported(path: str, spans: Sequence[tuple[int, int]]) -> Reported | None:
    lines: dict[int, str] = {}
    try:
        for number, line in excerpt(path, spans):
            lines[number] = line.text
            if len(lines) >= _WHOLE:
                break
    except UnusableInput:
        return None
    if not lines:
        return None
    # One text in which every line has the number that it has in its file.
    start, last = min(lines), max(lines)
    text = "\n".join(lines.get(number, "") for number in range(start, min(last, start + 2 * _WHOLE) + 1))
    hardware = []
    for recognised, reader in (
        (collect_env.recognised, collect_env.read),
        (lambda text: nvidia_smi.recognised(text) == "nvidia-smi", nvidia_smi.read),
        (topology.recognised, topology.read),
        (lambda text: "memory.total" in text and gpu_csv.recognised(text), gpu_csv.read),
    ):
        try:
            if recognised(text):
                hardware.append(_moved(reader(text, path), start - 1))
        except UnusableInput:
            continue
    findings, running = smi_health.table(lines.items())
    more, on_gpu = smi_health.long_form(lines.items())
    try:
        tests = nccl_tests.read_nccl_tests(text, path) if nccl_tests.looks_like(text) else ()
    except UnusableInput:
        tests = ()
    tests = tuple(one._replace(line=one.line + start - 1) for one in tests)
    if not (hardware or findings or more or running or on_gpu or tests):
        return None
    return Reported(path, tuple(hardware), (*findings, *more), (*running, *on_gpu), tests)


def _moved(one: HardwareEvidence, by: int) -> HardwareEvidence:
    """The evidence with the lines of its file, of which only a part was read."""
    if not by:
        return one
    seen = {
        name: value._replace(line=value.line + by)
        for name in ("gpu_count", "driver", "cuda", "torch", "torch_build", "built_with", "available", "os", "intra")
        if (value := getattr(one, name)) is not None
    }
    return one._replace(
        gpus=tuple(gpu._replace(line=gpu.line + by) for gpu in one.gpus),
        mig=tuple(part._replace(line=part.line + by) for part in one.mig),
        paths=tuple(path._replace(line=path.line + by) for path in one.paths),
        **seen,
    )


def release(reports: Sequence[Reported]) -> tuple[str, str] | None:
    """The PyTorch release that the reports state, and where; None where they state none, or several."""
    said = [
        (str(one.torch.value), f"file:{one.place(one.torch.line)}")
        for report in reports
        for one in report.hardware
        if one.torch is not None and re.match(r"\d+\.\d+", str(one.torch.value))
    ]
    minors = {".".join(version.split(".")[:2]) for version, _ in said}
    if len(minors) != 1:
        return None
    try:
        releases.normalise(said[0][0])
    except UnusableInput:
        return None  # a build of its own, or a release that is not known
    return said[0]


def weighed(found: Sequence[Candidate], reports: Sequence[Reported], logs: Sequence[Evidence]) -> list[Candidate]:
    """The candidates of the logs with what the reports add to them or take from them, and those that the reports give."""
    out = list(found)
    failed = any(one.diagnosis.kind != "cascade" for one in out) or any(log.raised or log.failed for log in logs)
    out = _cpu_build(_links(out, reports), reports)
    for one in (
        *_gpu_state(reports),
        *_processes(reports),
        *_builds(reports, logs, failed),
        *_mixed(reports, out),
        *_tests(reports),
    ):
        out = _joined(out, one)
    return out


def _joined(found: list[Candidate], one: Candidate) -> list[Candidate]:
    """With one more candidate: what the logs allowed already becomes as sure as the surer of both, and keeps their ranks."""
    for at, other in enumerate(found):
        if other.diagnosis.id == one.diagnosis.id:
            surer = min(other.confidence, one.confidence, key=LEVELS.index)
            lines = tuple(dict.fromkeys((*other.evidence, *one.evidence)))
            return [*found[:at], other._replace(confidence=surer, evidence=lines), *found[at + 1 :]]
    return [*found, one]


def _candidate(name: str, level: str, shown: Sequence[Shown]) -> Candidate:
    at = (shown[0].file, shown[0].line)
    return Candidate(diagnosis_store.get(name), level, (), tuple(shown[:6]), 0, at, "", True)


def _cpu_build(found: list[Candidate], reports: Sequence[Reported]) -> list[Candidate]:
    """NCCL was asked for, and the report says why it is not there: PyTorch was built without CUDA."""
    seen = [
        Shown(one.file, one.torch_build.line, f"PyTorch {one.torch.value} is a build without CUDA")
        for report in reports
        for one in report.hardware
        if one.torch is not None and one.torch_build is not None and one.torch_build.value == "cpu"
    ]
    return [one._replace(evidence=(*one.evidence, *seen[:1])) if one.diagnosis.id in _NO_NCCL else one for one in found]


def _links(found: list[Candidate], reports: Sequence[Reported]) -> list[Candidate]:
    """A first collective that stands still over peer-to-peer access: likely ACS on PCI Express, and not with NVLink everywhere."""
    maps = [one for report in reports for one in report.hardware if one.kind == "topology"]
    bare = [path for one in maps for path in one.paths if _gpus(path) and not path.kind.startswith(("NV", "C2C"))]
    linked = [path for one in maps for path in one.paths if _gpus(path) and path.kind.startswith(("NV", "C2C"))]
    if not bare and not linked:
        return found
    out = []
    for one in found:
        if one.diagnosis.id == "p2p_blocked_by_acs":
            if not bare:
                continue
            if not linked:
                file = next(each.file for each in maps if bare[0] in each.paths)
                seen = Shown(file, bare[0].line, f"{bare[0].first} and {bare[0].second}: {bare[0].kind}, no NVLink")
                one = one._replace(
                    confidence=min(one.confidence, "likely", key=LEVELS.index), evidence=(*one.evidence, seen)
                )
        out.append(one)
    return out


def _gpus(path: object) -> bool:
    return all(str(getattr(path, end)).startswith("GPU") for end in ("first", "second"))


# What nvidia-smi reports of a GPU: the diagnosis, and how sure it is that this disturbs a job.
_STATES = {
    "ecc": ("gpu_uncorrected_ecc", "likely"),
    "error": ("gpu_reports_err", "possible"),
    "fabric": ("fabric_manager_not_running", "likely"),
    "remap pending": ("gpu_remap_pending", "possible"),
    "retirement pending": ("gpu_remap_pending", "possible"),
    "remap failed": ("gpu_remap_failed", "likely"),
    "reset": ("gpu_reset_required", "likely"),
}


def _gpu_state(reports: Sequence[Reported]) -> list[Candidate]:
    by_name: dict[tuple[str, str], list[Shown]] = {}
    for report in reports:
        for one in report.findings:
            if one.kind in _STATES:
                shown = by_name.setdefault(_STATES[one.kind], [])
                shown.append(Shown(report.file, one.line, f"GPU {one.gpu}: {_finding(one)}"))
    return [_candidate(name, level, shown) for (name, level), shown in by_name.items()]


def _finding(one: smi_health.Finding) -> str:
    return f"{one.value} uncorrected ECC errors since the driver was loaded" if one.value.isdigit() else one.value


def _processes(reports: Sequence[Reported]) -> list[Candidate]:
    """Processes beside each other on one GPU; those that hold memory on two are ranks that touched a GPU that is not theirs."""
    out = []
    for report in reports:
        python = [one for one in report.running if one.mib >= USED and re.search(r"python|torchrun|train", one.name)]
        on: dict[tuple[str, str], list[smi_health.OnGpu]] = {}
        gpus: dict[str, dict[str, smi_health.OnGpu]] = {}
        for one in python:
            on.setdefault((one.gpu, one.part), []).append(one)
            gpus.setdefault(one.pid, {})[one.gpu] = one
        for here in on.values():
            if len({one.pid for one in here}) < 2:
                continue
            away = [one for one in here if max(gpus[one.pid].values(), key=lambda each: each.mib).gpu != one.gpu]
            shown = [
                Shown(report.file, one.line, f"GPU {one.gpu}: process {one.pid} ({one.mib:,} MiB)") for one in here
            ]
            if away:
                elsewhere = max(gpus[away[0].pid].values(), key=lambda each: each.mib)
                text = f"GPU {elsewhere.gpu}: process {elsewhere.pid} ({elsewhere.mib:,} MiB)"
                first = Shown(
                    report.file, away[0].line, f"GPU {away[0].gpu}: process {away[0].pid} ({away[0].mib:,} MiB)"
                )
                out.append(
                    _candidate("gpu_extra_contexts", "likely", [first, Shown(report.file, elsewhere.line, text)])
                )
            else:
                out.append(_candidate("gpu_shared_by_processes", "possible", shown[:4]))
    return out[:4]


_WHEEL = re.compile(r"nvidia-nccl-cu(?P<cuda>\d+)(?:==|\s+)(?P<version>[\d.]+)")


def _builds(reports: Sequence[Reported], logs: Sequence[Evidence], failed: bool) -> list[Candidate]:
    """What does not fit in an environment: a build without CUDA beside GPUs, a driver that is too old, two NCCL wheels."""
    out = []
    for report in reports:
        for one in report.hardware:
            if one.kind != "collect_env" or one.torch is None:
                continue
            seen = Shown(one.file, one.torch.line, f"PyTorch version: {one.torch.value}")
            if one.torch_build and one.torch_build.value == "cpu" and one.gpus:
                gpu = Shown(one.file, one.gpus[0].line, f"GPU 0: {one.gpus[0].name}")
                out.append(_candidate("cuda_not_compiled", "likely", [seen, gpu]))
            out += _driver(one)
    for log in logs:
        wheels: dict[str, Shown] = {}
        for event in log.events:
            found = _WHEEL.search(event.text)
            if found:
                wheels.setdefault(found["cuda"], Shown(event.file, event.line, found[0]))
        if len(wheels) > 1 and failed:
            out.append(_candidate("two_nccl_wheels", "possible", list(wheels.values())))
    return out


def _driver(one: HardwareEvidence) -> list[Candidate]:
    if one.driver is None or one.built_with is None or one.torch_build is None or one.torch_build.value != "cuda":
        return []
    major = re.match(r"\d+", str(one.built_with.value))
    branch = re.match(r"\d+", str(one.driver.value))
    least = DRIVERS.get(int(major[0])) if major else None
    if least is None or branch is None or int(branch[0]) >= least:
        return []
    shown = [
        Shown(one.file, one.driver.line, f"Nvidia driver version: {one.driver.value}"),
        Shown(
            one.file,
            one.built_with.line,
            f"CUDA used to build PyTorch: {one.built_with.value}, which needs a driver from {least} on",
        ),
    ]
    unusable = one.available is not None and not one.available.value
    return [_candidate("cuda_driver_too_old", "certain" if unusable else "possible", shown)]


def _mixed(reports: Sequence[Reported], found: Sequence[Candidate]) -> list[Candidate]:
    """GPUs of different memory in one host, where memory is what ran out; MIG, where several processes were to work together."""
    families = {one.diagnosis.family for one in found}
    out = []
    for report in reports:
        for one in report.hardware:
            totals = {gpu.total_mib: gpu for gpu in reversed(one.gpus) if gpu.total_mib}
            if "memory" in families and len(totals) > 1 and max(totals) > 1.1 * min(totals):
                shown = [
                    Shown(one.file, gpu.line, f"GPU {gpu.number}: {gpu.name}, {total:,} MiB")
                    for total, gpu in sorted(totals.items())
                ]
                out.append(_candidate("gpus_of_different_memory", "possible", shown))
        parted = [one for one in report.findings if one.kind == "mig"]
        if parted and families & {"nccl-p2p", "nccl-setup", "device-mapping", "nccl-shm", "nccl-nvlink"}:
            out.append(
                _candidate(
                    "mig_with_collectives",
                    "possible",
                    [Shown(report.file, parted[0].line, f"GPU {parted[0].gpu}: MIG enabled")],
                )
            )
    return out


def _tests(reports: Sequence[Reported]) -> list[Candidate]:
    """Wrong values in a bandwidth test."""
    shown = [
        Shown(report.file, one.line, f"{one.collective or 'nccl-tests'}: {one.out_of_bounds} values out of bounds")
        for report in reports
        for one in report.tests
        if one.out_of_bounds
    ]
    return [_candidate("nccl_tests_wrong", "certain", shown)] if shown else []


def facts(reports: Sequence[Reported]) -> list[Fact]:
    """What bandwidth tests measured, as printed: which of it is enough depends on the machine."""
    out = []
    for report in reports:
        for number, one in enumerate(report.tests[:8]):
            best = max(
                (
                    (float(half.busbw), row)
                    for row in one.rows
                    for half in (row.out_of_place, row.in_place)
                    if half is not None
                ),
                key=lambda each: each[0],
                default=None,
            )
            name = f"nccl_tests.{one.collective or 'unnamed'}{f'.{number}' if number else ''}"
            ranks = f" over {len(one.devices)} ranks" if one.devices else ""
            if best:
                where = f"highest busbw{ranks}, of {len(one.rows)} sizes, at {best[1].size} bytes; {report.file}, line {best[1].line}"
                out.append(Fact(f"{name}.busbw", str(best[0]), "GB/s", where))
            if one.average_busbw:
                out.append(
                    Fact(f"{name}.busbw_average", one.average_busbw, "GB/s", f"as printed{ranks}; {report.file}")
                )
    return out
