"""What transformers itself builds from a configuration: the truth that the families are compared with.

The real model class is built on the meta device (no memory), with whichever transformers is installed. Used by the
family tests and by scripts/families_ground_truth.py.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Truth(NamedTuple):
    """A real model, as far as a family reproduces it."""

    architecture: str  # class name, e.g. "LlamaForCausalLM"
    parameters: tuple[tuple[str, tuple[int, ...]], ...]  # named_parameters(): (name, shape) in order, tied ones once
    aliases: dict[str, tuple[str, ...]]  # first name -> the other names of a tied parameter
    buffers: tuple[tuple[str, tuple[int, ...], str, bool], ...]  # named_buffers(): (name, shape, dtype, persistent)
    tp_plan: dict[str, str]  # base_model_tp_plan of the configuration class, {} when it has none
    model_tp_plan: dict[str, str]  # the same entries under the names that they have in the whole model
    base_model_prefix: str  # e.g. "model"
    no_split_modules: tuple[str, ...]  # classes that must stay whole, e.g. ("LlamaDecoderLayer",)
    classes: dict[str, str]  # module name -> class name, of every module

    @property
    def size(self) -> int:
        """Number of parameters, tied ones once."""
        total = 0
        for _, shape in self.parameters:
            count = 1
            for extent in shape:
                count *= extent
            total += count
        return total


def transformers_major() -> int:
    """4 or 5."""
    import transformers

    return int(transformers.__version__.split(".")[0])


def build_real(config: Mapping[str, Any], auto: str = "AutoModelForCausalLM") -> Any:
    """The real model on the meta device, as ``auto.from_config`` builds it from the contents of a config.json."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    transformers.logging.set_verbosity_error()
    values = copy.deepcopy(dict(config))  # transformers changes nested objects in place
    configuration = CONFIG_MAPPING[values["model_type"]].from_dict(values)
    with torch.device("meta"):
        return getattr(transformers, auto).from_config(configuration)


def real_truth(config: Mapping[str, Any], auto: str = "AutoModelForCausalLM") -> Truth:
    """What ``build_real`` built, written down."""
    return describe(build_real(config, auto))


def describe(model: Any) -> Truth:
    """Names, shapes, ties, buffers and sharding hints of a real model."""
    first_name: dict[int, str] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    parameters = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first = first_name.setdefault(id(parameter), name)
        if first == name:
            parameters.append((name, tuple(parameter.shape)))
        else:
            aliases[first] = (*aliases.get(first, ()), name)
    hidden = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
    buffers = tuple(
        (name, tuple(buffer.shape), str(buffer.dtype).removeprefix("torch."), name not in hidden)
        for name, buffer in model.named_buffers()
    )
    no_split = model._no_split_modules or ()
    base_plan = dict(model.config.get_text_config().base_model_tp_plan or {})
    return Truth(
        architecture=type(model).__name__,
        parameters=tuple(parameters),
        aliases=aliases,
        buffers=buffers,
        tp_plan=dict(model.config.base_model_tp_plan or {}),
        model_tp_plan={
            name: style
            for name, style in (model._tp_plan or {}).items()
            if any(name.endswith(f".{pattern}") for pattern in base_plan)
        },
        base_model_prefix=model.base_model_prefix,
        no_split_modules=tuple(sorted(no_split)),
        classes={name: type(module).__name__ for name, module in model.named_modules()},
    )


def lines_digest(pairs: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """sha256 over one line ``name d0,d1`` per parameter: equal digests mean equal names, shapes and order."""
    text = "".join(f"{name} {','.join(map(str, shape))}\n" for name, shape in pairs)
    return hashlib.sha256(text.encode()).hexdigest()


def saved_tensors(config: Mapping[str, Any], auto: str = "AutoModelForCausalLM") -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes in the safetensors file that save_pretrained writes, sorted: for small configurations only."""
    import tempfile
    from pathlib import Path

    import transformers
    from safetensors import safe_open
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    values = copy.deepcopy(dict(config))
    model = getattr(transformers, auto).from_config(CONFIG_MAPPING[values["model_type"]].from_dict(values))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safe_open(Path(folder) / "model.safetensors", framework="pt") as file:
            return sorted((name, tuple(file.get_slice(name).get_shape())) for name in file.keys())  # noqa: SIM118


def record(truth: Truth) -> dict[str, Any]:
    """A truth as the committed fixtures keep it: counts, and a digest of every name and shape."""
    return {
        "architecture": truth.architecture,
        "parameters": len(truth.parameters),
        "size": truth.size,
        "digest": lines_digest(truth.parameters),
        "aliases": {name: list(others) for name, others in truth.aliases.items()},
        "buffers": len(truth.buffers),
        "buffers_digest": buffers_digest(truth.buffers),
    }


def detail(truth: Truth) -> dict[str, Any]:
    """What says more than a digest when it differs: layer 0 and all that is no layer, and the tensor-parallel plan."""
    return {
        "first_layer": {name: ",".join(map(str, shape)) for name, shape in truth.parameters if in_first_layer(name)},
        "first_buffers": {
            name: f"{','.join(map(str, shape))} {dtype} {kept}"
            for name, shape, dtype, kept in truth.buffers
            if in_first_layer(name)
        },
        "tp_plan": truth.model_tp_plan,
    }


def in_first_layer(name: str) -> bool:
    """Whether a name belongs to layer 0 or to no layer: the part of a model that says what all of it looks like."""
    return all(part == "0" for part in name.split(".") if part.isdigit())


def buffers_digest(buffers: Iterable[tuple[str, tuple[int, ...], str, bool]]) -> str:
    """sha256 over one line ``name d0,d1 dtype persistent`` per buffer."""
    text = "".join(f"{name} {','.join(map(str, shape))} {dtype} {kept}\n" for name, shape, dtype, kept in buffers)
    return hashlib.sha256(text.encode()).hexdigest()
