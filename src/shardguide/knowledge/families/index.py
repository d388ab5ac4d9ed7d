"""Which family builds which ``model_type``; the one place that names them, so that one file is imported for one model."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.guidance.model import Model

from .base import Config

# Any model and number of GPUs will do: the program is the same.
MANIFEST = "shardguide plan 1b --gpus 8 --show manifest"

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


# The main sizes of a model, each under the names that families have for it.
MAIN = (
    ("vocab_size",),
    ("hidden_size", "n_embd", "n_embed", "d_model"),
    ("num_hidden_layers", "n_layer", "num_layers"),
    ("num_attention_heads", "n_head", "num_heads"),
    ("intermediate_size", "ffn_dim", "d_ff"),
)


class _Watched(Config):
    """Remembers which main sizes the file left to the configuration class."""

    def __init__(self, values: Mapping[str, Any], where: str, left: dict[tuple[str, ...], str]) -> None:
        super().__init__(values, where)
        self.left = left  # the size to its name in this family and its default, as words

    def integer(self, *names: str, default: int | None = None, nullable: bool = True) -> int:
        value = super().integer(*names, default=default, nullable=nullable)
        for size in MAIN:
            if names[-1] in size and size not in self.left and all(self.values.get(name) is None for name in size):
                self.left[size] = f"{names[-1]} {value}"
        return value

    def sub(self, name: str) -> Config | None:
        inner = super().sub(name)
        if inner is None and name in ("text_config", "vision_config"):
            self.left[(name,)] = f"{name} as a whole"
        return inner and _Watched(inner.values, inner.where, self.left)


def _left_note(where: str, model_type: str, left: list[str]) -> tuple[str, ...]:
    """Which sizes are not the file's."""
    if not left:
        return ()
    sizes = ", ".join(left)
    verb = "comes" if len(left) == 1 else "come"
    return (
        f"{where} does not state everything: {sizes} {verb} from the defaults of the {model_type} configuration class. "
        "If that is not your model, hand over its whole config.json.",
    )


def build(config: Mapping[str, Any], implementation: str, where: str = "config.json") -> Model:
    """The model that ``config`` describes, as ``implementation`` builds it.

    Raises UnusableInput for a family that is not known (never guesses) or a field that makes no sense.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        what = (
            f"the model family {repr(model_type[:60])[:80]}"
            if isinstance(model_type, str)
            else "a model without a model_type"
        )
        raise UnusableInput(
            f"{where}: {what} is not one whose shapes are known exactly. Hand over a shape manifest of the model instead: "
            f"{MANIFEST} prints the program that writes one."
        )
    module = import_module(f"{__package__}.{FAMILIES[model_type]}")
    left: dict[tuple[str, ...], str] = {}
    model: Model = module.build(_Watched(config, where, left), implementation)
    return model._replace(notes=(*model.notes, *_left_note(where, model_type, list(left.values()))))
