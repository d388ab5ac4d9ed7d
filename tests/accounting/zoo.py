"""Real published architectures at their true widths, built by transformers on the meta device."""

from __future__ import annotations

from typing import Any

from .oracle import on_meta

Units = list[tuple[tuple[str, ...], str]]

LLAMA_3_1_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "num_hidden_layers": 32, "rms_norm_eps": 1e-05,
    "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "hidden_act": "silu",
}  # fmt: skip
LLAMA_3_1_70B = LLAMA_3_1_8B | {
    "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_hidden_layers": 80,
}  # fmt: skip
MIXTRAL_8X7B = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 32000, "num_hidden_layers": 32, "num_local_experts": 8,
    "num_experts_per_tok": 2, "tie_word_embeddings": False,
}  # fmt: skip

# model_type -> what differs from the defaults of its configuration class in transformers, which are a published model's
# widths; two layers of each kind.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": LLAMA_3_1_8B | {"num_hidden_layers": 2},
    "llama4_text": {"num_hidden_layers": 4, "interleave_moe_layer_step": 2, "num_local_experts": 16},
    "mistral": {"num_hidden_layers": 2},
    "mixtral": MIXTRAL_8X7B | {"num_hidden_layers": 2},
    "qwen2": {"num_hidden_layers": 2, "tie_word_embeddings": True},
    "qwen2_moe": {"num_hidden_layers": 2},
    "qwen3": {"num_hidden_layers": 2},
    "qwen3_moe": {"num_hidden_layers": 2},
    "gemma": {"num_hidden_layers": 2},
    "gemma2": {"num_hidden_layers": 2},
    "gemma3_text": {"num_hidden_layers": 2},
    "phi3": {"num_hidden_layers": 2},
    "gpt2": {"n_layer": 2},
    "gpt_neox": {"num_hidden_layers": 2},
    "gpt_oss": {"num_hidden_layers": 2, "num_local_experts": 32},
    "falcon": {"num_hidden_layers": 2},
    "opt": {"num_hidden_layers": 2},
    "bloom": {"n_layer": 2, "hidden_size": 1024, "n_head": 16},
    "olmo2": {"num_hidden_layers": 2},
    "starcoder2": {"num_hidden_layers": 2},
    "deepseek_v2": {"num_hidden_layers": 3, "first_k_dense_replace": 1},
    "deepseek_v3": {"num_hidden_layers": 3, "first_k_dense_replace": 1, "n_routed_experts": 64},
    "t5": {"num_layers": 2, "num_decoder_layers": 2},
    "bert": {"num_hidden_layers": 2},
    "vit": {"num_hidden_layers": 2},
}


def build(values: dict[str, Any], dtype: str = "float32") -> tuple[Any, Units]:
    """(the real model on the meta device, its blocks as fully_shard units)."""
    import torch
    import transformers

    kind = values["model_type"]
    rest = {key: value for key, value in values.items() if key != "model_type"}
    config = transformers.AutoConfig.for_model(kind, **rest)
    auto = {
        "t5": transformers.AutoModelForSeq2SeqLM,
        "bert": transformers.AutoModelForMaskedLM,
        "vit": transformers.AutoModelForImageClassification,
    }.get(kind, transformers.AutoModelForCausalLM)
    model = on_meta(lambda: auto.from_config(config, dtype=getattr(torch, dtype)))
    blocks = set(model._no_split_modules or ())
    seen = [id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False)]
    tied = {number for number in seen if seen.count(number) > 1}
    units: Units = []
    inside: list[str] = []
    for name, module in model.named_modules():
        if type(module).__name__ not in blocks or any(name.startswith(f"{outer}.") for outer in inside):
            continue
        if any(True for _ in module.parameters()):
            inside.append(name)
            if any(id(parameter) in tied for parameter in module.parameters()):
                continue  # tied weights belong into one group, here the root's
            units.append(((name,), "block"))
    assert units
    return model, units
