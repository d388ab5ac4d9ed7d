"""Which class of a family is meant, and how many labels its head has."""

from __future__ import annotations

from shardguide.guidance.hints import NoReturn

from .base import Config
from .rotary import is_current

MOST_LABELS = 10_000_000


def architecture(config: Config, *known: str) -> str:
    """The class to build: the first of ``architectures``, or ``known[0]`` when the field is absent or empty.

    Raises UnusableInput for a class that the family does not reproduce (another head, code from a repository).
    """
    names = config.values.get("architectures")
    if names is None or names == []:
        return known[0]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise config.refuse(f"architectures must be a list of class names, not {str(names)[:40]!r}.")
    if names[0] not in known:
        raise config.refuse(
            f"{names[0][:60]!r} is not a class whose parameters are known exactly (known here: {', '.join(known)}); "
            "hand over a shape manifest of your model instead."
        )
    return str(names[0])


def ask_for_files(config: Config, why: str) -> NoReturn:
    """Raise: the published layout is not known exactly, only the files themselves tell it."""
    raise config.refuse(
        f"the layout of the published checkpoint is not worked out from the configuration ({why}); "
        "hand over the safetensors files or their model.safetensors.index.json instead."
    )


def refuse_pruned(config: Config, implementation: str) -> None:
    """Refuse ``pruned_heads`` for transformers 4, which removes those heads and so changes the layers' shapes."""
    if config.values.get("pruned_heads") and not is_current(implementation):
        raise config.refuse("pruned_heads changes the shapes of single layers; hand over a shape manifest instead.")


def labels(config: Config, implementation: str, least: int) -> int:
    """The number of labels: of ``num_labels``, of ``id2label``, or 2.

    When both are there, transformers 5 takes ``num_labels`` and 4 the map. Raises UnusableInput below ``least``.
    """
    current = is_current(implementation)
    names = config.values.get("id2label")
    stated = config.values.get("num_labels")
    if names is not None:
        if not isinstance(names, dict):
            raise config.refuse(f"id2label must be an object, not {str(names)[:40]!r}.")
        try:
            count = len({int(name) for name in names})
        except (TypeError, ValueError):
            raise config.refuse("id2label must have whole numbers as keys.") from None
    else:
        count = 2
    first = count  # transformers 5 checks the problem type before num_labels overrides the map
    if stated is not None and (names is None or current):
        if isinstance(stated, bool) or not isinstance(stated, int):
            raise config.refuse(f"num_labels must be a whole number, not {str(stated)[:40]!r}.")
        count = stated
    elif current and config.is_null("num_labels"):
        raise config.refuse("num_labels is null; give it a value or leave it out.")
    if not least <= count <= MOST_LABELS:
        raise config.refuse(f"{count} labels are not possible: the head needs at least {least}.")
    if (
        current
        and (count if names is None else first) == 1
        and config.values.get("problem_type") == "single_label_classification"
    ):
        raise config.refuse("single_label_classification needs more than one label.")
    return count
