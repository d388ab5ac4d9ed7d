"""Hardware that words speak of and that was not understood: what is remembered of other hardware must not stand for it."""

from __future__ import annotations

import re

from .hardware import Hardware
from .words import Word, read

# Machines and accelerators by the form of their names, known here or not.
_STRANGE = re.compile(
    r"\b[a-z][a-z0-9-]*\.(?:\d+)?x?large\b|\b\w+\.metal\b|\b[a-z]\d[a-z]?-[a-z]+-\d+g?\b|\bStandard_\w+|\bN[CDV]\d*\w*_?v\d\b|"
    r"\bbm\.gpu\S*|\b(?:gaudi|tpus?|trainium|ascend|cerebras|dojo|graphcore|inferentia)(?:[ -]?v?\d\w*)?\b|\b(?:trn|inf|hpu)\d\w*\b",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\b(?!FP|BF|TF|INT|PY|CUDA|GPT|OPT|CPU)[A-Z]{1,3}\d{2,4}[A-Za-z]{0,3}\b")
# What a number may stand before without counting machines.
_OTHER = re.compile(
    r"(?:epoch|step|layer|head|expert|hour|day|week|month|minute|second|token|percent|time|sample|sequence|seq|batch|run|people|k|"
    r"class|image|language|stage|param|parameter|micro|warmup|iteration|iter|checkpoint|file|dataset|option|question|run)e?s?",
    re.IGNORECASE,
)
_COUNTS = ("gpus", "nodes", "tp", "shard_size")
_KIND = ("gpu", "gpu_memory", "device", "intra", "inter", "host_memory")


def unread(text: str, found: Hardware) -> tuple[str, ...]:
    """The names of answers that what is remembered must not fill: the words state them in a way that was not understood."""
    words = read(text)
    kinds = "".join(word.kind for word in words)
    strange = not found.gpu and bool(_STRANGE.search(text) or _NAMED.search(text) or "G" in kinds or "M" in kinds)
    counted = not found.gpus and (strange or bool(found.notes) or _counted(words))
    stated = found.plan()
    names = (*(_COUNTS if counted else ()), *(_KIND if strange else ()))
    return tuple(name for name in names if name not in stated)


def _counted(words: list[Word]) -> bool:
    """Whether a number counts something that was not taken: 4 blades, x 16."""
    for at, one in enumerate(words):
        next_ = words[at + 1] if at + 1 < len(words) else None
        if one.kind == "X" and next_ is not None and next_.kind in "NP":
            return True
        if (
            one.kind == "N"
            and next_ is not None
            and (
                next_.kind in "XgGdDMV"
                or (next_.kind in "Ww" and not _OTHER.fullmatch(next_.text) and next_.text.isalpha())
            )
        ):
            return True
    return False
