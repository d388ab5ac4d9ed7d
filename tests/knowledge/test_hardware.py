"""The table of GPUs, sizes of memory, words for links. Right values come from the sources that the rows name."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge.hardware.links import INTER, INTRA, check_counts, inter_link, intra_link
from shardguide.knowledge.hardware.memory import mib, parse_memory
from shardguide.knowledge.hardware.table import find, fold, gpus, lookup, narrow, native_bf16, partitions, sources

ROOT = Path(__file__).parent.parent.parent
ROWS = gpus()


def row(name: str):
    return next(gpu for gpu in ROWS if gpu.id == name)


# ------------------------------------------------------------------------------------------------------------ table


def test_the_json_is_current():
    pytest.importorskip("tomllib", reason="the build script needs Python 3.11")
    script = ROOT / "scripts" / "build_hardware.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# Compute capabilities as https://developer.nvidia.com/cuda-gpus and /cuda-legacy-gpus list them.
CAPABILITIES = {
    "Tesla P100-PCIE-16GB": "6.0", "Tesla V100-SXM2-32GB": "7.0", "Tesla T4": "7.5", "NVIDIA A30": "8.0",
    "NVIDIA A100-SXM4-80GB": "8.0", "NVIDIA A10": "8.6", "NVIDIA A40": "8.6", "NVIDIA GeForce RTX 3090": "8.6",
    "NVIDIA L4": "8.9", "NVIDIA L40": "8.9", "NVIDIA L40S": "8.9", "NVIDIA GeForce RTX 4090": "8.9",
    "NVIDIA RTX 6000 Ada Generation": "8.9", "NVIDIA H100 80GB HBM3": "9.0", "NVIDIA H200": "9.0",
    "NVIDIA GH200 480GB": "9.0", "NVIDIA B200": "10.0", "NVIDIA GB200": "10.0", "NVIDIA B300 SXM6 AC": "10.3",
    "NVIDIA GB300": "10.3", "NVIDIA GeForce RTX 5090": "12.0",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "12.0",
}  # fmt: skip


@pytest.mark.parametrize("printed", CAPABILITIES)
def test_a_name_that_nvidia_smi_prints_has_the_capability_of_nvidias_table(printed):
    assert lookup(printed).capability == CAPABILITIES[printed]


# Totals as modal-labs/modal-client pull request 2797 lists them from nvidia-smi.
@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("h100", 81559), ("a100 80gb", 81920), ("a100-40gb", 40960), ("a10", 23028), ("l40s", 46068), ("l4", 23034),
        ("t4", 15360),
    ],
)  # fmt: skip
def test_totals_that_nvidia_smi_reports(name, total):
    assert max(lookup(name).reported_mib) == total


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h100", "NVIDIA H100 80GB"), ("H100-80GB", "NVIDIA H100 80GB"), ("h100 80g", "NVIDIA H100 80GB"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM 80GB"), ("h100sxm", "NVIDIA H100 SXM 80GB"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe 80GB"), ("h100 nvl", "NVIDIA H100 NVL 94GB"),
        ("H100 96GB", "NVIDIA H100 96GB HBM2e"), ("a100 40gb", "NVIDIA A100 40GB"), ("a100_80gb", "NVIDIA A100 80GB"),
        ("A100-PCIE-40GB", "NVIDIA A100 PCIe 40GB"), ("nvidia a100-sxm4-80gb", "NVIDIA A100 SXM4 80GB"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100 SXM4 40GB"), ("4090", "NVIDIA GeForce RTX 4090"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"), ("V100-32GB", "NVIDIA Tesla V100 32GB"),
        ("mi300x", "AMD Instinct MI300X"),
        ("AMD Instinct MI300X OAM", "AMD Instinct MI300X"), ("max 1550", "Intel Data Center GPU Max 1550"),
        ("Intel(R) Data Center GPU Max 1550", "Intel Data Center GPU Max 1550"), ("gb200 nvl72", "NVIDIA GB200"),
        ("NVIDIA H20", "NVIDIA H20 96GB"), ("NVIDIA H20-3e", "NVIDIA H20-3e 141GB"),
        ("Tesla P100-PCIE...", "NVIDIA Tesla P100 PCIe 16GB"),
        ("NVIDIA RTX PRO 6000 Blac...", "NVIDIA RTX PRO 6000 Blackwell"),
    ],
)  # fmt: skip
def test_spellings(text, name):
    assert lookup(text).name == name


@pytest.mark.parametrize("text", ["A100", "v100", "gh200", "rtx 6000", "NVIDIA A100-SXM..."])
def test_a_name_with_several_memories_is_not_decided(text):
    assert lookup(text) is None
    assert len({gpu.memory for gpu in find(text)}) > 1


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "warp drive", "80gb", "gpu", "a100x", "3090 ti", "Quadro RTX 6000",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 ...", "NVIDIA GeForce RTX 2080 ...", "x" * 10_000, "...", "\x00",
    ],
)  # fmt: skip
def test_an_unknown_name_is_unknown(text):
    assert find(text) == ()
    assert lookup(text) is None


@given(st.text(max_size=300))
def test_no_text_breaks_the_lookup(text):
    assert isinstance(find(text), tuple)


def test_every_row_is_found_by_its_own_names():
    for gpu in ROWS:
        for name in (gpu.name, *gpu.aliases):
            assert gpu in find(name), name


def test_folding_keeps_only_what_agrees():
    both = fold(find("h100 80gb"))
    assert {gpu.link for gpu in find("h100 80gb")} == {"nvlink", ""}
    assert (both.link, both.memory, both.capability, both.bf16) == ("", 80, "9.0", True)
    assert fold(find("a100")).memory == 0


def test_every_fact_names_a_source_with_title_and_address():
    for gpu in ROWS:
        assert gpu.sources, gpu.id
        for entry in gpu.sources:
            assert entry.title and entry.url.startswith("https://") and entry.says, (gpu.id, entry)
        assert len({source.id for source in sources(gpu)}) == len(sources(gpu))


def test_the_limit_is_the_largest_total_known():
    assert row("h100-sxm-80gb").limit == 81559 << 20
    assert row("a100-sxm4-80gb").limit == 81920 << 20  # not the 81251 of older drivers
    assert row("l40s").limit == 48 << 30  # 46068 MiB is with ECC on
    assert row("mi250x").limit == 64 << 30  # 128 GiB on two devices (AMD: GPU hardware specifications)
    assert row("max-1550").limit == 65536 << 20  # as torch.utils.collect_env printed it for each of its two devices
    assert row("arc-a770").limit == 0


def test_vendor_memory_and_reported_totals_agree():
    """No typing slip: a reported total is at most 12 % below the vendor's figure read as GiB, or 3 % above it."""
    for gpu in ROWS:
        for total in gpu.reported_mib:
            if gpu.memory:
                assert 0.88 <= total * gpu.devices / (gpu.memory * 1024) <= 1.03, gpu.id


# -------------------------------------------------------------------------------------------- what PyTorch says of them


@pytest.mark.torch
def test_bf16_is_what_pytorch_answers_without_emulation(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for gpu in ROWS:
        if gpu.device == "xpu" or gpu.bf16 is None or not gpu.capability:
            continue
        major = int(gpu.capability.split(".")[0]) if gpu.device == "cuda" else 9
        monkeypatch.setattr(torch.version, "hip", "6.4" if gpu.device == "rocm" else None)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, major=major: SimpleNamespace(major=major))
        answer = torch.cuda.is_bf16_supported(including_emulation=False)
        rule = native_bf16(gpu.capability)
        words = f"{gpu.id}: gpus.toml has bf16 = {gpu.bf16}, PyTorch answers {answer}, native_bf16 {rule}"
        assert gpu.bf16 == rule == answer, words


@pytest.mark.torch
def test_fp8_is_what_pytorchs_own_tests_assume(monkeypatch):
    """evaluate_platform_supports_fp8 by itself: its module needs packages that only PyTorch's own suite installs."""
    import torch

    path = Path(torch.__file__).parent / "testing" / "_internal" / "common_cuda.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = "evaluate_platform_supports_fp8"
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    scope = {"torch": torch, "ROCM_VERSION": (7, 0)}
    exec(compile(tree, str(path), "exec"), scope)  # noqa: S102 - PyTorch's function, no input of anybody
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    # A fact without a source is left out.
    stated = [gpu for gpu in ROWS if gpu.fp8 is not None and gpu.capability and gpu.device != "xpu"]
    assert {gpu.fp8 for gpu in stated} == {True, False}
    for gpu in stated:
        monkeypatch.setattr(torch.version, "hip", "7.0" if gpu.device == "rocm" else None)
        if gpu.device == "cuda":
            capability = tuple(map(int, gpu.capability.split(".")))
            scope["SM90OrLater"] = capability >= (9, 0)
            monkeypatch.setattr(torch.cuda, "get_device_capability", lambda capability=capability: capability)
        else:
            properties = SimpleNamespace(gcnArchName=f"{gpu.capability}:sramecc+:xnack-")
            monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, properties=properties: properties)
        answer = scope[name]()
        assert gpu.fp8 == answer, f"{gpu.id}: gpus.toml has fp8 = {gpu.fp8}, PyTorch's own tests assume {answer}"


def test_bf16_of_volta_and_turing_is_not_native():
    assert [row(name).bf16 for name in ("v100-sxm2-32gb", "t4", "a100-sxm4-40gb")] == [False, False, True]
    assert native_bf16("") is None


# ----------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(
    ("text", "decimal", "binary"),
    [
        ("80GB", 80 * 10**9, 80 * 2**30), ("80 gb", 80 * 10**9, 80 * 2**30), ("80g", 80 * 10**9, 80 * 2**30),
        ("80GiB", 80 * 2**30, 80 * 2**30), ("81559MiB", 81559 * 2**20, 81559 * 2**20),
        ("81,559 MiB", 81559 * 2**20, 81559 * 2**20), ("81559 MB", 81559 * 10**6, 81559 * 2**20),
        ("79.6 GiB", 796 * 2**30 // 10, 796 * 2**30 // 10), ("0.5TB", 5 * 10**11, 2**39),
        ("85520809984", 85520809984, 85520809984), ("85520809984 bytes", 85520809984, 85520809984),
    ],
)  # fmt: skip
def test_sizes(text, decimal, binary):
    memory = parse_memory(text)
    assert (memory.decimal, memory.binary, memory.limit) == (decimal, binary, binary)
    assert memory.exact == (decimal == binary)


def test_both_readings_are_shown():
    assert str(parse_memory("80GB")) == "80GB (74.51 GiB if GB is meant, 80.00 GiB if GiB is meant)"
    assert str(parse_memory("81559MiB")) == "81559MiB (79.65 GiB)"


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "12 parsecs", "-3GB", "nan", "inf", "1e999GB", "1e2GB", "0GB", "80", "GB", "80 GB GB", "8 0 0 0 0TB",
        "9" * 31, "9" * 10_000 + "GB", "1.2.3GB", "²GB", "٨٠GB", "80GBs", "0x50GB", "80iB", "80\x00GB", ".GB", "80.GB",
        "1 MiB", "100000TB",
    ],
)  # fmt: skip
def test_what_is_no_size(text):
    with pytest.raises(UnusableInput) as refused:
        parse_memory(text)
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value) and len(str(refused.value)) < 200


@given(st.text(max_size=40))
def test_any_text_is_a_size_or_refused(text):
    try:
        memory = parse_memory(text)
    except UnusableInput:
        return
    assert 0 < memory.decimal <= memory.binary


@pytest.mark.parametrize(
    ("name", "size", "ids"),
    [
        ("h100", "80GB", {"h100-sxm-80gb", "h100-pcie-80gb"}), ("h100", "94GB", {"h100-nvl-94gb", "h100-sxm-94gb"}),
        ("h100", "96GB", {"h100-96gb"}), ("a100", "81251MiB", {"a100-sxm4-80gb", "a100-pcie-80gb"}),
        ("NVIDIA A100-SXM...", "40536 MiB", {"a100-sxm4-40gb"}),
        ("v100", "32510MiB", {"v100-pcie-32gb", "v100-sxm2-32gb"}),
        ("mi250x", "64GB", {"mi250x"}), ("mi250x", "128GB", {"mi250x"}), ("h100", "24GB", set()),
        ("h100", "40GB", set()),
    ],
)  # fmt: skip
def test_a_stated_size_narrows_the_product(name, size, ids):
    assert {gpu.id for gpu in narrow(find(name, every=True), parse_memory(size))} == ids


# NVIDIA/mig-parted's list of profiles; the totals are those nvidia-smi prints for instances (tests/readers/data/hw).
@pytest.mark.parametrize(
    ("name", "size", "profiles"),
    [
        ("h100", "24GB", {"1g.24gb", "2g.24gb"}), ("h100 80gb", "24GB", set()),
        ("h100 80gb", "40448MiB", {"3g.40gb", "4g.40gb"}),
        ("h100 80gb", "9984MiB", {"1g.10gb"}), ("h200", "33280MiB", {"1g.35gb", "2g.35gb"}),
        ("h200", "16384MiB", {"1g.18gb"}),
        ("a100 40gb", "5GB", {"1g.5gb"}), ("a100 80gb", "80GB", set()), ("l4", "12GB", set()),
    ],
)  # fmt: skip
def test_a_size_that_only_a_partition_explains(name, size, profiles):
    assert {part.profile for part in partitions(find(name, every=True), parse_memory(size))} == profiles


def test_a_total_in_mib_is_exact():
    assert mib(81559).limit == 85520809984  # bytes that NVML reports for the H100, modal-client pull request 2797


# ------------------------------------------------------------------------------------------------------------ links


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVLink", "nvlink"), ("nvlink4", "nvlink"), ("NV18", "nvlink"), ("NVSwitch", "nvswitch"),
        ("pcie gen5 x16", "pcie"),
        ("PCI-Express", "pcie"), ("PHB", "pcie"), ("xGMI", "xgmi"), ("Infinity Fabric", "xgmi"), ("Xe Link", "xelink"),
        ("none", "none"),
    ],
)  # fmt: skip
def test_links_within_a_node(text, name):
    assert intra_link(text) is INTRA[name]


@pytest.mark.parametrize(
    ("text", "name", "rdma"),
    [
        ("IB", "infiniband", True), ("InfiniBand NDR", "infiniband", True), ("RoCE v2", "roce", True),
        ("100GbE", "ethernet", False), ("tcp", "ethernet", False), ("IPoIB", "ipoib", False), ("EFA", "efa", None),
        ("slingshot-11", "slingshot", None), ("GPUDirect-TCPX", "gpudirect-tcpx", False), ("MNNVL", "nvlink", None),
    ],
)  # fmt: skip
def test_links_between_nodes(text, name, rdma):
    assert inter_link(text) is INTER[name]
    assert inter_link(text).rdma is rdma


@pytest.mark.parametrize("text", ["", "warp", "nvlink infiniband", "\x00", "ethernet roce", "x" * 100_000])
def test_unknown_links_are_refused(text):
    for read in (intra_link, inter_link):
        with pytest.raises(UnusableInput):
            read(text)


def test_every_link_has_a_source():
    assert all(link.sources for link in (*INTRA.values(), *INTER.values()) if link.name != "none")


# ----------------------------------------------------------------------------------------------------------- counts


@pytest.mark.parametrize(
    ("given_", "counts"),
    [
        ((16, 2, None), (16, 2, 8)), ((16, None, 8), (16, 2, 8)), ((None, 2, 8), (16, 2, 8)), ((6, 1, None), (6, 1, 6)),
        ((16, 2, 8), (16, 2, 8)), ((8, None, None), (8, None, None)), ((None, None, None), (None, None, None)),
        ((16384, 2048, None), (16384, 2048, 8)),
    ],
)  # fmt: skip
def test_counts_that_agree(given_, counts):
    assert tuple(check_counts(*given_)) == counts


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ((17, 2, None), "16 or 18"), ((1, 2, None), "2 GPUs"), ((16, 2, 4), "8 GPUs, not 16"),
        ((10, None, 4), "whole number"),
        ((0, None, None), "between 1"), ((-8, 2, None), "between 1"), ((8, 0, None), "between 1"),
        ((1 << 40, None, None), "between 1"), ((True, None, None), "between 1"),
    ],
)  # fmt: skip
def test_counts_that_contradict_each_other(given_, words):
    with pytest.raises(UnusableInput, match=words):
        check_counts(*given_)
