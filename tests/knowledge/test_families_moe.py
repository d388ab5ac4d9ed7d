"""Mixture-of-experts, latent-attention, encoder and multimodal families against what transformers builds.

The fixtures truth_moe_transformers{4,5}.json were written by scripts/families_ground_truth_moe.py; where transformers 5
is installed, the real classes are built again on the meta device.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.model import Model
from shardguide.knowledge.families.index import build
from shardguide.knowledge.families.moe import stacked_experts

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from family_oracle import buffers_digest, describe, in_first_layer, lines_digest  # noqa: E402
from family_oracle_moe import build_named, plan_of, wildcard  # noqa: E402
from moe_variants import FAMILIES, draw  # noqa: E402

TRUTH = {
    f"transformers{release}": json.loads((HERE / f"truth_moe_transformers{release}.json").read_text())
    for release in "45"
}
CASES = {
    name: json.loads((HERE / "family_cases" / f"{name}.json").read_text()) for name in TRUTH["transformers5"]["cases"]
}


def written_down(model: Model) -> dict[str, Any]:
    """The same record of our model that the fixtures have of the real one."""
    buffers = [(buffer.name, buffer.shape, buffer.dtype, buffer.persistent) for buffer in model.buffers]
    return {
        "architecture": model.architecture,
        "parameters": len(model.parameters),
        "size": model.size,
        "digest": lines_digest((parameter.name, parameter.shape) for parameter in model.parameters),
        "aliases": {p.name: list(p.aliases) for p in model.parameters if p.aliases},
        "buffers": len(model.buffers),
        "buffers_digest": buffers_digest(buffers),
    }


def first_layer(model: Model) -> dict[str, str]:
    return {p.name: ",".join(map(str, p.shape)) for p in model.parameters if in_first_layer(p.name)}


def first_buffers(model: Model) -> dict[str, str]:
    return {
        b.name: f"{','.join(map(str, b.shape))} {b.dtype} {b.persistent}"
        for b in model.buffers
        if in_first_layer(b.name)
    }


def applied(model: Model) -> dict[str, str]:
    """The rules of our plan that name a parameter or a module of ours."""
    names = {wildcard(parameter.name) for parameter in model.parameters}
    for name in tuple(names):
        while "." in name:
            name = name.rpartition(".")[0]
            names.add(name)
    return {pattern: style for pattern, style in model.tp_plan if pattern in names}


@pytest.mark.parametrize("implementation", sorted(TRUTH))
@pytest.mark.parametrize("name", sorted(CASES))
def test_published_configuration(name: str, implementation: str) -> None:
    truth = TRUTH[implementation]["cases"][name]
    model = build(CASES[name], implementation)
    assert first_layer(model) == truth["first_layer"]
    assert first_buffers(model) == truth["first_buffers"]
    assert written_down(model) == {key: truth[key] for key in written_down(model)}
    assert applied(model) == truth["tp_plan"]


@pytest.mark.parametrize("implementation", sorted(TRUTH))
@pytest.mark.parametrize("family", FAMILIES)
def test_small_variants(family: str, implementation: str) -> None:
    compared = 0
    for truth in TRUTH[implementation]["variants"].values():
        if truth["config"]["model_type"] != family or "refused" in truth:
            continue
        found = written_down(build(truth["config"], implementation))
        assert found == {key: truth[key] for key in found}, truth["config"]
        compared += 1
    assert compared >= 10


@pytest.mark.parametrize("implementation", sorted(TRUTH))
def test_checkpoint_layout_is_what_transformers_saves(implementation: str) -> None:
    """For what both releases read alike: 5 has another name for a count, and no biases on stacked experts."""
    compared = 0
    for truth in TRUTH[implementation]["variants"].values():
        config = truth["config"]
        if "saved" not in truth:
            continue
        renamed = "num_experts" in config and config["model_type"] in ("mixtral", "deepseek_v2")
        if implementation == "transformers5" and (renamed or config.get("mlp_bias")):
            continue
        model = build(config, "checkpoint")
        assert lines_digest(sorted((p.name, p.shape) for p in model.parameters)) == truth["saved"], config
        compared += 1
    assert compared >= 50


@pytest.mark.parametrize("implementation", ["transformers5", "transformers4"])
def test_mixtral_in_numbers(implementation: str) -> None:
    """Stacked and sharded on dim 0 over 1,024 ranks, each rank stores 124 times its fair share of the parameters."""
    model = build(CASES["mixtral-8x7b-v0.1"], implementation)
    assert model.size == 46_702_792_704
    world = 1024
    stored = sum(-(-p.shape[0] // world) * (p.numel // p.shape[0]) for p in model.parameters)
    if implementation == "transformers5":
        assert stored == 5_638_848_772
    else:  # per-expert tensors have thousands of rows: only the routers (8 rows) and uneven vocabulary rows are padded
        assert model.size / world < stored < 1.01 * model.size / world


def test_gpt_oss_published_bytes() -> None:
    """metadata.total_size of openai/gpt-oss-20b's model.safetensors.index.json."""
    model = build(CASES["gpt-oss-20b"], "checkpoint")
    total = sum(p.numel * (1 if p.dtype == "uint8" else 2) for p in model.parameters)
    assert total == 13_761_264_768


@pytest.mark.parametrize("name", sorted(CASES))
def test_stacked_experts_by_name(name: str) -> None:
    config = CASES[name]
    text = config.get("text_config", config)
    experts = next((text[k] for k in ("num_local_experts", "num_experts", "n_routed_experts") if k in text), 0)
    for implementation in TRUTH:
        model = build(config, implementation)
        stacked = [p for p in model.parameters if stacked_experts(p.name)]
        assert all(p.shape[0] == experts for p in stacked)
        three = {p.name for p in model.parameters if len(p.shape) == 3 and config["model_type"] != "vit"}
        assert {p.name for p in stacked if len(p.shape) == 3} == three
        both = config["model_type"] in ("llama4", "gpt_oss")  # stacked in transformers 4 too
        assert bool(stacked) is bool(experts and (both or implementation == "transformers5"))


@pytest.mark.parametrize("implementation", sorted(TRUTH))
@pytest.mark.parametrize("name", sorted(CASES))
def test_units_hold_each_parameter_once(name: str, implementation: str) -> None:
    model = build(CASES[name], implementation)
    owners: dict[str, str] = {}
    for unit in model.units:
        for module in unit.modules:
            held = [p.name for p in model.parameters if p.name.startswith(f"{module}.")]
            assert held, module
            for parameter in held:
                assert owners.setdefault(parameter, unit.modules[0]) == unit.modules[0]
    for parameter in model.parameters:
        if parameter.aliases:  # the other places of a tied tensor lie elsewhere: it must stay in the root's group
            elsewhere = [name for name in parameter.aliases if not name.startswith("cls.predictions.")]
            assert parameter.name not in owners or not elsewhere
    blocks = [unit for unit in model.units if unit.role == "block"]
    config = CASES[name]
    text, vision = config.get("text_config", config), config.get("vision_config", {"num_hidden_layers": 34})
    expected = text.get("num_hidden_layers") or text["num_layers"]
    if config["model_type"] == "llama4":
        expected += vision["num_hidden_layers"]
    if config["model_type"] == "t5" and model.architecture != "T5EncoderModel":
        expected += text["num_decoder_layers"]
    assert len(blocks) == expected


def test_notes() -> None:
    def notes(name: str, implementation: str, **changes: Any) -> str:
        return " ".join(build(CASES[name] | changes, implementation).notes)

    assert "experts on dim 0" in notes("mixtral-8x7b-v0.1", "transformers5")
    assert not notes("mixtral-8x7b-v0.1", "transformers4")
    assert "mlp.gate.weight" in notes("deepseek-v3", "transformers5")
    assert "multi-token-prediction" in notes("deepseek-v3", "transformers4")
    assert "mxfp4" in notes("gpt-oss-20b", "transformers5")
    assert "ties lm_head" in notes("flan-t5-xxl", "transformers5")
    assert "ties lm_head" not in notes("flan-t5-xxl", "transformers4")
    assert "ties lm_head" not in notes("t5-small", "transformers5")


@pytest.mark.parametrize(
    ("name", "implementation", "changes", "says"),
    [
        ("mixtral-8x7b-v0.1", "transformers5", {"architectures": ["MixtralForSequenceClassification"]}, "manifest"),
        ("bert-large-uncased", "transformers5", {"architectures": ["MyBert"]}, "manifest"),
        ("bert-large-uncased", "transformers5", {"architectures": "BertModel"}, "list"),
        ("bert-large-uncased", "transformers5", {"architectures": [7]}, "list"),
        ("deepseek-v3", "checkpoint", {}, "safetensors"),
        ("llama-4-maverick-17b-128e", "checkpoint", {}, "safetensors"),
        ("t5-small", "checkpoint", {}, "safetensors"),
        ("bert-large-uncased", "checkpoint", {}, "safetensors"),
        ("vit-base-patch16-224", "checkpoint", {}, "safetensors"),
        ("gpt-oss-20b", "checkpoint", {"quantization_config": {"quant_method": "awq"}}, "safetensors"),
        ("gpt-oss-20b", "checkpoint", {"hidden_size": 2890}, "32"),
        ("deepseek-v2", "transformers5", {"hidden_size": 5121}, "multiple"),
        ("deepseek-v2", "transformers5", {"n_shared_experts": None}, "n_shared_experts"),
        ("deepseek-v3", "transformers5", {"first_k_dense_replace": None}, "first_k_dense_replace"),
        ("llama-4-maverick-17b-128e", "transformers5", {"text_config": [1]}, "object"),
        ("llama-4-maverick-17b-128e", "transformers5", {"vision_config": "no"}, "object"),
        ("bert-large-uncased", "transformers4", {"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ("t5-small", "transformers4", {"tie_encoder_decoder": True}, "manifest"),
        ("t5-small", "transformers5", {"feed_forward_proj": "gated"}, "feed_forward_proj"),
        ("vit-base-patch16-224", "transformers5", {"id2label": {"cat": "a"}}, "id2label"),
        ("vit-base-patch16-224", "transformers5", {"num_labels": 10**15}, "labels"),
        ("vit-base-patch16-224", "transformers5", {"image_size": [1, 2, 3]}, "image_size"),
        ("qwen3-30b-a3b", "transformers4", {"num_hidden_layers": 9_000, "num_experts": 10**6}, "plausible"),
        ("qwen3-30b-a3b", "transformers4", {"mlp_only_layers": "all"}, "mlp_only_layers"),
    ],
)
def test_refused_in_a_sentence(name: str, implementation: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UnusableInput, match=says):
        build(CASES[name] | changes, implementation)


@pytest.mark.parametrize("family", ["mllama", "qwen2_5_vl", "llava", "kimi_k2", "deepseek_v32"])
def test_other_wrappers_are_unknown(family: str) -> None:
    """A text_config of a known family inside an unknown model is not taken for the model."""
    with pytest.raises(UnusableInput, match=family):
        build({"model_type": family, "text_config": CASES["mixtral-8x7b-v0.1"]}, "transformers5")


def test_text_model_inside_the_multimodal_configuration() -> None:
    """AutoModelForCausalLM takes the text part of a Llama 4 configuration: the class named decides."""
    whole = CASES["llama-4-maverick-17b-128e"]
    text = build(whole | {"architectures": ["Llama4ForCausalLM"]}, "transformers5")
    alone = build(whole["text_config"], "transformers5")
    assert text.parameters == alone.parameters
    both = build(whole, "transformers5")
    inside = [p for p in both.parameters if p.name.startswith("language_model.")]
    assert [(p.name.removeprefix("language_model."), p.shape) for p in inside] == [
        (p.name, p.shape) for p in alone.parameters
    ]


HOSTILE: list[Any] = ["1024", "", -1, 0, 1.5, True, None, [], {}, [[[]]], 10**30, float("nan"), {"a": {}}, "\x00" * 60]


@pytest.mark.parametrize("implementation", ["transformers5", "transformers4", "checkpoint"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_hostile_fields_never_crash(name: str, implementation: str) -> None:
    """Each field of each configuration, nested ones too, replaced by nonsense: a model or one sentence, and quickly."""
    config = CASES[name] | {"num_hidden_layers": 2, "num_layers": 2, "num_decoder_layers": 2, "id2label": {"0": "a"}}
    refused = 0
    for path in [(key,) for key in config] + [
        (outer, key) for outer in ("text_config", "vision_config") for key in config.get(outer, {})
    ]:
        for value in HOSTILE:
            broken = json.loads(json.dumps(config))
            place = broken if len(path) == 1 else broken[path[0]]
            place[path[-1]] = value
            started = time.process_time()
            try:
                model = build(broken, implementation)
                assert isinstance(model.size, int)
            except UnusableInput as error:
                refused += 1
                assert str(error).count("\n") == 0
                assert len(str(error)) < 400
            assert time.process_time() - started < 2
    assert refused > 20


def short(config: dict[str, Any]) -> dict[str, Any]:
    """The same widths with at most four layers of each kind."""
    config = json.loads(json.dumps(config))
    for part in (config, config.get("text_config", {}), config.get("vision_config", {})):
        for key in ("num_hidden_layers", "num_layers", "num_decoder_layers"):
            if key in part:
                part[key] = min(4, part[key])
        if "layer_types" in part:
            part["layer_types"] = part["layer_types"][:4]
    return config


def compare(config: dict[str, Any], must_build: bool) -> bool:
    """Our model against the real one; False when transformers refuses the configuration."""
    try:
        real = build_named(config)
    except Exception:
        if must_build:
            raise
        return False
    truth = describe(real)
    model = build(config, "transformers5")
    assert [(p.name, p.shape) for p in model.parameters] == list(truth.parameters)
    assert {p.name: p.aliases for p in model.parameters if p.aliases} == truth.aliases
    assert [(b.name, b.shape, b.dtype, b.persistent) for b in model.buffers] == list(truth.buffers)
    assert model.architecture == truth.architecture
    assert all(parameter.requires_grad for parameter in real.parameters())
    for unit in model.units:
        assert "+".join(truth.classes[module] for module in unit.modules) == unit.module_class
        assert unit.role != "block" or unit.module_class in truth.no_split_modules
    assert dict(model.tp_plan).items() <= dict(real._tp_plan or {}).items()
    assert applied(model) == {wildcard(name): style for name, style in plan_of(real).items()}
    return True


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(CASES))
def test_real_class_at_full_depth(name: str) -> None:
    assert compare(CASES[name], must_build=True)


@pytest.mark.torch
@pytest.mark.parametrize("family", FAMILIES)
def test_real_class_of_random_configurations(family: str) -> None:
    built = 0

    @settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def examples(random: Random) -> None:
        nonlocal built
        built += compare(draw(random, family), must_build=False)

    examples()
    assert built >= 15


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_real_class_of_many_random_configurations(family: str) -> None:
    random = Random(11)
    assert sum(compare(draw(random, family), must_build=False) for _ in range(1_000)) >= 400


@pytest.mark.torch
@pytest.mark.parametrize("name", ["deepseek-v2-lite", "deepseek-v3"])
def test_router_stays_in_float32(name: str) -> None:
    """The note's statement: in bfloat16 exactly the routers' weights are float32."""
    import torch

    model = build_named(short(CASES[name]))
    assert model.config.dtype == torch.bfloat16
    wide = {wildcard(name) for name, p in model.named_parameters() if p.dtype == torch.float32}
    assert wide == {"model.layers.*.mlp.gate.weight"}


@pytest.mark.torch
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "llama4"])
def test_forward_calls_every_unit(family: str) -> None:
    """fully_shard gathers parameters in a module's forward: every module of a unit must be called, and only once."""
    import torch

    config: dict[str, Any] = {
        "model_type": family,
        "vocab_size": 40,
        "hidden_size": 16,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "intermediate_size": 20,
        "num_hidden_layers": 2,
    }
    config |= {
        "qwen2_moe": {"num_experts": 4, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8},
        "qwen3_moe": {"num_experts": 8, "moe_intermediate_size": 8},
        "llama4_text": {"head_dim": 8, "intermediate_size_mlp": 8, "num_local_experts": 2},
        "gpt_oss": {"head_dim": 8, "num_local_experts": 4},
        "deepseek_v2": {"moe_intermediate_size": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "q_lora_rank": 8},
        "deepseek_v3": {"moe_intermediate_size": 8, "n_routed_experts": 16, "first_k_dense_replace": 1},
        "t5": {"d_model": 16, "d_kv": 4, "d_ff": 8, "num_layers": 2},
        "bert": {"architectures": ["BertForMaskedLM"], "tie_word_embeddings": False},
        "vit": {"image_size": 32},
    }.get(family, {})
    if family == "t5":
        config = {"model_type": "t5", "vocab_size": 40, "d_model": 16, "d_kv": 4, "d_ff": 8, "num_layers": 2}
    if family in ("deepseek_v2", "deepseek_v3"):
        config |= {"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
    real = build_named(config, "cpu").eval()
    modules = dict(real.named_modules())
    called: dict[str, int] = {}
    for unit in build(config, "transformers5").units:
        for name in unit.modules:
            called[name] = 0

            def hook(*_: Any, name: str = name) -> None:
                called[name] += 1

            modules[name].register_forward_hook(hook)
    tokens = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        if family == "vit":
            real(pixel_values=torch.zeros(1, 3, 32, 32))
        elif family == "t5":
            real(input_ids=tokens, decoder_input_ids=tokens)
        else:
            real(input_ids=tokens)
    assert called
    assert set(called.values()) == {1}
