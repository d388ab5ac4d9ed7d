"""Launch files read by the programs they are for: bash, torchrun, the Kubernetes schemas, accelerate; torchtitan's fields by name.

Reference data under data/ names its source. The commands are stood in for here; test_launch.py starts the real torchrun.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.model import Unit
from shardguide.knowledge import releases
from shardguide.knowledge.snippets import LaunchSpec, TrainingSpec, render_launch

DATA = Path(__file__).parent / "data"
BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="needs bash")
UNITS = tuple(Unit((f"model.layers.{i}",), "LlamaDecoderLayer", "block") for i in range(2))
LLAMA = TrainingSpec(
    architecture="LlamaForCausalLM",
    units=UNITS,
    mesh=(("shard", 16),),
    mp_param="bfloat16",
    mp_reduce="float32",
    reshard_after_forward=(("block", True), ("head", False)),
)
NODES = [1, 2]


def data(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def launch(**changes: Any) -> LaunchSpec:
    return LaunchSpec(nodes=2, per_node=8, training=LLAMA)._replace(**changes)


def run_with_stubs(code: str, folder: Path, environment: dict[str, str]) -> list[str]:
    """Runs a script whose srun runs its command once, and whose torchrun writes down what it was given."""
    for name, body in {
        "torchrun": 'printf "%s\\n" "OMP=${OMP_NUM_THREADS:-}" "$@" > "$RECORD"',
        "srun": 'printf "%s\\n" "$@" > "$RECORD.srun"; while [ "$1" != torchrun ]; do shift; done; exec "$@"',
        "scontrol": '[ "$1 $2" = "show hostnames" ] && printf "%s\\n" "first-of-$3" second third',
        "nproc": "echo 96",
    }.items():
        file = folder / name
        file.write_text(f"#!{BASH}\n{body}\n", encoding="utf-8")
        file.chmod(0o755)
    script = folder / "script.sh"
    script.write_text(code, encoding="utf-8")
    record = folder / "record"
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "OMP_", "PET_"))}
    path = f"{folder}{os.pathsep}{clean.get('PATH', '')}"
    done = subprocess.run(
        [str(BASH), str(script)],
        env={**clean, "PATH": path, "RECORD": str(record), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return record.read_text(encoding="utf-8").splitlines()


def head_variable(code: str) -> str:
    """The variable that a script demands: ``: "${NAME:?…}"``, the one for the rendezvous host."""
    found = re.search(r"--rdzv-endpoint=\"?\$\{?(\w+)", code)
    assert found
    return found[1]


SLURM = {
    "SLURM_JOB_NODELIST": "gpu[1-2]",
    "SLURM_JOB_ID": "4711",
    "SLURM_CPUS_ON_NODE": "96",
    "SLURM_JOB_NUM_NODES": "2",
}


@needs_bash
@pytest.mark.torch
@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("kind", ["torchrun", "sbatch"])
def test_torchrun_understands_the_command(kind: str, nodes: int, tmp_path: Path) -> None:
    run = pytest.importorskip("torch.distributed.run", reason="needs PyTorch")
    code = render_launch(kind, launch(nodes=nodes, script="jobs/train.py")).code
    environment = {**SLURM, "SLURM_JOB_NUM_NODES": str(nodes)} if kind == "sbatch" else {"JOB_ID": "4711"}
    if kind == "torchrun" and nodes > 1:
        environment[head_variable(code)] = "given-host"
    _, *given = run_with_stubs(code, tmp_path, environment)
    arguments = run.get_args_parser().parse_args(given)
    assert (arguments.training_script, arguments.training_script_args) == ("jobs/train.py", [])
    assert arguments.nproc_per_node == "8"
    if nodes == 1 and arguments.standalone:
        return
    assert arguments.nnodes == str(nodes) and arguments.rdzv_backend == "c10d" and arguments.rdzv_id == "4711"
    host = "given-host" if kind == "torchrun" else "first-of-gpu[1-2]"
    assert arguments.rdzv_endpoint.rpartition(":")[0] == host
    assert 0 < int(arguments.rdzv_endpoint.rpartition(":")[2]) < 65536


@needs_bash
@pytest.mark.parametrize(("per_node", "threads"), [(8, "12"), (96, "1"), (200, "1")])
@pytest.mark.parametrize("kind", ["torchrun", "sbatch"])
def test_threads_are_shared_out_where_the_cpu_works(kind: str, per_node: int, threads: str, tmp_path: Path) -> None:
    training = LLAMA._replace(mesh=(("shard", per_node),))
    spec = launch(nodes=1, per_node=per_node, cpu_work=True, training=training)
    environment = {**SLURM, "SLURM_JOB_NUM_NODES": "1"} if kind == "sbatch" else {}
    assert run_with_stubs(render_launch(kind, spec).code, tmp_path, environment)[0] == f"OMP={threads}"
    plain = render_launch(kind, spec._replace(cpu_work=False)).code
    assert run_with_stubs(plain, tmp_path, environment)[0] == "OMP="


@needs_bash
def test_several_nodes_need_a_host(tmp_path: Path) -> None:
    """No host is made up: without the variable the script stops and names it."""
    code = render_launch("torchrun", launch()).code
    script = tmp_path / "script.sh"
    script.write_text(code, encoding="utf-8")
    clean = {key: value for key, value in os.environ.items() if key not in (head_variable(code), "JOB_ID")}
    done = subprocess.run([str(BASH), str(script)], env=clean, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and head_variable(code) in done.stderr


def test_slurm_options_come_before_the_first_command() -> None:
    """sbatch(1): directives after the first line that is neither comment nor blank are not read."""
    lines = render_launch("sbatch", launch(per_node=4, training=LLAMA._replace(mesh=(("shard", 8),)))).code.splitlines()
    assert lines[0].startswith("#!")
    first = next(i for i, line in enumerate(lines) if line.strip() and not line.startswith("#"))
    directives = [line.split()[1] for line in lines if line.startswith("#SBATCH")]
    assert directives == [line.split()[1] for line in lines[:first] if line.startswith("#SBATCH")]
    options = dict(option.lstrip("-").split("=") for option in directives if "=" in option)
    assert (options["nodes"], options["ntasks-per-node"], options["gpus-per-node"]) == ("2", "1", "4")
    assert not {"partition", "account", "time", "qos"} & set(options)
    assert "gpus" not in "".join(render_launch("sbatch", launch(device_type="cpu")).code.split("#SBATCH"))


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("kind", ["torchrun", "sbatch"])
def test_every_release_has_the_options(kind: str, nodes: int) -> None:
    reference = data("torchrun_options.json")
    assert reference["releases"] == list(releases.known())
    code = render_launch(kind, launch(nodes=nodes)).code
    after = code[code.rindex("torchrun ") :]  # what stands before belongs to srun
    used = set(re.findall(r"(--[a-z][a-z-]+)", after))
    assert used
    for option in used:
        assert reference["options"].get(option) == reference["releases"], option


def strict(schema: Any) -> Any:
    """The schema with unknown fields refused, which the API server does under strict field validation."""
    if isinstance(schema, list):
        return [strict(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: strict(value) for key, value in schema.items() if not key.startswith("x-kubernetes")}
    if isinstance(schema.get("properties"), dict):
        result["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        result["type"] = ["integer", "string"]
    return result


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize(
    ("kind", "file", "version"),
    [("kubernetes", "trainjob_schema.json", "v1alpha1"), ("kubernetes-v1", "pytorchjob_schema.json", "v1")],
)
def test_kubernetes_files_fit_the_schema(kind: str, file: str, version: str, nodes: int, device: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")
    reference = data(file)
    validator = jsonschema.Draft7Validator(strict(reference["schema"]))
    spec = launch(nodes=nodes, device_type=device, gpu_resource="amd.com/gpu", cpu_work=True)
    job = yaml.safe_load(render_launch(kind, spec).code)
    assert [error.message for error in validator.iter_errors(job)] == []
    assert (job["apiVersion"], job["kind"]) == (f"{reference['group']}/{version}", reference["kind"])
    if kind == "kubernetes":
        trainer = job["spec"]["trainer"]
        assert (trainer["numNodes"], trainer["numProcPerNode"], trainer["command"]) == (
            nodes,
            8,
            ["torchrun", "train.py"],
        )
        limits = [trainer.get("resourcesPerNode", {}).get("limits", {})]
    else:
        roles = job["spec"]["pytorchReplicaSpecs"]
        assert sum(role["replicas"] for role in roles.values()) == nodes and roles["Master"]["replicas"] == 1
        assert job["spec"]["nprocPerNode"] == "8"
        containers = [role["template"]["spec"]["containers"][0] for role in roles.values()]
        assert {container["name"] for container in containers} == {"pytorch"}
        limits = [container.get("resources", {}).get("limits", {}) for container in containers]
    assert all(limit == ({} if device == "cpu" else {"amd.com/gpu": 8}) for limit in limits)
    # The schema can say no: otherwise the check above would mean nothing.
    job["spec"]["numNodez"] = 1
    assert list(validator.iter_errors(job))


def accelerate_arguments(spec: LaunchSpec, folder: Path) -> Any:
    """The YAML and the command line as accelerate's own launcher puts them together; it stops at what it does not know."""
    launcher = pytest.importorskip("accelerate.commands.launch", reason="needs accelerate")
    file = folder / "accelerate.yaml"
    file.write_text(render_launch("accelerate", spec).code, encoding="utf-8")
    words = ["--config_file", str(file), "--main_process_ip", "127.0.0.1", "--main_process_port", "0", "train.py"]
    arguments, _, _ = launcher._validate_launch_command(launcher.launch_command_parser().parse_args(words))
    assert arguments.num_processes == spec.nodes * spec.per_node
    assert arguments.num_machines == spec.nodes
    return arguments


def accelerate_environment(spec: LaunchSpec, folder: Path) -> dict[str, str]:
    """What ``accelerate launch --config_file`` would give the script, from accelerate's own launcher."""
    arguments = accelerate_arguments(spec, folder)
    from accelerate.utils.launch import prepare_multi_gpu_env

    assert arguments.use_fsdp
    environment: dict[str, str] = prepare_multi_gpu_env(arguments)
    return environment


@pytest.mark.torch
@pytest.mark.parametrize("reshard", [True, False])
@pytest.mark.parametrize("offload", ["", "pinned"])
@pytest.mark.parametrize("mesh", [(("shard", 16),), (("replicate", 2), ("shard", 8)), (("shard", 8), ("tp", 2))])
def test_accelerate_reads_what_was_meant(
    mesh: tuple[tuple[str, int], ...], offload: str, reshard: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = LLAMA._replace(
        mesh=mesh,
        offload=offload,
        activation_checkpointing=reshard,
        reshard_after_forward=(("block", reshard), ("head", False)),
    )
    for name, value in accelerate_environment(launch(training=training), tmp_path).items():
        monkeypatch.setenv(name, value)
    from accelerate import FullyShardedDataParallelPlugin, ParallelismConfig
    from torch.distributed.fsdp import CPUOffloadPolicy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is reshard
    assert plugin.activation_checkpointing is reshard
    assert isinstance(plugin.cpu_offload, CPUOffloadPolicy) is bool(offload)
    assert plugin.auto_wrap_policy is transformer_auto_wrap_policy
    assert plugin.transformer_cls_names_to_wrap == ["LlamaDecoderLayer"]
    assert os.environ["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert os.environ["ACCELERATE_USE_FSDP"] == "true"
    sizes = {"replicate": 1, "shard": 1, "tp": 1, **dict(mesh)}
    if len(mesh) == 1:
        assert os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG") is None
    else:
        config = ParallelismConfig()
        assert (config.dp_replicate_size, config.dp_shard_size, config.tp_size) == tuple(sizes.values())
        config._validate_accelerator(Accelerator(config.total_size))  # raises for a mesh that it refuses


class Accelerator:
    """As much of accelerate's Accelerator as its check of the mesh reads."""

    multi_device = is_fsdp2 = is_main_process = True
    distributed_type = None

    def __init__(self, processes: int) -> None:
        self.num_processes = processes


@pytest.mark.torch
@pytest.mark.parametrize(
    ("device", "nodes", "per_node", "kind"),
    [("cuda", 2, 8, "MULTI_GPU"), ("cuda", 1, 4, "MULTI_GPU"), ("xpu", 1, 2, "MULTI_XPU"), ("cuda", 1, 1, "NO")],
)
def test_accelerate_without_sharding_is_plain_ddp(
    device: str, nodes: int, per_node: int, kind: str, tmp_path: Path
) -> None:
    """Accelerate refuses FSDP over one shard (parallelism_config.py): a plan for DDP must not ask for it."""
    parallel = pytest.importorskip("accelerate.parallelism_config", reason="needs accelerate")
    from accelerate.commands.config.config_args import load_config_from_file

    with pytest.raises(ValueError, match="no dimension for FSDP"):
        parallel.ParallelismConfig(dp_replicate_size=16, dp_shard_size=1)._validate_accelerator(Accelerator(16))
    training = LLAMA._replace(device_type=device, mesh=(("replicate", nodes * per_node), ("shard", 1)))
    spec = launch(nodes=nodes, per_node=per_node, device_type=device, release="2.4", training=training)
    arguments = accelerate_arguments(spec, tmp_path)
    assert load_config_from_file(str(tmp_path / "accelerate.yaml")).distributed_type.value == kind
    assert not arguments.use_fsdp and not arguments.use_parallelism_config
    assert arguments.multi_gpu is (kind != "NO")
    assert arguments.mixed_precision == "bf16"


@pytest.mark.torch
@pytest.mark.parametrize(("mixed", "written"), [("", "no"), ("bfloat16", "bf16"), ("float16", "fp16")])
def test_accelerate_says_that_it_keeps_parameters_in_float32(mixed: str, written: str, tmp_path: Path) -> None:
    """With mixed precision accelerate upcasts what is trained (utils/fsdp_utils.py, fsdp2_prepare_model)."""
    for kept in ("float32", "bfloat16"):
        spec = launch(training=LLAMA._replace(mp_param=mixed, mp_reduce="", param_dtype=kept))
        assert accelerate_arguments(spec, tmp_path).mixed_precision == written
        code = (tmp_path / "accelerate.yaml").read_text(encoding="utf-8")
        assert ("upcasts trainable parameters to float32" in code) is (bool(mixed) and kept == "bfloat16")


@pytest.mark.torch
def test_accelerate_needs_the_release_that_its_fsdp2_needs() -> None:
    constants = pytest.importorskip("accelerate.utils.constants", reason="needs accelerate")
    first = tuple(int(part) for part in constants.FSDP2_PYTORCH_VERSION.split(".")[:2])
    for release in releases.known():
        training = LLAMA._replace(release=release)
        spec = launch(release=release, training=training)
        if tuple(int(part) for part in release.split(".")) >= first:
            assert render_launch("accelerate", spec).verified.api
        else:
            with pytest.raises(UnusableInput, match=r"needs PyTorch 2\.6"):
                render_launch("accelerate", spec)


@pytest.mark.parametrize("kind", ["accelerate", "torchtitan", "torchtitan-toml"])
def test_a_mesh_that_does_not_fit_the_processes_is_refused(kind: str) -> None:
    with pytest.raises(UnusableInput, match="mesh of 16 ranks for a launch of 8 processes"):
        render_launch(kind, launch(nodes=1))


def test_accelerate_says_what_it_cannot_do() -> None:
    code = render_launch("accelerate", launch(training=LLAMA._replace(placements=(("a.*", 1),)))).code
    comments = "\n".join(line for line in code.splitlines() if line.lstrip().startswith("#"))
    assert "placement" in comments
    assert "MixedPrecisionPolicy" in comments  # reduction in float32
    with pytest.raises(UnusableInput):
        render_launch("accelerate", launch(training=LLAMA._replace(reshard_after_forward=(("block", 4),))))
    with pytest.raises(UnusableInput):
        render_launch("accelerate", launch(device_type="cpu"))
    one_shard = LLAMA._replace(mesh=(("replicate", 2), ("shard", 1), ("tp", 8)))
    with pytest.raises(UnusableInput, match="one shard"):
        render_launch("accelerate", launch(training=one_shard))
    unsharded = LLAMA._replace(mesh=(("replicate", 16), ("shard", 1)))
    with pytest.raises(UnusableInput, match="offloads"):
        render_launch("accelerate", launch(training=unsharded._replace(offload="pinned")))
    code = render_launch("accelerate", launch(training=unsharded._replace(activation_checkpointing=True))).code
    assert "activation checkpointing" in code


def literals(annotation: str) -> set[str]:
    """The values of ``Literal['a', 'b']``; empty for another annotation."""
    return set(re.findall(r"'([^']*)'", annotation)) if annotation.startswith("Literal") else set()


def check_titan(sections: dict[str, dict[str, str]], section: str, field: str, value: Any) -> None:
    assert field in sections[section], f"{section}.{field}"
    annotation = sections[section][field]
    if literals(annotation):
        assert value in literals(annotation), f"{section}.{field}"
    else:
        kinds = {"int": int, "bool": bool, "str": str, "float | int": (int, float)}
        assert isinstance(value, kinds[annotation]), f"{section}.{field}"


TITAN = [
    LLAMA,
    LLAMA._replace(
        mesh=(("replicate", 2), ("shard", 4), ("tp", 2)),
        offload="pinned",
        activation_checkpointing=True,
        reshard_after_forward=tuple((role, False) for role in ("block", "embedding", "head", "root")),
        param_dtype="bfloat16",
        clip_norm=None,
    ),
    LLAMA._replace(reshard_after_forward=(("block", True), ("head", True))),
]


@pytest.mark.parametrize("base", ["llama3.llama3_8b", ""])
@pytest.mark.parametrize("training", TITAN)
def test_torchtitan_has_the_fields(training: TrainingSpec, base: str) -> None:
    reference = data("torchtitan_fields.json")["python"]
    code = render_launch("torchtitan", launch(training=training, torchtitan_base=base)).code
    tree = ast.parse(code)
    assert "llama3_8b" in reference["registry"]["llama3"]
    given: dict[tuple[str, str], Any] = {}
    policies = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            parts = ast.unparse(node.targets[0]).split(".")
            if len(parts) == 3:
                given[parts[1], parts[2]] = ast.literal_eval(node.value)
            else:
                assert parts == ["config", "activation_checkpoint"]
                policies.append(ast.unparse(node.value).removesuffix("()"))
    # Set in either case: the shipped configurations, and Trainer.Config itself, have SelectiveAC.
    assert policies == ["FullAC.Config" if training.activation_checkpointing else "None"]
    assert set(policies) <= set(reference["activation_checkpoint"]["policies"])
    start = next(node for node in tree.body if isinstance(node, ast.FunctionDef)).body[0]
    assert ast.unparse(start) == "config = base()"
    imported = {alias.asname or alias.name for n in tree.body if isinstance(n, ast.ImportFrom) for alias in n.names}
    assert {"base", "Trainer", *(name.split(".")[0] for name in policies if name != "None")} == imported
    for (section, field), value in given.items():
        check_titan(reference["sections"], section, field, value)
    titan_values(training, given)


@pytest.mark.parametrize("training", TITAN)
def test_torchtitan_toml_has_the_fields(training: TrainingSpec) -> None:
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    reference = data("torchtitan_fields.json")["toml"]
    parsed = tomllib.loads(render_launch("torchtitan-toml", launch(training=training)).code)
    given = {(section, field): value for section, fields in parsed.items() for field, value in fields.items()}
    for (section, field), value in given.items():
        check_titan(reference["sections"], section, field, value)
    titan_values(training, given)
    assert given["activation_checkpoint", "mode"] == ("full" if training.activation_checkpointing else "none")


def titan_values(training: TrainingSpec, given: dict[tuple[str, str], Any]) -> None:
    sizes = {"replicate": 1, "shard": 1, "tp": 1, **dict(training.mesh)}
    names = ("data_parallel_replicate_degree", "data_parallel_shard_degree", "tensor_parallel_degree")
    assert tuple(given["parallelism", name] for name in names) == tuple(sizes.values())
    assert given["training", "enable_cpu_offload"] is bool(training.offload)
    assert given["training", "dtype"] == training.param_dtype
    assert given["training", "mixed_precision_param"] == training.mp_param
    # What torchtitan does with a policy, without pipelines (distributed/fsdp.py at the commit in torchtitan_fields.json):
    # layers: policy != "never"; norm and head: policy == "always".
    policy = given["parallelism", "fsdp_reshard_after_forward"]
    wanted = dict(training.reshard_after_forward)
    assert (policy != "never", policy == "always") == (wanted["block"], wanted["head"])
    if training.clip_norm is None:
        assert ("training", "max_norm") not in given
    else:
        assert given["training", "max_norm"] == training.clip_norm


@pytest.mark.parametrize("kind", ["torchtitan", "torchtitan-toml"])
def test_torchtitan_refuses_half_precision(kind: str) -> None:
    with pytest.raises(UnusableInput):
        render_launch(kind, launch(training=LLAMA._replace(mp_param="float16")))


@pytest.mark.parametrize("kind", ["torchtitan", "torchtitan-toml"])
def test_torchtitan_refuses_a_policy_that_it_lacks(kind: str) -> None:
    with pytest.raises(UnusableInput, match="cannot reshard the head"):
        render_launch(kind, launch(training=LLAMA._replace(reshard_after_forward=(("block", False), ("head", True)))))


KINDS = ["torchrun", "sbatch", "kubernetes", "kubernetes-v1", "accelerate", "torchtitan", "torchtitan-toml"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "changes",
    [
        {"script": "train.py; rm -rf /"},
        {"script": "$(id).py"},
        {"script": "--run-path"},
        {"script": "a\nb.py"},
        {"script": ""},
        {"name": "a: b"},
        {"name": "Train"},
        {"name": "-train"},
        {"name": ""},
        {"name": "x" * 80},
        {"nodes": 0},
        {"per_node": 0},
    ],
)
def test_hostile_values_are_refused(kind: str, changes: dict[str, Any]) -> None:
    with pytest.raises(UnusableInput):
        render_launch(kind, launch(**changes))


@pytest.mark.parametrize("kind", ["kubernetes", "kubernetes-v1"])
@pytest.mark.parametrize("resource", ["a b", "x: 1\n  y", "", "${X}"])
def test_hostile_resources_are_refused(kind: str, resource: str) -> None:
    with pytest.raises(UnusableInput):
        render_launch(kind, launch(gpu_resource=resource))


@pytest.mark.parametrize("base", ["llama3", "llama3.", ".x", "llama3.a b", "os.system('x')", "llama3.x;y"])
def test_hostile_torchtitan_bases_are_refused(base: str) -> None:
    with pytest.raises(UnusableInput):
        render_launch("torchtitan", launch(torchtitan_base=base))


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(UnusableInput):
        render_launch("mpirun", launch())
