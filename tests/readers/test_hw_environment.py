"""Recognising files by their content, merging them, and what is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardguide.guidance.errors import UnusableInput
from shardguide.readers import environment
from shardguide.readers.hw_evidence import LIMIT

DATA = Path(__file__).parent / "data" / "hw"
FILES = sorted(path.name for path in DATA.iterdir() if path.suffix in {".txt", ".csv", ".yaml"})
KINDS = {
    "env": "collect_env", "smi": "nvidia-smi", "list": "nvidia-smi -L", "topo": "topology", "csv": "gpu-csv",
    "accelerate": "accelerate", "rocm": "rocm-smi", "amd": "amd-smi",
}  # fmt: skip


def read(name: str):
    return environment.read_data((DATA / name).read_bytes(), name)


@pytest.mark.parametrize("name", [name for name in FILES if name != "csv-utilisation-only.csv"])
def test_a_file_is_recognised_by_its_content(name):
    assert [item.kind for item in read(name)] == [KINDS[name.split("-")[0]]]


def _disguised(data: bytes) -> list[bytes]:
    text = data.decode()
    return [
        text.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + data,
        text.encode("utf-16"),  # what Windows PowerShell's > writes
        "".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.split("\n")).encode(),
        "".join(f"2026-01-02T03:04:05.678Z {line}\n" for line in text.split("\n")).encode(),
        f"user@host:~$ sh report.sh\nWelcome!\n{text}\nuser@host:~$ exit\n".encode(),
        "".join(f"> {line}\n" for line in text.split("\n")).encode(),
    ]


@pytest.mark.parametrize("name", [n for n in FILES if n.startswith(("env-2", "smi", "list", "topo", "csv-h100-all"))])
def test_the_dress_of_a_terminal_does_not_matter(name):
    data = (DATA / name).read_bytes()
    plain = environment.merge(read(name))
    for form in _disguised(data):
        merged = environment.merge(environment.read_data(form, name))
        assert merged.models == plain.models
        assert {key: found.value for key, found in merged.values.items()} == {
            key: found.value for key, found in plain.values.items()
        }


def test_one_paste_with_several_tools():
    text = "\n".join((DATA / name).read_text() for name in ("env-2.5.1-h100x8.txt", "topo-h100-8gpu.txt"))
    found = environment.read_text(text, "paste.txt")
    assert [item.kind for item in found] == ["collect_env", "topology"]
    merged = environment.merge(found)
    assert merged.contradictions == ()
    assert (merged.values["gpus_per_node"].value, merged.values["intra"].value) == (8, "nvlink")
    assert merged.values["gpus_per_node"].source == "file:paste.txt, line 19"


# ----------------------------------------------------------------------------------------------------------- merging


def merged(*names: str, **stated):
    items = [item for name in names for item in read(name)]
    return environment.merge(items, {key: (value, "user") for key, value in stated.items()})


def test_a_cut_name_and_its_whole_agree():
    both = merged("smi-p100-515-truncated-names.txt", gpu="Tesla P100-PCIE-16GB")
    assert both.contradictions == () and both.values["gpu"].value == "Tesla P100-PCIE-16GB"


def test_files_against_each_other():
    found = merged("env-2.5.1-h100x8.txt", "smi-l40s-595.txt")
    assert {contradiction.id for contradiction in found.contradictions} == {"gpu", "gpus_per_node", "driver"}
    sentence = next(c.sentence for c in found.contradictions if c.id == "gpus_per_node")
    assert sentence == (
        "The number of GPUs on a node is 8 (file:env-2.5.1-h100x8.txt, line 19), "
        "but 1 (file:smi-l40s-595.txt, line 9): which one is right?"
    )


def test_a_file_against_what_was_said():
    found = merged("accelerate-multi-node.yaml", gpus=16)
    assert [c.sentence for c in found.contradictions] == [
        "The number of GPUs over all nodes is 16 (user), but 8 (file:accelerate-multi-node.yaml, line 12): "
        "which one is right?"
    ]
    assert found.values["gpus"].value == 16  # what was said stands until it is answered


def test_nodes_times_gpus_against_the_total():
    found = merged("env-2.5.1-h100x8.txt", gpus=8, nodes=2)
    (contradiction,) = found.contradictions
    assert contradiction.id == "gpus_per_node" and "8 over all nodes (user)" in contradiction.sentence
    assert merged("env-2.5.1-h100x8.txt", gpus=16, nodes=2).contradictions == ()


def test_a_stated_memory_agrees_within_its_readings():
    both = (80 * 10**9 >> 20, 80 * 2**30 >> 20)
    assert merged("smi-h100-590.txt", gpu_memory_mib=both).contradictions == ()
    assert [c.id for c in merged("smi-l40s-595.txt", gpu_memory_mib=both).contradictions] == ["gpu_memory_mib"]


def test_partitions_are_in_the_picture():
    table = merged("smi-h200-mig-590.txt")
    assert table.values["mig"].value is True and table.values["mig_memory_mib"].value == (16384, 33280, 71424)
    listed = merged("list-h200-mig-590.txt")
    assert listed.values["mig_profiles"].value == ("1c.3g.71gb", "1g.18gb", "2c.3g.71gb", "2g.35gb")


def test_releases_and_their_builds():
    assert merged("env-2.13-cpu.txt", torch="2.13").contradictions == ()
    assert merged("env-2.13-cpu.txt", torch="2.13.0").contradictions == ()
    assert [c.id for c in merged("env-2.13-cpu.txt", torch="2.12").contradictions] == ["torch"]


def test_a_cpu_build_on_a_gpu_host_is_visible():
    text = (DATA / "env-2.5.1-h100x8.txt").read_text().replace("2.5.1\n", "2.5.1+cpu\n", 1)
    found = environment.merge(environment.read_text(text, "env"))
    assert found.values["torch_build"].value == "cpu" and any("CPU build" in note for note in found.notes)


# --------------------------------------------------------------------------------------------------------- hostile


def refused(data: bytes, name: str = "file") -> str:
    start = time.process_time()
    with pytest.raises(UnusableInput) as error:
        environment.read_data(data, name)
    assert time.process_time() - start < 10
    sentence = str(error.value)
    assert sentence.startswith(name) and sentence.endswith(".") and "\n" not in sentence and len(sentence) < 400
    return sentence


@pytest.mark.parametrize(
    "data",
    [
        b"", b" \n\t", b"hello world", b"\x00" * 1000, bytes(range(256)) * 50, b"PK\x03\x04" + b"a" * 100,
        b"\x80\x04\x95abc", b"%PDF-1.7", b"{}", b'{"hidden_size": 4096}', b"import torch\nprint(1)\n", b"a,b\n1,2\n",
        b"GPU 0: " * 1_000_000, b"| 1 a" * 1_000_000, (b"| 1 a" * 6000 + b"\n") * 100,
        (b"GPU 0: " * 4000 + b"\n") * 100,
        b"a," * 3_000_000, b"\n" * 300_000, (b"index, name" + b" " * 16000 + b"x\n") * 100, b"GPU0 " * 6000,
        b"PyTorch version: 2\nOS: x\n", b"NVIDIA-SMI 1 Bus-Id\n",
        b"GPU0 GPU1 CPU\nGPU0 X\nGPU1 nonsense X\n" + b"\xff" * 10,
    ],
    ids=range(23),
)  # fmt: skip
def test_hostile_and_foreign_content(data):
    refused(data)


def test_too_large(tmp_path):
    refused(b"NVIDIA-SMI\n" * ((LIMIT >> 3) + 1))
    big = tmp_path / "big.txt"
    with big.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(UnusableInput, match="at most 8 MiB"):
        environment.read_file(str(big))


def test_a_file_that_is_missing_or_a_folder(tmp_path):
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(UnusableInput):
            environment.read_file(str(path))


def test_thousands_of_gpus_are_refused():
    rows = "\n".join(f"GPU {i}: NVIDIA A100-SXM4-80GB (UUID: GPU-0)" for i in range(1000))
    assert "1000 GPUs" in refused(rows.encode())


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(8)
)
START = "distributed_type: FSDP\nnum_processes: 8\n"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (BOMB, "aliases"), ("x: *y\n", "aliases"), ("x: &y 1\n", "aliases"),
        ("x: !!python/object/apply:os.system ['true']\n", "tags"), ("x: !!python/name:os.system\n", "tags"),
        ("x: !local 1\n", "tags"), ("x: " + "[" * 200 + "]" * 200 + "\n", "nested"),
        ("x:\n" + "".join(" " * i + "y:\n" for i in range(1, 60)), "nested"), ("x:\n" + "- 1\n" * 30_000, "longer"),
        ("x: {\n", "not valid YAML"), ("\tx: 1\n", "not valid YAML"), ("x: 2026-99-99\n", "cannot be read"),
        ("num_machines: -1\n", "at least 1"), ("num_machines: many\n", "at least 1"),
        ("num_machines: true\n", "at least 1"),
        ("num_machines: 1e9\n", "at least 1"), ("num_machines: 99999999999999999999\n", "at least 1"),
        ("fsdp_config: {fsdp_sharding_strategy: 9}\n", "1 to 5"), ("x: " + "y" * 300_000 + "\n", "characters"),
        ("x: 1\n---\ny: 2\n", "not valid YAML"),
    ],
    ids=range(20),
)  # fmt: skip
def test_hostile_yaml(body, word):
    assert word in refused((START + body).encode(), "a.yaml")


def test_a_value_given_twice_is_noted():
    (found,) = environment.read_text(START + "num_processes: 4\n", "a.yaml")
    assert dict(found.settings)["num_processes"].value == 4
    assert found.notes == ("line 3: num_processes is given twice; the later one counts",)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_read_or_refused(name):
    data = (DATA / name).read_bytes()
    for part in range(0, len(data), max(1, len(data) // 40)):
        try:
            environment.merge(environment.read_data(data[:part], name))
        except UnusableInput as error:
            assert str(error).endswith(".")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(FILES), st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=6)), max_size=6))
def test_a_damaged_file_is_read_or_refused(name, edits):
    data = bytearray((DATA / name).read_bytes())
    for at, piece in edits:
        at %= len(data)
        data[at : at + len(piece)] = piece
    try:
        environment.merge(environment.read_data(bytes(data), name))
    except UnusableInput as error:
        assert str(error).endswith(".")
