"""Accelerate's YAML for FSDP2: what accelerate itself makes of the file before and after, and that nothing else changes."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import yaml

from shardguide.code.migrate.accelerate_yaml import convert
from shardguide.guidance.errors import UnusableInput

CONFIG = """\
# our cluster
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
fsdp_config:
  # every decoder layer
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE   # as in the paper
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: false
  fsdp_offload_params: false
  fsdp_sharding_strategy: {strategy}  # keep
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_use_orig_params: true
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: {machines}
num_processes: {ranks}
rdzv_backend: static
same_network: true
use_cpu: false
"""


def config(strategy: str = "FULL_SHARD", machines: int = 1, ranks: int = 8, **changed: str | None) -> str:
    text = CONFIG.format(strategy=strategy, machines=machines, ranks=ranks)
    for key, value in changed.items():
        text, count = re.subn(rf"^( *{key}:).*\n", "" if value is None else rf"\1 {value}\n", text, flags=re.M)
        assert count == 1
    return text


def converted(text: str, release: str = "2.13"):
    made = convert(text, "a.yaml", release)
    assert made is not None
    assert convert(made.text, "a.yaml", release) is None or made.text == text
    return made


def test_full_shard_line_by_line() -> None:
    made = converted(config())
    assert made.text == (
        config()
        .replace("  fsdp_backward_prefetch: BACKWARD_PRE   # as in the paper\n", "  # as in the paper\n")
        .replace("  fsdp_forward_prefetch: false\n", "")
        .replace("fsdp_sharding_strategy: FULL_SHARD  # keep", "fsdp_reshard_after_forward: true  # keep")
        .replace("  fsdp_sync_module_states: true\n", "")
        .replace("  fsdp_use_orig_params: true\n", "  fsdp_version: 2\n")
    )
    assert made.todos == ()
    assert {use.status for use in made.uses} == {"converted", "kept"} and len(made.uses) == 10


@pytest.mark.parametrize(
    ("strategy", "reshard"),
    [("FULL_SHARD", True), ("SHARD_GRAD_OP", False), ("1", True), ("2", False), ("full_shard", True)],
)
def test_strategies(strategy: str, reshard: bool) -> None:
    made = converted(config(strategy))
    assert yaml.safe_load(made.text)["fsdp_config"]["fsdp_reshard_after_forward"] is reshard


@pytest.mark.parametrize(("strategy", "reshard"), [("HYBRID_SHARD", True), ("HYBRID_SHARD_ZERO2", False), ("4", True)])
def test_hybrid_becomes_a_mesh(strategy: str, reshard: bool) -> None:
    made = converted(config(strategy, machines=2, ranks=16))
    loaded = yaml.safe_load(made.text)
    assert loaded["fsdp_config"]["fsdp_reshard_after_forward"] is reshard
    assert loaded["parallelism_config"] == {
        "parallelism_config_dp_replicate_size": 2,
        "parallelism_config_dp_shard_size": 8,
    }


def test_hybrid_on_one_machine_is_full_sharding() -> None:
    made = converted(config("HYBRID_SHARD"))
    assert "parallelism_config" not in made.text
    assert [todo.code for todo in made.todos] == ["accelerate-hybrid"]


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        (config("NO_SHARD"), "accelerate-no-shard", 12),
        (config("3"), "accelerate-no-shard", 12),
        (config("SHARD_IT"), "accelerate-strategy", 12),
        (config("HYBRID_SHARD", machines=3, ranks=16), "accelerate-hybrid", 12),
        (config("HYBRID_SHARD", machines=2, ranks=2), "accelerate-hybrid", 12),
        (config("HYBRID_SHARD", machines=2, num_processes=None), "accelerate-hybrid", 12),
        (config("HYBRID_SHARD", machines=2, num_processes="-1"), "accelerate-hybrid", 12),
        (
            config("HYBRID_SHARD", 2, 16) + "parallelism_config:\n  parallelism_config_tp_size: 2\n",
            "accelerate-hybrid",
            25,
        ),
        ("distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 1}\n", "accelerate-flow", 3),
    ],
)
def test_refused(text: str, code: str, line: int) -> None:
    made = convert(text, "a.yaml", "2.13")
    assert made is not None and made.text == text
    assert [(todo.code, todo.line) for todo in made.todos] == [(code, line)]
    assert {use.status for use in made.uses} == {"left"} and all(use.reason for use in made.uses)


def test_release_without_accelerates_fsdp2() -> None:
    made = convert(config(), "a.yaml", "2.5")
    assert made is not None and made.text == config() and made.todos[0].code == "accelerate-release"


def test_the_kind_of_checkpoint_stays() -> None:
    """Without the key FSDP1 writes one file; FSDP2 would write shards."""
    assert "  fsdp_state_dict_type: FULL_STATE_DICT\n" in converted(config(fsdp_state_dict_type=None)).text
    made = converted(config(fsdp_state_dict_type="LOCAL_STATE_DICT"))
    assert "  fsdp_state_dict_type: SHARDED_STATE_DICT\n" in made.text
    assert [todo.code for todo in made.todos] == ["accelerate-local-state-dict"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"fsdp_backward_prefetch": "BACKWARD_POST"}, "accelerate-prefetch"),
        ({"fsdp_backward_prefetch": "NO_PREFETCH"}, "accelerate-prefetch"),
        ({"fsdp_forward_prefetch": "true"}, "accelerate-prefetch"),
        ({"fsdp_use_orig_params": "false"}, "accelerate-orig-params"),
        ({"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP"}, "accelerate-size-wrap"),
    ],
)
def test_todos(changed: dict[str, str], code: str) -> None:
    (todo,) = converted(config(**changed)).todos
    assert todo.code == code
    assert next(iter(changed)) in config(**changed).split("\n")[todo.line - 1]


def test_claims_exist() -> None:
    from shardguide.code.migrate import accelerate_yaml
    from shardguide.knowledge import claims_store

    text = Path(accelerate_yaml.__file__).read_text()
    found = set(re.findall(r'"((?:fsdp1|fsdp2|practice)\.[a-z_0-9.]+)"', text))
    assert len(found) > 5
    for one in found:
        assert claims_store.get(one)


def test_what_is_not_ours() -> None:
    assert convert(config().replace("distributed_type: FSDP", "distributed_type: MULTI_GPU"), "a.yaml", "2.13") is None
    assert convert("fsdp: [full_shard]\nlearning_rate: 1\n", "a.yaml", "2.13") is None
    assert convert(converted(config()).text, "a.yaml", "2.13") is None
    with pytest.raises(UnusableInput):
        convert(config().replace("debug: false", "debug: &a [1]\nmore: *a"), "a.yaml", "2.13")


def test_older_forms() -> None:
    """Keys without their prefix, Windows line breaks, no line break at the end, comments after the section."""
    text = (
        "distributed_type: FSDP\r\nfsdp_config:\r\n    sharding_strategy: 2 # z\r\n    min_num_params: 1e8\r\n"
        "# end of it\r\nnum_processes: 4"
    )
    made = converted(text)
    assert made.text == (
        "distributed_type: FSDP\r\nfsdp_config:\r\n    fsdp_reshard_after_forward: false # z\r\n    min_num_params: 1e8\r\n"
        "    fsdp_state_dict_type: FULL_STATE_DICT\r\n    fsdp_version: 2\r\n# end of it\r\nnum_processes: 4"
    )
    last = "num_processes: 4\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n  fsdp_offload_params: true"
    assert converted(last).text == (
        "num_processes: 4\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n"
        "  fsdp_reshard_after_forward: true\n  fsdp_state_dict_type: FULL_STATE_DICT\n"
    )


def plugin(text: str, tmp_path, monkeypatch):
    """What the launcher hands to the training process, as accelerate's own objects."""
    import torch
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env

    # With sync_module_states the plugin asks for the number of the GPU.
    monkeypatch.setattr("accelerate.utils.dataclasses.is_cuda_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    path = tmp_path / "config.yaml"
    path.write_text(text)
    args = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    args, *_ = _validate_launch_command(args)
    for name, value in prepare_multi_gpu_env(args).items():
        if name.startswith(("FSDP_", "PARALLELISM_", "ACCELERATE_")):
            monkeypatch.setenv(name, value)
    sizes = ParallelismConfig() if args.use_parallelism_config else None
    return FullyShardedDataParallelPlugin(), sizes, args


@pytest.mark.torch
@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"])
def test_accelerate_reads_it(strategy: str, tmp_path, monkeypatch) -> None:
    pytest.importorskip("accelerate")
    before, _, _ = plugin(config(strategy, machines=2, ranks=16), tmp_path, monkeypatch)
    assert before.fsdp_version == 1 and before.sharding_strategy.name.removeprefix("_") == strategy
    text = converted(config(strategy, machines=2, ranks=16)).text
    after, sizes, args = plugin(text, tmp_path, monkeypatch)
    assert after.fsdp_version == 2 and after.reshard_after_forward is (strategy in ("FULL_SHARD", "HYBRID_SHARD"))
    assert (after.state_dict_type, after.transformer_cls_names_to_wrap) == (
        before.state_dict_type,
        before.transformer_cls_names_to_wrap,
    )
    assert after.cpu_ram_efficient_loading and args.mixed_precision == "bf16"
    if strategy.startswith("HYBRID"):
        assert (sizes.dp_replicate_size, sizes.dp_shard_size, sizes.total_size) == (2, 8, args.num_processes)
    else:
        assert sizes is None


@pytest.mark.torch
def test_the_defaults_that_differ(tmp_path, monkeypatch) -> None:
    """Why a missing fsdp_state_dict_type is written out; accelerate's converter leaves it away."""
    pytest.importorskip("accelerate")
    from accelerate.commands.to_fsdp2 import convert_config_to_fsdp2

    text = config(fsdp_state_dict_type=None)
    before, _, _ = plugin(text, tmp_path, monkeypatch)
    theirs, _, _ = plugin(yaml.dump(convert_config_to_fsdp2(yaml.safe_load(text))), tmp_path, monkeypatch)
    after, _, _ = plugin(converted(text).text, tmp_path, monkeypatch)
    assert before.state_dict_type == after.state_dict_type != theirs.state_dict_type
    assert (
        convert_config_to_fsdp2(yaml.safe_load(config("NO_SHARD")))["fsdp_config"]["fsdp_reshard_after_forward"]
        is False
    )


@pytest.mark.torch
def test_the_strategy_that_accelerate_does_not_hand_on(tmp_path, monkeypatch) -> None:
    pytest.importorskip("accelerate")
    text = config().replace("fsdp_sharding_strategy: FULL_SHARD", "fsdp_reshard_after_forward: SHARD_GRAD_OP")
    before, _, _ = plugin(text, tmp_path, monkeypatch)
    assert before.sharding_strategy.name == "FULL_SHARD"
    made = converted(text)
    assert [todo.code for todo in made.todos] == ["accelerate-strategy-ignored"]
    after, _, _ = plugin(made.text, tmp_path, monkeypatch)
    assert after.reshard_after_forward is False


VALUES = {
    "auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
    "backward_prefetch": ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"),
    "forward_prefetch": ("true", "false"),
    "offload_params": ("true", "false"),
    "sharding_strategy": ("FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", '"SHARD_GRAD_OP"'),
    "sync_module_states": ("true", "false"),
    "use_orig_params": ("true", "false"),
    "cpu_ram_efficient_loading": ("true", "false"),
    "activation_checkpointing": ("true",),
    "transformer_layer_cls_to_wrap": ("LlamaDecoderLayer", "A,B"),
    "min_num_params": ("1000", "1e8"),
    "ignored_modules": ("null", "'.*lm_head'"),
}


@pytest.mark.torch
def test_agrees_with_accelerates_converter() -> None:
    """On files of every shape: the same keys and values as theirs (but for what theirs loses), no comment and no other line gone."""
    pytest.importorskip("accelerate")
    from accelerate.commands.to_fsdp2 import convert_config_to_fsdp2

    chance = random.Random(2)
    for _ in range(400):
        keys = [key for key in VALUES if chance.random() < 0.6] or ["offload_params"]
        chance.shuffle(keys)
        indent, lines = " " * chance.choice((1, 2, 4)), []
        for key in keys:
            lines += [f"{indent}# about {key}"] if chance.random() < 0.2 else []
            lines += [""] if chance.random() < 0.1 else []
            lines.append(f"{indent}fsdp_{key}: {chance.choice(VALUES[key])}{chance.choice(('', '', '  # why', ' '))}")
        machines, ranks = chance.choice(((1, 8), (2, 16), (4, 32)))
        other = ["distributed_type: FSDP", f"num_machines: {machines}", f"num_processes: {ranks}", "debug: false # no"]
        at = chance.randrange(len(other) + 1)
        text = "\n".join([*other[:at], "fsdp_config:", *lines, *other[at:]]) + chance.choice(("\n", ""))
        made = converted(text)
        ours = yaml.safe_load(made.text)
        theirs = convert_config_to_fsdp2(yaml.safe_load(text))["fsdp_config"]
        assert ours["fsdp_config"].pop("fsdp_state_dict_type") == "FULL_STATE_DICT"
        assert ours["fsdp_config"] == {"fsdp_reshard_after_forward": True} | theirs, text
        hybrid = "HYBRID" in text and machines > 1
        assert ("parallelism_config" in ours) is hybrid
        assert sorted(re.findall("#.*", made.text)) == sorted(re.findall("#.*", text))
        assert [line for line in made.text.split("\n") if line in other] == other
