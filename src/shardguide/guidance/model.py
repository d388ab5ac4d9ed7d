"""What a model is made of, as far as sharding is concerned: the shapes, and the modules that hold them.

These types are the vocabulary between the readers (which find shapes in files), the families (which work shapes out of a
configuration), the accounting (which shards them) and the code that is shown for the model.
"""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple


class Parameter(NamedTuple):
    """One tensor of ``model.named_parameters()``: tied weights appear once, under their first name."""

    name: str  # fully qualified name, e.g. "model.layers.0.self_attn.q_proj.weight"
    shape: tuple[int, ...]  # in elements, unsharded
    dtype: str = ""  # canonical name where the input states it (safetensors, manifest); "" where it does not
    requires_grad: bool = True
    aliases: tuple[str, ...] = ()  # the other names of a tied tensor, e.g. ("lm_head.weight",)
    ignored: bool = False  # True: passed to fully_shard's ignored_params, whole on every rank

    @property
    def numel(self) -> int:
        """Number of elements, unsharded."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


class Buffer(NamedTuple):
    """One tensor of ``model.named_buffers()``; fully_shard does not shard buffers."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # canonical name, e.g. "float32"
    persistent: bool = True  # whether state_dict() holds it


class Unit(NamedTuple):
    """A module, or several, worth a communication group of their own (one ``fully_shard`` call)."""

    modules: tuple[str, ...]  # fully qualified module names, e.g. ("model.layers.0",) or ("model.norm", "lm_head")
    module_class: str  # e.g. "LlamaDecoderLayer"; for a list of modules the classes joined by "+"
    role: str  # "block" (a repeated layer), "embedding", "head" (final norm and output projection)


class Model(NamedTuple):
    """A model's parameters with everything a plan needs to know about them."""

    name: str  # as the user knows it: file name, model id or "stated size"
    family: str  # Hugging Face model_type, "" when only shapes are known
    implementation: str  # "transformers5", "transformers4", "checkpoint" or "stated"
    architecture: str  # class to instantiate, e.g. "LlamaForCausalLM"; "" if unknown
    parameters: tuple[Parameter, ...]  # in named_parameters() order; empty when only a size was stated
    buffers: tuple[Buffer, ...] = ()
    units: tuple[Unit, ...] = ()  # bottom-up; whatever no unit holds belongs to the root
    tp_plan: tuple[tuple[str, str], ...] = ()  # (module name pattern, style) as transformers' base_model_tp_plan has it
    stated_size: int = 0  # parameters, when shapes are unknown
    notes: tuple[str, ...] = ()  # what the user should know about how these shapes were found
    config_dtype: str = ""  # torch_dtype of the config: shown, never used silently
    origin: str = ""  # digest of the configuration that it was built from; "" for listed shapes
    heads: tuple[int, ...] = ()  # attention and key-value heads, which tensor parallelism must divide; () if unknown

    @property
    def size(self) -> int:
        """Number of parameters, tied weights counted once."""
        return sum(parameter.numel for parameter in self.parameters) or self.stated_size
