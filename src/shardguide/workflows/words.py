"""Readers of answers that are words of a closed list."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput

LONGEST = 300  # characters of a list that is read


def several(name: str, text: str, allowed: tuple[str, ...], words: dict[str, str]) -> str:
    """Comma-separated words in the order of ``allowed``, each once; ``words`` holds other spellings.

    Raises UnusableInput for a word that is not allowed, and for an empty or overlong list.
    """
    said: set[str] = set()
    for part in text[: LONGEST + 1].split(","):
        word = part.strip().lower().replace("_", "-").replace(" ", "-")
        word = words.get(word, word)
        if not word:
            continue
        if word not in allowed:
            raise UnusableInput(
                f"--{name} takes {', '.join(allowed)}, several separated by commas, not {part.strip()[:40]!r}."
            )
        said.add(word)
    if not said or len(text) > LONGEST:
        raise UnusableInput(f"--{name} takes {', '.join(allowed)}, several separated by commas.")
    return ",".join(word for word in allowed if word in said)
