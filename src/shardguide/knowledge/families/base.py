"""How a family is written: a function from a configuration to its parameters, in the order PyTorch registers them.

A family file registers under its Hugging Face ``model_type`` (see ``index.py``) and exposes
``build(config, implementation) -> Model``. It must reproduce ``named_parameters()`` of the class that it names, name by
name and shape by shape; tests/knowledge/test_families_*.py compare each with the real class on the meta device.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.guidance.model import Buffer, Model, Parameter, Unit


class Config:
    """Typed, bounded access to a configuration: a wrong type or an absurd size is one clear sentence."""

    LIMIT = 1 << 48  # no real extent is larger; keeps hostile numbers from turning into endless loops
    MOST_LAYERS = 10_000  # of layers or experts; the deepest published models have a few hundred

    def __init__(self, values: Mapping[str, Any], where: str = "config.json") -> None:
        self.values = values
        self.where = where

    def integer(self, *names: str, default: int | None = None, nullable: bool = True) -> int:
        """The first of the fields that is present and not null, as an integer of at least 1.

        ``nullable=False`` refuses null, as transformers 5 does for a field that it declares ``int``.
        """
        for name in names:
            value = self.values.get(name)
            if value is None:
                self._refuse_null(name, nullable)
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= self.LIMIT:
                raise UnusableInput(
                    f"{self.where}: {name} must be a whole number of at least 1, not {str(value)[:40]!r}."
                )
            return value
        if default is None:
            raise UnusableInput(
                f"{self.where}: {' or '.join(names)} is missing; without it the shapes cannot be worked out."
            )
        return default

    def count(self, *names: str, default: int | None = None, nullable: bool = True) -> int:
        """Like integer(), for a number of repeated things (layers, experts): small enough to list."""
        value = self.integer(*names, default=default, nullable=nullable)
        if value > self.MOST_LAYERS:
            raise UnusableInput(f"{self.where}: {names[0]} = {value} is not a plausible number of layers or experts.")
        return value

    def flag(self, name: str, default: bool, nullable: bool = True) -> bool:
        """A true/false field; null counts as absent, or is refused with ``nullable=False``."""
        value = self.values.get(name)
        if value is None:
            self._refuse_null(name, nullable)
            return default
        if not isinstance(value, bool):
            raise UnusableInput(f"{self.where}: {name} must be true or false, not {str(value)[:40]!r}.")
        return value

    def is_null(self, name: str) -> bool:
        """Whether the field is there and null, where that differs from a field that is absent."""
        return name in self.values and self.values[name] is None

    def _refuse_null(self, name: str, nullable: bool) -> None:
        if not nullable and name in self.values:
            raise UnusableInput(f"{self.where}: {name} is null; give it a value or leave it out.")

    def refuse(self, sentence: str) -> UnusableInput:
        """The exception to raise for a configuration that transformers refuses too, or that makes no sense."""
        return UnusableInput(f"{self.where}: {sentence}")

    def text(self, name: str, default: str = "") -> str:
        """A string field; null counts as absent."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise UnusableInput(f"{self.where}: {name} must be a string, not {str(value)[:40]!r}.")
        return value

    def sub(self, name: str) -> Config | None:
        """A nested configuration (``text_config``), or None."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise UnusableInput(f"{self.where}: {name} must be an object, not {str(value)[:40]!r}.")
        return Config(value, f"{self.where}: {name}")


class Builder:
    """Collects parameters, buffers and units in registration order."""

    def __init__(self) -> None:
        self.parameters: list[Parameter] = []
        self.buffers: list[Buffer] = []
        self.units: list[Unit] = []

    def add(self, name: str, *shape: int, aliases: tuple[str, ...] = ()) -> None:
        """One parameter of the given shape."""
        self.parameters.append(Parameter(name, shape, aliases=aliases))

    def linear(self, name: str, inputs: int, outputs: int, bias: bool = False) -> None:
        """``torch.nn.Linear(inputs, outputs)``: weight (outputs, inputs), bias (outputs)."""
        self.parameters.append(Parameter(f"{name}.weight", (outputs, inputs)))
        if bias:
            self.parameters.append(Parameter(f"{name}.bias", (outputs,)))

    def norm(self, name: str, width: int, bias: bool = False) -> None:
        """A layer norm: weight (width), and a bias (width) for LayerNorm."""
        self.parameters.append(Parameter(f"{name}.weight", (width,)))
        if bias:
            self.parameters.append(Parameter(f"{name}.bias", (width,)))

    def buffer(self, name: str, *shape: int, dtype: str = "float32", persistent: bool = True) -> None:
        """One buffer of the given shape."""
        self.buffers.append(Buffer(name, shape, dtype, persistent))

    def repeat(self, prefix: str, count: int, module_class: str, layer: Builder) -> None:
        """``count`` equal layers ``prefix.0``, ``prefix.1`` …, each with what ``layer`` holds, and each a unit.

        The rows of a layer are worked out once: a model of 126 layers has over a thousand parameters.
        """
        parameters = [(f".{parameter.name}", parameter.shape) for parameter in layer.parameters]
        for i in range(count):
            module = f"{prefix}.{i}"
            self.parameters += [Parameter(module + name, shape) for name, shape in parameters]
            self.buffers += [buffer._replace(name=f"{module}.{buffer.name}") for buffer in layer.buffers]
            self.units.append(Unit((module,), module_class, "block"))

    def unit(self, role: str, module_class: str, *modules: str) -> None:
        """One communication group candidate, bottom-up."""
        self.units.append(Unit(modules, module_class, role))

    def model(
        self,
        *,
        family: str,
        implementation: str,
        architecture: str,
        tp_plan: Mapping[str, str] | None = None,
        notes: tuple[str, ...] = (),
    ) -> Model:
        """The finished model. Raises UnusableInput for a tensor too large for PyTorch (it counts bytes in 63 bits)."""
        for shape in {parameter.shape for parameter in self.parameters}:
            if prod(shape) >= 1 << 60:
                raise UnusableInput(f"The configuration asks for a tensor of shape {shape}: no machine can hold it.")
        return Model(
            name="",
            family=family,
            implementation=implementation,
            architecture=architecture,
            parameters=tuple(self.parameters),
            buffers=tuple(self.buffers),
            units=tuple(self.units),
            tp_plan=tuple((tp_plan or {}).items()),
            notes=notes,
        )


def refuse_checkpoint(config: Config, implementation: str, family: str) -> None:
    """For a family whose published checkpoints don't share one known layout: the file itself must be read."""
    if implementation == "checkpoint":
        raise UnusableInput(
            f"{config.where}: published {family} checkpoints name their tensors in more than one way; "
            "give the safetensors file or its index instead of the configuration."
        )
