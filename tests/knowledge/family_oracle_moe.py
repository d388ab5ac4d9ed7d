"""Real transformers models of the families that have more than one class: built by name, on the meta device.

Complements family_oracle.py, which builds what an auto class chooses.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

# The class that is meant when a configuration names none.
DEFAULTS = {
    "mixtral": "MixtralForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "llama4": "Llama4ForConditionalGeneration",
    "llama4_text": "Llama4ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "t5": "T5ForConditionalGeneration",
    "bert": "BertForMaskedLM",
    "vit": "ViTForImageClassification",
}


def architecture(config: Mapping[str, Any]) -> str:
    """The class to build."""
    names = config.get("architectures")
    return str(names[0]) if names else DEFAULTS[config["model_type"]]


def build_named(config: Mapping[str, Any], device: str = "meta") -> Any:
    """The class that the configuration names, without weights (on the meta device)."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    transformers.logging.set_verbosity_error()
    values = copy.deepcopy(dict(config))  # transformers changes nested objects in place
    configuration = CONFIG_MAPPING[values["model_type"]].from_dict(values)
    with torch.device(device):
        return getattr(transformers, architecture(config))._from_config(configuration)


def wildcard(name: str) -> str:
    """A module's or parameter's name as a plan's pattern: numbers as ``*``."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", name)


def plan_of(model: Any) -> dict[str, str]:
    """The model's tensor-parallel plan as far as it names something, without what its base plan does not say.

    Left out are the head, and the embedding where transformers 5 adds it to every plan by itself.
    """
    names = {wildcard(name) for name, _ in model.named_modules()} | {
        wildcard(name) for name, _ in model.named_parameters()
    }
    stated = model.config.get_text_config().base_model_tp_plan or {}
    return {
        name: style
        for name, style in (model._tp_plan or {}).items()
        if name in names
        and name.rpartition(".")[2] != "lm_head"
        and (name.rpartition(".")[2] != "embed_tokens" or "embed_tokens" in stated)
    }
