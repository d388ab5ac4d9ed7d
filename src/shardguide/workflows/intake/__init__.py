"""First contact: free words and files become a workflow with what they already say filled in.

What the words mean is data (``knowledge/intake``); the model, the cluster and the release are read as ``ask`` reads them.
Nothing is decided here about PyTorch: the workflow that is chosen gives the answer, and says what it was chosen by.
"""

from __future__ import annotations

import re

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple

from . import capability, cues, handed
from .said import Said, said
from .unread import unread

LONGEST = 1 << 20  # characters: a pasted log may be long, a question is not
ENOUGH = 2.0  # of cues, for a workflow to be taken
QUESTION = 20_000  # characters; more than these are no question but something that was printed
CLEAR = 3.0  # of cues, to outweigh an error message in the same line
OTHERS = 3
CASE = 2.4  # for plan, of a model with GPUs; less than that of words which ask for something else


CAPABILITY = 4.0  # for backend, of a question on what one can do


class Understood(NamedTuple):
    """Which workflow, with which arguments, and why that one."""

    tool: str
    arguments: dict[str, Any]
    why: tuple[str, ...]  # the words and files that it was chosen by
    others: tuple[str, ...]  # workflows that these could mean as well, the likelier first
    notes: tuple[
        str, ...
    ] = ()  # what became of facts that the arguments do not carry, and what holds whatever the answer is
    unread: tuple[
        str, ...
    ] = ()  # answers that the words speak of in a way that was not understood: nothing else is to stand for them


def understand(words: str, files: tuple[str, ...] = (), torch: str | None = None) -> Understood:
    """What is wanted. ``words`` may hold a pasted log or error; ``files`` are what was handed over.

    Raises UnusableInput where there is neither, and for a file that does not exist.
    """
    words = words.strip()
    if not words and not files:
        raise UnusableInput(
            "say in a few words what you want to do with FSDP, or hand over a log, code or a config.json."
        )
    if len(words) > LONGEST:
        raise UnusableInput(f"that is more than {LONGEST:,} characters; hand a log of that size over as a file.")
    sorted_ = handed.sort(files)
    asked, pasted = _split(words)
    asked, code = _code_in(asked) if not pasted else (asked, "")
    scores, why = cues.scores(asked.replace(pasted, " ") if pasted and asked.replace(pasted, "").strip("` ") else asked)
    told = said(asked)
    if not pasted and capability.asked(asked)[0] and scores.get("diagnose", 0.0) < ENOUGH:
        scores["backend"] = max(scores.get("backend", 0.0), CAPABILITY, scores.get("ask", 0.0) + 1)
        why["backend"] = (*why.get("backend", ()), "an operation of a backend")
    if told.a_case and scores.get("diagnose", 0.0) < ENOUGH:
        scores["plan"] = scores.get("plan", 0.0) + CASE
        why["plan"] = (*why.get("plan", ()), "a model and GPUs")
    tool = _named(words, sorted_) or _chosen(scores, sorted_, pasted, code)
    arguments = _arguments(tool, asked, pasted, sorted_, told)
    if code and tool == "review":
        arguments["text"] = code
    elif code and tool == "init":
        arguments["call"] = code
    elif tool == "init" and (call := _call(asked)):
        stated: dict[str, Any] = {name: arguments[name] for name in ("backend", "method") if name in arguments}
        arguments = {**_arguments(tool, asked.replace(call, " "), pasted, sorted_, told), **stated, "call": call}
    release = torch or (told.releases[0] if len(told.releases) == 1 else None)
    if release:
        arguments["torch"] = release
    reasons = (
        *why.get(tool, ()),
        *sorted_.why(tool),
        *(("a pasted log",) if pasted and tool == "diagnose" else ()),
        *(("pasted code",) if code else ()),
    )
    others = [
        name for name, score in sorted(scores.items(), key=lambda one: -one[1]) if score >= ENOUGH and name != tool
    ]
    kept = told.notes() if tool in ("plan", "tune") and not sorted_.model else ()
    if tool == "ask" and len(arguments.get("question", "")) > QUESTION:
        tool, arguments = "diagnose", {**{k: v for k, v in arguments.items() if k == "torch"}, "text": words}
    open_ = unread(asked, told.hardware) if tool in ("plan", "tune") else ()
    open_ = tuple(name for name in open_ if name not in arguments)
    answers = capability.answers(asked, release or "") if tool == "backend" and not pasted else ()
    notes = (*answers, *kept, *cues.notes(tool, asked), *((_OPEN,) if open_ else ()))
    return Understood(tool, arguments, reasons, tuple(others[:OTHERS]), notes, open_)


def as_task(tool: str, words: str, files: tuple[str, ...] = (), torch: str | None = None) -> dict[str, Any]:
    """The arguments that the same words have for a workflow that somebody named."""
    asked, pasted = _split(words.strip())
    arguments = _arguments(tool, asked, pasted, handed.sort(files), said(asked))
    if tool != "explain":
        arguments.pop("full_script", None)
    else:
        arguments = {"topic": asked}
    if torch:
        arguments.setdefault("torch", torch)
    return {name: value for name, value in arguments.items() if value}


_LOG = re.compile(
    r"Traceback \(most recent call last\)|^\[?rank ?\d+\]?:|^\[rank\d+\]|\bNCCL (WARN|INFO)\b|^\[[EWIF]\d{3,4}[ :]|"
    r"^\s*File \"[^\"]+\", line \d+|ChildFailedError|\bCUDA out of memory\. Tried|"
    r"(?<=[A-Za-z_.])(?:Error|Exception|Warning): |^\d{4}-\d\d-\d\d[ T]\d\d:\d\d",
    re.MULTILINE,
)


# What only Python code begins a line with.
_CODE = re.compile(
    r"^(?:import \w|from [\w.]+ import |def \w+\(|class \w+[(:]|@\w|with [\w.]+\(|for \w.* in .*:|if .*:|[\w.]+ ?= ?[\w.]+\(|[\w.]+\(.*\))",
    re.MULTILINE,
)


def _code_in(words: str) -> tuple[str, str]:
    """What was said, and Python code that was pasted with it: fenced, or three lines and more that only code has."""
    fenced = re.search(r"```(?:python|py)?\n(.*?)(?:```|\Z)", words, re.DOTALL)
    if fenced is not None and not _LOG.search(fenced[1]):
        return f"{words[: fenced.start()]} {words[fenced.end() :]}".strip(), fenced[1]
    found = list(_CODE.finditer(words))
    if len(found) < 3 or "\n" not in words:
        return words, ""
    start = found[0].start()
    return words[:start].strip(), words[start:]


_NAME_ENDS = ("ChildFailedError", "Error", "Exception", "Warning")
NAME = 200  # characters of an exception's name, with its modules


def _split(words: str) -> tuple[str, str]:
    """What was said, and what was pasted with it: everything from the first line that only a program prints."""
    found = _LOG.search(words)
    if found is None:
        return words, ""
    if "\n" not in words:
        # One line: the message begins with its exception's whole name, and ends with its quotes, if it has any.
        begin = found.start()
        if found[0].startswith(_NAME_ENDS):
            while begin > max(0, found.start() - NAME) and (words[begin - 1].isalnum() or words[begin - 1] in "._"):
                begin -= 1
        mark = next((one for one in '`"' if words[:begin].count(one) % 2), "")
        end = words.find(mark, begin) if mark else -1
        if end < 0:
            aside = _ASIDE.search(words, found.end())
            end = aside.start() if aside else len(words)
        return words, words[begin:end].rstrip()
    start = words.rfind("\n", 0, found.start()) + 1
    return words[:start].strip(), words[start:]


def _call(words: str) -> str:
    """The one call of init_process_group that stands in the words and can be read; "" for none."""
    import ast

    starts = [found.start() for found in re.finditer(r"\b(?:\w{1,40}\.){0,5}init_process_group ?\(", words)]
    if len(starts) != 1:
        return ""
    for end in (at + 1 for at in range(starts[0], min(len(words), starts[0] + 4000)) if words[at] == ")"):
        text = words[starts[0] : end]
        try:
            ast.parse(text, mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
        return text
    return ""


# Where somebody's own words go on behind a message of one line.
_ASIDE = re.compile(
    r" (?:--|[–—]|<-+|//) | (?=since (?:this|yesterday|today|last|upgrad|mov|switch)\w*\b)|"
    r"(?<=[.)])\s+(?=(?:why|when|happens|it|i|we|my|only|any)\b)"
)


def _around(asked: str, pasted: str) -> str:
    """What was said beside a message of one line: the message itself is the evidence, and no question."""
    if not pasted or pasted not in asked:
        return asked
    before, _, after = asked.partition(pasted)
    words = " ".join(part.strip(" \t`'\"*:;,.-–—") for part in (before, after))
    return words.strip() if re.search(r"\w", words) else ""


_OPEN = "Not all that was said of the hardware is understood, so what is remembered of other hardware is not put in its place."


def _named(words: str, sorted_: handed.Handed) -> str:
    """The workflow that is named by its own name and little else, for files that it can work with; "" for none."""
    parts = words.lower().split()
    name = parts[0].strip(".,:!") if parts and len(parts) <= 3 else ""
    if name in ("plan", "tune") and (sorted_.code or sorted_.model or sorted_.reports):
        return name
    return name if name in ("join", "review", "migrate") and sorted_.code and not sorted_.evidence else ""


def _chosen(scores: dict[str, float], sorted_: handed.Handed, pasted: str, code: str) -> str:
    best = max(scores, key=lambda one: scores[one], default="ask")
    enough = scores.get(best, 0.0) >= ENOUGH
    if pasted and not sorted_.evidence and "\n" not in pasted and best != "diagnose" and scores.get(best, 0.0) >= CLEAR:
        return best  # a message is quoted in a question that is about something else
    if sorted_.evidence or pasted:
        return "diagnose"
    if sorted_.code:
        if scores.get("migrate", 0) >= ENOUGH:
            return "migrate"
        return best if best in ("tune", "join") and enough else "review"
    if sorted_.model or sorted_.reports:
        return "tune" if best == "tune" and enough else "plan"
    if enough and best == "ask" and code.count("\n") < 3:
        return "ask"
    if enough and best == "migrate":
        return "fsdp2"  # no code was handed over
    if code:
        return (
            "init" if best == "init" and enough and "init_process_group" in code and code.count("\n") < 4 else "review"
        )
    if enough:
        return best
    return "ask"


def _arguments(tool: str, asked: str, pasted: str, sorted_: handed.Handed, told: Said) -> dict[str, Any]:
    found = cues.states(tool, asked)
    if tool in ("plan", "tune"):
        stated = cues.states("plan", asked)
        # What was said of the links, not those of the machine's kind.
        links: dict[str, Any] = {name: stated[name] for name in ("inter", "intra") if name in stated}
        found = {**stated, **found, **told.plan(), **links}
        for name in ("inter", "intra"):
            if name in found and cues.denied(str(found[name]), asked):
                del found[name]  # "p4d without EFA"
        if sorted_.model:
            found["model"] = sorted_.model[0]
        if sorted_.reports:
            found["from"] = list(sorted_.reports)
        if sorted_.measured:
            found["measured"] = list(sorted_.measured)
        if sorted_.code:
            found["current"] = sorted_.code[0]
    elif tool == "diagnose":
        around = _around(asked, pasted)
        if around:
            found["question"] = around
        if pasted:
            found["text"] = pasted
        if sorted_.evidence or sorted_.reports:
            found["paths"] = [*sorted_.evidence, *sorted_.reports]
        if sorted_.code:
            found["code"] = list(sorted_.code)
    elif tool in ("review", "migrate"):
        if sorted_.code:
            found["paths"] = list(sorted_.code)
    elif tool == "backend":
        if "device" not in found and told.hardware.gpu:
            from ..hardware import kind

            device = kind(told.hardware.gpu)
            if device:
                found["device"] = device
        named, wanted = capability.asked(asked)
        if named and wanted:
            found["needs"] = ",".join(dict.fromkeys((*filter(None, str(found.get("needs", "")).split(",")), *wanted)))
    elif tool == "ask":
        found["question"] = asked or pasted
    elif tool == "explain":
        found["full_script"] = True
    elif tool == "fsdp2" and "goal" not in found:
        found.pop("goal", None)
    return found
