"""What words say of the model, the hardware and the release, whatever they ask."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple

from ..ask.stated import stated as asked
from . import hardware, models, words


class Said(NamedTuple):
    """Absent is "" or empty."""

    hardware: hardware.Hardware
    model: models.Named
    releases: tuple[str, ...]

    def plan(self) -> dict[str, str]:
        """As arguments of ``plan``."""
        found = {"model": self.model.size, **self.hardware.plan()}
        return {name: value for name, value in found.items() if value}

    @property
    def a_case(self) -> bool:
        """Whether there are a model and GPUs for it."""
        return self.model.known and bool(self.hardware.gpu or self.hardware.gpus or self.hardware.notes)

    def notes(self) -> tuple[str, ...]:
        """What became of what was said, where that is not plain from the arguments."""
        return (*self.hardware.notes, *self.model.notes())


def said(text: str) -> Said:
    """Read what can be read without doubt."""
    return Said(hardware.stated(text), models.stated(words.read(text)), asked(text).releases)
