# ruff: noqa: PTH110, PTH111
# (os.path as in the rest of the product)
"""Paths among the words of a line."""

from __future__ import annotations

import os


def with_files(text: str) -> tuple[str, tuple[str, ...]]:
    """Words and the paths among them that exist; a pasted log is not searched for paths."""
    if "\n" in text or len(text) > 2000:
        return text, ()
    files, words = [], []
    for word in text.split():
        bare = word.strip("\"'`,;")
        path = os.path.expanduser(bare)
        if ("/" in bare or "." in bare) and len(bare) > 2 and os.path.exists(path):
            files.append(path)
        else:
            words.append(word)
    return " ".join(words), tuple(files)
