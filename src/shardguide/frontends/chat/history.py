"""The lines typed in earlier conversations of a project, kept in the notebook."""

from __future__ import annotations

from collections.abc import Callable

from shardguide.frontends import conduct
from shardguide.notebook import Notebook, talks

LONGEST = 500  # characters of a line that is kept; what is longer was pasted

Read = Callable[[str, tuple[str, ...]], str]


def earlier(notebook: Notebook) -> tuple[str, ...]:
    """The lines of before, the latest last."""
    return talks.typed(notebook, conduct.project())


def kept(read: Read, notebook: Notebook) -> Read:
    """The same reader, whose lines are kept."""
    last = ""

    def keeping(prompt: str, completions: tuple[str, ...]) -> str:
        nonlocal last
        line = read(prompt, completions)
        text = line.strip()
        if text and text != last and len(text) <= LONGEST and "\n" not in text:
            talks.keep_typed(notebook, conduct.project(), text)
            last = text
        return line

    return keeping
