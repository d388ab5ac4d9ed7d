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


# Sizes that every published configuration states, under their names in it.
MAIN = frozenset(
    {"vocab_size", "hidden_size", "n_embd", "d_model", "num_hidden_layers", "n_layer", "num_layers", "intermediate_size",
     "ffn_dim", "d_ff", "num_attention_heads", "n_head", "num_heads"}
)  # fmt: skip


class _Watched(Config):
    """Remembers which main sizes the file left to the configuration class."""

    def __init__(self, values: Mapping[str, Any], where: str, left: dict[str, int]) -> None:
        super().__init__(values, where)
        self.left = left

    def integer(self, *names: str, default: int | None = None, nullable: bool = True) -> int:
        value = super().integer(*names, default=default, nullable=nullable)
        if names[0] in MAIN and all(self.values.get(name) is None for name in names):
            self.left.setdefault(names[0], value)
        return value

    def sub(self, name: str) -> Config | None:
        inner = super().sub(name)
        return inner and _Watched(inner.values, inner.where, self.left)


def _left_note(where: str, model_type: str, left: Mapping[str, int]) -> tuple[str, ...]:
    """Which sizes are not the file's."""
    if not left:
        return ()
    sizes = ", ".join(f"{name} {value}" for name, value in left.items())
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
        what = f"the model family {model_type[:60]!r}" if isinstance(model_type, str) else "a model without a model_type"
        raise UnusableInput(
            f"{where}: {what} is not one whose shapes are known exactly. Hand over a shape manifest of the model instead: "
            f"{MANIFEST} prints the program that writes one."
        )
    module = import_module(f"{__package__}.{FAMILIES[model_type]}")
    left: dict[str, int] = {}
    model: Model = module.build(_Watched(config, where, left), implementation)
    return model._replace(notes=(*model.notes, *_left_note(where, model_type, left)))
