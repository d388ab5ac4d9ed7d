"""The dense families against what transformers 5 and 4.57 built (written down), published sizes, and hostile files.

truth_dense_transformers4.json and ...5.json are what scripts/families_ground_truth.py wrote with each release.
"""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

import pytest
from dense_cases import CASES, FAMILIES, HERE, NUMBERS, ODD, RELEASES, TRUTH, VARIANTS, record_model, small
from family_oracle import lines_digest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge.families.index import build

ROOT = Path(__file__).parent.parent.parent
# How published files of these name their tensors differs from one to the next.
NO_ONE_LAYOUT = {"gpt2", "opt", "bloom"}


# --- against what both releases built, without PyTorch ------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("release", RELEASES)
def test_published_configurations_match_both_releases(release: str, name: str) -> None:
    assert record_model(build(CASES[name], release)) == TRUTH[release]["cases"][name]


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
        found = record_model(build(VARIANTS[name], release))
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

READS_POSITIONS = {"gpt2", "opt"}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("family", sorted(FAMILIES - {"gemma3"}))
def test_an_odd_number_is_one_sentence(family: str, release: str) -> None:
    for name in NUMBERS:
        if name == "max_position_embeddings" and family not in READS_POSITIONS:
            continue
        for value in ODD:
            with pytest.raises(UnusableInput) as refusal:
                build({**small(family), name: value}, release)
            assert "\n" not in str(refusal.value)
            assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("part", ["text_config", "vision_config"])
@pytest.mark.parametrize("value", ["x", 3, [1], True])
def test_a_part_that_is_no_object_is_refused(part: str, value: Any) -> None:
    for release in RELEASES:
        with pytest.raises(UnusableInput, match=part):
            build({**small("gemma3"), part: value}, release)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_model_too_deep_or_too_wide_is_refused_at_once(family: str) -> None:
    start = time.process_time()
    for size in ({"num_hidden_layers": 100_000}, {"vocab_size": 1 << 40, "hidden_size": 1 << 40, "n_embed": 1 << 40}):
        config = small(family)
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
    config = {**small(family), **changes}
    before = copy.deepcopy(config)
    try:
        model = build(config, release)
    except UnusableInput as refusal:
        assert "\n" not in str(refusal)
    else:
        assert model.size > 0
    assert repr(config) == repr(before)  # what was read is not changed
