"""Small configurations of the mixture-of-experts, latent-attention, encoder and multimodal families, drawn at random.

Used with Hypothesis's random source against transformers 5, and with a seeded one by
scripts/families_ground_truth_moe.py for the fixtures of both releases. Not every drawn configuration is one that
transformers accepts.
"""

from __future__ import annotations

from random import Random
from typing import Any

FAMILIES = (
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "llama4",
    "llama4_text",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v3",
    "t5",
    "bert",
    "vit",
)

BERT = (
    "BertForMaskedLM",
    "BertModel",
    "BertForPreTraining",
    "BertLMHeadModel",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForMultipleChoice",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
)


class Draw:
    """Fills a configuration; each field is sometimes left out, so that the class's own default is tested too."""

    def __init__(self, random: Random, values: dict[str, Any]) -> None:
        self.random = random
        self.values = values

    def must(self, name: str, *choices: Any) -> None:
        """One of the choices (the defaults of these fields are too large for a quick test)."""
        self.values[name] = self.random.choice(choices)

    def may(self, name: str, *choices: Any) -> None:
        """One of the choices, or nothing, half of the time."""
        if self.random.choice((True, False)):
            self.must(name, *choices)

    def seldom(self, name: str, *choices: Any) -> None:
        """One of the choices, one time in eight."""
        if self.random.choice((True, *[False] * 7)):
            self.must(name, *choices)


def _rope(d: Draw) -> None:
    d.seldom(
        "rope_scaling",
        None,
        {"type": "linear", "factor": 2.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    )
    scaling = d.values.get("rope_scaling") or {}
    if scaling.get("rope_type") != "yarn":  # of odd widths, transformers' yarn takes 3 and no other
        d.seldom("partial_rotary_factor", 0.5, 1.0)


def _decoder(d: Draw) -> None:
    d.must("num_hidden_layers", 1, 2, 3)
    d.must("vocab_size", 40, 41, 64)
    d.must("hidden_size", 16, 24, 30)
    d.must("num_attention_heads", 2, 3, 4)
    d.must("pad_token_id", None, 3)
    d.may("tie_word_embeddings", True, False)
    d.seldom("torch_dtype", "bfloat16", "float16", "float32")
    d.seldom("transformers_version", "4.40.0")
    _rope(d)


def _mixtral(d: Draw) -> None:
    _decoder(d)
    d.must("num_key_value_heads", 1, 2, 4)
    d.must("intermediate_size", 7, 20)
    d.may("num_local_experts", 1, 2, 5)
    d.may("head_dim", 4, 8, None)
    d.seldom("num_experts", 2, 3)


def _qwen(d: Draw) -> None:
    _decoder(d)
    d.may("num_key_value_heads", 1, 2, 4)
    d.must("intermediate_size", 7, 20)
    d.must("moe_intermediate_size", 5, 8)
    d.must("num_experts", 1, 3, 6)
    d.may("decoder_sparse_step", 1, 2, 3)
    d.may("mlp_only_layers", [], [0], [1, 2], [7], None)
    d.may("head_dim", 4, 8)
    d.seldom("num_experts", 0)


def _qwen2_moe(d: Draw) -> None:
    _qwen(d)
    d.must("shared_expert_intermediate_size", 3, 9)
    d.may("qkv_bias", True, False)


def _qwen3_moe(d: Draw) -> None:
    _qwen(d)
    d.may("attention_bias", True, False)


def _llama4_text(d: Draw) -> None:
    _decoder(d)
    d.may("num_key_value_heads", 1, 2)
    d.must("intermediate_size", 7, 20)
    d.must("intermediate_size_mlp", 6, 22)
    d.may("head_dim", 4, 8)
    d.may("num_local_experts", 1, 2, 5)
    d.may("interleave_moe_layer_step", 1, 2, 3)
    d.seldom("moe_layers", [], [0], [1, 5], None)
    d.seldom("attention_bias", True)
    d.may("use_qk_norm", True, False)
    d.seldom("no_rope_layers", [])


def _llama4(d: Draw) -> None:
    text = Draw(d.random, {"model_type": "llama4_text"})
    _llama4_text(text)
    vision = Draw(d.random, {"model_type": "llama4_vision_model"})
    vision.must("num_hidden_layers", 1, 2)
    vision.must("hidden_size", 16, 40)
    vision.must("num_attention_heads", 2, 4)
    vision.must("intermediate_size", 48, 64)
    vision.must("image_size", 28, 30)
    vision.may("patch_size", 7, 10)
    vision.may("num_channels", 1, 3)
    vision.may("vision_output_dim", 20, 24)
    vision.may("projector_input_dim", 12)
    vision.may("projector_output_dim", 20)
    d.values |= {"text_config": text.values, "vision_config": vision.values}
    d.seldom("tie_word_embeddings", True, False)
    d.may("architectures", ["Llama4ForConditionalGeneration"])


def _gpt_oss(d: Draw) -> None:
    _decoder(d)
    d.may("num_key_value_heads", 1, 2)
    d.must("intermediate_size", 7, 20)
    d.may("head_dim", 4, 8)
    d.must("num_local_experts", 1, 2, 5)
    d.may("attention_bias", True, False)
    d.seldom("rope_parameters", {"rope_type": "default", "rope_theta": 10000.0})


def _deepseek(d: Draw) -> None:
    _decoder(d)
    d.must("hidden_size", 16, 24, 30)
    d.may("num_key_value_heads", 1, 4, None)
    d.must("intermediate_size", 7, 20)
    d.must("moe_intermediate_size", 5, 8)
    d.must("n_routed_experts", 2, 4)
    d.may("n_shared_experts", 1, 2, 3)
    d.may("first_k_dense_replace", 0, 1, 9)
    d.may("q_lora_rank", None, 6)
    d.may("kv_lora_rank", 5, 8)
    d.may("qk_nope_head_dim", 3, 6)
    d.may("qk_rope_head_dim", 2, 4)
    d.may("v_head_dim", 3, 5)
    d.may("attention_bias", True, False)
    d.may("topk_method", "greedy", "group_limited_greedy")
    d.seldom("head_dim", 6)


def _deepseek_v2(d: Draw) -> None:
    _deepseek(d)
    d.may("mlp_bias", True, False)
    d.seldom("n_shared_experts", None)
    d.seldom("num_experts", 3)


def _deepseek_v3(d: Draw) -> None:
    _deepseek(d)
    d.may("num_nextn_predict_layers", 0, 1)
    d.seldom("num_local_experts", 3)


def _t5(d: Draw) -> None:
    d.may("architectures", ["T5ForConditionalGeneration"], ["T5Model"], ["T5EncoderModel"])
    d.must("vocab_size", 40, 41)
    d.must("num_layers", 1, 2, 3)
    d.may("num_decoder_layers", 1, 2, 4, None)
    d.may("d_model", 12, 16)
    d.may("d_kv", 3, 4)
    d.may("d_ff", 9, 20)
    d.may("num_heads", 2, 5)
    d.may("relative_attention_num_buckets", 8)
    d.may("feed_forward_proj", "relu", "gated-gelu", "gelu", "gated-silu")
    d.may("tie_word_embeddings", True, False)
    d.seldom("hidden_size", 10)
    d.seldom("num_hidden_layers", 2)
    d.seldom("torch_dtype", "bfloat16")


def _labels(d: Draw) -> None:
    d.may("num_labels", 1, 2, 3, 7)
    d.may("id2label", {"0": "a", "1": "b", "5": "c"}, {"0": "a"}, None)
    d.seldom("problem_type", "single_label_classification", "regression")


def _bert(d: Draw) -> None:
    d.may("architectures", *[[name] for name in BERT])
    d.must("num_hidden_layers", 1, 2)
    d.must("vocab_size", 40, 41)
    d.must("hidden_size", 12, 16)
    d.must("num_attention_heads", 2, 4)
    d.may("intermediate_size", 9, 20)
    d.may("max_position_embeddings", 7, 16)
    d.may("type_vocab_size", 1, 3)
    d.may("tie_word_embeddings", True, False)
    d.may("is_decoder", True, False)
    d.seldom("add_cross_attention", True, False)
    d.may("position_embedding_type", "absolute", "relative_key", "relative_key_query")
    _labels(d)


def _vit(d: Draw) -> None:
    d.may("architectures", ["ViTForImageClassification"], ["ViTModel"], ["ViTForMaskedImageModeling"])
    d.must("num_hidden_layers", 1, 2)
    d.must("hidden_size", 12, 16)
    d.must("num_attention_heads", 2, 3, 4)
    d.may("intermediate_size", 9, 20)
    d.may("image_size", 28, 30, [28, 14])
    d.may("patch_size", 7, [7, 14])
    d.may("num_channels", 1, 3)
    d.may("qkv_bias", True, False)
    d.may("encoder_stride", 2, 7)
    d.may("pooler_output_size", 5, 0, None)
    d.seldom("head_dim", 5)
    d.seldom("num_labels", 0)
    _labels(d)


_DRAWERS = {
    "mixtral": _mixtral,
    "qwen2_moe": _qwen2_moe,
    "qwen3_moe": _qwen3_moe,
    "llama4": _llama4,
    "llama4_text": _llama4_text,
    "gpt_oss": _gpt_oss,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "t5": _t5,
    "bert": _bert,
    "vit": _vit,
}


def draw(random: Random, family: str) -> dict[str, Any]:
    """A random small configuration of the family."""
    d = Draw(random, {"model_type": family})
    _DRAWERS[family](d)
    return d.values
