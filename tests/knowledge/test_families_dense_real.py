"""The dense families against the installed transformers itself (5, or 4.57: whichever it is), on the meta device."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from dense_cases import CASES, FAMILIES, NUMBERS, ODD, TRUTH, VARIANTS, assert_equal, small
from family_oracle import detail, lines_digest, real_truth, record, saved_tensors
from family_oracle import transformers_major as major
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge.families.index import build

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", CASES)
def test_published_configurations_match_the_real_class_at_full_depth(name: str) -> None:
    release = f"transformers{major()}"
    truth = real_truth(CASES[name])
    assert_equal(build(CASES[name], release), truth)
    assert record(truth) | detail(truth) == TRUTH[release]["cases"][name]


@pytest.mark.slow
def test_the_fixture_can_be_made_again() -> None:
    release = f"transformers{major()}"
    for name, config in VARIANTS.items():
        recorded = TRUTH[release]["variants"][name]
        try:
            truth = real_truth(config)
        except Exception as error:
            assert recorded == {"refused": type(error).__name__}
            continue
        saved = saved_tensors(config)
        assert recorded == record(truth) | {"saved": len(saved), "saved_digest": lines_digest(saved)}


def _maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any subset of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


HEADS = st.sampled_from([1, 2, 3, 4, 6, 8])
ROPES = st.sampled_from(
    [
        {"rope_type": "linear", "factor": 2.0},
        {"type": "dynamic", "factor": 4.0},
        {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 64},
        {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "factor": 2.0},
        {"rope_type": "default"},
        {"rope_type": "proportional", "partial_rotary_factor": 0.5},
        {"type": "su"},
        None,
    ]
)  # fmt: skip
LLAMA_LIKE = _maybe(
    vocab_size=st.integers(1, 90),
    hidden_size=st.integers(1, 12).map(lambda n: 4 * n),
    intermediate_size=st.integers(1, 90),
    num_hidden_layers=st.integers(1, 7),
    num_attention_heads=HEADS,
    num_key_value_heads=st.none() | HEADS,
    head_dim=st.none() | st.integers(1, 12),
    tie_word_embeddings=st.booleans(),
    attention_bias=st.booleans(),
    mlp_bias=st.booleans(),
    use_bias=st.booleans(),
    rope_scaling=ROPES,
    rope_parameters=ROPES,
    partial_rotary_factor=st.sampled_from([0.25, 0.4, 0.5, 1.0, 1]),
    rotary_pct=st.sampled_from([0.1, 0.25, 1.0]),
    pad_token_id=st.none() | st.integers(-2, 4),
    torch_dtype=st.sampled_from(["float32", "bfloat16", "float16", None]),
    sliding_window=st.none() | st.integers(1, 8),
    sliding_window_pattern=st.integers(1, 4),
    use_sliding_window=st.booleans(),
)
OTHERS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "falcon": _maybe(
        hidden_size=st.integers(1, 12).map(lambda n: 4 * n),
        n_embed=st.none() | st.just(48),
        num_attention_heads=HEADS,
        num_kv_heads=st.none() | HEADS,
        num_ln_in_parallel_attn=st.none() | st.integers(1, 3),
        alibi=st.booleans() | st.none(),
        new_decoder_architecture=st.booleans() | st.none(),
        multi_query=st.booleans() | st.none(),
        parallel_attn=st.booleans() | st.none(),
        bias=st.booleans() | st.none(),
        ffn_hidden_size=st.none() | st.integers(1, 90),
        tie_word_embeddings=st.booleans(),
        rope_scaling=ROPES,
    ),
    "opt": _maybe(
        hidden_size=st.integers(1, 12).map(lambda n: 4 * n),
        word_embed_proj_dim=st.none() | st.sampled_from([8, 16, 32]),
        ffn_dim=st.integers(1, 90),
        num_attention_heads=HEADS,
        max_position_embeddings=st.integers(1, 40),
        do_layer_norm_before=st.booleans(),
        _remove_final_layer_norm=st.booleans(),
        enable_bias=st.booleans(),
        layer_norm_elementwise_affine=st.booleans(),
        tie_word_embeddings=st.booleans(),
    ),
    "gpt2": _maybe(
        n_embd=st.integers(1, 12).map(lambda n: 4 * n),
        hidden_size=st.just(24),
        n_head=HEADS,
        n_inner=st.none() | st.integers(1, 90),
        n_positions=st.integers(1, 40),
        add_cross_attention=st.booleans(),
        tie_word_embeddings=st.booleans(),
        torch_dtype=st.sampled_from(["float32", "bfloat16", None]),
    ),
    "bloom": _maybe(
        hidden_size=st.integers(1, 12).map(lambda n: 4 * n),
        n_embed=st.none() | st.just(48),
        n_head=HEADS,
        num_attention_heads=HEADS,
        n_layer=st.integers(1, 3),
        tie_word_embeddings=st.booleans(),
    ),
    "gemma3": _maybe(
        tie_word_embeddings=st.booleans(),
        torch_dtype=st.sampled_from(["float32", "bfloat16", None]),
        vision_config=st.fixed_dictionaries(
            {"model_type": st.just("siglip_vision_model"), "image_size": st.integers(7, 40), "patch_size": st.just(7)},
            optional={
                "hidden_size": st.integers(1, 8).map(lambda n: 4 * n),
                "intermediate_size": st.integers(1, 60),
                "num_hidden_layers": st.integers(1, 3),
                "num_attention_heads": HEADS,
                "num_channels": st.integers(1, 4),
                "vision_use_head": st.booleans(),
            },
        ),
    ),
}


# Where the families refuse what transformers lets pass by accident: factors that broadcast, a head of one dimension.
STRICTER = ("numbers, it has", "rotated dimensions", "no part of a head is rotated")


def _check_against_the_real_class(config: dict[str, Any]) -> None:
    """Equal, or refused by both."""
    try:
        truth = real_truth(config)
    except Exception:
        with pytest.raises(UnusableInput):
            build(config, f"transformers{major()}")
        return
    try:
        model = build(config, f"transformers{major()}")
    except UnusableInput as refusal:
        assert any(text in str(refusal) for text in STRICTER), refusal
    else:
        assert_equal(model, truth)


def _fuzz(family: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(OTHERS.get(family, LLAMA_LIKE))
    def run(changes: dict[str, Any]) -> None:
        _check_against_the_real_class({**small(family), **changes})

    run()


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_random_small_configurations_match_the_real_class(family: str) -> None:
    _fuzz(family, 40)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_many_random_small_configurations_match_the_real_class(family: str) -> None:
    _fuzz(family, 500)


def test_what_is_accepted_is_never_something_that_transformers_refuses() -> None:
    """Odd values in the fields that shapes depend on: refusing more than transformers does is allowed, less is not."""
    fields = {*NUMBERS, "num_key_value_heads", "intermediate_size", "tie_word_embeddings", "head_dim"}
    release = f"transformers{major()}"
    accepted = 0
    for family in sorted(FAMILIES - {"gemma3"}):
        for name in sorted(fields & set(small(family)) | {"head_dim", "tie_word_embeddings"}):
            for value in [*ODD[:4], 1.5, True, [4], None]:
                config = {**small(family), name: value}
                try:
                    model = build(config, release)
                except UnusableInput:
                    continue
                accepted += 1
                assert_equal(model, real_truth(config))
    assert accepted


# --- the units can be sharded --------------------------------------------------------------------------------------


@pytest.fixture
def two_ranks() -> Any:
    """A process group of 2 without processes: collectives return at once."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_units_shard_and_train(family: str, flipped: bool, two_ranks: Any) -> None:
    """One step with fully_shard on exactly these units: a tied weight outside the root, or a module whose weights are
    used without its forward, fails here.
    """
    import torch
    import transformers
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = {**small(family), "num_key_value_heads": 2}  # several defaults don't divide 4 heads, and cannot run
    if flipped:
        config["tie_word_embeddings"] = family in {
            "llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2", "gpt_neox"
        }  # fmt: skip
        config.get("text_config", {})["tie_word_embeddings"] = False
    units = build(config, f"transformers{major()}").units

    torch.manual_seed(0)
    values = copy.deepcopy(config)
    model = transformers.AutoModelForCausalLM.from_config(CONFIG_MAPPING[family].from_dict(values))
    mesh = init_device_mesh("cpu", (2,))
    for unit in units:
        modules = [model.get_submodule(name) for name in unit.modules]
        fully_shard(modules if len(modules) > 1 else modules[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    tokens = torch.randint(1, 60, (2, 8))
    model(input_ids=tokens, labels=tokens).loss.backward()
    with_gradient = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    language = {name for name, _ in model.named_parameters() if "vision" not in name and "multi_modal" not in name}
    assert with_gradient == language
