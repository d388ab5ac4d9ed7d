# ruff: noqa: PTH110, PTH111
# (os.path as in the rest of the product)
"""Paths among the words of a line."""

from __future__ import annotations

import os
import re


def with_files(text: str) -> tuple[str, tuple[str, ...]]:
    """Words and the paths among them that exist; a pasted log is not searched for paths."""
    if "\n" in text or len(text) > 2000:
        return text, ()
    files, words = [], []
    whole = os.path.expanduser(text.strip().strip("\"'"))
    if whole and len(whole) < 1000 and "\x00" not in whole and ("/" in whole or "." in whole) and os.path.exists(whole):
        return "", (whole,)  # a path with spaces in it, alone
    for quoted in re.findall(r"\"([^\"]+)\"|'([^']+)'", text):
        path = os.path.expanduser(quoted[0] or quoted[1])
        if " " in path and "\x00" not in path and os.path.exists(path):
            files.append(path)
            text = text.replace(quoted[0] or quoted[1], "")
    text = text.replace("\\ ", "\x01")  # a space that a shell would take for part of a name
    for word in text.split():
        bare = word.replace("\x01", " ").strip("\"'`,;")
        path = os.path.expanduser(bare)
        if ("/" in bare or "." in bare) and len(bare) > 2 and "\x00" not in path and os.path.exists(path):
            files.append(path)
        else:
            words.append(word.replace("\x01", "\\ "))
    return " ".join(words), tuple(files)


_ENDS = (".py", ".log", ".json", ".txt", ".yaml", ".yml", ".out", ".err", ".ipynb", ".csv", ".sh", ".safetensors")


def not_there(words: str) -> tuple[str, ...]:
    """What looks like a path among words, after ``with_files`` took those that exist out."""
    if "\n" in words or len(words) > 2000:
        return ()
    bare = [word.strip("\"'`,;:()?!") for word in words.split()]
    return tuple(
        one
        for one in bare
        if (one.startswith(("/", "./", "../", "~/")) and len(one) > 2)
        or (one.endswith(_ENDS) and one not in _ENDS and "://" not in one)
    )
