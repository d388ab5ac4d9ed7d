"""Readers of hardware descriptions, on output that people published (data/hw/README.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.readers import collect_env, environment, gpu_csv, nvidia_smi, topology

DATA = Path(__file__).parent / "data" / "hw"


def evidence(name: str):
    found = environment.read_data((DATA / name).read_bytes(), name)
    assert len(found) == 1
    return found[0]


def line(name: str, number: int) -> str:
    return (DATA / name).read_text(encoding="utf-8").split("\n")[number - 1]


# ------------------------------------------------------------------------------------------------------ collect_env


@pytest.mark.parametrize(
    ("name", "gpu", "count", "torch", "build", "with_", "driver", "system"),
    [
        ("env-2.5.1-h100x8.txt", "NVIDIA H100 80GB HBM3", 8, "2.5.1", "cuda", "12.3", "535.129.03", "Ubuntu 20.04.6"),
        ("env-2.0.1-a800x8.txt", "NVIDIA A800-SXM4-80GB", 8, "2.0.1+cu117", "cuda", "11.7", None, "Ubuntu 22.04.2"),
        ("env-2.8-h800x8.txt", "NVIDIA H800", 8, "2.8.0+cu128", "cuda", "12.8", "535.129.03", "Ubuntu 22.04.5"),
        ("env-2.8-dev-b200x8.txt", "NVIDIA B200", 8, "2.8.0.dev20250408+cu128", "cuda", "12.8", "570.124.06",
         "Ubuntu 24"),
        ("env-2.9.1-h100-one-line.txt", "NVIDIA H100 80GB HBM3", 1, "2.9.1+cu126", "cuda", "12.6", "580.126.09",
         "Ubuntu"),
        ("env-2.7-rocm-radeon.txt", "AMD Radeon RX 5700 XT", None, "2.7.0.dev20250123+rocm6.3", "rocm",
         "6.3.42131-fa1d09cbd", None, "Gentoo Linux"),
        ("env-1.7-rocm.txt", "Device 66a1", None, "1.7.0a0+9ddd3df", "rocm", "3.7.20315-077bcfa0", None,
         "Ubuntu 18.04"),
        ("env-2.8-xpu-max1550x4.txt", "Intel(R) Data Center GPU Max 1550", None, "2.8.0.dev20250516+xpu", "xpu",
         "20250101", None, "Ubuntu 22.04.4"),
    ],
)  # fmt: skip
def test_collect_env(name, gpu, count, torch, build, with_, driver, system):
    found = evidence(name)
    assert found.kind == "collect_env"
    assert found.models == (gpu,)
    assert (found.gpu_count.value if found.gpu_count else None) == count
    assert found.torch.value == torch and torch in line(name, found.torch.line)
    assert found.torch_build.value == build
    assert found.built_with.value == with_ and with_ in line(name, found.built_with.line)
    assert (found.driver.value if found.driver else None) == driver
    assert found.available.value is True
    assert found.os.value.startswith(system)
    assert gpu in line(name, found.gpus[0].line)


def test_collect_env_of_a_cpu_build():
    found = evidence("env-2.13-cpu.txt")
    assert (found.torch.value, found.torch_build.value, found.available.value) == ("2.13.0+cpu", "cpu", False)
    assert found.gpus == () and found.gpu_count is None and found.driver is None


def test_collect_env_inside_a_ci_log():
    found = evidence("env-xpu-ci-log-timestamps.txt")
    assert found.models == ("Intel(R) Data Center GPU Max 1550",) and len(found.gpus) == 4
    assert (found.torch_build.value, found.built_with.value) == ("xpu", "20250302")
    assert found.gpu_count is None  # cards, of which PyTorch may see several devices


def test_collect_env_of_rocm_says_that_it_names_one_device():
    assert any("one device" in note for note in evidence("env-2.7-rocm-radeon.txt").notes)
    assert evidence("env-2.7-rocm-radeon.txt").gpus[0].capability == "gfx1010"


def test_collect_env_pasted_without_line_breaks():
    text = (DATA / "env-2.5.1-h100x8.txt").read_text(encoding="utf-8")
    whole = collect_env.read(text, "a")
    flat = collect_env.read(" ".join(text.split()), "b")
    assert flat.models == whole.models and len(flat.gpus) == 8
    assert flat.driver.value.startswith("535.129.03") and flat.torch.value == whole.torch.value


def test_collect_env_with_partitions():
    text = (DATA / "env-2.9.1-h100-one-line.txt").read_text(encoding="utf-8")
    mig = "\nGPU 0: NVIDIA H100 80GB HBM3\n  MIG 3g.40gb     Device  0:\n  MIG 1g.10gb     Device  1:\n"
    found = collect_env.read(text.replace(" GPU 0: NVIDIA H100 80GB HBM3", mig), "env")
    assert [(part.gpu, part.profile) for part in found.mig] == [(0, "3g.40gb"), (0, "1g.10gb")]
    assert found.gpus[0].mig is True and found.gpu_count.value == 1


@pytest.mark.torch
def test_collect_env_as_pytorch_2_13_prints_it():
    from torch.utils.collect_env import SystemEnv, pretty_str

    values = dict.fromkeys(SystemEnv._fields)
    values.update(
        torch_version="2.13.0+cu130", cuda_compiled_version="13.0", hip_compiled_version="N/A", os="Debian (x86_64)",
        is_debug_build=False, is_cuda_available="True", nvidia_driver_version="590.48.01", pip_version="pip3",
        nvidia_gpu_models="GPU 0: NVIDIA H200\nGPU 1: NVIDIA H200\nGPU 2: NVIDIA L40S", is_xpu_available="False",
        pip_packages="torch==2.13.0", conda_packages="", cpu_info="Architecture: x86_64", cudnn_version="9.1",
        caching_allocator_config={},
    )  # fmt: skip
    found = collect_env.read(pretty_str(SystemEnv(**values)), "env")
    assert found.models == ("NVIDIA H200", "NVIDIA L40S") and found.gpu_count.value == 3
    assert (found.torch.value, found.torch_build.value, found.built_with.value) == ("2.13.0+cu130", "cuda", "13.0")
    assert (found.driver.value, found.os.value, found.available.value) == ("590.48.01", "Debian (x86_64)", True)


# ------------------------------------------------------------------------------------------------------- nvidia-smi


@pytest.mark.parametrize(
    ("name", "gpu", "count", "total", "used", "mig", "driver", "cuda"),
    [
        ("smi-gtx680-331.txt", "GeForce GTX 680", 2, 4095, 9, None, "331.62", None),
        ("smi-a100-mig-empty-450.txt", "A100-SXM4-40GB", 1, 40537, 0, True, "450.80.02", "11.0"),
        ("smi-p100-515-truncated-names.txt", "Tesla P100-PCIE...", 1, 16384, 0, None, "515.65.01", "11.7"),
        ("smi-t4-535.txt", "Tesla T4", 1, 15109, 0, None, "535.86.10", "12.2"),
        ("smi-h100-mig-8gpu-indented.txt", "NVIDIA H100 80GB HBM3", 8, None, None, True, "535.104.12", "12.2"),
        ("smi-h100-590.txt", "NVIDIA H100 80GB HBM3", 1, 81559, 0, False, "590.48.01", "13.1"),
        ("smi-h100-mig-590.txt", "NVIDIA H100 80GB HBM3", 1, 81559, 59, True, "590.48.01", "13.1"),
        ("smi-h200-mig-590.txt", "NVIDIA H200", 1, 143771, 55, True, "590.48.01", "13.1"),
        ("smi-l40s-595.txt", "NVIDIA L40S", 1, 46068, 0, None, "595.80", "13.2"),
        ("smi-rtx2080s-610.txt", "NVIDIA GeForce RTX 2080 ...", 1, 8192, 211, None, "610.57.04", "13.3"),
        ("smi-rtx2080s-windows-610.txt", "NVIDIA GeForce RTX 2080 ...", 1, 8192, 797, None, "610.62", "13.3"),
    ],
)  # fmt: skip
def test_nvidia_smi(name, gpu, count, total, used, mig, driver, cuda):
    found = evidence(name)
    assert found.kind == "nvidia-smi" and found.models == (gpu,) and found.gpu_count.value == count == len(found.gpus)
    first = found.gpus[0]
    assert (first.number, first.total_mib, first.used_mib, first.mig) == (0, total, used, mig)
    assert gpu in line(name, first.line)
    assert found.driver.value == driver and driver in line(name, found.driver.line)
    assert (found.cuda.value if found.cuda else None) == cuda


def test_nvidia_smi_partitions():
    parts = evidence("smi-h200-mig-590.txt").mig
    assert [(part.gpu, part.device, part.total_mib) for part in parts] == [
        (0, 0, 71424), (0, 1, 71424), (0, 2, 33280), (0, 3, 16384), (0, 4, 16384),
    ]  # fmt: skip
    eight = evidence("smi-h100-mig-8gpu-indented.txt").mig
    assert len(eight) == 32 and {part.gpu for part in eight} == set(range(8))


def test_nvidia_smi_list():
    assert [part.profile for part in evidence("list-a100-mig-535.txt").mig] == ["1g.10gb"] * 7
    found = evidence("list-h200-mig-590.txt")
    assert found.models == ("NVIDIA H200",) and found.gpus[0].mig
    assert [part.profile for part in found.mig] == ["1c.3g.71gb", "2c.3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb"]


def test_mixed_gpus_on_one_host_are_seen():
    l40s = (DATA / "smi-l40s-595.txt").read_text(encoding="utf-8").split("\n")
    h100 = (DATA / "smi-h100-590.txt").read_text(encoding="utf-8").split("\n")
    start = next(i for i, text in enumerate(h100) if "NVIDIA H100" in text)
    end = next(i for i, text in enumerate(l40s) if i > 10 and text.startswith("+--"))
    second = [h100[start].replace("|   0  ", "|   1  "), *h100[start + 1 : start + 4]]
    text = "\n".join([*l40s[: end + 1], *second, *l40s[end + 1 :]])
    found = nvidia_smi.read(text, "smi")
    assert found.models == ("NVIDIA L40S", "NVIDIA H100 80GB HBM3") and found.totals == (46068, 81559)
    merged = environment.merge([found])
    assert merged.mixed and merged.models == (("NVIDIA L40S", 46068, 1), ("NVIDIA H100 80GB HBM3", 81559, 1))
    assert "gpu" not in merged.values and merged.values["gpu_memory_mib"].value == 46068


def test_several_tables_in_one_file():
    text = (DATA / "smi-h100-590.txt").read_text(encoding="utf-8")
    found = nvidia_smi.read(text + text, "smi")
    assert found.gpu_count.value == 1 and any("several tables" in note for note in found.notes)


# --------------------------------------------------------------------------------------------------------- topology


@pytest.mark.parametrize(
    ("name", "count", "pairs", "kinds", "intra", "nics"),
    [
        ("topo-a100-8gpu.txt", 8, 28, {"NV12"}, "nvlink", 0), ("topo-h100-8gpu.txt", 8, 28, {"NV18"}, "nvlink", 0),
        ("topo-2gpu-nv2.txt", 2, 1, {"NV2"}, "nvlink", 0), ("topo-2gpu-phb.txt", 2, 1, {"PHB"}, "pcie", 0),
        ("topo-5gpu-mixed-paths.txt", 5, 10, {"SYS", "PHB", "NODE"}, "pcie", 0),
        ("topo-4090x8-nics.txt", 8, 28, {"SYS"}, "pcie", 2), ("topo-l40s-ansi.txt", 1, 0, set(), None, 0),
        ("topo-h200-single-ansi.txt", 1, 0, set(), None, 0),
        ("topo-h200x8-nic-legend.txt", 8, 28, {"NV18"}, "nvlink", 10),
    ],
)  # fmt: skip
def test_topology(name, count, pairs, kinds, intra, nics):
    found = evidence(name)
    between = [path for path in found.paths if path.first.startswith("GPU") and path.second.startswith("GPU")]
    assert found.kind == "topology" and found.gpu_count.value == count
    assert len(between) == pairs and {path.kind for path in between} == kinds
    assert (found.intra.value if found.intra else None) == intra
    assert len(found.nics) == nics and found.notes == ()


def test_paths_have_their_pair_and_line():
    paths = {(path.first, path.second): path for path in evidence("topo-5gpu-mixed-paths.txt").paths}
    assert paths["GPU1", "GPU2"].kind == "PHB" and paths["GPU0", "GPU4"].kind == "SYS"
    assert line("topo-5gpu-mixed-paths.txt", paths["GPU3", "GPU4"].line).startswith("GPU3")


def test_adapters_and_what_is_not_visible():
    found = evidence("topo-h200x8-nic-legend.txt")
    assert [nic.name for nic in found.nics] == [f"mlx5_{i}" for i in range(10)]
    assert all(nic.rdma is True and "not visible" in nic.note for nic in found.nics)
    assert [(p.second, p.kind) for p in found.paths if p.first == "GPU1" and p.kind == "PIX"] == [("NIC3", "PIX")]
    unknown = evidence("topo-4090x8-nics.txt").nics
    assert [(nic.id, nic.name, nic.rdma) for nic in unknown] == [("NIC0", "", None), ("NIC1", "", None)]


def test_a_matrix_that_is_cut_off_says_so():
    found = evidence("topo-dgx2-16gpu-mlx-columns.txt")
    assert found.gpu_count.value == 16 and [nic.id for nic in found.nics] == [f"mlx5_{i}" for i in range(10)]
    assert any("cut off" in note for note in found.notes)


def test_nvlink_between_some_pairs_only():
    text = (DATA / "topo-a100-8gpu.txt").read_text(encoding="utf-8")
    lines = text.split("\n")
    lines = [text if not text.startswith("GPU0") else text.replace("NV12", "SYS ", 1) for text in lines]
    found = topology.read("\n".join(lines), "topo")
    assert found.intra is None
    assert found.notes == ("NVLink joins 27 of 28 pairs of GPUs; GPU0 and GPU1 have SYS",)


def test_the_peer_to_peer_matrix_is_not_the_topology():
    text = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n"  # nvidia-smi topo -p2p rw, club-3090 issue 1133
    with pytest.raises(UnusableInput, match="topo -m"):
        topology.read(text, "p2p")


# -------------------------------------------------------------------------------------------------------------- CSV


@pytest.mark.parametrize(
    ("name", "gpus", "driver"),
    [
        ("csv-h100-all-fields.csv", [(0, "NVIDIA H100 80GB HBM3", 81559, False, "9.0")], "590.48.01"),
        ("csv-h200-mig-all-fields.csv", [(0, "NVIDIA H200", 143771, True, "9.0")], "590.48.01"),
        ("csv-l40s-all-fields.csv", [(0, "NVIDIA L40S", 46068, None, "8.9")], "595.80"),
        ("csv-gh200-noheader.csv", [(i, "NVIDIA GH200 144G HBM3e", 146831, None, "9.0") for i in (0, 1)], "580.173.02"),
        ("csv-h100nvl-noheader.csv", [(0, "NVIDIA H100 NVL", None, None, "")], None),
        ("csv-rtx2080-nounits.csv", [(0, "GeForce RTX 2080", None, None, "")], None),
    ],
)  # fmt: skip
def test_csv(name, gpus, driver):
    found = evidence(name)
    assert [(gpu.number, gpu.name, gpu.total_mib, gpu.mig, gpu.capability) for gpu in found.gpus] == gpus
    assert found.gpu_count.value == len(gpus)
    assert (found.driver.value if found.driver else None) == driver
    assert bool(found.notes) == ("noheader" in name or "nounits" in name)


def test_csv_without_units_repeated_and_mixed():
    text = "index, name, memory.total [MiB], memory.used [MiB]\n" + (
        "0, NVIDIA GeForce RTX 4090, 24564, 100\n1, NVIDIA GeForce RTX 5090, 32607, 200\n" * 3
    )
    found = gpu_csv.read(text, "csv")
    assert [(gpu.name, gpu.total_mib, gpu.used_mib) for gpu in found.gpus] == [
        ("NVIDIA GeForce RTX 4090", 24564, 100), ("NVIDIA GeForce RTX 5090", 32607, 200),
    ]  # fmt: skip
    assert environment.merge([found]).mixed


def test_csv_of_names_alone():
    found = gpu_csv.read("name\nNVIDIA A100-SXM4-80GB\nNVIDIA A100-SXM4-80GB\n", "csv")
    assert found.gpu_count.value == 2 and found.models == ("NVIDIA A100-SXM4-80GB",)


def test_csv_that_names_no_gpu():
    with pytest.raises(UnusableInput, match="neither the name nor the total memory"):
        evidence("csv-utilisation-only.csv")


# ---------------------------------------------------------------------------------------------- AMD, Intel, accelerate


def test_rocm_and_amd_smi():
    assert evidence("rocm-smi-mi300x-id.txt").models == ("AMD Instinct MI300X OAM",)
    amd = evidence("amd-smi-mi350x-static.txt")
    assert (amd.models, amd.gpus[0].capability, amd.gpu_count.value) == (("AMD Instinct MI350X",), "gfx950", 1)


def settings(name: str) -> dict[str, object]:
    return {key: seen.value for key, seen in evidence(name).settings}


def test_accelerate_fsdp2():
    found = settings("accelerate-fsdp2-tp-hsdp.yaml")
    assert (found["num_processes"], found["num_machines"], found["mixed_precision"]) == (8, 1, "bf16")
    assert (found["fsdp.version"], found["fsdp.reshard_after_forward"], found["fsdp.offload_params"]) == (
        2,
        True,
        False,
    )
    for dimension in ("dp_replicate", "dp_shard", "tp"):
        assert found[f"parallelism.{dimension}_size"] == 2
    places = dict(evidence("accelerate-fsdp2-tp-hsdp.yaml").settings)
    assert line("accelerate-fsdp2-tp-hsdp.yaml", places["fsdp.version"].line).strip() == "fsdp_version: 2"


def test_accelerate_fsdp1():
    for name in ("accelerate-fsdp1.yaml", "accelerate-fsdp1-full.yaml", "accelerate-fsdp1-unprefixed.yaml"):
        assert settings(name)["fsdp.sharding_strategy"] == "FULL_SHARD"
    assert settings("accelerate-fsdp1-full.yaml")["mixed_precision"] == "no"
    assert settings("accelerate-fsdp1-full.yaml")["fsdp.transformer_layer_cls_to_wrap"] == "BertLayer"


def test_accelerate_other_forms():
    assert settings("accelerate-multi-node.yaml")["num_machines"] == 2
    assert settings("accelerate-multi-node.yaml")["num_processes"] == 8
    assert settings("accelerate-multi-xpu.yaml")["distributed_type"] == "MULTI_XPU"
    assert settings("accelerate-fp8.yaml")["mixed_precision"] == "fp8"
    assert settings("accelerate-deepspeed.yaml")["deepspeed_config"] == "set"


@pytest.mark.parametrize("number", range(1, 6))
def test_strategies_by_number(number):
    names = (
        "FULL_SHARD",
        "SHARD_GRAD_OP",
        "NO_SHARD",
        "HYBRID_SHARD",
        "HYBRID_SHARD_ZERO2",
    )  # accelerate's constants.py
    text = f"distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_sharding_strategy: {number}\n"
    (found,) = environment.read_text(text, "a.yaml")
    assert dict(found.settings)["fsdp.sharding_strategy"].value == names[number - 1]


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("accelerate-*.yaml")))
def test_accelerate_reads_the_same(name):
    accelerate = pytest.importorskip("accelerate.commands.config.config_args", reason="accelerate is not installed")
    if name == "accelerate-deepspeed.yaml":
        pytest.skip("accelerate's own loader needs the DeepSpeed file beside it")
    config = accelerate.ClusterConfig.from_yaml_file(str(DATA / name))
    found = settings(name)
    assert found["distributed_type"] == str(config.distributed_type.value)
    assert found.get("num_processes", -1) == config.num_processes
    assert found.get("num_machines", 1) == config.num_machines
    for key, value in config.fsdp_config.items():
        ours = found[f"fsdp.{key.removeprefix('fsdp_')}"]
        assert ours == value or key == "sharding_strategy"  # which we name instead of numbering it
