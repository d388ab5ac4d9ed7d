"""Reports about the machine beside logs: collect_env, nvidia-smi, its topology, nccl-tests.

The reports are real ones (tests/readers/data, with their sources); where a value of them is changed the test says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardguide.readers import smi_health
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose

DATA = Path(__file__).parent.parent / "readers" / "data"
HARDWARE = sorted((DATA / "hw").iterdir())
TIMEOUT = (
    "[rank{rank}]:[E112 15:47:18.7 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600047 milliseconds before timing out.\n"
)
DIRECT = "node0:71:140 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n" + TIMEOUT.format(rank=0)
OOM = (
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.10 GiB "
    "is free. Including non-PyTorch memory, this process has 78.00 GiB memory in use. Of the allocated memory 76.50 GiB is allocated by PyTorch, "
    "and 210.00 MiB is reserved by PyTorch but unallocated.\n"
)


def hw(name: str) -> str:
    return (DATA / "hw" / name).read_text("utf-8")


def answer(folder: Path, torch: str | None = "2.13", **files: str) -> Any:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return diagnose(DiagnoseRequest((str(folder),), torch=torch))


def told(folder: Path, **files: str) -> dict[str, tuple[str, str]]:
    """Of every diagnosis its confidence and the text of its evidence."""
    found = answer(folder, **files).extra["diagnoses"]
    return {one["id"]: (one["confidence"], " | ".join(line["text"] for line in one["evidence"])) for one in found}


@pytest.mark.parametrize(
    "path", [path for path in HARDWARE if path.suffix in (".txt", ".csv")], ids=lambda path: path.name
)
def test_healthy_reports_alone_are_no_failure(path: Path, tmp_path: Path) -> None:
    """Real reports of machines of which nobody complained there; the CPU build beside a GPU is one that is complained of."""
    assert (
        answer(tmp_path, **{path.name.replace(".", "__"): path.read_text("utf-8", "replace")}).extra["outcome"]
        == "no_failure"
    )


# ------------------------------------------------------------------------------------------------------------- topology


@pytest.mark.parametrize(
    ("topo", "level"),
    [
        ("topo-2gpu-phb.txt", "likely"),
        ("topo-4090x8-nics.txt", "likely"),
        ("topo-a100-8gpu.txt", None),
        ("topo-2gpu-nv2.txt", None),
    ],
)
def test_links_decide_about_peer_to_peer_access(topo: str, level: str | None, tmp_path: Path) -> None:
    found = told(tmp_path, job__log=DIRECT, topo__txt=hw(topo))
    assert found.get("p2p_blocked_by_acs", (None,))[0] == level
    if level:
        assert "no NVLink" in found["p2p_blocked_by_acs"][1]


def test_without_a_topology_it_stays_possible(tmp_path: Path) -> None:
    assert told(tmp_path, job__log=DIRECT)["p2p_blocked_by_acs"][0] == "possible"


def test_a_topology_inside_the_log(tmp_path: Path) -> None:
    log = "step\n" * 700 + hw("topo-2gpu-phb.txt") + "\n" + DIRECT
    found = next(one for one in answer(tmp_path, job__log=log).extra["diagnoses"] if one["id"] == "p2p_blocked_by_acs")
    line = next(line for line in found["evidence"] if "NVLink" in line["text"])
    assert log.splitlines()[line["line"] - 1].startswith("GPU0")


# ----------------------------------------------------------------------------------------------------------- nvidia-smi


def processes(*rows: tuple[int, int, int]) -> str:
    """The table of an H100, with these processes (GPU, number, MiB)."""
    line = "|    {}   N/A  N/A         {:>8}      C   /opt/venv/bin/python                  {:>8}MiB |"
    table = "\n".join(line.format(*row) for row in rows)
    text = hw("smi-h100-590.txt")
    return text.replace(
        "|  No running processes found                                                             |", table
    )


def test_ranks_that_hold_memory_on_the_first_gpu(tmp_path: Path) -> None:
    """As in https://github.com/pytorch/pytorch/issues/49481."""
    level, text = told(
        tmp_path, smi__txt=processes((0, 71, 26167), (0, 72, 871), (0, 73, 871), (1, 72, 26167), (2, 73, 26167))
    )["gpu_extra_contexts"]
    assert (level, text) == ("likely", "GPU 0: process 72 (871 MiB) | GPU 1: process 72 (26,167 MiB)")


def test_one_process_a_gpu_is_as_it_should_be(tmp_path: Path) -> None:
    assert answer(tmp_path, smi__txt=processes((0, 71, 26167), (1, 72, 26167))).extra["outcome"] == "no_failure"


def test_entries_without_memory_count_for_nothing(tmp_path: Path) -> None:
    """Some drivers list every process on every GPU: https://github.com/pytorch/pytorch/issues/64130."""
    smi = processes((0, 71, 1733), (0, 72, 0), (1, 71, 0), (1, 72, 1717))
    assert answer(tmp_path, smi__txt=smi).extra["outcome"] == "no_failure"


def test_two_large_processes_on_one_gpu(tmp_path: Path) -> None:
    found = told(tmp_path, smi__txt=processes((0, 71, 26167), (0, 72, 26167)))
    assert found["gpu_shared_by_processes"][0] == "possible"


def test_instances_of_a_partitioned_gpu_are_apart(tmp_path: Path) -> None:
    smi = (
        processes((0, 71, 9000), (0, 72, 9000))
        .replace("0   N/A  N/A", "0     1    0", 1)
        .replace("0   N/A  N/A", "0     2    0", 1)
    )
    assert answer(tmp_path, smi__txt=smi).extra["outcome"] == "no_failure"


def test_uncorrected_errors(tmp_path: Path) -> None:
    smi = hw("smi-h100-590.txt").replace(
        "00000000:00:09.0 Off |                    0 |", "00000000:00:09.0 Off |                    3 |"
    )
    found = answer(tmp_path, smi__txt=smi).extra["diagnoses"][0]
    assert (found["id"], found["confidence"]) == ("gpu_uncorrected_ecc", "likely")
    line = found["evidence"][0]
    assert smi.splitlines()[line["line"] - 1].startswith("|   0  NVIDIA H100")
    assert line["text"] == "GPU 0: 3 uncorrected ECC errors since the driver was loaded"


def test_a_value_that_cannot_be_read(tmp_path: Path) -> None:
    smi = hw("smi-h100-590.txt").replace("69W /  700W", "ERR! /  700W")
    assert told(tmp_path, smi__txt=smi)["gpu_reports_err"][0] == "possible"


# From https://github.com/stas00/ml-engineering (debug of an A100 with a faulty row), with the values that a healthy GPU has.
LONG = """\
==============NVSMI LOG==============

Timestamp                                 : Wed Jun  7 19:32:16 2023
Driver Version                            : 510.73.08
CUDA Version                              : 11.6

Attached GPUs                             : 8
GPU 00000000:10:1C.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable            : 0
            DRAM Correctable              : 177
            DRAM Uncorrectable            : 0
        Aggregate
            SRAM Correctable              : 0
            SRAM Uncorrectable            : 4
            DRAM Correctable              : 177
            DRAM Uncorrectable            : 4
    Retired Pages
        Single Bit ECC                    : N/A
        Double Bit ECC                    : N/A
        Pending Page Blacklist            : N/A
    Remapped Rows
        Correctable Error                 : 1
        Uncorrectable Error               : 0
        Pending                           : No
        Remapping Failure Occurred        : No
    Fabric
        State                             : Completed
        Status                            : Success
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 4711
            Type                          : C
            Name                          : /opt/venv/bin/python
            Used GPU Memory               : 70000 MiB
"""


@pytest.mark.parametrize(
    ("before", "after", "name", "level"),
    [
        (
            "Pending                           : No",
            "Pending                           : Yes",
            "gpu_remap_pending",
            "possible",
        ),
        ("Failure Occurred        : No", "Failure Occurred        : Yes", "gpu_remap_failed", "likely"),
        (
            "State                             : Completed",
            "State                             : In Progress",
            "fabric_manager_not_running",
            "likely",
        ),
        ("DRAM Uncorrectable            : 0", "DRAM Uncorrectable            : 2", "gpu_uncorrected_ecc", "likely"),
    ],
)
def test_long_form(before: str, after: str, name: str, level: str, tmp_path: Path) -> None:
    assert answer(tmp_path, q__txt=LONG).extra["outcome"] == "no_failure"
    assert before in LONG
    text = LONG.replace(before, after, 1)
    found = answer(tmp_path, q__txt=text).extra["diagnoses"]
    assert [(one["id"], one["confidence"]) for one in found] == [(name, level)]
    line = found[0]["evidence"][0]["line"]
    assert after.strip() in text.splitlines()[line - 1]


def test_processes_of_the_long_form() -> None:
    _, running = smi_health.long_form(enumerate(LONG.splitlines(), 1))
    assert [(one.gpu, one.pid, one.mib) for one in running] == [("00000000:10:1C.0", "4711", 70000)]


def test_mixed_memory_matters_where_memory_ran_out(tmp_path: Path) -> None:
    table = (
        "index, name, memory.total [MiB]\n0, NVIDIA A100-SXM4-80GB, 81920 MiB\n1, NVIDIA A100-SXM4-40GB, 40960 MiB\n"
    )
    assert answer(tmp_path, gpus__csv=table).extra["outcome"] == "no_failure"
    found = told(tmp_path, gpus__csv=table, job__log=OOM)
    assert (
        found["gpus_of_different_memory"][1]
        == "GPU 1: NVIDIA A100-SXM4-40GB, 40,960 MiB | GPU 0: NVIDIA A100-SXM4-80GB, 81,920 MiB"
    )


def test_partitioned_gpus_where_nccl_refuses(tmp_path: Path) -> None:
    log = "[rank1]: Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 83000\n"
    assert answer(tmp_path, smi__txt=hw("smi-h200-mig-590.txt")).extra["outcome"] == "no_failure"
    found = told(tmp_path, smi__txt=hw("smi-h200-mig-590.txt"), job__log=log)
    assert (found["duplicate_gpu"][0], found["mig_with_collectives"][0]) == ("certain", "possible")


# ---------------------------------------------------------------------------------------------------------- collect_env


def test_the_release_of_the_job_is_that_of_its_report(tmp_path: Path) -> None:
    got = answer(tmp_path, torch=None, env__txt=hw("env-2.5.1-h100x8.txt"), job__log=TIMEOUT.format(rank=0))
    assert (got.torch.version, got.torch.known_from) == ("2.5.1", f"file:{tmp_path / 'env.txt'}, line 2")
    got = answer(tmp_path, torch="2.13", env__txt=hw("env-2.5.1-h100x8.txt"))
    assert (got.torch.version[:4], got.torch.known_from) == ("2.13", "user")


def test_two_releases_are_none(tmp_path: Path) -> None:
    got = answer(tmp_path, torch=None, a__txt=hw("env-2.5.1-h100x8.txt"), b__txt=hw("env-2.8-h800x8.txt"))
    assert not got.torch.known_from.startswith("file:")


def test_a_release_that_is_not_known_is_left(tmp_path: Path) -> None:
    got = answer(tmp_path, torch=None, env__txt=hw("env-1.7-rocm.txt"))
    assert not got.torch.known_from.startswith("file:")


def test_a_build_without_cuda_beside_gpus(tmp_path: Path) -> None:
    text = hw("env-2.5.1-h100x8.txt").replace("PyTorch version: 2.5.1", "PyTorch version: 2.5.1+cpu")
    assert told(tmp_path, env__txt=text)["cuda_not_compiled"][0] == "likely"


def test_nccl_asked_of_a_build_without_it(tmp_path: Path) -> None:
    log = "[rank0]: RuntimeError: Distributed package doesn't have NCCL built in\n"
    level, text = told(tmp_path, env__txt=hw("env-2.13-cpu.txt"), job__log=log)["backend_not_built"]
    assert (level, "PyTorch 2.13.0+cpu is a build without CUDA" in text) == ("certain", True)


@pytest.mark.parametrize(
    ("cuda", "driver", "available", "level"),
    [
        ("13.0", "535.129.03", "False", "certain"),
        ("13.0", "535.129.03", "True", "possible"),  # a compatibility package may be there
        ("12.8", "535.129.03", "True", None),
        ("12.8", "470.82.01", "False", "certain"),
        ("13.0", "580.65.06", "True", None),
        ("11.8", "450.80.02", "True", None),
    ],
)
def test_driver_and_cuda(cuda: str, driver: str, available: str, level: str | None, tmp_path: Path) -> None:
    """The oldest drivers are those of NVIDIA's table of minor version compatibility."""
    text = (
        hw("env-2.5.1-h100x8.txt")
        .replace("PyTorch: 12.3", f"PyTorch: {cuda}")
        .replace("535.129.03", driver)
        .replace("available: True", f"available: {available}")
    )
    assert told(tmp_path, env__txt=text).get("cuda_driver_too_old", (None,))[0] == level


def test_two_nccl_wheels(tmp_path: Path) -> None:
    """The wheels are those of https://github.com/rwth-i6/returnn/issues/1802."""
    wheels = "\nVersions of relevant libraries:\n[pip3] nvidia-nccl-cu11==2.14.3\n[pip3] nvidia-nccl-cu12==2.27.3\n"
    environment = hw("env-2.5.1-h100x8.txt") + wheels
    assert answer(tmp_path, env__txt=environment).extra["outcome"] == "no_failure"
    assert told(tmp_path, env__txt=environment, job__log=DIRECT)["two_nccl_wheels"][0] == "possible"
    one = environment.replace("[pip3] nvidia-nccl-cu11==2.14.3\n", "")
    assert "two_nccl_wheels" not in told(tmp_path, env__txt=one, job__log=DIRECT)


# ----------------------------------------------------------------------------------------------------------- nccl-tests


def test_bandwidth_is_told_as_measured(tmp_path: Path) -> None:
    text = (DATA / "measured" / "all_reduce-2x8-a100.txt").read_text("utf-8")
    got = answer(tmp_path, nccl__txt=text)
    assert got.extra["outcome"] == "no_failure"
    average = next(line for line in text.splitlines() if "Avg bus bandwidth" in line).split(":")[1].strip()
    values = {fact.id: fact.value for fact in got.facts}
    assert values["nccl_tests.unnamed.busbw_average"] == average
    rows = [
        line.split() for line in text.splitlines() if line.split()[:1] and line.split()[0].isdigit() and "float" in line
    ]
    best = max(float(value) for row in rows for value in (row[7], row[11]))
    assert float(values["nccl_tests.unnamed.busbw"]) == best


def test_wrong_values(tmp_path: Path) -> None:
    text = (DATA / "measured" / "all_reduce-2x8-a100.txt").read_text("utf-8")
    assert "Out of bounds values : 0 OK" in text
    found = told(tmp_path, nccl__txt=text.replace("Out of bounds values : 0 OK", "Out of bounds values : 7 FAILED"))
    assert found["nccl_tests_wrong"] == ("certain", "nccl-tests: 7 values out of bounds")


# -------------------------------------------------------------------------------------------------------------- in logs


def test_reports_at_the_start_of_a_job_script(tmp_path: Path) -> None:
    """A batch script prints nvidia-smi and trains: one file, in which the failure stays what it is."""
    failure = '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/home/user/train.py", line 4, in main\n[rank2]: ValueError: no batch\n'
    smi = hw("smi-h100-590.txt").replace(
        "00000000:00:09.0 Off |                    0 |", "00000000:00:09.0 Off |                    3 |"
    )
    got = answer(tmp_path, job__log=smi + "step 1\n" * 900 + failure)
    assert got.extra["raised"][0]["rank"] == 2
    assert "gpu_uncorrected_ecc" in [one["id"] for one in got.extra["diagnoses"]]


def test_a_report_named_after_a_rank_is_no_output_of_it(tmp_path: Path) -> None:
    """Else it would seem a rank that ended without an error."""
    alone = told(tmp_path, rank0__log=TIMEOUT.format(rank=0), rank1__log=TIMEOUT.format(rank=1))
    beside = told(tmp_path, smi_rank2__txt=hw("smi-h100-590.txt"))
    assert beside == alone


@pytest.mark.parametrize("name", ["smi-h100-590.txt", "topo-a100-8gpu.txt", "env-2.5.1-h100x8.txt"])
def test_damaged_reports(name: str, tmp_path: Path) -> None:
    text = hw(name)
    for cut in range(1, len(text), 61):
        answer(tmp_path, r__txt=text[:cut])
    answer(tmp_path, r__txt=text.replace("\n", " ") * 40)
    answer(tmp_path, r__txt=text.replace(":", ":" * 3000))
    answer(tmp_path, r__txt=text * 200)
