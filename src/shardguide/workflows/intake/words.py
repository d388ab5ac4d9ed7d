"""Words as the kinds that hardware is told with: counts, GPUs, hosts, machines, memory, and what ties them together.

The kinds and their words, in the languages that people write in, are data (``knowledge/intake/hardware.toml``). A text
becomes a row of letters, one a word, in which ``hardware`` finds the forms of a count.
"""

from __future__ import annotations

import re
from functools import cache

from shardguide.guidance.hints import Any, NamedTuple

from .data import data

LONGEST = 4000  # characters that are looked at
LETTER = "A-Za-z0-9_À-ɏЀ-ӿ"  # those that make words with blanks between them; the others stand alone


class Word(NamedTuple):
    """One word: its kind, a letter."""

    kind: str
    text: str
    value: int = 0  # of a number


class _Words(NamedTuple):
    pattern: re.Pattern[str]
    kinds: tuple[str, ...]
    numbers: dict[str, int]
    signs: dict[str, int]
    machines: dict[str, dict[str, Any]]
    plain: re.Pattern[str]


def machine_name(text: str) -> str:
    """A machine's name without case, prefixes of clouds, and the marks between its parts."""
    low = text.lower()
    for prefix in ("standard_", "standard ", "ml.", "nvidia "):
        low = low.removeprefix(prefix)
    return "".join(letter for letter in low if letter.isalnum())


@cache
def _words() -> _Words:
    found = data()["hardware"]
    end = rf"(?![{LETTER}])"
    attached = rf"(?:{end}|(?=[xX×] ?\d{{1,4}}{end}))"  # H100x8
    names = (
        rf"(?:{found['gpus']['names']})(?:[- ]?(?:{found['gpus']['forms']}){end}){{0,2}}"
        rf"(?:'?s)?{attached}"
    )
    machines = {machine_name(name): row for row in found["machines"] for name in row["names"]}
    # Longest first; any mark may stand where the name has one.
    spelled = sorted((name for row in found["machines"] for name in row["names"]), key=len, reverse=True)
    machine = "|".join("[-_. ]?".join(map(re.escape, re.split(r"[-_. ]", name))) for name in spelled)
    number = (
        rf"\d{{1,3}}(?:,\d{{3}})+(?![{LETTER}.,])|\d{{1,6}}(?![{LETTER}]|\.\d|,\d)"
        rf"|\d{{1,6}}(?=[xX×*✕](?:[\s\d(]|$|{names})|(?=[A-Z])(?:{names}|gpus?{end}))"  # 8xH100, 8GPU
    )
    size = r"\d{1,4}(?:[.,]\d{1,2})?[ -]?(?:billion|bn|b|million|mio|m|milliarden?|mrd\.?|milliards?|mil millones)"
    parts: list[tuple[str, str]] = [
        ("W", r"https?://\S+|(?:tcp|file|env)://\S*"),
        ("M", rf"(?:standard[_ ]|ml\.)?(?:nvidia )?(?:{machine})(?:'?s)?{attached}"),
        ("L", _family(end)),
        ("K", rf"\d{{1,3}}x\d{{1,3}}(?:\.\d)?b{end}"),
        *((one["kind"], one["pattern"]) for one in found["words"] if one["kind"] in "RY"),
        ("S", rf"{size}{end}(?!\s*(?:tokens?|samples?|images?|/s))"),
        ("S", r"\d{1,5}(?:\.\d)? ?[亿億억]|\d{1,2}(?:\.\d)? ?T(?=[- ](?:param|model|MoE|dense))"),
        ("-", rf"(?:{found['gpus']['makers']}){end}"),
        ("G", names),
    ]
    # "8 x", "x8", "8xH100"; "xeon" and "x86" are words.
    parts.append(("X", rf"(?!x86)[xX×*✕](?=[\s\d(,.;)]|$|{names}|(?:{machine}))"))
    parts += [
        (one["kind"], f"(?:{one['pattern']})" + ("" if one["joined"] else end))
        for one in found["words"]
        if one["kind"] not in "RY"
    ]
    parts += [
        ("N", number),
        ("N", f"(?:{'|'.join(map(re.escape, sorted(found['numbers'], key=len, reverse=True)))}){end}"),
        ("N", f"[{''.join(found['signs'])}](?=[台个個节節机機卡张張枚块塊])"),
        ("W", rf"[{LETTER}]+(?:['’./+-][{LETTER}]+)*"),
        (",", r"[^\s]"),
    ]
    # What stands for a count must be seen before a word that a number could be the beginning of, and X only after a count.
    pattern = re.compile("|".join(f"(?P<k{at}>{one})" for at, (_, one) in enumerate(parts)), re.IGNORECASE)
    plain = re.compile(rf"(?:{found['plain']})", re.IGNORECASE)
    return _Words(pattern, tuple(kind for kind, _ in parts), found["numbers"], found["signs"], machines, plain)


def _family(end: str) -> str:
    families = data()["families"]
    version = r"(?: ?v?\d\.\d{1,2})?(?:[- ]v?\d(?:\.\d{1,2})?(?=[- ]\d+(?:\.\d+)?[bm]\b))?"
    return rf"(?:[{LETTER}.-]{{1,60}}/)?(?:[{LETTER}]{{1,24}}-){{0,4}}(?:{families})(?:[{LETTER}]*(?:[.-][{LETTER}]+)*){version}{end}"


def machine(text: str) -> dict[str, Any]:
    """The row of a machine."""
    known = _words().machines
    name = machine_name(text)
    return known[name] if name in known else known[name.removesuffix("s")]


def read(text: str) -> list[Word]:
    """The words of a text, in order, without those that say nothing here."""
    known = _words()
    found: list[Word] = []
    for match in known.pattern.finditer(" ".join(text[:LONGEST].split())):
        kind = known.kinds[int(str(match.lastgroup)[1:])]
        said = match[0]
        if kind == "-" or (kind == "," and said in "-()[]\"'`*"):
            continue
        if kind == "W" and known.plain.fullmatch(said):
            kind = "w"
        found.append(Word(kind, said, _value(kind, said, known)))
    return found


def _value(kind: str, said: str, known: _Words) -> int:
    if kind == "U":
        return {"quad": 4, "octo": 8}.get(said.lower(), 2)
    if kind in "Ad":
        return 1
    if kind not in "NP":
        return 0
    digits = said.replace(",", "")
    if digits.isdigit():
        return int(digits)
    if kind == "P":
        return int(re.match(r"\d+", said)[0])  # type: ignore[index]
    return known.numbers.get(said.lower()) or known.signs.get(said, 0)
