"""Counts, GPUs, machines and memory as people put them. Right values: arithmetic, the table of GPUs, the sources of machines.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

from shardguide.knowledge.hardware.memory import parse_memory
from shardguide.knowledge.hardware.table import find, gpus, narrow
from shardguide.workflows import catalogue
from shardguide.workflows.intake import hardware, models, understand, words

DATA = Path(hardware.__file__).parents[2] / "knowledge" / "intake"
WORDS: dict[str, Any] = tomllib.loads((DATA / "hardware.toml").read_text(encoding="utf-8"))
MACHINES: dict[str, Any] = tomllib.loads((DATA / "machines.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("form", WORDS["form"], ids=lambda one: one["example"])
def test_every_form_reads_its_example(form: dict[str, Any]) -> None:
    stated = hardware.stated(form["example"]).plan()
    assert {name: stated.get(name) for name in form["gives"]} == form["gives"]


@pytest.mark.parametrize("machine", MACHINES["machine"], ids=lambda one: one["names"][0])
def test_every_machine_is_known_by_its_names(machine: dict[str, Any]) -> None:
    hosts = machine.get("nodes", 1)
    for name in machine["names"]:
        for written in (name, name.upper(), name.lower(), name.replace("_", "-").replace(" ", "-")):
            three = hardware.stated(f"3x {written}, llama 70b")
            assert three.gpus == str(3 * machine["gpus"]), written
            assert three.nodes == (str(3 * hosts) if hosts else ""), written
            assert three.gpu == machine["gpu"]
            assert three.gpu_memory == machine.get("memory", "")
        alone = hardware.stated(f"llama 70b on {name}")
        one = (str(machine["gpus"]), "1") if hosts == 1 else ("", "")  # how many nodes a rack has is asked
        assert (alone.gpus, alone.nodes, alone.gpu) == (*one, machine["gpu"])
        several = hardware.stated(f"several {name}, llama 70b")
        assert (several.gpus, several.nodes, several.gpu) == ("", "", machine["gpu"])
        assert machine["names"][0] in " ".join(alone.notes)  # how it was read is said, with its source


def test_machines_have_gpus_and_memory_that_exist() -> None:
    for machine in MACHINES["machine"]:
        rows = find(machine["gpu"], every=True)
        assert rows, machine["names"]
        if "memory" in machine:
            assert narrow(rows, parse_memory(machine["memory"])), machine["names"]
        assert MACHINES["source"][machine["source"]]["url"].startswith("https://")


def test_every_gpu_of_the_table_is_read_by_its_name() -> None:
    """By the product's name without the maker, and beside a count."""
    missed = []
    for gpu in gpus():
        name = gpu.model
        for maker in ("NVIDIA ", "AMD ", "Intel ", "Tesla ", "GeForce ", "Instinct "):
            name = name.replace(maker, "")
        stated = hardware.stated(f"4x {name} in one node")
        rows = find(f"{stated.gpu} {stated.gpu_memory}".strip(), every=True) if stated.gpu else ()
        if gpu.id not in [row.id for row in rows] or stated.gpus != "4":
            missed.append((name, stated.gpu, stated.gpus))
    assert missed == []


# How a number of hosts, and the GPUs of one or of all, are put: n hosts, p GPUs in one, t in all, of kind g.
PUT = (
    "{n} nodes with {p} {g} each",
    "{n} nodes of {p} {g}",
    "{n}x{p} {g}",
    "{n} x {p}x{g}",
    "{n} × {p} × {g}",
    "{p} {g} per node, {n} nodes",
    "{n} machines, each with {p} {g}",
    "{n} machines, each has {p}x {g}",
    "{g}: {n} nodes × {p}",
    "{t} {g} on {n} nodes",
    "{t} {g} over {n} hosts",
    "{t} {g}s across {n} servers",
    "{n} nodes, {t} {g} in total",
    "{p}x{g} x {n}",
    "{n} {p}-GPU {g} nodes",
    "nodes: {n}, gpus per node: {p}, {g}",
    "{n} boxes w/ {p} {g} apiece",
    "{n} hosts, {p} {g}/node",
    "{n} hosts @ {p} {g}",
    "{n} nodes ({p}x {g} per node)",
    "{n}-node cluster, {p} {g} per node",
    "{n} nodes x {p} {g} GPUs",
    "a cluster of {n} nodes, {p} {g} GPUs on each",
    "{n} VMs having {p} {g} each",
    "{n} Knoten mit je {p} {g}",
    "{n} Knoten mit jeweils {p} {g}",
    "{n} Rechner à {p} {g}",
    "{n} Server, pro Server {p} {g}",
    "{t} {g} auf {n} Knoten",
    "{t} {g} verteilt auf {n} Server",
    "{n} Maschinen mit {p} {g} pro Maschine",
    "{n} noeuds de {p} {g}",
    "{n} nœuds avec {p} {g} chacun",
    "{n} machines avec {p} {g} par machine",
    "{t} {g} sur {n} noeuds",
    "{n} serveurs à {p} {g}",
    "{n} nodos con {p} {g} cada uno",
    "{n} nodos de {p} {g}",
    "{t} {g} en {n} nodos",
    "{n} servidores, cada uno con {p} {g}",
    "{n} máquinas con {p} {g} por máquina",
    "{n} nodi con {p} {g} ciascuno",
    "{n} nós com {p} {g} cada",
    "{n} knooppunten met {p} {g} per node",
    "{n} węzły po {p} {g}",
    "{n} узла по {p} {g}",
    "{n}台机器，每台{p}张{g}",
    "{n}个节点，每个节点{p}块{g}",
    "{n}节点{t}卡{g}",
    "{n}台{p}卡{g}服务器",
    "{n}机{t}卡 {g}",
    "每节点{p}张{g}，共{n}个节点",
    "{n}台服务器，每台有{p}张{g}",
    "{n}ノード、各ノードに{g}が{p}枚",
    "{g} {p}枚のノードが{n}台",
    "{n}ノード×{p} {g}",
    "1ノードあたり{g} {p}枚、{n}ノード",
    "노드 {n}개, 노드당 {g} {p}개",
    "{n}개 노드에 각각 {g} {p}장",
)
# Counted in one host or in all: nobody can tell where there are few.
OPEN = ("{n}节点{t}卡{g}", "{n}机{t}卡 {g}")


def test_counts_in_many_words_and_languages() -> None:
    """Right by multiplication; where the words leave it open, open, and never another number."""
    wrong = []
    for form in PUT:
        for hosts in (2, 3, 4, 16):
            for each in (2, 4, 8):
                for name in ("H100", "A100 80GB", "RTX 4090", "MI300X"):
                    text = form.format(n=hosts, p=each, t=hosts * each, g=name)
                    stated = hardware.stated(text)
                    found = (stated.gpus, stated.nodes)
                    right = (str(hosts * each), str(hosts))
                    if found != right and not (form in OPEN and found == ("", right[1])):
                        wrong.append((text, found))
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "gpus_", "nodes"),
    [
        ("2 nodes 8 gpus", "", "2"),  # 8 of each, or of both
        ("2 nodes, 16 gpus", "16", "2"),
        ("4 nodes, 2 gpus", "8", "4"),  # two are too few for four hosts
        ("17 gpus, 2 nodes", "", "2"),
        ("2 nodes or 4 nodes with 8 GPUs each", "", ""),
        ("8 H100 per node", "", ""),
        ("more than one node of 8 H100", "", ""),
        ("rank 3 on H100", "", ""),
        ("batch size 8 GPU A100", "", ""),
        ("GPU 3 has a total capacity of 79.11 GiB", "", ""),
        ("2x slower on H100", "", ""),
        ("4 uzly po 8 H100", "32", "4"),
        ("4 dingsbums mit 8 H100", "", ""),  # the word beside the number is not known
        ("step 200 on 8 H100s", "8", ""),
        ("3 epochs on 8 H100s", "8", ""),
        ("llama 3 8b on 8 H100s", "8", ""),
        ("x86 nodes with 8 H100 each", "", ""),
        ("p4d.24xlarge with 16 GPUs", "16", "2"),
        ("p4d.24xlarge with 12 GPUs", "", ""),
    ],
)
def test_what_is_not_clear_stays_open(text: str, gpus_: str, nodes: str) -> None:
    stated = hardware.stated(text)
    assert (stated.gpus, stated.nodes) == (gpus_, nodes)


@pytest.mark.parametrize(
    ("text", "memory", "host"),
    [
        ("4 A100-40g", "40GB", ""),
        ("A100 de 80GB", "80GB", ""),
        ("a 24gb 3090", "24GB", ""),
        ("H100 80gig", "80GB", ""),
        ("A100 (40 GB)", "40GB", ""),
        ("8x 80GB A100", "80GB", ""),
        ("8x A100 640GB", "", ""),  # that of all eight
        ("4090 box with 256GB of RAM", "", "256GB"),
        ("H100 over 100G ethernet", "", ""),
        ("A100, 2TB of data", "", ""),
    ],
)
def test_memory_beside_a_gpu(text: str, memory: str, host: str) -> None:
    stated = hardware.stated(text)
    assert (stated.gpu_memory, stated.host_memory) == (memory, host)


@pytest.mark.parametrize(
    ("text", "size", "name"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "8b", "meta-llama/Meta-Llama-3.1-8B-Instruct"),
        ("llama 2 13b", "13b", "llama 2"),
        ("qwen2.5-72b", "72b", "qwen2.5-72b"),
        ("Qwen3-235B-A22B", "235b", "Qwen3-235B-A22B"),
        ("a 34 billion parameter model", "34b", ""),
        ("70亿参数", "7b", ""),
        ("mixtral 8x7b", "", "mixtral"),
        ("distil a 70b into a 7b", "", ""),
        ("trained on 300b tokens", "", ""),
        ("bert-large", "", "bert-large"),
    ],
)
def test_models_by_size_and_name(text: str, size: str, name: str) -> None:
    stated = models.stated(words.read(text))
    assert (stated.size, stated.name) == (size, name)
    assert not name or any(name in note for note in stated.notes())


def test_long_text_is_read_in_time() -> None:
    """No expression takes more than linear time on repeated beginnings of forms."""
    for piece in ("4x", "8 H100 ", "a-", "1.", "llama-", "x ", "每台8张", "2 nodes of ", "https://", "1,111"):
        hardware.stated(piece * 2000)
        models.stated(words.read(piece * 2000))


def test_it_is_not_loaded_by_other_commands() -> None:
    """Start-up: what reads words is loaded where words are read."""
    code = (
        "import sys; from shardguide.frontends.cli import main\n"
        "try: main.main(['plan', '7b', '--gpus', '8', '--torch', '2.13', '--no-input', '--json'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if '.intake' in name], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stderr.strip().endswith("[]"), ran.stderr


@pytest.mark.parametrize("machine", MACHINES["machine"], ids=lambda one: one["names"][0])
def test_a_machine_is_enough_for_a_plan(machine: dict[str, Any]) -> None:
    """Its facts contradict nothing, and are not asked again, but for a GPU of which machines of that name have several."""
    found = understand(f"3x {machine['names'][0]}, 7b")
    record = catalogue.run("plan", {**found.arguments, "torch": "2.13"})
    asked = {question.id for question in record.questions}
    several = len({row.memory for row in find(machine["gpu"])}) > 1 and "memory" not in machine
    assert found.tool == "plan"
    assert asked & {"gpus", "gpu", "gpu_memory"} == ({"gpu"} if several else set())
    assert ("nodes" in asked) == (machine.get("nodes") == 0)
    assert "intra" not in asked or "intra" not in machine
    assert "inter" not in asked or "inter" not in machine
