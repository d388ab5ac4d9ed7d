"""The model that words state: its size, and a name that gives no more than that."""

from __future__ import annotations

import re

from shardguide.guidance.hints import NamedTuple

from .words import Word

_IN_NAME = re.compile(r"(?<![A-Za-z0-9.])(\d{1,4}(?:\.\d{1,2})?)([bm])(?![A-Za-z0-9])", re.IGNORECASE)
LONGEST = 80  # characters of a name
_TEN_TO_THE_EIGHT = "亿億억"


class Named(NamedTuple):
    """A size as ``plan`` takes it, "" for none; and what was called by a name."""

    size: str = ""
    name: str = ""
    experts: str = ""  # "8x7B", which is no number of parameters
    several: tuple[str, ...] = ()  # sizes, where there are more than one

    @property
    def known(self) -> bool:
        """Whether a model was stated at all."""
        return bool(self.size or self.name or self.experts or self.several)

    def notes(self) -> tuple[str, ...]:
        """What became of the name: it is never dropped without a word."""
        how = "its config.json gives exact numbers (hf download ID config.json fetches it, or hand over the folder of the checkpoint)."
        if self.experts:
            return (
                f"{' '.join(one for one in (self.name, self.experts) if one)}: a size of experts is no number of parameters; {how}",
            )
        if self.several:
            return (
                f"Several sizes were said ({', '.join(self.several)}), and a plan is for one model: name the one that is sharded.",
            )
        if not self.name:
            return ()
        if self.size:
            return (f"{self.name} is taken by its size only, {self.size}; {how}",)
        return (f"{self.name} is a name without a size here; {how} A size such as 7b will do for a start.",)


def stated(words: list[Word]) -> Named:
    """Read what can be read without doubt: two different sizes are none."""
    sizes: dict[str, None] = {}
    names: dict[str, None] = {}
    experts = ""
    for word in words:
        if word.kind == "S":
            sizes[_normal(word.text)] = None
        elif word.kind == "K":
            experts = word.text
        elif word.kind == "L":
            name = word.text.strip(".,-")[:LONGEST]
            if re.search(r"\dx\d", name):
                experts = experts or name
                continue
            names[name] = None
            found = _IN_NAME.search(name)
            if found:
                sizes[f"{found[1]}{found[2].lower()}"] = None
    if experts:
        return Named("", " and ".join(names), experts)
    one = next(iter(sizes), "")
    return Named(one if len(sizes) == 1 else "", " and ".join(names), "", tuple(sizes) if len(sizes) > 1 else ())


def _normal(text: str) -> str:
    """A size as ``plan`` takes it: "34 billion" to "34b", "70亿" to "7b"."""
    number = re.match(r"\d+(?:[.,]\d+)?", text)
    value = number[0].replace(",", ".") if number else ""
    if text[-1] in _TEN_TO_THE_EIGHT:
        return f"{float(value) / 10:g}b"
    unit = text[len(value) :].strip(" -").lower()
    return f"{value}{unit if unit == 't' else 'm' if unit in ('m', 'mio', 'million') else 'b'}"
