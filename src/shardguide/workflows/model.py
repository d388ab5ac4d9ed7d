"""The model of a plan: from what was handed over to exact parameters."""

from __future__ import annotations

from shardguide.guidance.model import Model
from shardguide.readers.hf_config import HfConfig
from shardguide.readers.model import read_model


def load(text: str, implementation: str) -> Model:
    """The model that ``text`` names: a path or a stated size.

    Raises UnusableInput for input that cannot be read and for families whose shapes are not known exactly.
    """
    evidence = read_model(text, prefer_checkpoint=implementation == "checkpoint")
    if isinstance(evidence, HfConfig):
        from shardguide.knowledge.families.index import build

        model = build(evidence.config, implementation or "transformers5", evidence.where)
        return model._replace(name=_name(text), notes=(*model.notes, *evidence.notes), config_dtype=evidence.dtype)
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
            notes=evidence.notes,
        )
    return Model(_name(text), "", "stated", "", (), stated_size=evidence.parameters)


def _name(text: str) -> str:
    """How the model is called: its folder, or the file where the folder says nothing."""
    if text == "-":
        return "standard input"
    parts = [part for part in text.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    if len(parts) > 1 and parts[-1] in ("config.json", "model.safetensors", "model.safetensors.index.json"):
        return parts[-2]
    return parts[-1] if parts else text
