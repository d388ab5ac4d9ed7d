"""The dense families against the real classes of transformers 5 (installed) and 4.57 (written down), and hostile files.

truth_dense_transformers4.json and ...5.json are what scripts/families_ground_truth.py wrote with each release; the
tests marked ``torch`` ask the installed transformers itself, whichever of the two it is.
"""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

import pytest
from family_oracle import Truth, buffers_digest, detail, in_first_layer, lines_digest, real_truth, record, saved_tensors
from family_oracle import transformers_major as major
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.model import Model
from shardguide.knowledge.families.index import build

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FAMILIES = {
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gemma3_text", "phi3", "gpt2", "gpt_neox",
    "falcon", "opt", "bloom", "olmo2", "starcoder2",
}  # fmt: skip
# How published files of these name their tensors differs from one to the next.
NO_ONE_LAYOUT = {"gpt2", "opt", "bloom"}


def _cases() -> dict[str, dict[str, Any]]:
    files = {path.stem: json.loads(path.read_text()) for path in sorted((HERE / "family_cases").glob("*.json"))}
    return {name: config for name, config in files.items() if config.get("model_type") in FAMILIES}


CASES = _cases()
VARIANTS: dict[str, dict[str, Any]] = json.loads((HERE / "dense_variants.json").read_text())
TRUTH = {
    f"transformers{number}": json.loads((HERE / f"truth_dense_transformers{number}.json").read_text())
    for number in (4, 5)
}
RELEASES = sorted(TRUTH)


def _record(model: Model) -> dict[str, Any]:
    """The same record that the script makes of the real model."""
    parameters = [(parameter.name, parameter.shape) for parameter in model.parameters]
    buffers = [tuple(buffer) for buffer in model.buffers]
    return {
        "architecture": model.architecture,
        "parameters": len(parameters),
        "size": model.size,
        "digest": lines_digest(parameters),
        "aliases": {p.name: list(p.aliases) for p in model.parameters if p.aliases},
        "buffers": len(buffers),
        "buffers_digest": buffers_digest(buffers),
        "first_layer": {name: ",".join(map(str, shape)) for name, shape in parameters if in_first_layer(name)},
        "first_buffers": {
            name: f"{','.join(map(str, shape))} {dtype} {kept}"
            for name, shape, dtype, kept in buffers
            if in_first_layer(name)
        },
        "tp_plan": dict(model.tp_plan),
    }


def _assert_equal(model: Model, truth: Truth) -> None:
    """Everything that a family says, against the real model."""
    assert tuple((p.name, p.shape) for p in model.parameters) == truth.parameters
    assert {p.name: p.aliases for p in model.parameters if p.aliases} == truth.aliases
    assert tuple(tuple(buffer) for buffer in model.buffers) == truth.buffers
    assert model.architecture == truth.architecture
    assert dict(model.tp_plan) == truth.model_tp_plan
    for unit in model.units:
        assert "+".join(truth.classes[module] for module in unit.modules) == unit.module_class
    blocks = {unit.modules[0]: unit.module_class for unit in model.units if unit.role == "block"}
    assert set(blocks.values()) <= set(truth.no_split_modules)
    assert blocks == {module: name for module, name in truth.classes.items() if name in set(blocks.values())}
    owned = [module for unit in model.units for module in unit.modules]
    assert len(owned) == len(set(owned))
    if truth.aliases:  # a tied weight must not be split over two groups: it stays with the root
        assert all(unit.role == "block" for unit in model.units)


# --- against what both releases built, without PyTorch ------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("release", RELEASES)
def test_published_configurations_match_both_releases(release: str, name: str) -> None:
    assert _record(build(CASES[name], release)) == TRUTH[release]["cases"][name]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("release", RELEASES)
def test_variants_match_both_releases_or_are_refused_by_both(release: str, name: str) -> None:
    truth = TRUTH[release]["variants"][name]
    if "refused" in truth:
        with pytest.raises(UnusableInput):
            build(VARIANTS[name], release)
    elif name == "gemma3 clip" and release == "transformers5":  # another vision tower: not known, so not guessed
        with pytest.raises(UnusableInput, match="vision tower"):
            build(VARIANTS[name], release)
    else:
        found = _record(build(VARIANTS[name], release))
        assert {key: found[key] for key in truth if key in found} == {key: truth[key] for key in truth if key in found}


def test_every_fixture_covers_every_configuration() -> None:
    assert len({CASES[name]["model_type"] for name in CASES}) == len(FAMILIES)
    for truth in TRUTH.values():
        assert set(truth["cases"]) == set(CASES)
        assert set(truth["variants"]) == set(VARIANTS)
        assert not any("refused" in item for item in truth["cases"].values())
    sources = (HERE / "family_cases" / "SOURCES-dense.md").read_text()
    assert all(f"`{name}.json`" in sources for name in CASES)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_checkpoint_layout_is_what_transformers_4_saves(name: str) -> None:
    truth, config = TRUTH["transformers4"]["variants"][name], VARIANTS[name]
    if "refused" in truth or config["model_type"] in NO_ONE_LAYOUT:
        with pytest.raises(UnusableInput):
            build(config, "checkpoint")
        return
    parameters = sorted((p.name, p.shape) for p in build(config, "checkpoint").parameters)
    assert (len(parameters), lines_digest(parameters)) == (truth["saved"], truth["saved_digest"])


@pytest.mark.parametrize("family", sorted(NO_ONE_LAYOUT))
def test_a_family_without_one_layout_asks_for_the_file(family: str) -> None:
    with pytest.raises(UnusableInput, match="safetensors"):
        build({"model_type": family}, "checkpoint")


# --- published sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-2-7b", 6_738_415_616),
        ("llama-3.1-8b-instruct", 8_030_261_248),
        ("llama-3.1-70b-instruct", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
        ("phi-4-mini-instruct-4bit", 3_836_021_760),
        ("gemma-2b", 2_506_172_416),
        ("pythia-70m", 70_426_624),
        ("bloom-176b", 176_247_271_424),
    ],
)
def test_sizes_that_the_publishers_or_others_state(name: str, parameters: int) -> None:
    for release in RELEASES:
        assert build(CASES[name], release).size == parameters


def test_the_example_is_llama_3_1_8b() -> None:
    config = json.loads((ROOT / "examples" / "llama-3.1-8b" / "config.json").read_text())
    model = build(config, "transformers5")
    assert model.size == 8_030_261_248
    assert [p.shape for p in model.parameters] == [
        p.shape for p in build(CASES["llama-3.1-8b-instruct"], "transformers5").parameters
    ]


def test_the_largest_model_is_expanded_in_milliseconds() -> None:
    best = 1.0
    for _ in range(5):
        start = time.process_time()
        build(CASES["llama-3.1-405b"], "transformers5")
        best = min(best, time.process_time() - start)
    assert best < 0.010  # 0.6 ms where it was written; 126 layers, 1,137 parameters


# --- hostile files --------------------------------------------------------------------------------------------------

ODD: list[Any] = ["4096", "", -1, 0, 1.5, float("nan"), float("inf"), True, [], [4], {}, {"a": 1}, 1 << 70, -(1 << 70)]
NUMBERS = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"]
READS_POSITIONS = {"gpt2", "opt"}


def _small(family: str) -> dict[str, Any]:
    return copy.deepcopy(VARIANTS["gemma3 plain" if family == "gemma3" else family])


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("family", sorted(FAMILIES - {"gemma3"}))
def test_an_odd_number_is_one_sentence(family: str, release: str) -> None:
    for name in NUMBERS:
        if name == "max_position_embeddings" and family not in READS_POSITIONS:
            continue
        for value in ODD:
            with pytest.raises(UnusableInput) as refusal:
                build({**_small(family), name: value}, release)
            assert "\n" not in str(refusal.value)
            assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("part", ["text_config", "vision_config"])
@pytest.mark.parametrize("value", ["x", 3, [1], True])
def test_a_part_that_is_no_object_is_refused(part: str, value: Any) -> None:
    for release in RELEASES:
        with pytest.raises(UnusableInput, match=part):
            build({**_small("gemma3"), part: value}, release)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_model_too_deep_or_too_wide_is_refused_at_once(family: str) -> None:
    start = time.process_time()
    for size in ({"num_hidden_layers": 100_000}, {"vocab_size": 1 << 40, "hidden_size": 1 << 40, "n_embed": 1 << 40}):
        config = _small(family)
        inner = config["text_config"] if family == "gemma3" else config
        inner |= size
        with pytest.raises(UnusableInput):
            build(config, "transformers5")
    assert time.process_time() - start < 1


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70) | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted({field for config in [*CASES.values(), *VARIANTS.values()] for field in config} - {"model_type"})


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(FAMILIES)),
    st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=4),
    st.sampled_from(["transformers5", "transformers4", "checkpoint"]),
)
def test_any_json_is_a_model_or_one_sentence(family: str, changes: dict[str, Any], release: str) -> None:
    config = {**_small(family), **changes}
    before = copy.deepcopy(config)
    try:
        model = build(config, release)
    except UnusableInput as refusal:
        assert "\n" not in str(refusal)
    else:
        assert model.size > 0
    assert repr(config) == repr(before)  # what was read is not changed


# --- against the installed transformers -------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("name", CASES)
def test_published_configurations_match_the_real_class_at_full_depth(name: str) -> None:
    release = f"transformers{major()}"
    truth = real_truth(CASES[name])
    _assert_equal(build(CASES[name], release), truth)
    assert record(truth) | detail(truth) == TRUTH[release]["cases"][name]


@pytest.mark.torch
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
        _assert_equal(model, truth)


def _fuzz(family: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(OTHERS.get(family, LLAMA_LIKE))
    def run(changes: dict[str, Any]) -> None:
        _check_against_the_real_class({**_small(family), **changes})

    run()


@pytest.mark.torch
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_random_small_configurations_match_the_real_class(family: str) -> None:
    _fuzz(family, 40)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_many_random_small_configurations_match_the_real_class(family: str) -> None:
    _fuzz(family, 500)


@pytest.mark.torch
def test_what_is_accepted_is_never_something_that_transformers_refuses() -> None:
    """Odd values in the fields that shapes depend on: refusing more than transformers does is allowed, less is not."""
    fields = {*NUMBERS, "num_key_value_heads", "intermediate_size", "tie_word_embeddings", "head_dim"}
    release = f"transformers{major()}"
    accepted = 0
    for family in sorted(FAMILIES - {"gemma3"}):
        for name in sorted(fields & set(_small(family)) | {"head_dim", "tie_word_embeddings"}):
            for value in [*ODD[:4], 1.5, True, [4], None]:
                config = {**_small(family), name: value}
                try:
                    model = build(config, release)
                except UnusableInput:
                    continue
                accepted += 1
                _assert_equal(model, real_truth(config))
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


@pytest.mark.torch
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

    config = {**_small(family), "num_key_value_heads": 2}  # several defaults don't divide 4 heads, and cannot run
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
