"""The model of a plan: from what was handed over to exact parameters."""

from __future__ import annotations

from shardguide.guidance.model import Model
from shardguide.readers.model import read_model


def load(text: str, implementation: str) -> Model:
    """The model that ``text`` names: a path or a stated size.

    Raises UnusableInput for input that cannot be read and for families whose shapes are not known exactly.
    """
    evidence = read_model(text, prefer_checkpoint=implementation == "checkpoint")
    kind = type(evidence).__name__
    if kind == "HfConfig":
        from shardguide.knowledge.families.index import build

        model = build(evidence.config, implementation or "transformers5", evidence.where)  # type: ignore[union-attr]
        return model._replace(name=_name(text), notes=(*model.notes, *evidence.notes), config_dtype=evidence.dtype)  # type: ignore[union-attr]
    if kind == "StatedSize":
        return Model(_name(text), "", "stated", "", (), stated_size=evidence.parameters)  # type: ignore[union-attr]
    return Model(
        name=_name(text),
        family="",
        implementation="checkpoint" if evidence.kind == "safetensors" else "manifest",  # type: ignore[union-attr]
        architecture=evidence.architecture,  # type: ignore[union-attr]
        parameters=evidence.parameters,  # type: ignore[union-attr]
        buffers=evidence.buffers,  # type: ignore[union-attr]
        units=evidence.units,  # type: ignore[union-attr]
        notes=evidence.notes,
    )


def _name(text: str) -> str:
    """How the model is called: its folder, or the file where the folder says nothing."""
    if text == "-":
        return "standard input"
    parts = [part for part in text.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    if len(parts) > 1 and parts[-1] in ("config.json", "model.safetensors", "model.safetensors.index.json"):
        return parts[-2]
    return parts[-1] if parts else text
