# ruff: noqa: PTH100, PTH112
# (os.path as in the rest of the product: pathlib costs start-up time; and resolve() would follow links)
"""The model of a plan: from what was handed over to exact parameters."""

from __future__ import annotations

import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.guidance.model import Model
from shardguide.guidance.serialise import digest
from shardguide.readers.hf_config import HfConfig
from shardguide.readers.model import read_model

if TYPE_CHECKING:
    from shardguide.readers.shapes import Shapes


def load(text: str, implementation: str) -> Model:
    """The model that ``text`` names: a path or a stated size.

    Raises UnusableInput for input that cannot be read and for families whose shapes are not known exactly.
    """
    notes: tuple[str, ...] = ()
    try:
        evidence = read_model(text, prefer_checkpoint=implementation == "checkpoint")
    except UnusableInput:
        size, notes = by_name(text)
        if not size:
            raise
        evidence = read_model(size)
    if isinstance(evidence, HfConfig):
        from shardguide.knowledge.families.index import build

        model = build(evidence.config, implementation or "transformers5", evidence.where)
        found = (*model.notes, *evidence.notes)
        if evidence.quantization:
            found = (
                *found,
                f"The file is quantised ({evidence.quantization}); the shapes are those of the unquantised model.",
            )
        return model._replace(
            name=_name(text),
            notes=found,
            config_dtype=evidence.dtype,
            heads=_heads(evidence.config),
            origin=digest(evidence.config, model.implementation),
        )
    from shardguide.readers.shapes import Shapes

    if isinstance(evidence, Shapes):
        return Model(
            name=_name(text),
            family="",
            implementation="checkpoint" if evidence.kind == "safetensors" else "manifest",
            architecture=evidence.architecture,
            parameters=evidence.parameters,
            buffers=evidence.buffers,
            units=evidence.units,
            notes=(*evidence.notes, *_quantised(evidence)),
        )
    return Model(_name(text), "", "stated", "", (), stated_size=evidence.parameters, notes=notes)


def by_name(text: str) -> tuple[str, tuple[str, ...]]:
    """The size that a model's name says, and what is said of that: no file is meant, since there is none.

    Raises UnusableInput for a name whose size is no number of parameters.
    """
    if len(text) > 200 or not is_name(text):
        return "", ()
    from .intake import models, words

    named = models.stated(words.read(text))
    if named.experts or named.several:
        raise UnusableInput(named.notes()[0])
    exact = f"{text.strip()} is taken by its size only, {named.size}; its config.json gives exact numbers."
    return named.size, (named.notes() or (exact,)) if named.size else ()


def is_name(text: str) -> bool:
    """Whether this names a model and no file: a name in words, or OWNER/NAME of a hub, where there is no such file or folder."""
    import re

    text = text.strip()
    folder, _, last = text.rpartition("/")
    path = text.startswith((".", "/", "~", "-")) or "\\" in text or "\x00" in text or "/" in folder
    if path or last in ("", "..") or re.search(r"\.[A-Za-z][A-Za-z0-9]{1,11}$", last):
        return False
    return not os.path.lexists(text) and not (folder and os.path.isdir(folder))


def _heads(config: dict[str, Any]) -> tuple[int, ...]:
    """Heads that transformers' own tensor-parallel attention divides among ranks; MLA's latent projections are no such heads."""
    values = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    if not isinstance(values, dict) or "kv_lora_rank" in values:
        return ()
    found = [values.get(name) for name in ("num_attention_heads", "num_key_value_heads")]
    return tuple(dict.fromkeys(count for count in found if isinstance(count, int) and count > 0))


def _quantised(shapes: Shapes) -> tuple[str, ...]:
    low = sorted({one.dtype for one in shapes.parameters if one.dtype.startswith("float8")})
    if not low:
        return ()
    words = f"The file holds {', '.join(low)} tensors: a quantised checkpoint, whose scales count as parameters here."
    return (f"{words} What is trained has other shapes and dtypes; a manifest of that model gives its numbers.",)


def for_release(model: Model, minor: tuple[int, int]) -> Model:
    """The model as fully_shard of this release can take it: lists of modules came with 2.5, before only the last of each."""
    if minor >= (2, 5) or minor < (2, 3):
        return model
    units = tuple(
        unit
        if len(unit.modules) == 1
        else unit._replace(modules=unit.modules[-1:], module_class=unit.module_class.rpartition("+")[2])
        for unit in model.units
    )
    return model._replace(units=units)


def with_one_dimension(model: Model) -> tuple[Model, tuple[str, ...]]:
    """Scalar parameters as tensors of one element, which fully_shard asks for, and their names."""
    scalars = tuple(one.name for one in model.parameters if not one.shape and not one.ignored)
    if not scalars:
        return model, ()
    parameters = tuple(one if one.shape or one.ignored else one._replace(shape=(1,)) for one in model.parameters)
    return model._replace(parameters=parameters), scalars


def _name(text: str) -> str:
    """How the model is called: its folder, or the file where the folder says nothing; however the path is spelled."""
    if text == "-":
        return "standard input"
    if os.path.lexists(text):
        text = os.path.abspath(text)
    parts = [part for part in text.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    if len(parts) > 1 and parts[-1] in ("config.json", "model.safetensors", "model.safetensors.index.json"):
        return parts[-2]
    return parts[-1] if parts else text
