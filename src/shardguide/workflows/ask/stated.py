"""What a question states beside what it asks: the release, the model's size, the GPUs."""

from __future__ import annotations

import re

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import releases

# "on 2.8", "torch==2.8.0", "PyTorch v2.8" name a release; "in 2.5 hours" and "2.8 GB" do not.
_RELEASE = (
    r"(?:\b(?:py)?torch(?:\s+version)?\s*[=:]{0,2}\s*v?|\b(?:on|in|with|versions?|releases?|from|to|than|and|of|since|under|between|after|before|until)\s+v?|\bv)"
    r"(2\.[0-9]{1,2})(?:\.[0-9]+)?(?:\+\w+)?(?![0-9.]*[0-9])"
    r"(?!\s*(?:[GMTK]i?B|[BMKx%]\b|GHz|hours?\b|days?\b|minutes?\b|seconds?\b|s\b|ms\b|times\b|points?\b|billion|million|trillion|tokens?))"
)
_SIZE = r"(?<![\w.])([0-9]{1,4}(?:\.[0-9]{1,2})?)\s?([bB]|[Mm]|billion|million)(?:\b|-)(?!\s*(?:tokens?|samples?|images?|/s))"
_TIMES = r"(?<![\w.])([0-9]{1,4})\s?(?:x|×|\*)\s?([0-9]{1,2})(?![0-9])\s?[xX×]?\s?([A-Za-z]?[A-Za-z0-9-]*)"
_COUNT = r"(?<![\w.])([0-9]{1,5})\s?(?:x|×)?\s?(RTX\s?A?[0-9]{4}|[A-Za-z]{1,3}[0-9]{2,4}[A-Za-z]{0,2}|[Gg][Pp][Uu])s?\b"
_NODES = r"(?<![\w.])([0-9]{1,4}|two|three|four|eight)\s(?:nodes|machines|servers|hosts)\b"
_GPU = (
    r"(?:\b|(?<=[0-9][xX×]))(?:H100|H200|H800|H20|B200|B300|GB200|A100|A800|A10G|A10"
    r"|A40|A6000|L40S|L40|L4|V100|T4|MI[0-9]{3}X?|P100|RTX\s?A?[0-9]{4})"
)
_NUMBERS = {"two": "2", "three": "3", "four": "4", "eight": "8"}


class Stated(NamedTuple):
    """Absent is "" or empty."""

    releases: tuple[str, ...]  # minor releases that exist, in their order in the question
    size: str  # "70b"
    gpus: str
    nodes: str
    gpu: str  # "H100"

    def plan(self) -> dict[str, str]:
        """As arguments of ``plan``."""
        named = {"model": self.size, "gpus": self.gpus, "nodes": self.nodes, "gpu": self.gpu}
        return {name: value for name, value in named.items() if value}


def stated(text: str) -> Stated:
    """Read what can be read without doubt."""
    if not any(letter.isdigit() for letter in text):
        return Stated((), "", "", "", "")  # the expressions below are compiled only where they can match
    named = [name for name in re.findall(_RELEASE, text, re.IGNORECASE) if name in releases.known()]
    sizes = {f"{number}{unit[0].lower()}" for number, unit in re.findall(_SIZE, text)}
    gpus = nodes = ""
    times = re.search(_TIMES, text)
    if times and (re.match(_GPU, times[3], re.IGNORECASE) or times[3].lower().startswith("gpu")):
        nodes, gpus = times[1], str(int(times[1]) * int(times[2]))
    found = re.search(_NODES, text, re.IGNORECASE)
    if found and not nodes:
        nodes = _NUMBERS.get(found[1].lower(), found[1])
    for number, what in re.findall(_COUNT, text):
        if not gpus and (what.lower() == "gpu" or re.match(_GPU, what, re.IGNORECASE)):
            gpus = str(int(number) * int(nodes)) if nodes and _each(text) else number
    kinds = {kind.upper() for kind in re.findall(_GPU, text, re.IGNORECASE)}
    return Stated(
        tuple(dict.fromkeys(named)),
        sizes.pop() if len(sizes) == 1 else "",
        gpus,
        nodes,
        kinds.pop() if len(kinds) == 1 else "",
    )


def _each(text: str) -> bool:
    """Whether the GPUs are counted for one node."""
    return bool(
        re.search(
            r"\b(?:each|per node|per machine|every node|(?:nodes|machines|servers|hosts|boxes) (?:of|with|x)"
            r"|(?:nodes|machines|servers|hosts|boxes) ?[x×*](?= ?[0-9]))",
            text,
            re.IGNORECASE,
        )
    )
