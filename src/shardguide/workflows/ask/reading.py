"""What a question says: its words, names of the API, a release, an error that was pasted."""

from __future__ import annotations

import re

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import ask_store

LONGEST = 20_000  # characters of a question
MOST = 48  # different words that are looked for: a pasted log has the same ones again and again

_TOKEN = re.compile(r"--[a-z][a-z0-9_-]+|[A-Za-z0-9_]+(?:[.:'+-][A-Za-z0-9_]+)*")
_ERROR = re.compile(
    r"Traceback \(most recent call last\)|\b[A-Za-z]*(?:Error|Exception)\b\s*:|exit ?code\W{1,4}-?[0-9]+|SIG(?:KILL|ABRT|SEGV|TERM|BUS)\b"
    r"|\[rank ?[0-9]+\]|Watchdog caught|terminate called after|ChildFailedError|core dumped",
    re.IGNORECASE,
)


class Question(NamedTuple):
    """A question, read."""

    text: str
    spaced: str  # every word in its order, in lower case, with a space around each
    words: tuple[str, ...]  # content words in their order, each once
    phrases: tuple[str, ...]  # names of several words: "reduce scatter" for reduce_scatter
    said: tuple[str, ...]  # what the glossary puts beside them
    names: tuple[str, ...]  # what is spelled like code: fully_shard, FSDPModule.reshard, --nproc-per-node, NCCL_DEBUG
    error: bool  # an error message or a log was pasted
    strong: int  # words of distributed PyTorch
    weak: int  # words that others use too
    hard: tuple[str, ...]  # subjects of others that are named


def read(text: str) -> Question:
    """Read a question; its text is data, and nothing of it is followed."""
    tokens = _TOKEN.findall(text)
    stop = set(ask_store.words("stop"))
    flat = ask_store.plain(text).split()
    words = list(dict.fromkeys(word for word in flat if word not in stop and len(word) > 1 and not word.isdigit()))
    # A name of code counts as one thing, whatever its parts: new_group, --nproc-per-node, torch.compile.
    compounds = [together for token in tokens if " " in (together := ask_store.plain(token)) and "'" not in token]
    compounds = [together for together in compounds if together != "torch distributed"]  # which every page is about
    camel = [part.lower() for token in tokens for part in ask_store.camel(token)]
    said = _beside(flat)
    spaced = f" {' '.join(flat)} "
    known = set(flat)
    every = known.union(said)
    strong = sum(word in every or f" {word} " in spaced for word in ask_store.words("strong"))
    weak = sum(word in every or f" {word} " in spaced for word in ask_store.words("weak"))
    hard = dict.fromkeys(subject for word, subject in ask_store.words("hard").items() if f" {word} " in spaced)
    more = [word for word in dict.fromkeys((*camel, *said)) if word not in known and word not in stop]
    return Question(
        text,
        spaced,
        tuple(words[:MOST]),
        tuple(dict.fromkeys(compounds))[:MOST],
        tuple(more[:MOST]),
        tuple(dict.fromkeys(token for token in tokens if _name(token)))[:MOST],
        bool(_ERROR.search(text)),
        strong,
        weak,
        tuple(hard),
    )


def _beside(flat: list[str]) -> list[str]:
    """The words that the glossary puts beside what was said, the longest phrases first."""
    say = ask_store.words("say")
    found: list[str] = []
    at = 0
    while at < len(flat):
        for length in (4, 3, 2, 1):
            put = say.get(" ".join(flat[at : at + length]))
            if put is not None and at + length <= len(flat):
                found += ask_store.plain(put).split()
                at += length - 1
                break
        at += 1
    return found


def _name(token: str) -> bool:
    """Whether a token is spelled like a name of code."""
    if token.startswith("--"):
        return True
    if "_" in token.strip("_"):
        return True
    head, dot, tail = token.partition(".")
    if (
        dot
        and not token[0].isdigit()
        and tail[:1].isalpha()
        and (head[:1].isupper() or head in ("torch", "dist", "dcp"))
    ):
        return True
    return bool(ask_store.camel(token)) and token[:1].isupper()
