"""Find a few words again in the code of an installed PyTorch, without parsing it.

A claim is looked up in a handful of files of some thousand lines each every time it is shown, so there is no syntax tree
here: a definition is found by its first line, ends where the next one of its depth begins, and the words are searched in
between, whatever the line breaks. The scripts that build the index check each hit against the real syntax tree.
"""

# No pathlib in this module: it is on the way of every command.
# ruff: noqa: PTH116, PTH118, PTH123

from __future__ import annotations

import os
import stat
from bisect import bisect_right

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Reopened

LIMIT = 4 << 20  # bytes; the largest file that a claim points to has a quarter of a megabyte


class Place(NamedTuple):
    """Where an object is defined."""

    object: str  # public dotted name
    file: str  # relative to site-packages
    definition: str  # qualified name in that file, "" for the whole module


class Hit(NamedTuple):
    """A place where the words stand."""

    place: Place
    reopened: Reopened


class Tree:
    """The files below one site-packages folder or source tree, each read at most once."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._texts: dict[str, str | None] = {}
        self._spans: dict[tuple[str, str], list[tuple[int, int]]] = {}

    def text(self, file: str) -> str | None:
        """The text of a file, or None where there is no such regular file of a bearable size.

        One character for each byte, which costs no decoding: what is searched for is ASCII, and lines stay lines.
        """
        if file not in self._texts:
            self._texts[file] = read_text(os.path.join(self.root, file), "latin-1")
        return self._texts[file]

    def spans(self, file: str, definition: str) -> list[tuple[int, int]]:
        """Start and end offsets of each definition of that name: overloads and guarded variants count too."""
        key = (file, definition)
        if key not in self._spans:
            text = self.text(file)
            found = [(0, len(text))] if text else []
            for name in definition.split(".") if definition and text else ():
                found = [inner for start, end in found for inner in _definitions(text or "", name, start, end)]
            self._spans[key] = found
        return self._spans[key]

    def search(self, file: str, definition: str, anchors: tuple[str, ...]) -> int | None:
        """The line (1-based) at which the first of the anchors begins that stands inside the definition, or None.

        Anchors are words separated by single spaces; in the file there may be line breaks between them.
        """
        text = self.text(file)
        if text is None:
            return None
        for start, end in self.spans(file, definition):
            for anchor in anchors:
                at = text.find(anchor, start, end)
                if at >= 0:
                    return text.count("\n", 0, at) + 1
        for start, end in self.spans(file, definition):
            for anchor in anchors:
                line = _across_lines(text, start, end, anchor)
                if line is not None:
                    return line
        return None


def _across_lines(text: str, start: int, end: int, anchor: str) -> int | None:
    """The line at which an anchor begins that runs over line breaks, between two offsets.

    Only stretches around the anchor's longest word are split into words: most of a file never is.
    """
    word = max(anchor.split(), key=len)
    reach = 2 * len(anchor) + 400  # how far the anchor may stretch with indentation and comment signs
    at = text.find(word, start, end)
    while at >= 0:
        first = text.rfind("\n", start, max(start, at - reach)) + 1 or start
        flat, before = _words(text[first : min(end, at + 4 * reach)])
        found = flat.find(anchor)
        if found >= 0:
            return text.count("\n", 0, first) + bisect_right(before, flat.count(" ", 0, found))
        at = text.find(word, at + 3 * reach + 1, end)
    return None


def _words(stretch: str) -> tuple[str, list[int]]:
    """The words of a stretch joined by single spaces, and for each of its lines the number of words before it."""
    words: list[str] = []
    before: list[int] = []
    for line in stretch.split("\n"):
        before.append(len(words))
        parts = line.split()
        words += parts[1:] if parts and parts[0] == "#" else parts  # a comment may run over several lines
    return " ".join(words), before


def read_text(path: str, encoding: str = "utf-8") -> str | None:
    """A regular file of at most LIMIT bytes as text, broken bytes replaced; None for anything else."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LIMIT:
            return None
        with open(path, "rb") as file:
            return file.read(LIMIT + 1).decode(encoding, "replace")
    except (OSError, ValueError):
        return None


def find(tree: Tree, places: tuple[Place, ...], anchors: tuple[str, ...]) -> Hit | None:
    """The first place at which one of the anchors stands."""
    for place in places:
        line = tree.search(place.file, place.definition, anchors)
        if line is not None:
            return Hit(place, Reopened(place.file, line))
    return None


def missing(tree: Tree, places: tuple[Place, ...]) -> bool:
    """Whether none of the definitions is where it was in the releases known: it may have moved."""
    return not any(tree.spans(place.file, place.definition) for place in places)


def _definitions(text: str, name: str, start: int, end: int) -> list[tuple[int, int]]:
    """Stretches of `class name` or `def name` between two offsets, at the smallest depth at which there are any."""
    found: list[tuple[int, int, int]] = []
    for keyword in ("class ", "def ") if name[:1].isupper() else ("def ", "class "):
        word = keyword + name
        at = text.find(word, start, end)
        while at >= 0:
            after = text[at + len(word) : at + len(word) + 1]
            line = text.rfind("\n", 0, at) + 1
            lead = text[line:at]
            lead = lead[:-6] if lead.endswith("async ") else lead
            if after in ("(", ":", "[") and not lead.strip():
                found.append((len(lead), line, at))
            at = text.find(word, at + len(word), end)
        if found:
            break
    if not found:
        return []
    depth = min(item[0] for item in found)
    return [(line, _end(text, depth, at, end)) for lead, line, at in found if lead == depth]


def _end(text: str, depth: int, start: int, end: int) -> int:
    """Where the definition ends: at the next definition, decorator or block of its depth or less."""
    import re  # its patterns are kept by the module; nothing else here needs it

    words = "def |class |@|async def |if |try:|else:" if depth == 0 else "def |class |@|async def "
    found = re.compile(f"\n {{0,{min(depth, 100)}}}(?:{words})").search(text, start, end)
    return found.start() if found else end
