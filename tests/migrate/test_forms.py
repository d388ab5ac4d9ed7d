"""What the migration writes, form by form; what it leaves, and that it says so."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardguide.code.migrate import helpers_own
from shardguide.code.migrate.engine import migrate
from shardguide.code.migrate.helpers import HELPERS
from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge import api
from shardguide.knowledge.snippets.verify import problems

FOLDER = Path(__file__).parent / "programs"
HEAD = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
"""


def moved(tmp_path: Path, text: str, release: str = "2.13") -> tuple[str, list[tuple[str, str]], set[str]]:
    """The new text, (what, why) of each use that was left, and the codes of what is to be decided."""
    file = tmp_path / "train.py"
    file.write_text(text)
    result = migrate((str(file),), release)
    after = result.changes[0].after if result.changes else text
    left = [(use.what, use.reason) for use in result.uses if use.status == "left"]
    return after, left, {todo.code for todo in result.todos}


def test_the_call_keeps_its_shape_and_comments(tmp_path: Path) -> None:
    after, left, todos = moved(
        tmp_path,
        HEAD
        + """from torch.distributed.fsdp import ShardingStrategy  # three of them


def build(model):
    return FSDP(
        model,
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,  # keep the weights
        # backward_prefetch=None,
        use_orig_params=True,
        limit_all_gathers=True,  # see the issue
    )
""",
    )
    assert after == (
        """\
import torch
import torch.distributed as dist
# three of them
from torch.distributed.fsdp import fully_shard


def build(model):
    return fully_shard(
        model,
        reshard_after_forward=False,  # keep the weights
        # backward_prefetch=None,
        # see the issue
    )
"""
    )
    assert left == [] and todos == set()


POLICY = """from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def build(model, Block):
    model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block})%s)
    return model
"""


def test_layers_come_first_and_the_root_last(tmp_path: Path) -> None:
    after, _, _ = moved(tmp_path, HEAD + POLICY % "")
    assert after.endswith(
        """

def build(model, Block):
    for module in reversed(list(model.modules())):
        if isinstance(module, Block) and module is not model:
            fully_shard(module)
    model = fully_shard(model)
    return model
"""
    )


def test_only_the_root_casts_its_inputs(tmp_path: Path) -> None:
    given = ", mixed_precision=MixedPrecision(torch.bfloat16)"
    after, _, _ = moved(tmp_path, HEAD + "from torch.distributed.fsdp import MixedPrecision\n" + POLICY % given)
    policy = "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16"
    assert f"fully_shard(module, mp_policy={policy}, cast_forward_inputs=False))" in " ".join(after.split()).replace(
        "( ", "("
    ).replace(", )", ")")
    assert f"model = fully_shard(model, mp_policy={policy}))" in after


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("m = FSDP(m, sharding_strategy=ShardingStrategy.NO_SHARD)", "no-shard"),
        ("m = FSDP(m, process_group=(a, b))", "process-group-pair"),
        ("m = FSDP(m, colour=1)", "argument-unknown"),
        ("m = FSDP(*given)", "arguments"),
        ("m = FSDP(m, auto_wrap_policy=ModuleWrapPolicy({A})) if on else m", "expression"),
        ("m = FSDP(m, auto_wrap_policy=CustomPolicy(on), **given)", "custom-policy"),
        ("o = torch.optim.SGD(m.parameters(), 0.1)\n    m = FSDP(m)", "optimizer-first"),
    ],
)
def test_refused_and_left_whole(tmp_path: Path, text: str, code: str) -> None:
    before = (
        HEAD
        + f"""from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import CustomPolicy, ModuleWrapPolicy


def build(m, a, b, A, on, given):
    {text}
    m.clip_grad_norm_(1.0)
    return m
"""
    )
    after, left, todos = moved(tmp_path, before)
    assert after == before
    assert ("FSDP", code) in left and code in todos
    assert any(what == "clip_grad_norm_" for what, _ in left)


@pytest.mark.parametrize(
    "branch",
    [
        "if isinstance(m, FSDPModule):\n        return m",
        "if fsdp_version(m) == 2:\n        return m",
        'if strategy == "fsdp2":\n        return m',
    ],
)
def test_the_old_branch_beside_the_new_one(tmp_path: Path, branch: str) -> None:
    before = HEAD + f"\n\ndef build(m, strategy, fsdp_version, FSDPModule):\n    {branch}\n    return FSDP(m)\n"
    after, left, todos = moved(tmp_path, before)
    assert f"    {branch}\n    return fully_shard(m)\n" in after and left == [] and todos == {"twin"}


def test_nothing_of_another_librarys(tmp_path: Path) -> None:
    before = """\
import torch
from accelerate import Accelerator
from lightning.fabric import Fabric


def step(accelerator, model, fabric, loss):
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    with accelerator.no_sync(model), fabric.no_backward_sync(model):
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return model.module.state_dict()
"""
    assert moved(tmp_path, before) == (before, [], set())


def test_no_argument_is_lost_on_one_line(tmp_path: Path) -> None:
    after, _, _ = moved(
        tmp_path,
        HEAD + """\n\nmodel = FSDP(torch.nn.Linear(2, 2), device_id=torch.device("cpu"), use_orig_params=True)\n""",
    )
    assert after.endswith(
        """
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = fully_shard(torch.nn.Linear(2, 2), mesh=mesh)
"""
    )


def test_a_model_that_may_be_ddp_is_asked(tmp_path: Path) -> None:
    after, left, _ = moved(
        tmp_path,
        HEAD
        + """from torch.nn.parallel import DistributedDataParallel as DDP


def main(flag):
    model = torch.nn.Linear(2, 2)
    model = FSDP(model) if flag else DDP(model)
    with model.no_sync():
        model(torch.ones(2, 2)).sum().backward()
    return model.state_dict(), model.module
""",
    )
    assert "with no_sync_of(model):" in after and left == []
    assert "if isinstance(model, FSDPModule) else model.state_dict())" in after
    assert "(model if isinstance(model, FSDPModule) else model.module)" in after


def test_strings_over_lines_keep_their_inside(tmp_path: Path) -> None:
    after, left, _ = moved(
        tmp_path,
        HEAD
        + '''from torch.distributed.fsdp import StateDictType


def save(model):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        text = """
        as it is
"""
        # the shards
        state = model.state_dict()
    return text, state
''',
    )
    assert left == []
    assert after.endswith(
        '''

def save(model):
    text = """
        as it is
"""
    # the shards
    state = get_model_state_dict(model)
    return text, state
'''
    )


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ("", "StateDictOptions(full_state_dict=True)"),
        (", FullStateDictConfig(True, True)", "StateDictOptions(full_state_dict=True, cpu_offload=True)"),
        (", FullStateDictConfig(offload_to_cpu=True)", "StateDictOptions(full_state_dict=True)"),
        (", FullStateDictConfig(rank0_only=True)", "StateDictOptions(full_state_dict=True)"),
        (", FullStateDictConfig(flag, flag)", "StateDictOptions(full_state_dict=True, cpu_offload=flag and flag)"),
    ],
)
def test_on_the_cpu_only_where_rank_0_alone_gets_it(tmp_path: Path, config: str, options: str) -> None:
    after, left, _ = moved(
        tmp_path,
        HEAD
        + f"""from torch.distributed.fsdp import FullStateDictConfig, StateDictType


def save(model, flag):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT{config}):
        return model.state_dict()
""",
    )
    assert left == [] and f"return get_model_state_dict(model, options={options})" in after


def test_a_model_handed_on_inside_a_context_is_left(tmp_path: Path) -> None:
    before = (
        HEAD
        + """from torch.distributed.fsdp import StateDictType


def save(model, write):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        write(model)
"""
    )
    after, left, todos = moved(tmp_path, before)
    assert after == before and left == [("state_dict_type", "state-dict-type")] and todos == {"state-dict-type"}


def test_earlier_fsdp2(tmp_path: Path) -> None:
    after, left, _ = moved(
        tmp_path,
        """\
from torch.distributed._composable.fsdp import FSDP, fully_shard
from torch.distributed._composable.fsdp.fully_shard import register_fsdp_forward_method


def build(model):
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=False)
    fully_shard(model, reshard_after_forward=True)  # never held for the root
    assert isinstance(model, FSDP)
    register_fsdp_forward_method(model, "encode")
    return model
""",
    )
    assert left == []
    assert after == (
        """\
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp import register_fsdp_forward_method


def build(model):
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=False)
    fully_shard(model, reshard_after_forward=None)  # never held for the root
    assert isinstance(model, FSDPModule)
    register_fsdp_forward_method(model, "encode")
    return model
"""
    )
    again, _, _ = moved(tmp_path, after)
    assert again == after
    guarded = """\
try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    from torch.distributed._composable.fsdp import fully_shard
"""
    assert moved(tmp_path, guarded)[0] == guarded


def test_accelerates_plugin(tmp_path: Path) -> None:
    after, left, _ = moved(
        tmp_path,
        """\
from accelerate import FullyShardedDataParallelPlugin
from torch.distributed.fsdp import CPUOffload, ShardingStrategy

plugin = FullyShardedDataParallelPlugin(
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, cpu_offload=CPUOffload(True), use_orig_params=True
)
""",
    )
    assert left == []
    call = ast.parse(after).body[-1].value
    assert {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords} == {
        "fsdp_version": "2",
        "reshard_after_forward": "False",
        "cpu_offload": "True",
        "state_dict_type": "'FULL_STATE_DICT'",
    }
    for strategy, reason in (("HYBRID_SHARD", "hybrid-nodes"), ("NO_SHARD", "no-shard")):
        text = f'from accelerate import FullyShardedDataParallelPlugin\n\nplugin = FullyShardedDataParallelPlugin(sharding_strategy="{strategy}")\n'
        assert moved(tmp_path, text)[:2] == (text, [("FullyShardedDataParallelPlugin", reason)])


def test_offload_gives_the_group_a_backend_for_the_cpu(tmp_path: Path) -> None:
    after, _, _ = moved(
        tmp_path,
        HEAD
        + """from torch.distributed.fsdp import CPUOffload

dist.init_process_group("nccl")
model = FSDP(torch.nn.Linear(2, 2), cpu_offload=CPUOffload(offload_params=True))
""",
    )
    assert 'dist.init_process_group("cpu:gloo,cuda:nccl")' in after
    assert "offload_policy=CPUOffloadPolicy()" in after


@pytest.mark.parametrize("release", ["2.3", "2.4", "2.5", "2.6", "2.7", "2.9", "2.13", "2.15"])
def test_every_name_is_in_the_release(release: str, tmp_path: Path) -> None:
    """What the release lacks is never written: the programs' own lines aside, the index knows every name and keyword."""
    for source in sorted(FOLDER.rglob("*.py")):
        result = migrate((str(source),), release)
        for change in result.changes:
            known = {one.partition(": ")[2] for one in problems(ast.parse(change.before), release)}
            new = [one for one in problems(ast.parse(change.after), release) if one.partition(": ")[2] not in known]
            assert [one for one in new if " torch." in one and not _own(one)] == [], change.path


def _own(problem: str) -> bool:
    """Names outside of the index, which knows torch.distributed and what goes with it."""
    return "torch.distributed" not in problem and "torch.nn.utils" not in problem and "torch.amp" not in problem


def test_releases_without_fully_shard(tmp_path: Path) -> None:
    assert not api.exists("torch.distributed.fsdp.fully_shard", "2.2")
    file = tmp_path / "train.py"
    file.write_text(HEAD + "\nmodel = FSDP(torch.nn.Linear(2, 2))\n")
    done = _command(str(file), "--torch", "2.2")
    assert done.returncode == 2 and "no fully_shard" in done.stderr


def test_functions_without_a_use_are_word_for_word_the_same() -> None:
    seen = 0
    for source in sorted(FOLDER.rglob("*.py")):
        result = migrate((str(source),), "2.13")
        touched = {use.line for use in result.uses}
        for change in result.changes:
            for node in ast.parse(change.before).body:
                lines = range(node.lineno, (node.end_lineno or 0) + 1)
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not touched & set(lines):
                    text = "\n".join(change.before.split("\n")[node.lineno - 1 : node.end_lineno])
                    assert text in change.after
                    seen += 1
    assert seen > 40


def test_helpers_import_what_they_use() -> None:
    for name, (imports, code) in {**HELPERS, **helpers_own.HELPERS}.items():
        words = {key: key for key in imports} | {"self": name, "default": "None", "src": ""}
        tree = ast.parse(code.strip("\n").format(**words))
        free = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        assert free - bound - set(imports) - set(
            dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__
        ) <= {"_options"}


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shardguide", "migrate", *arguments], capture_output=True, text=True, check=False
    )


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_bytes((HEAD + "\n\ndef build(m):\n    return FSDP(m)\n").replace("\n", "\r\n").encode())
    done = _command(str(file), "--torch", "2.13", "--json", "--notebook", str(tmp_path / "book.db"))
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["workflow"] == "migrate" and record["counts"]["constructors"] == {
        "converted": 1,
        "kept": 0,
        "left": 0,
    }
    assert "+    return fully_shard(m)\r\n" in record["diff"] and "-    return FSDP(m)\r\n" in record["diff"]
    assert file.read_bytes().count(b"FSDP(m)") == 1  # nothing is written
    diff = _command(str(file), "--torch", "2.13", "--diff", "--notebook", str(tmp_path / "book.db"))
    (tmp_path / "a.patch").write_text(diff.stdout, newline="")
    left = file.with_name("left.py")
    left.write_text(HEAD + "\n\ndef build(m, **more):\n    return FSDP(m, *more)\n")
    page = _command(str(left), "--torch", "2.13", "--notebook", str(tmp_path / "book.db"))
    assert page.returncode == 1 and "Left as it is" in page.stdout and "[arguments]" in page.stdout


@pytest.mark.parametrize("text", ["def (", "x = '\0'", "[" * 5000, "\ufeffimport torch\n"])
def test_odd_files_are_a_problem_not_a_crash(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.py").write_text(text + "  # torch FSDP", encoding="utf-8")
    (tmp_path / "good.py").write_text(HEAD + "\nmodel = FSDP(torch.nn.Linear(2, 2))\n")
    result = migrate((str(tmp_path),), "2.13")
    assert [Path(change.path).name for change in result.changes] == ["good.py"]


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput):
        migrate((str(tmp_path / "none.py"),), "2.13")
    with pytest.raises(UnusableInput):
        migrate((str(tmp_path),), "2.13")


def test_a_test_of_the_type_decides(tmp_path: Path) -> None:
    after, left, _ = moved(
        tmp_path,
        HEAD
        + """from torch.nn.parallel import DistributedDataParallel as DDP


def main(flag):
    model = torch.nn.Linear(2, 2)
    model = FSDP(model) if flag else DDP(model)
    if isinstance(model, FSDP):
        return model.module, model.state_dict()
    elif isinstance(model, DDP):
        return model.module, model.module.state_dict()
""",
    )
    assert left == []
    assert "return model, get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))" in after
    assert "return model.module, model.module.state_dict()" in after
