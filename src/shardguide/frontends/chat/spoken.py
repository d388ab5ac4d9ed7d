"""A command line's page in a conversation: what it says of options is said of what can be typed here."""

from __future__ import annotations

import re

from shardguide.frontends.render.blocks import Block, Heading, Items, Pairs, Text
from shardguide.guidance.hints import Any

_WORDS = (
    (re.compile(r"--show ID prints one, --write DIR writes all"), "show ID prints one, apply writes all"),
    (re.compile(r"--show ID prints one, --verbose all"), "show ID prints one, more shows all"),
    (re.compile(r"--show ID prints one"), "show ID prints one"),
    (re.compile(r"\(--torch (2\.\d+)\)"), r"(for \1)"),
    (re.compile(r"\(see --verbose\)|\(--verbose(?:, --json)?\)"), "(more shows them)"),
    (re.compile(r"more: --verbose|runs of ranks: --verbose"), "more (more shows them)"),
    (re.compile(r"(?<![\w-])--torch X(?![\w-])"), "for 2.13, say"),
    (re.compile(r"\(as --option VALUE\)"), "(NAME = VALUE)"),
    (re.compile(r"\[--diff\]"), "[apply]"),
    (re.compile(r"\(--current FILE\)"), "(the path of the file)"),
    (re.compile(r"\(--now (param=\w+)\)"), r"(api=fsdp1 \1)"),
    (re.compile(r"--diff prints it alone; "), ""),
    (re.compile(r"shardguide apply [0-9a-f]+ writes"), "apply writes"),
    (re.compile(r"approve --anyway overrides it"), "shardguide approve --anyway overrides it"),
    (re.compile(r"shardguide explain (FSD\d+) shows a rule with examples"), r"why \1 shows a rule with examples"),
    (re.compile(r"\(--([a-z]+(?:-[a-z]+)*)\)"), r"(\1)"),
)


def sentence(text: str) -> str:
    """One text."""
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


def _typed(label: str) -> str:
    """A command of the list as it is typed here: explain join."""
    return label.removeprefix("shardguide ") if label.startswith("shardguide explain ") else label


def error(text: str) -> str:
    """A refusal: an option is a name here."""
    return re.sub(r"(?<![\w-])--([a-z][a-z-]+)", lambda one: one[1].replace("-", "_"), text)


def page(blocks: list[Block]) -> list[Block]:
    """The blocks of an answer; the last line of a draft goes, since the conversation asks that itself."""
    out: list[Block] = []
    for block in blocks:
        if isinstance(block, Text):
            if "Confirm with: shardguide approve" not in block.text:
                out.append(Text(sentence(block.text)))
        elif isinstance(block, Heading):
            out.append(Heading(sentence(block.text)))
        elif isinstance(block, Items):
            out.append(Items(tuple(sentence(row) for row in block.rows)))
        elif isinstance(block, Pairs):
            out.append(Pairs(tuple((_typed(label), sentence(text), mark) for label, text, mark in block.rows)))
        else:
            out.append(block)
    while out and isinstance(out[-1], Text) and not out[-1].text.strip():
        out.pop()
    return out


def shown(value: Any) -> str:
    """A value in a sentence; what was pasted, by its size."""
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return f"{len(text):,} characters" if len(text) > 100 or "\n" in text else text
