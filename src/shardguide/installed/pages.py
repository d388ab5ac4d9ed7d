"""Find sentences of documentation pages again in a folder of downloaded documentation.

A claim that rests on a page keeps no sentence, only a fingerprint of its words in their order. Markup and punctuation do not count,
so one fingerprint serves the page as HTML, as Markdown and as reST. No parser (they take a minute for 100 MB of HTML) and no
sentence splitter: a page is turned into its words, and the fingerprint is compared wherever the sentence's longest word stands.
What is not understood of a page's markup can hide a sentence, never make one up.
"""

# No pathlib in this module: it is on the way of every command.
# ruff: noqa: PTH112, PTH118, PTH119, PTH123

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Reopened

KINDS = {"html": "html", "htm": "html", "md": "markdown", "rst": "rest", "txt": "rest", "py": "python"}
MOST_FILES = 20_000  # PyTorch's documentation of one release has some 4,000
LARGEST = 4 << 20  # bytes of one page; larger ones are not read
MOST_BYTES = 1 << 30
DEEPEST = 20

# Inline elements stand inside a word or a sentence; every other tag ends a word.
_INLINE = (
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|ins|kbd|label|mark|q|s|samp|small|span|strike|strong|"
    "sub|sup|time|tt|u|var|wbr"
)
_BLOCK = (
    "p|div|br|hr|img|table|thead|tbody|tr|td|th|ul|ol|li|dl|dt|dd|details|summary|h[1-6]"  # that Markdown is mixed with
)


class Sentence(NamedTuple):
    """What is kept of a sentence."""

    digest: str  # SHA-256 of its words joined by single spaces
    words: int
    key: str  # its longest word, at which it is looked for
    at: int  # how many words stand before that one


def words(text: str) -> list[str]:
    """The words of running text: letters, digits and underscores inside."""
    return [word for word in (part.strip("_") for part in re.findall(r"\w+", text)) if word]


def fingerprint(sentence: str) -> Sentence:
    """Of a sentence as a reader sees it; signs of markup that are left in it do not count."""
    found = words(sentence.translate({ord(sign): None for sign in "`*"}))
    key = max(found, key=len, default="")
    return Sentence(_digest(found), len(found), key, found.index(key) if key else 0)


def find(folder: str, wanted: dict[str, Sentence], stems: Iterable[str] = ()) -> dict[str, Reopened]:
    """Where each of the sentences stands, for those that do; paths are relative to the folder.

    Files are read until all are found. Pages named by `stems` (``distributed`` for distributed.html) are read first, so that a
    sentence that stands on several pages is shown on its own. Nothing outside the folder is read: links are not followed.

    Raises:
        UnusableInput: there is no such folder, or it holds more than documentation.
    """
    left = dict(wanted)
    found: dict[str, Reopened] = {}
    first = frozenset(stems)
    read = 0
    for name in sorted(_files(folder), key=lambda path: (_stem(path) not in first, path)):
        if not left:
            break
        raw = _bytes(os.path.join(folder, name))
        read += len(raw)
        if read > MOST_BYTES:
            raise UnusableInput(
                f"--docs: {folder[:200]} holds more than {MOST_BYTES >> 30} GiB of pages; name the folder of one release."
            )
        here = {key: sentence for key, sentence in left.items() if sentence.key.encode() in raw}
        for key, line in _search(raw.decode("utf-8", "replace"), _kind(name), here).items() if here else ():
            found[key] = Reopened(name.replace(os.sep, "/"), line)
            del left[key]
    return found


def _search(text: str, kind: str, wanted: dict[str, Sentence]) -> dict[str, int]:
    """The lines (1-based) at which sentences begin that stand in a text."""
    plain = _plain(text, kind)
    spans = [match for match in re.finditer(r"\w+", plain) if match[0].strip("_")]
    flat = [match[0].strip("_") for match in spans]
    by_key: dict[str, list[tuple[str, Sentence]]] = {}
    for name, sentence in wanted.items():
        by_key.setdefault(sentence.key, []).append((name, sentence))
    found: dict[str, int] = {}
    for index, word in enumerate(flat):
        for name, sentence in by_key.get(word, ()):
            start = index - sentence.at
            if name in found or start < 0 or start + sentence.words > len(flat):
                continue
            if _digest(flat[start : start + sentence.words]) == sentence.digest:
                found[name] = plain.count("\n", 0, spans[start].start()) + 1
    return found


def _digest(found: list[str]) -> str:
    from hashlib import sha256

    return sha256(" ".join(found).encode()).hexdigest()


def _plain(text: str, kind: str) -> str:
    """The text as a reader sees it, as far as its words go. Every line break stays, so that lines can be counted."""
    if kind == "html":
        from html import unescape

        for start, end in (("<!--", "-->"), ("<script", "</script"), ("<style", "</style")):
            text = _without(text, start, end)
        text = re.sub(rf"</?(?:{_INLINE})\b[^<>]*>", lambda tag: _breaks(tag[0]), text)
        text = re.sub(r"<[a-zA-Z/!?][^<>]*>", lambda tag: _breaks(tag[0]) or " ", text)
        return re.sub(r"&#?\w{1,32};", lambda entity: unescape(entity[0]).replace("\n", " "), text)
    if kind == "python":
        return text.replace("`", "")
    # roles: :func:`~torch.distributed.barrier`, {ref}`title <label>`
    text = re.sub(r"(?::\w[\w:+.-]{0,60}:|\{\w[\w:+.-]{0,60}\})`([^`]{1,500})`", _role, text)
    if kind == "rest":
        text = re.sub(r"`([^`<]{1,500})<[^`<>]{0,2000}>`__?", lambda link: link[1], text)
        text = text.replace("\\ ", "")
    else:
        text = text.replace("\\[", "").replace("\\]", "")
        text = re.sub(r"!?\[([^\[\]]{0,500})\]\([^()\s]{0,2000}(?:\s+\"[^\"]{0,300}\")?\)", _link, text)
        text = re.sub(r"\[([^\[\]]{1,500})\]\[[^\[\]]{0,200}\]", lambda link: link[1], text)
        text = re.sub(rf"</?(?:{_INLINE})\b[^<>\n]{{0,500}}>", "", text)
        text = re.sub(rf"</?(?:{_BLOCK})\b[^<>\n]{{0,500}}>", " ", text)
    text = re.sub(r"^([ \t]{0,40})(?:\d{1,3}|#)[.)](?=\s)", r"\1", text, flags=re.M)  # numbers of list items
    return re.sub(r"[\\`*]", "", text)


def _without(text: str, start: str, end: str) -> str:
    """A text without what stands between two marks."""
    parts: list[str] = []
    at = 0
    low = text.lower() if start[1].isalpha() else text
    while True:
        opened = low.find(start, at)
        if opened < 0 or len(low) != len(text):  # lower case of another length: leave it
            return "".join([*parts, text[at:]]) if parts else text
        closed = low.find(end, opened)
        closed = len(text) if closed < 0 else closed
        parts += [text[at:opened], _breaks(text[opened:closed])]
        at = closed


def _breaks(text: str) -> str:
    return "\n" * text.count("\n")


def _role(match: re.Match[str]) -> str:
    """What a role shows: its title, the last part of a name after "~", or the name."""
    content = match[1]
    shown = content.partition("<")[0] if content.rstrip().endswith(">") else content
    shown = shown.rpartition(".")[2] if shown.startswith("~") else shown
    return shown + "\n" * (content.count("\n") - shown.count("\n"))


def _link(match: re.Match[str]) -> str:
    return _breaks(match[0]) if match[0].startswith("!") else match[1] + _breaks(match[0].removeprefix("[" + match[1]))


def _stem(path: str) -> str:
    """``distributed`` for distributed.html, distributed.md and distributed.rst.txt."""
    name = os.path.basename(path)
    for ending in (".txt", ".html", ".htm", ".md", ".rst", ".py"):
        name = name.removesuffix(ending)
    return name


def _kind(path: str) -> str:
    """Sphinx keeps sources as distributed.md.txt."""
    name = path.lower().removesuffix(".txt")
    return KINDS.get(name.rpartition(".")[2], "rest")


def _files(folder: str) -> list[str]:
    """The pages below a folder, relative to it; hidden folders and links left out."""
    if not os.path.isdir(folder):
        raise UnusableInput(f"--docs: there is no folder {folder[:200]}.")
    found: list[str] = []
    todo = [("", 0)]
    while todo:
        inside, depth = todo.pop()
        try:
            with os.scandir(os.path.join(folder, inside)) as entries:
                for entry in entries:
                    name = os.path.join(inside, entry.name)
                    if entry.name.startswith(".") or entry.is_symlink():
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if depth < DEEPEST:
                            todo.append((name, depth + 1))
                    elif entry.name.lower().rpartition(".")[2] in KINDS and entry.is_file(follow_symlinks=False):
                        found.append(name)
        except OSError:
            continue  # not readable: its pages are not found
        if len(found) > MOST_FILES or len(todo) > MOST_FILES:
            raise UnusableInput(
                f"--docs: {folder[:200]} holds more than {MOST_FILES:,} pages; name the folder of one release's documentation."
            )
    return found


def _bytes(path: str) -> bytes:
    """A page, or nothing where it cannot be read or is too large."""
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST + 1)
    except OSError:
        return b""
    return content if len(content) <= LARGEST else b""
