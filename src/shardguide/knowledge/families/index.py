"""Which family builds which ``model_type``; the one place that names them, so that one file is imported for one model."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.guidance.model import Model

from .base import Config

# model_type -> module of this package
FAMILIES: dict[str, str] = {
    "llama": "llama",
    "mistral": "mistral",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "gpt2": "gpt2",
    "gpt_neox": "gpt_neox",
    "falcon": "falcon",
    "opt": "opt",
    "bloom": "bloom",
    "olmo2": "olmo2",
    "starcoder2": "starcoder2",
    "mixtral": "mixtral",
    "qwen2_moe": "qwen2_moe",
    "qwen3_moe": "qwen3_moe",
    "llama4": "llama4",
    "llama4_text": "llama4",
    "gpt_oss": "gpt_oss",
    "deepseek_v2": "deepseek_v2",
    "deepseek_v3": "deepseek_v3",
    "t5": "t5",
    "bert": "bert",
    "vit": "vit",
}


def build(config: Mapping[str, Any], implementation: str, where: str = "config.json") -> Model:
    """The model that ``config`` describes, as ``implementation`` builds it.

    Raises UnusableInput for a family that is not known (never guesses) or a field that makes no sense.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise UnusableInput(
            f"{where}: the model family {str(model_type)[:60]!r} is not one whose shapes are known exactly."
        )
    module = import_module(f"{__package__}.{FAMILIES[model_type]}")
    model: Model = module.build(Config(config, where), implementation)
    return model
