"""The hardware of a plan: what reports, options and the table say, and what is asked, noted or refused when they differ.

Right values: the reports under tests/readers/data/hw are real output of the tools (their README names each origin); sizes of
MIG partitions and totals stand in them. GiB = MiB / 1024.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.record import Answer
from shardguide.guidance.serialise import to_dict
from shardguide.workflows import hardware_answers
from shardguide.workflows.fields import PLAN
from shardguide.workflows.gather import Gathered
from shardguide.workflows.plan import plan
from shardguide.workflows.remembered import superseded
from shardguide.workflows.request import PlanRequest

from .test_plan import BASE

REPORTS = Path(__file__).parents[1] / "readers" / "data" / "hw"
ONE_NODE = {"gpus": 4, "nodes": 1, "inter": None}
ENV_8 = "env-2.5.1-h100x8.txt"  # PyTorch 2.5.1, 8 x H100 80GB HBM3


def made(*files: str, **changes: Any) -> dict[str, Any]:
    """A plan of 16 ranks on 2 nodes with nothing said about the GPU; a change to None leaves a field out."""
    remembered = changes.pop("remembered", {})
    given = BASE | {"gpu": None, "intra": None} | changes
    paths = tuple(name if "/" in name else str(REPORTS / name) for name in files)
    request = PlanRequest({k: v for k, v in given.items() if v is not None}, remembered=remembered, files=paths)
    return to_dict(plan(request))


def asked(record: dict[str, Any]) -> dict[str, str]:
    questions = {one["id"]: one["ask"] for one in record["questions"]}
    assert len(questions) == len(record["questions"]), "an id is asked twice"
    return questions


def notes(record: dict[str, Any]) -> str:
    return "\n".join(record["notes"])


def csv(path: Path, *rows: str) -> str:
    path.write_text("name, memory.total [MiB]\n" + "\n".join(rows) + "\n")
    return str(path)


# ---------------------------------------------------------------------------------------------------------------- MIG


@pytest.mark.parametrize(
    ("file", "name", "bound"),
    [
        ("smi-h100-mig-590.txt", "NVIDIA H100 SXM 80GB", 9984 << 20),
        ("smi-h100-mig-8gpu-indented.txt", "NVIDIA H100 SXM 80GB", 9984 << 20),
        ("smi-h200-mig-590.txt", "NVIDIA H200 SXM 141GB", 16384 << 20),
        # nvidia-smi -L prints profiles only; 1g.10gb is at most 10 GiB
        ("list-a100-mig-535.txt", "NVIDIA A100 SXM4 80GB", 10 << 30),
        ("list-h100-mig-590.txt", "NVIDIA H100 SXM 80GB", 10 << 30),
        ("list-h200-mig-590.txt", "NVIDIA H200 SXM 141GB", 18 << 30),
    ],
)
def test_a_report_of_partitions_bounds_by_the_partition_and_keeps_the_gpu(file: str, name: str, bound: int) -> None:
    record = made(file, **ONE_NODE)
    shown = record["hardware"]
    assert shown["gpu"] == f"{name} (MIG partition)"
    assert (shown["memory_bytes"], shown["bf16"], shown["device"]) == (bound, True, "cuda")
    assert record["status"] == "complete" and "MIG is on" in notes(record)
    assert record["answers"]["intra"]["value"] == "pcie"  # no NVLink between partitions


@pytest.mark.parametrize("file", ["smi-a100-mig-empty-450.txt", "csv-h200-mig-all-fields.csv"])
def test_mig_mode_without_partitions_asks_for_their_memory(file: str) -> None:
    record = made(file, **ONE_NODE)
    assert list(asked(record)) == ["gpu_memory"] and record["hardware"]["memory_bytes"] is None
    assert made(file, **ONE_NODE, gpu_memory="10GB")["status"] == "complete"


def test_a_stated_size_picks_its_partition_and_a_whole_gpu_is_a_question() -> None:
    file = "smi-h100-mig-590.txt"  # 40448, 20096 and 9984 MiB
    assert made(file, **ONE_NODE, gpu_memory="40GB")["status"] == "complete"
    assert list(asked(made(file, **ONE_NODE, gpu_memory="80GB"))) == ["gpu_memory"]
    assert list(asked(made(file, **ONE_NODE, intra="nvlink"))) == ["intra"]


def test_the_gpus_under_mig_do_not_count_the_ranks() -> None:
    """One H100 with four partitions serves four ranks."""
    assert "gpus" in asked(made("smi-h100-mig-590.txt", gpus=None, nodes=1, inter=None))


def test_a_partition_can_be_said_and_that_settles_the_question() -> None:
    question = made(gpu="H100", gpu_memory="24GB")["questions"][0]
    assert question["id"] == "gpu" and question["choices"] == ["H100 MIG"]
    said = made(gpu=question["choices"][0], gpu_memory="24GB")
    assert said["status"] == "complete" and said["hardware"]["memory_bytes"] == 24 << 30
    # as torch.cuda.get_device_name prints it
    named = made(gpu="NVIDIA A100-SXM4-40GB MIG 1g.5gb")["hardware"]
    assert (named["gpu"], named["memory_bytes"]) == ("NVIDIA A100 SXM4 40GB (MIG partition)", 5 << 30)
    for wrong in ({"gpu_memory": "40GB"}, {"intra": "nvlink"}):
        with pytest.raises(UnusableInput):
            made(gpu="NVIDIA A100-SXM4-40GB MIG 1g.5gb", **wrong)


# ------------------------------------------------------------------------------------------------- the table's facts


@pytest.mark.parametrize(
    ("gpu", "link"),
    [("H100 SXM 80GB", "nvlink"), ("B200", "nvlink"), ("L40S", "pcie"), ("MI300X", "xgmi"), ("Max 1550", "xelink")],
)
def test_the_link_of_a_product_that_has_only_one_is_known(gpu: str, link: str) -> None:
    record = made(gpu=gpu)
    assert record["answers"]["intra"]["value"] == record["hardware"]["intra"] == link
    assert record["answers"]["intra"]["from"].startswith("table:")
    assert "intra" not in asked(record)


def test_the_link_is_asked_where_the_name_leaves_it_open_and_not_at_all_for_single_gpus() -> None:
    assert "intra" in asked(made(gpu="H100"))  # SXM or PCIe
    alone = made(gpu="H100 SXM", gpus=2, nodes=2)
    assert "intra" not in alone["answers"] and alone["status"] == "complete"


def test_what_is_said_or_read_goes_before_the_table() -> None:
    said = made(gpu="H100 SXM", intra="pcie")
    assert said["answers"]["intra"] == {"value": "pcie", "from": "user"}
    assert "--intra nvlink" in notes(said)


@pytest.mark.parametrize(
    "options",
    [
        {"gpu": "H100", "intra": "xgmi"}, {"gpu": "T4", "intra": "xelink"}, {"gpu": "MI300X", "intra": "nvlink"}, {"gpu": "Max 1550", "intra": "xgmi"},
        {"gpu": "L40S", "intra": "nvlink"}, {"gpu": "A10G", "intra": "nvswitch"}, {"device": "rocm", "gpu_memory": "64GB", "intra": "nvlink"},
        {"gpu": "H100", "device": "rocm"}, {"gpu": "MI300X", "device": "xpu"}, {"gpu": "H100", "device": "cpu"}, {"gpu": "T4", "gpu_memory": "24GB"},
    ],
)  # fmt: skip
def test_options_that_contradict_the_table_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(UnusableInput) as caught:
        made(**options)
    assert str(options.get("gpu", "GPU")) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_contradicts_the_table_is_asked_about() -> None:
    question = asked(made("topo-h100-8gpu.txt", gpu="MI300X"))["intra"]
    assert "MI300X" in question and "NVLink" in question


@pytest.mark.parametrize(
    ("gpu", "bound", "words"),
    [
        ("T4", 16 << 30, ("16GB read as GiB", "15360 MiB with ECC")),  # GDDR6 with ECC on shows less
        ("H100 SXM", 81559 << 20, ("81559 MiB",)),
        ("H200", 141 << 30, ("H200 NVL", "141GB read as GiB", "largest of the products")),
        ("H200 SXM", 143771 << 20, ("143771 MiB",)),
        ("MI250X", 64 << 30, ("2 devices", "128GiB")),
        ("MI300X", 192 << 30, ("192GiB",)),
    ],
)
def test_the_memory_says_where_its_figure_comes_from(gpu: str, bound: int, words: tuple[str, ...]) -> None:
    shown = made(gpu=gpu)["hardware"]
    assert shown["memory_bytes"] == bound
    assert all(word in shown["memory_detail"] for word in words), shown["memory_detail"]


@pytest.mark.parametrize("gpu", ["MI250X", "Max 1550"])
@pytest.mark.parametrize("memory", [None, "128GB", "128GiB", "64GB"])
def test_a_card_of_two_devices_counts_and_bounds_by_device(gpu: str, memory: str | None) -> None:
    record = made(gpu=gpu, gpu_memory=memory)
    assert record["hardware"]["memory_bytes"] == 64 << 30
    assert "--gpus counts devices" in notes(record)


def test_names() -> None:
    assert made(gpu="V100")["hardware"]["gpu"] == "V100"  # 16 or 32 GB, SXM2 or PCIe: as it was typed
    assert made(gpu="A100 80GB")["hardware"]["gpu"] == "NVIDIA A100 80GB"  # SXM4 or PCIe share this
    assert list(asked(made(gpu="Foo 9000", intra="pcie"))) == ["gpu_memory"]
    known = made(gpu="Foo 9000", gpu_memory="48GB", intra="pcie")
    assert known["status"] == "complete" and known["hardware"]["bf16"] is None and "Foo 9000" in notes(known)


def test_sources_of_the_hardware_facts() -> None:
    record = made(gpu="H100 SXM")
    answers = {name: Answer(one["value"], one["from"]) for name, one in record["answers"].items()}
    found = hardware_answers.understand(Gathered(answers, ()), {})[1].sources
    ids = [source.id for source in found]
    assert len(ids) == len(set(ids))
    assert any(one.startswith("hardware:") for one in ids) and {"link:nvswitch", "link:nccl-ib"} <= set(ids)
    assert all(source.url.startswith("https://") for source in found)


# --------------------------------------------------------------------------------------------------- mixed GPU memory


def test_mixed_memory_bounds_by_the_smallest_and_keeps_what_all_have(tmp_path: Path) -> None:
    rows = ["NVIDIA A100-SXM4-40GB, 40960 MiB"] * 4 + ["NVIDIA A100-SXM4-80GB, 81920 MiB"] * 4
    record = made(csv(tmp_path / "mixed.csv", *rows))
    shown = record["hardware"]
    assert (shown["memory_bytes"], shown["bf16"], shown["intra"]) == (40960 << 20, True, "nvlink")
    assert "GPUs of a host differ" in notes(record) and record["status"] == "complete"
    listed = tmp_path / "list.txt"  # names only: the table has the totals
    listed.write_text("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\nGPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2)\n")
    assert made(str(listed), gpus=4)["hardware"]["memory_bytes"] == 40960 << 20


# ------------------------------------------------------------------------------------- files, and files against options


def test_counts_against_those_that_a_report_shows() -> None:
    """16 a node stated, 8 shown on one host; fewer than a host has may be used."""
    record = made(ENV_8, torch="2.5", nodes=1, inter=None)
    question = next(one for one in record["questions"] if one["id"] == "nodes")
    assert "16 a node" in question["ask"] and "8 on one host" in question["ask"] and question["choices"] == ["2"]
    for file, torch in ((ENV_8, "2.5"), ("env-2.8-h800x8.txt", "2.8")):
        some = made(file, torch=torch, gpus=4, nodes=1, inter=None)
        assert some["status"] == "complete" and "4 of the 8 GPUs" in notes(some)
        launch = next(one["choice"] for one in some["decisions"] if one["id"] == "launch")
        assert "--nproc-per-node=4" in launch
    assert "of the 8 GPUs" not in notes(made(ENV_8, torch="2.5", nodes=2))
    assert made(ENV_8, torch="2.5", nodes=2)["status"] == "complete"
    assert made(ENV_8, torch="2.5", nodes=None)["answers"]["nodes"]["value"] == 2


def choices(record: dict[str, Any], name: str) -> list[str]:
    return next(list(one["choices"]) for one in record["questions"] if one["id"] == name)


@pytest.mark.parametrize(
    ("options", "name", "expected"),
    [
        ({"gpus": 6, "nodes": None}, "nodes", ["1", "2", "3", "6"]),
        ({"gpus": 7, "nodes": None}, "nodes", ["1", "7"]),
        ({"gpus": 64, "nodes": None}, "nodes", ["1", "2", "4", "8"]),
        ({"gpus": 8, "nodes": None, "tp": 4}, "nodes", ["1", "2"]),
        ({"gpus": None, "nodes": 3}, "gpus", ["3", "6", "12", "24"]),
        ({"gpus": 6, "nodes": 1, "inter": None, "strategy": "hybrid"}, "shard_size", ["2", "3"]),
        ({"device": "rocm", "gpu_memory": "192GB"}, "intra", ["pcie", "xgmi"]),
        ({"device": "rocm"}, "gpu", ["MI300X"]),
    ],
)
def test_no_choice_is_offered_that_cannot_hold(options: dict[str, Any], name: str, expected: list[str]) -> None:
    record = made(**options)
    assert choices(record, name) == expected
    for one in expected:
        made(**(options | {name: one}))  # is not refused


def test_accelerate_names_the_device() -> None:
    file = "accelerate-multi-xpu.yaml"
    record = made(file, gpus=None, nodes=1, inter=None)
    assert record["hardware"]["device"] == "xpu" and record["answers"]["device"]["from"].startswith("file:")
    assert "xccl" in next(one["choice"] for one in record["decisions"] if one["id"] == "backend")
    assert choices(record, "gpu") and all("Intel" in one for one in choices(record, "gpu"))
    assert "device" in asked(made(file, gpus=2, nodes=1, inter=None, gpu="H100 SXM"))
    assert made("accelerate-fsdp1.yaml")["hardware"]["device"] is None  # MULTI_GPU and FSDP: CUDA or ROCm


@pytest.mark.parametrize(
    ("lines", "device"),
    [
        ("distributed_type: MULTI_CPU\n", "cpu"), ("distributed_type: FSDP\nuse_cpu: true\n", "cpu"),
        ("distributed_type: MULTI_GPU\nuse_cpu: false\n", None), ("distributed_type: MULTI_XPU\n", "xpu"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("option", ["from", "current"])
def test_the_kind_of_device_in_an_accelerate_file(tmp_path: Path, lines: str, device: str | None, option: str) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text(f"{lines}num_processes: 16\nnum_machines: 2\n")
    given = {name: value for name, value in BASE.items() if name not in ("gpu", "intra")}
    files = {"files": (str(path),)} if option == "from" else {"current": str(path)}
    assert to_dict(plan(PlanRequest(given, **files)))["hardware"]["device"] == device


def test_a_device_that_no_plan_is_made_for_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text("distributed_type: MULTI_NPU\nnum_processes: 16\nnum_machines: 2\n")
    assert "MULTI_NPU" in notes(made(str(path)))


@pytest.mark.parametrize(
    ("version", "cuda", "build"),
    [
        ("2.8.0+cpu", "Could not collect", "cpu"),  # get_env_info: GPUs are seen, so the field is not "None"
        ("2.8.0", "None", "cpu"), ("2.8.0", "12.8", "cuda"), ("2.8.0+cu128", "12.8", "cuda"),
    ],
)  # fmt: skip
def test_a_cpu_build_on_a_host_with_gpus_is_noted(tmp_path: Path, version: str, cuda: str, build: str) -> None:
    text = (REPORTS / "env-2.8-h800x8.txt").read_text()
    text = re.sub(r"PyTorch version: .*", f"PyTorch version: {version}", text)
    text = re.sub(r"CUDA used to build PyTorch: .*", f"CUDA used to build PyTorch: {cuda}", text)
    path = tmp_path / "env.txt"
    path.write_text(text)
    record = made(str(path), torch="2.8", gpus=8, nodes=1, inter=None)
    assert ("is a CPU build" in notes(record)) == (build == "cpu")
    assert record["hardware"]["device"] == "cuda"


def test_a_memory_in_mib_is_shown_in_gib_too() -> None:
    """40960 MiB = 40 GiB; 81559 MiB = 79.65 GiB."""
    assert made(gpu_memory="40960MiB", intra="pcie")["hardware"]["memory"] == "40.00 GiB"
    shown = made(gpu_memory="81559MiB", intra="pcie")["hardware"]
    assert shown["memory"] == "79.65 GiB" and shown["memory_detail"] == "81559MiB (79.65 GiB)"
    assert made(gpu_memory="80GB", intra="pcie")["hardware"]["memory"] == "80GB read as 80.00 GiB"


def test_a_release_and_its_minor_are_no_contradiction() -> None:
    assert made(ENV_8, torch="2.5")["status"] == "complete"
    assert list(asked(made(ENV_8, torch="2.13"))) == ["torch"]


def test_files_that_contradict_each_other_are_asked_about_and_options_settle_it() -> None:
    two = (ENV_8, "smi-l40s-595.txt")  # 8 x H100 with driver 535, 1 x L40S with driver 595
    record = made(*two, torch="2.5", gpus=None, nodes=None)
    questions = asked(record)
    assert set(questions) == {"gpu", "gpus", "nodes"}
    assert "8" in questions["gpus"] and "smi-l40s-595.txt" in questions["gpus"]
    assert "driver" in notes(record) and "535.129.03" in notes(record)  # shown, not asked: no option answers it
    settled = made(*two, torch="2.5", gpus=16, nodes=2, gpu="H100 SXM")
    assert settled["status"] == "complete" and settled["hardware"]["memory_bytes"] == 81559 << 20
    assert made(*two, torch="2.5", gpu="L40S", gpus=2, nodes=2)["status"] == "complete"


@pytest.mark.parametrize(
    "other", ["smi-l40s-595.txt", "env-2.0.1-a800x8.txt", "env-2.7-rocm-radeon.txt", "smi-t4-535.txt"]
)
def test_every_question_about_files_has_an_option(other: str) -> None:
    record = made(ENV_8, other, torch=None, gpus=None, nodes=None)
    assert set(asked(record)) <= {field.name for field in PLAN}
    for question in record["questions"]:
        if question["id"] == "gpu_memory":
            assert all(choice.endswith(("B",)) for choice in question["choices"])


def test_memory_of_two_files_has_a_unit_in_its_choices(tmp_path: Path) -> None:
    two = csv(tmp_path / "a.csv", "NVIDIA L4, 23034 MiB"), csv(tmp_path / "b.csv", "NVIDIA L40S, 46068 MiB")
    record = made(*two, gpus=2, nodes=2, gpu=None)
    assert "gpu" in asked(record)
    choices = next(one["choices"] for one in record["questions"] if one["id"] == "gpu_memory")
    assert choices == ["23034MiB", "46068MiB"]
    assert "gpu_memory" not in asked(made(*two, gpus=2, nodes=2, gpu_memory="46068MiB"))


def test_a_build_that_cannot_use_the_gpu_is_noted_and_decides_only_where_no_gpu_is_named() -> None:
    radeon = "env-2.7-rocm-radeon.txt"
    assert made(radeon, torch=None, gpu_memory="8GB", intra="pcie")["hardware"]["device"] == "rocm"
    record = made(radeon, torch=None, gpu="H100 SXM")
    assert record["hardware"]["device"] == "cuda" and "rocm build" in notes(record)


def test_a_refusal_that_a_file_has_part_in_is_a_question_with_the_file() -> None:
    """The accelerate file says 2 machines; 17 processes do not divide by that."""
    question = asked(made("accelerate-multi-node.yaml", gpu="H100 SXM", gpus=17, nodes=None))["nodes"]
    assert "17" in question and "accelerate-multi-node.yaml" in question


# ---------------------------------------------------------------------------------------------------------- remembered

CLUSTER = {"gpus": 16, "nodes": 2, "gpu": "H100 SXM 80GB", "intra": "nvlink", "inter": "infiniband", "tp": 4}


@pytest.mark.parametrize(
    ("remembered", "said", "gone"),
    [
        ({"gpu": "T4"}, {"gpu_memory": "24GB"}, {"gpu"}),
        ({"gpu_memory": "16GB"}, {"gpu": "H100"}, {"gpu_memory"}),
        ({"gpu": "H100 SXM", "intra": "nvlink", "device": "cuda"}, {"gpu": "MI300X"}, {"intra", "device"}),
        ({"intra": "nvlink"}, {"gpu": "MI300X"}, {"intra"}),
        ({"gpu": "H100", "intra": "nvlink"}, {"device": "rocm"}, {"gpu", "intra"}),
        ({"gpu": "H100"}, {"intra": "xgmi"}, {"gpu"}),
        ({"tp": 8, "implementation": "transformers4"}, {"model": "7b"}, {"tp", "implementation"}),
        ({"nodes": 2, "tp": 8}, {"gpus": 12}, {"tp"}),
        ({"nodes": 5}, {"gpus": 16}, {"nodes"}),
        ({"gpu": "RTX 9999", "gpu_memory": "24GB", "intra": "pcie"}, {"gpu_memory": "80GB"}, {"gpu", "intra"}),
    ],
)
def test_what_is_stated_supersedes_what_was_remembered(
    remembered: dict[str, Any], said: dict[str, Any], gone: set[str]
) -> None:
    before = remembered | {name: "other" for name in ("model",) if name in said}
    assert set(superseded(said, before)) == gone
    record = made(remembered=before, **({"gpus": None, "nodes": None, "inter": None} | said))
    assert not [name for name in gone if record["answers"].get(name, {}).get("from") == "notebook"]


def test_what_goes_together_is_kept() -> None:
    for said in (
        {"gpu": "NVIDIA H100 80GB HBM3"},
        {"gpus": 16},
        {"gpu_memory": "80GB"},
        {"nodes": 2},
        {"inter": "roce"},
    ):
        assert superseded(said, CLUSTER) == ()
    assert superseded({"gpus": 16}, {"nodes": 2}) == ()  # answered one after the other
    assert superseded({"gpu_memory": "24GB"}, {"gpu": "RTX 9999"}) == ()  # what was asked about that GPU
    assert superseded({"gpu_memory": "24 GB"}, {"gpu": "RTX 9999", "gpu_memory": "24GB"}) == ()
    assert superseded({"model": "./a/b/"}, {"model": "a/b", "tp": 2}) == ()


def test_one_node_hides_the_network_without_forgetting_it() -> None:
    record = made(gpus=8, nodes=1, inter=None, remembered={"gpu": "H100 SXM", "inter": "infiniband"})
    assert "inter" not in record["answers"] and superseded({"gpus": 8, "nodes": 1}, {"inter": "infiniband"}) == ()


def test_a_cpu_run_leaves_the_remembered_gpu_aside() -> None:
    record = made(device="cpu", host_memory="1TB", remembered={"gpu": "H100 SXM"})
    assert record["hardware"]["device"] == "cpu" and "gpu" not in record["answers"]
