"""The mistakes of launch files, made for real: by torchrun's own parser and rendezvous, and by accelerate's own launcher."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.snippets.ports import free_port

from shardguide.code.review.launch import commands, shell
from shardguide.knowledge import rule_store

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def arguments(text: str) -> list[list[str]]:
    """The words of each torchrun in a script, variables of the environment as a host's name."""
    script = shell.read(text.replace("$HEAD", "head").replace("$NODE_RANK", "1").replace("$N ", "2 "), "s")
    found = []
    for command in script.commands:
        words = [word.text for word in command.words]
        if "torchrun" in words:
            found.append(words[words.index("torchrun") + 1 :])
    return found


def configured(words: list[str]):
    """What torchrun makes of its arguments, before it starts anything."""
    from torch.distributed.run import config_from_args, parse_args

    return config_from_args(parse_args(words))


@pytest.mark.parametrize("code", ["FSD001", "FSD002"])
def test_FSD001_FSD002_torchrun_stops(code: str) -> None:
    rule = rule_store.get(code)
    for words in arguments(rule.wrong):
        with pytest.raises((SystemExit, ValueError, AssertionError)):
            configured(words)
    for words in arguments(rule.right):
        configured(words)


@pytest.mark.parametrize(
    "words",
    [
        ["--nproc-per-node=cuda", "t.py"],
        ["--nnodes=4:2", "t.py"],
        ["--tee=5", "t.py"],
        ["--local-ranks-filter=a", "t.py"],
        ["--start-method=thread", "t.py"],
        ["--module", "--no-python", "t.py"],
        ["--max-restarts=-1", "t.py"],
    ],
)
def test_FSD002_what_is_called_a_refusal_is_one(words: list[str], tmp_path: Path) -> None:
    text = "torchrun " + " ".join(words)
    script = shell.read(text, "s")
    from shardguide.code.review.launch import torchrun

    (launch,) = commands.launches(script, "s", commands.job(script), "2.13")
    assert torchrun._values(launch, "2.13")
    with pytest.raises((SystemExit, ValueError, AssertionError)):
        configured(words)


def test_FSD003_the_script_gets_it() -> None:
    rule = rule_store.get("FSD003")
    config, _, rest = configured(arguments(rule.wrong)[0])
    assert config.nproc_per_node == 1 and "--nproc_per_node=8" in rest
    config, _, rest = configured(arguments(rule.right)[0])
    assert config.nproc_per_node == 8 and "--nproc_per_node=8" not in rest


def started(tmp_path: Path, *words: str, seconds: float = 300) -> tuple[int | None, str, float]:
    """torchrun for real; None where it was still waiting at the end."""
    (tmp_path / "t.py").write_text("print('ran')\n")
    command = [sys.executable, "-m", "torch.distributed.run", *words, str(tmp_path / "t.py")]
    begin = time.monotonic()
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, cwd=tmp_path)
    except subprocess.TimeoutExpired:
        return None, "", time.monotonic() - begin
    return ran.returncode, ran.stdout + ran.stderr, time.monotonic() - begin


def test_FSD005_each_node_waits_for_itself(tmp_path: Path) -> None:
    status, said, _ = started(tmp_path, "--standalone", "--nnodes=2", "--rdzv-conf=join_timeout=2,timeout=2")
    assert status and "RendezvousTimeoutError" in said and "ran\n" not in said
    assert started(tmp_path, "--standalone", "--nnodes=1")[0] == 0


def test_FSD006_localhost_is_nobody_elses(tmp_path: Path) -> None:
    port = free_port()
    status, said, _ = started(
        tmp_path, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "--rdzv-conf=join_timeout=2"
    )
    assert status and "RendezvousTimeoutError" in said and "ran\n" not in said


def test_FSD007_every_node_is_node_0() -> None:
    config, _, _ = configured(["--nnodes=2", "--master-addr=head", "--master-port=29500", "t.py"])
    assert config.rdzv_configs["rank"] == 0 and config.rdzv_backend == "static"


def test_FSD008_ignored() -> None:
    config, _, _ = configured(arguments(rule_store.get("FSD008").wrong)[0])
    assert "rank" not in config.rdzv_configs and config.rdzv_endpoint == "head:29400"


def test_FSD015_a_mesh_larger_than_the_world() -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises((RuntimeError, ValueError), match=r"bigger|world size"):
            init_device_mesh("cpu", (2, 8))
        init_device_mesh("cpu", (1, 1))
    finally:
        dist.destroy_process_group()


def test_FSD017_no_rank_in_the_environment(monkeypatch) -> None:
    import torch.distributed as dist

    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    with pytest.raises(ValueError, match="RANK expected"):
        dist.init_process_group("gloo")


def test_FSD018_one_port_for_two() -> None:
    import torch.distributed as dist

    first = dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)
    with pytest.raises(RuntimeError, match=r"EADDRINUSE|already in use"):
        dist.TCPStore("127.0.0.1", first.port, 1, True, wait_for_workers=False)


# accelerate: the rules' own examples go through its launcher and its plugin.


def launched(text: str, tmp_path: Path, monkeypatch) -> tuple[dict[str, str], str]:
    """The environment that accelerate launch makes of a configuration, and the processes on each machine."""
    pytest.importorskip("accelerate")
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    (tmp_path / "a.yaml").write_text(text)
    given = launch_command_parser().parse_args(["--config_file", str(tmp_path / "a.yaml"), "train.py"])
    given.main_process_port = 0
    given, _, _ = _validate_launch_command(given)
    made = prepare_multi_gpu_env(given)
    return {name: value for name, value in made.items() if name.startswith("FSDP_")}, str(given.nproc_per_node)


def plugin(text: str, tmp_path: Path, monkeypatch):
    from accelerate import FullyShardedDataParallelPlugin

    for name in [name for name in os.environ if name.startswith("FSDP_")]:
        monkeypatch.delenv(name)
    made, _ = launched(text, tmp_path, monkeypatch)
    # Handing weights on needs an accelerator, which is not what is looked at here.
    made |= {"FSDP_SYNC_MODULE_STATES": "false", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false"}
    for name, value in made.items():
        monkeypatch.setenv(name, value)
    return FullyShardedDataParallelPlugin()


def test_FSD020_the_strategy_is_lost(tmp_path: Path, monkeypatch) -> None:
    rule = rule_store.get("FSD020")
    wrong, right = (plugin(text, tmp_path, monkeypatch) for text in (rule.wrong, rule.right))
    # accelerator.py: "sharding_strategy": fsdp_plugin.sharding_strategy or fsdp_plugin.reshard_after_forward
    assert (wrong.sharding_strategy or wrong.reshard_after_forward).name == "FULL_SHARD"
    assert right.sharding_strategy.name == "HYBRID_SHARD"


def test_FSD021_the_strategy_is_not_read(tmp_path: Path, monkeypatch) -> None:
    made = plugin(rule_store.get("FSD021").wrong, tmp_path, monkeypatch)
    assert made.sharding_strategy is None and made.reshard_after_forward is True


@pytest.mark.parametrize("code", ["FSD022", "FSD024", "FSD032"])
def test_FSD022_FSD024_FSD032_the_plugin_refuses(code: str, tmp_path: Path, monkeypatch) -> None:
    rule = rule_store.get(code)
    with pytest.raises(ValueError):
        plugin(rule.wrong, tmp_path, monkeypatch)
    plugin(rule.right, tmp_path, monkeypatch)


def test_FSD023_set_aside(tmp_path: Path, monkeypatch) -> None:
    assert plugin(rule_store.get("FSD023").wrong, tmp_path, monkeypatch).forward_prefetch is None


def test_FSD025_the_launcher_refuses(tmp_path: Path, monkeypatch) -> None:
    rule = rule_store.get("FSD025")
    with pytest.raises(ValueError, match="fsdp_sync_module_states"):
        launched(rule.wrong, tmp_path, monkeypatch)
    launched(rule.right, tmp_path, monkeypatch)


def test_FSD026_no_policy(tmp_path: Path, monkeypatch) -> None:
    rule = rule_store.get("FSD026")
    assert plugin(rule.wrong, tmp_path, monkeypatch).auto_wrap_policy is None
    assert plugin(rule.right, tmp_path, monkeypatch).auto_wrap_policy is not None


def test_FSD028_dropped(tmp_path: Path, monkeypatch) -> None:
    rule = rule_store.get("FSD028")
    assert plugin(rule.wrong, tmp_path, monkeypatch).backward_prefetch is None
    assert plugin(rule.right, tmp_path, monkeypatch).backward_prefetch is not None


def test_FSD028_the_keys_are_those_of_accelerate() -> None:
    pytest.importorskip("accelerate")
    from accelerate.commands.launch import launch_command_parser

    from shardguide.code.review.launch.accelerate import _READ

    options = vars(launch_command_parser().parse_args(["train.py"]))
    theirs = {name.removeprefix("fsdp_") for name in options if name.startswith("fsdp_")}
    assert theirs | {"ignored_modules"} == set(_READ)


def test_FSD029_processes_are_dropped(tmp_path: Path, monkeypatch) -> None:
    rule = rule_store.get("FSD029")
    assert launched(rule.wrong, tmp_path, monkeypatch)[1] == "2"  # 2 on each of 3 machines: 6 of the 8
    assert launched(rule.right, tmp_path, monkeypatch)[1] == "8"


def test_FSD033_the_word_none_for_an_address(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    (tmp_path / "a.yaml").write_text(rule_store.get("FSD033").beside["fsdp.yaml"])
    for options, address in (([], "None"), (["--main_process_ip", "10.0.0.1"], "10.0.0.1")):
        words = [
            "--config_file",
            str(tmp_path / "a.yaml"),
            "--machine_rank",
            "1",
            *options,
            "--same_network",
            "train.py",
        ]
        given, _, _ = _validate_launch_command(launch_command_parser().parse_args(words))
        prepare_multi_gpu_env(given)
        assert given.master_addr == address
