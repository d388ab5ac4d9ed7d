"""What a line means while a conversation is under way: a command, a correction, a word of assent, or anything else."""

from __future__ import annotations

import re

from shardguide.guidance.hints import NamedTuple

# What can be typed, in the words of the program.
HELP = (
    "At any time: known (what is known), NAME = VALUE (correct an answer), back (to the question before), new (another task), "
    "quit (it is kept, and goes on next time), or a question, which ends with a question mark.",
    "At a question: a number from the list or your own words; ? for how to find out; the output of a command, or the path of a file with "
    "it; Enter leaves it open.",
    "After the answer: yes approves, no turns down, draft leaves it; apply writes its files; why, why not X, what if 32 GPUs, for 2.8, "
    "show the FSDP1 form, show ID, more (all of it), sources, or any other question.",
)

YES = frozenset(
    {"yes", "y", "ok", "okay", "approve", "approved", "confirm", "sure", "yes please", "yep", "yeah", "yup"}
)
NO = frozenset({"no", "n", "nope", "reject", "nah", "no thanks"})
DRAFT = frozenset({"draft", "later", "leave", "leave it", "leave as draft", "not now", "done", "enough", "end"})
_UNKNOWN = re.compile(
    r"\?+|idk|how\??|(?:(?:i|we) )?(?:really |honestly )?(?:do ?n.?t|do not|did ?n.?t) (?:really )?know(?: that| this| it| yet)?|"
    r"(?:(?:i|we) )?(?:have |'ve )?(?:no|not a|not any) (?:idea|clue)|dunno|(?:i.?m |we.?re |i am )?(?:not (?:really |quite )?sure|unsure)|"
    r"how (?:do|can|would|should) (?:i|we) (?:find (?:that |this |it )?out|know|tell|check|see)(?: that| this| it)?\??|"
    r"where (?:do|can) (?:i|we) (?:find|see|look up) (?:that|this|it)\??|can.?t (?:say|tell)|not known",
    re.IGNORECASE,
)
SKIP = frozenset({"", "skip", "next", "leave open", "pass"})
QUIT = frozenset(
    {"quit", "exit", "q", ":q", "stop", "bye", "goodbye", "bye bye", "good bye", "ciao", "cya", "see you", "thanks", "thank you", "thx",
     "thanks a lot", "many thanks", "thank you very much", "thanks, bye", "ok thanks", "cheers"}
)  # fmt: skip

_CHANGE = re.compile(
    r"^\s*(?:change|set|correct|actually,?|no,?)?\s*([a-z][a-z_ -]{1,20}?)\s*(?:=|:| is | to )\s*(.+?)\s*$",
    re.IGNORECASE,
)
_CHANGE_PLAIN = re.compile(r"^\s*(?:change|set|correct)\s+([a-z][a-z_-]{1,20})\s+(.+?)\s*$", re.IGNORECASE)
# Without a mark between: gpus 32. Of names that are no words of a sentence, with values that hold a number.
_CHANGE_BARE = re.compile(
    r"^\s*(gpus|nodes|tp|torch|gpu|gpu_memory|gpu memory|host_memory|host memory|shard_size|world_size|model|rank)"
    r"\s+((?=\S*\d)\S+(?: ?\d+ ?G(?:i?B)?)?)\s*$",
    re.IGNORECASE,
)
_RELEASE = re.compile(
    r"^\s*(?:and |what about |how about |same )?(?:for|on|with|in)?\s*(?:py)?(?:torch)?\s*v?(2\.\d{1,2})(?:\.\d+)?\s*\??\s*$",
    re.IGNORECASE,
)
_FORM = re.compile(
    r"\b(fsdp ?1|fsdp ?2|accelerate|torchtitan|ddp)\b.{0,20}\b(?:form|version|code|variant|config\w*|instead)\b|"
    r"\bshow\b.{0,20}\b(fsdp ?1|fsdp ?2|accelerate|torchtitan)\b",
    re.IGNORECASE,
)
_WHY_NOT = re.compile(
    r"^\s*(?:and |but )?why (?:not|no|isn't it|is it not|didn't you|did you not)\b\s*(?:use |choose |take |go with )?(.+?)\s*\??\s*$",
    re.IGNORECASE,
)
_WHY = re.compile(r"^\s*why\b\s*(.*?)\s*\??\s*$", re.IGNORECASE)
_SHOW = re.compile(r"^\s*show\s+(?:me\s+)?(?:the\s+)?([a-z0-9_-]+)\s*$", re.IGNORECASE)


_PLAIN = {
    "help": "help", "known": "known", "sources": "sources", "references": "sources", "back": "back", "undo": "back", "new": "new",
    "apply": "apply", "write": "apply", "reasons": "reasons", "more": "more", "all": "more", "verbose": "more", "details": "more",
    "show": "snippets", "code": "snippets", "show code": "snippets", "show me the code": "snippets", "show more": "more",
    "show sources": "sources", "show the sources": "sources", "show me the sources": "sources", "apply it": "apply",
    "take that back": "back", "take it back": "back", "undo that": "back", "go back": "back", "start over": "new", "another task": "new",
}  # fmt: skip
_WITHOUT = re.compile(
    r"^(?:please )?(?:leave|drop|forget|ignore|remove|without|take)\s+(?:out\s+)?(?:the|that|this|my)?\s*(?:file|report|output|paste)\b",
    re.IGNORECASE,
)
_INSTEAD = re.compile(
    r"^(?:and |but |so |ok(?:ay)?,? |hm+,? |no,? |actually,? )*(?:what (?:if|about|would|happens)|how about|and (?:if|with|for|on)|with|"
    r"if|suppose|say|use|make it|take|try|for|on|it.s|we have|i have|it is|there are|assume)\b|\binstead\b",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"\?\s*$|^(?:what|why|how|which|when|where|who|can|could|does|do|is|are|should|will|would|explain|tell me)\s+\w+\s+\w+",
    re.IGNORECASE,
)


def asks(text: str) -> bool:
    """Whether a line is a question rather than an answer."""
    return bool(_ASKS.search(text.strip())) and " " in text.strip()


def instead(text: str) -> bool:
    """Whether a line asks for the same with something else: what if 64 GPUs, with SGD instead."""
    return bool(_INSTEAD.search(text.strip()))


class Meaning(NamedTuple):
    """What a line asks for."""

    kind: str  # one of the words that ``meaning`` gives: "yes", "change", "why_not", …, "other"
    value: str = ""
    name: str = ""


def meaning(line: str, names: frozenset[str]) -> Meaning:
    """What a line says. ``names``: what can be corrected by ``NAME = VALUE``."""
    text = " ".join(line.split())
    plain = text.lower().rstrip(".!").strip()
    for words, kind in (
        (QUIT, "quit"),
        (SKIP, "skip"),
        (YES, "yes"),
        (NO, "no"),
        (DRAFT, "draft"),
    ):
        if plain in words:
            return Meaning(kind)
    if _UNKNOWN.fullmatch(plain):
        return Meaning("unknown")
    if plain in _PLAIN:
        return Meaning(_PLAIN[plain])
    for pattern in (_CHANGE_PLAIN, _CHANGE, _CHANGE_BARE):
        found = pattern.match(text)
        if found:
            name = found[1].strip().lower().replace(" ", "_").replace("-", "_")
            if name in names:
                return Meaning("change", found[2], name)
    if _WITHOUT.match(text):
        return Meaning("without")
    found = _RELEASE.match(text)
    if found:
        return Meaning("release", found[1])
    found = _WHY_NOT.match(text)
    if found:
        return Meaning("why_not", found[1])
    found = _FORM.search(text) if len(text) <= 60 else None
    if found:
        return Meaning("form", (found[1] or found[2]).lower().replace(" ", ""))
    found = _SHOW.match(text)
    if found:
        return Meaning("show", found[1])
    found = _WHY.match(text)
    if found:
        return Meaning("why", found[1])
    return Meaning("other", text)
