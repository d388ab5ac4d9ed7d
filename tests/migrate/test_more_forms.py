"""Ways of writing FSDP1 that came up in other people's repositories: what must change, and what must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardguide.code.migrate.engine import migrate

from .test_forms import HEAD, moved

STATES = "from torch.distributed.fsdp import StateDictType, FullStateDictConfig\n"


def test_a_refused_call_takes_nothing_with_it(tmp_path: Path) -> None:
    """The settings above it stay, and so do its imports."""
    before = (
        HEAD
        + """from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def build(m, A):
    halves = MixedPrecision(param_dtype=torch.bfloat16)
    return [x for x in FSDP(m, mixed_precision=halves, auto_wrap_policy=ModuleWrapPolicy({A})).children()]
"""
    )
    after, left, _ = moved(tmp_path, before)
    assert after == before and ("FSDP", "expression") in left


@pytest.mark.parametrize("inner", [True, False])
def test_another_name_of_the_class(tmp_path: Path, inner: bool) -> None:
    name = "    Sharded = fsdp.FullyShardedDataParallel\n" if inner else ""
    outer = "" if inner else "Sharded = fsdp.FullyShardedDataParallel\n\n\n"
    after, left, todos = moved(
        tmp_path,
        f"""import torch
import torch.distributed.fsdp as fsdp

{outer}def build(m, optimizer):
{name}    m = Sharded(m)
    with Sharded.state_dict_type(m, fsdp.StateDictType.SHARDED_STATE_DICT):
        return m, m.state_dict(), Sharded.optim_state_dict(m, optimizer), isinstance(m, Sharded)
""",
    )
    assert left == [] and todos == {"checkpoints"} and "Sharded" not in after
    assert "m = fsdp.fully_shard(m)" in after
    states = "get_model_state_dict(m), get_optimizer_state_dict(m, optimizer)"
    assert f"return m, {states}, isinstance(m, fsdp.FSDPModule)" in after


def test_a_name_that_is_bound_is_no_use(tmp_path: Path) -> None:
    """dinov2 passes the scaler on under its own name."""
    after, left, _ = moved(
        tmp_path,
        HEAD
        + """from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

ShardedGradScaler = ShardedGradScaler


def build(m):
    return FSDP(m), ShardedGradScaler()
""",
    )
    assert "\nShardedGradScaler = torch.amp.GradScaler\n" in after and left == []
    assert "torch.amp.GradScaler =" not in after


def test_options_for_two_models(tmp_path: Path) -> None:
    """What the dictionary is made of is deleted with it, or not at all."""
    code = """from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def build(m, n, A{more}):
    policy = ModuleWrapPolicy({{A}})
    options = dict(auto_wrap_policy=policy, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
    m = FSDP(m, **options)
    n = FSDP(n, **options)
    return m, n{last}
"""
    after, left, _ = moved(tmp_path, HEAD + code.format(more="", last=""))
    assert left == [] and "policy" not in after and "options" not in after
    assert after.count("fully_shard(module, reshard_after_forward=False)") == 2
    after, left, _ = moved(tmp_path, HEAD + code.format(more=", log", last=", log(options)"))
    assert "policy = ModuleWrapPolicy({A})" in after and "options = dict(auto_wrap_policy=policy" in after


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("step = m.no_sync if last else null", "step = functools.partial(no_sync, m) if last else null"),
        ("clip = m.clip_grad_norm_", "clip = functools.partial(clip_grad_norm, m)"),
        (
            'if hasattr(m, "no_sync"):\n        pass',
            'if (isinstance(m, FSDPModule) or hasattr(m, "no_sync")):\n        pass',
        ),
    ],
)
def test_methods_that_are_spoken_of(tmp_path: Path, text: str, wanted: str) -> None:
    after, left, _ = moved(
        tmp_path, HEAD + f"import functools\n\n\ndef run(m, last, null):\n    m = FSDP(m)\n    {text}\n"
    )
    assert left == [] and wanted in after


def test_a_method_of_the_same_name(tmp_path: Path) -> None:
    """open_flamingo's model clips by itself, part by part."""
    after, left, _ = moved(
        tmp_path,
        HEAD
        + """

class Model(torch.nn.Module):
    def wrap(self):
        self.part = FSDP(self.part)

        def clip_grad_norm_(max_norm):
            self.part.clip_grad_norm_(max_norm)

        self.clip_grad_norm_ = clip_grad_norm_


def train(model):
    model.clip_grad_norm_(1.0)
""",
    )
    assert left == [] and after.endswith("    model.clip_grad_norm_(1.0)\n")
    assert "torch.nn.utils.clip_grad_norm_(self.part.parameters(), max_norm)" in after


LOADS = {
    "in one of two cases": (
        """    if sharded:
        state = FSDP.optim_state_dict_to_load(model, optimizer, state)
    optimizer.load_state_dict(state)
""",
        """    if sharded:
        set_optimizer_state_dict(model, optimizer, optim_state_dict=own_steps(state), options=StateDictOptions(full_state_dict=True))
    else:
        optimizer.load_state_dict(state)
""",
    ),
    "in the order of 2.0": (
        """    ready = FSDP.optim_state_dict_to_load(state, model, optimizer)
    optimizer.load_state_dict(ready)
""",
        """    set_optimizer_state_dict(model, optimizer, optim_state_dict=own_steps(state), options=StateDictOptions(full_state_dict=True))
""",
    ),
    "deleted afterwards": (
        """    ready = FSDP.optim_state_dict_to_load(model, optimizer, state["optimizer"])
    optimizer.load_state_dict(ready)
    del state, ready
""",
        """    set_optimizer_state_dict(model, optimizer, optim_state_dict=own_steps(state["optimizer"]), options=StateDictOptions(full_state_dict=True))
    del state
""",
    ),
    "deleted in between": (
        """    ready = FSDP.optim_state_dict_to_load(model, optimizer, state["optimizer"])
    del state
    optimizer.load_state_dict(ready)
""",
        """    ready = own_steps(state["optimizer"])
    del state
    set_optimizer_state_dict(model, optimizer, optim_state_dict=ready, options=StateDictOptions(full_state_dict=True))
""",
    ),
    "made in two branches": (
        """    if sharded:
        ready = FSDP.optim_state_dict_to_load(state, model, optimizer)
    else:
        ready = FSDP.optim_state_dict_to_load(model, optimizer, state)
    sharded = None
    optimizer.load_state_dict(ready)
""",
        """    if sharded:
        ready = own_steps(state)
    else:
        ready = own_steps(state)
    sharded = None
    set_optimizer_state_dict(model, optimizer, optim_state_dict=ready, options=StateDictOptions(full_state_dict=True))
""",
    ),
    "never": (
        """    ready = FSDP.scatter_full_optim_state_dict(state, model)  # into the shards
    print(state)
""",
        """    # into the shards
    print(state)
""",
    ),
}


@pytest.mark.parametrize("name", LOADS)
def test_an_optimizer_is_loaded(tmp_path: Path, name: str) -> None:
    before, wanted = LOADS[name]
    head = "\n\ndef load(model, optimizer, state, sharded):\n    model = FSDP(model)\n"
    after, left, todos = moved(tmp_path, HEAD + head + before)
    assert left == [] and after.endswith("    model = fully_shard(model)\n" + wanted)
    assert ("never-loaded" in todos) == (name == "never")


def test_the_kind_that_was_set_for_a_model(tmp_path: Path) -> None:
    """Nothing else says that this model is FSDP1's, and that is enough."""
    after, left, _ = moved(
        tmp_path,
        HEAD
        + STATES
        + """

def build(m):
    return FSDP(m)


def save(anything, optimizer, group):
    FSDP.set_state_dict_type(anything, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True))
    return anything.state_dict(), FSDP.optim_state_dict(anything, optimizer, group=group)
""",
    )
    assert left == [] and "set_state_dict_type" not in after
    assert (
        "return get_model_state_dict(anything, options=StateDictOptions(full_state_dict=True, cpu_offload=True)), get_opt"
        in after
    )


CONTEXT = """from torch.distributed.fsdp import StateDictType


class Trainer:
    def __init__(self, model):
        self.model = FSDP(model)

    def run(self):
        with FSDP.state_dict_type(self.model, StateDictType.SHARDED_STATE_DICT):
            self.save("a")
            self.say("b")
{more}
    def say(self, text):
        print(text, self.model)

    def save(self, path):
        torch.save(self.model.state_dict(), path)
"""


def test_a_function_that_is_called_in_a_context(tmp_path: Path) -> None:
    """It has the kind of the context, if there is no other caller."""
    after, left, _ = moved(tmp_path, HEAD + CONTEXT.format(more=""))
    assert left == [] and "torch.save(get_model_state_dict(self.model), path)" in after and "with" not in after
    other = '\n    def later(self):\n        self.save("c")\n'
    after, left, todos = moved(tmp_path, HEAD + CONTEXT.format(more=other))
    assert left == [("state_dict_type", "state-dict-type")] and "state-dict-type" in todos


def test_one_of_many_in_a_context(tmp_path: Path) -> None:
    """The model may be among what a loop gives: then its type is asked, or nothing is changed."""
    code = """from torch.distributed.fsdp import StateDictType


def save(model, everything):
    model = FSDP(model)
    out = {}
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        for name, one in everything.items():
            TEST
                out[name] = one.state_dict()
    return out
"""
    after, left, _ = moved(tmp_path, HEAD + code.replace("TEST", "if isinstance(one, torch.nn.Module):"))
    assert left == []
    assert "= (get_model_state_dict(one) if isinstance(one, FSDPModule) else one.state_dict())" in after
    after, left, _ = moved(tmp_path, HEAD + code.replace("TEST", 'if name != "epoch":'))
    assert left == [("state_dict_type", "state-dict-type")]


APPLY = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing"


def test_checkpointing_where_the_wrapping_function_is_called(tmp_path: Path) -> None:
    after, left, todos = moved(
        tmp_path,
        HEAD
        + f"""from {APPLY}
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def shard(net, A):
    return FSDP(net, auto_wrap_policy=ModuleWrapPolicy({{A}}))


def build(m, A, log):
    model = shard(m, A)
    # less memory
    apply_activation_checkpointing(model, check_fn=lambda x: isinstance(x, A) and not isinstance(x, FSDP))
    log(model)
    return model
""",
    )
    assert left == [] and "activation-checkpointing" not in todos
    assert "fully_shard(checkpointed.get(module, module))" in after
    assert (
        "    # less memory\n    apply_activation_checkpointing(m, check_fn=lambda x: isinstance(x, A))\n"
        "    model = shard(m, A)\n    log(model)\n" in after
    )


def test_parameters_changed_after_an_evaluation(tmp_path: Path) -> None:
    code = """

@torch.no_grad()
def average(other, model):
    for a, b in zip(other.parameters(), model.parameters()):
        a.lerp_(b, 0.1)


def freeze(model):
    for p in model.parameters():
        p.requires_grad_(False)


def main(m, n):
    m, n = FSDP(m), FSDP(n)
    freeze(n)
    average(n, m)
"""
    _, left, todos = moved(tmp_path, HEAD + code)
    assert left == [] and "own-updates" in todos
    _, _, todos = moved(tmp_path, HEAD + code.replace("        a.lerp_(b, 0.1)", "        print(a, b)"))
    assert "own-updates" not in todos


def test_the_latest_of_two_settings(tmp_path: Path) -> None:
    after, left, _ = moved(
        tmp_path,
        HEAD
        + STATES
        + """

def save(m):
    m = FSDP(m)
    policy = FullStateDictConfig(rank0_only=False)
    with FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT, policy):
        a = m.state_dict()
    policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT, policy):
        return a, m.state_dict()
""",
    )
    assert left == []
    assert "a = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))\n" in after
    assert (
        "return a, get_model_state_dict(m, options=StateDictOptions(full_state_dict=True, cpu_offload=True))" in after
    )


def test_buffers_of_a_precision_that_may_be_none(tmp_path: Path) -> None:
    after, _, _ = moved(
        tmp_path,
        HEAD
        + """from torch.distributed.fsdp import MixedPrecision


def build(m, dtype):
    m = FSDP(m, mixed_precision=MixedPrecision(param_dtype=dtype, buffer_dtype=dtype))
    return m
""",
    )
    assert "    cast_buffers(m, dtype)\n" in after and "buffer.to(dtype)" in after


def test_the_handle_of_an_FSDP1_module(tmp_path: Path) -> None:
    """Wan2.1 frees flat parameters by it; another object's handle is no use."""
    _, left, todos = moved(
        tmp_path,
        HEAD
        + """

def build(m):
    return FSDP(m)


def free(model, file):
    file._handle.close()
    for m in model.modules():
        if isinstance(m, FSDP):
            m._handle.flat_param.data.zero_()
""",
    )
    assert left == [("_handle", "private")] and "private" in todos


def test_checkpointing_moves_without_its_neighbours(tmp_path: Path) -> None:
    """What was put after the constructor stays there, once (llama-cookbook)."""
    after, left, _ = moved(
        tmp_path,
        HEAD
        + f"""from {APPLY}
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def build(m, A, on):
    m = FSDP(m, auto_wrap_policy=ModuleWrapPolicy({{A}}), sync_module_states=True, device_id=torch.device("cpu"))
    if on:
        apply_activation_checkpointing(m, check_fn=lambda x: isinstance(x, A))
    return m
""",
    )
    assert left == [] and after.count("    broadcast_from_rank0(m, full_state)\n") == 1
    assert after.index("apply_activation_checkpointing(m, ") < after.index("full_state = m.state_dict()")


def test_tests_of_the_type_go_with_their_models(tmp_path: Path) -> None:
    """Where every constructor stays they stay; where some do, they ask for both."""
    code = """from torch.distributed.fsdp import ShardingStrategy


def whole(m):
    return FSDP(m, sharding_strategy=ShardingStrategy.NO_SHARD)


MORE
def known(m):
    return isinstance(m, FSDP), isinstance(m, (list, FSDP)), FSDP.fsdp_modules(m)
"""
    before = HEAD + code.replace("MORE\n", "")
    after, left, _ = moved(tmp_path, before)
    assert after == before
    assert left.count(("FSDP", "left-constructor")) == 2 and ("fsdp_modules", "left-constructor") in left
    after, left, _ = moved(tmp_path, HEAD + code.replace("MORE", "def shard(m):\n    return FSDP(m)\n\n"))
    assert (
        "return isinstance(m, (FSDP, FSDPModule)), isinstance(m, (list, FSDP, FSDPModule)), FSDP.fsdp_modules(m)"
        in after
    )


def test_a_policy_whose_argument_is_called_as_another_variable(tmp_path: Path) -> None:
    code = """from torch.distributed.fsdp.wrap import CustomPolicy


def build(model, A):
    LINE
    return FSDP(model, auto_wrap_policy=CustomPolicy(lambda m: isinstance(m, A)))LAST
"""
    after, left, _ = moved(tmp_path, HEAD + code.replace("LINE", "f = lambda m: m").replace("LAST", ""))
    assert left == [] and "for m in reversed(list(model.modules())):" in after
    after, left, _ = moved(tmp_path, HEAD + code.replace("LINE", "m = 3").replace("LAST", ", m"))
    assert left == [] and "if (lambda m: isinstance(m, A))(module) and module is not model:" in after


def test_a_model_over_a_group_of_its_own(tmp_path: Path) -> None:
    """Its first rank is not rank 0 of all (Lumina-T2X saves from the first rank of each)."""
    code = """

def build(m, group):
    m = FSDP(mGROUP, sync_module_states=True)
    with FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):
        return m.state_dict()
"""
    after, left, todos = moved(tmp_path, HEAD + STATES + code.replace("GROUP", ", group"))
    assert left == [] and "rank-of-group" in todos and "broadcast_from_rank0(m, full_state, group)" in after
    after, left, todos = moved(tmp_path, HEAD + STATES + code.replace("GROUP", ""))
    assert left == [] and "rank-of-group" not in todos and "broadcast_from_rank0(m, full_state)\n" in after


def test_arithmetic_in_a_file_that_does_not_speak_of_FSDP(tmp_path: Path) -> None:
    (tmp_path / "norms.py").write_text(
        """import torch.distributed as dist


def norm_of(model):
    total = sum(p.grad.norm() ** 2 for p in model.parameters())
    dist.all_reduce(total)
    return total
"""
    )
    (tmp_path / "train.py").write_text(
        HEAD + "from norms import norm_of\n\n\ndef main(m):\n    m = FSDP(m)\n    return norm_of(m)\n"
    )
    result = migrate((str(tmp_path),), "2.13")
    assert [todo.code for todo in result.todos if todo.path.endswith("norms.py")] == ["own-arithmetic"]
    assert [change.path.rpartition("/")[2] for change in result.changes] == ["train.py"]


def test_values_of_a_policy_that_are_more_than_names(tmp_path: Path) -> None:
    after, left, _ = moved(
        tmp_path,
        HEAD
        + """from torch.distributed.fsdp import MixedPrecision


def build(m):
    m = FSDP(m, mixed_precision=MixedPrecision(param_dtype=next(m.parameters()).dtype))
    return m
""",
    )
    assert left == []
    assert after.endswith(
        "    param_dtype = next(m.parameters()).dtype\n"
        "    m = fully_shard(m, mp_policy=MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=param_dtype))\n"
        "    return m\n"
    )
