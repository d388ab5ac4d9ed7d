"""The hardware that words state: how many GPUs, over how many hosts, which ones, with how much memory, in which network.

A misread count is worse than a question: where a count of GPUs could be of one host or of all, or a word beside a number is
not known, it is left open.
"""

from __future__ import annotations

import re

from shardguide.guidance.hints import Any, NamedTuple

from .data import data
from .words import Word, machine, read

NODE = 8  # GPUs: more than these are seldom in one host, so that a larger count is of all of them


class Hardware(NamedTuple):
    """What was stated; "" or empty for what was not."""

    gpus: str = ""
    nodes: str = ""
    gpu: str = ""
    gpu_memory: str = ""
    host_memory: str = ""
    inter: str = ""
    intra: str = ""
    notes: tuple[str, ...] = ()

    def plan(self) -> dict[str, str]:
        """As arguments of ``plan``."""
        return {name: value for name, value in zip(self._fields[:-1], self[:-1], strict=True) if value}


_MORE = "DVXHCETR"  # hosts in the plural, counts and shares
_SEVERAL = frozenset(
    (
        "several",
        "many",
        "few",
        "some",
        "multiple",
        "more",
        "any",
        "cluster",
        "pool",
        "fleet",
        "how",
        "half",
        "part",
        "parts",
        "most",
        "third",
        "quarter",
    )
)


class _Counts:
    """Counts as they are found; what each list means stands in hardware.toml."""

    def __init__(self, words: list[Word]) -> None:
        self.words = words
        self.row = "".join(word.kind for word in words)
        self.each: list[int] = []
        self.all: list[int] = []
        self.some: list[int] = []
        self.hosts: list[int] = []
        self.one: list[int] = []
        self.machines: list[int] = []
        self.doubt = False
        # One machine is named once, and no word says that there are more of them.
        named = [word.text for word in words if word.kind == "M"]
        self.alone = (
            len(named) == 1
            and named[0][-1] not in "sS"
            and not any(word.kind in _MORE or not _SEVERAL.isdisjoint(word.text.lower().split()) for word in words)
        )

    def take(self, form: str, *lists: list[int]) -> None:
        """Every place of a form: its groups are the counts of ``lists``; a number is read once."""
        while True:
            found = re.search(form, self.row)
            if found is None:
                return
            for number, into in enumerate(lists, 1):
                into.append(self.words[found.start(number)].value)
            gone = re.sub("[NPUHA]", "_", found[0])
            self.row = self.row[: found.start()] + gone + self.row[found.end() :]


def stated(text: str) -> Hardware:
    """Read what can be read without doubt."""
    words = read(text)
    if not any(word.kind in "GgMDdRBVv" for word in words):
        return Hardware()
    words, memory, host = _memory(words)
    counts = _count(_merged(words))
    name, of_machine = _names(words)
    nodes, gpus, notes = _resolved(counts, of_machine)
    if not gpus and not notes and (counts.each or counts.some or counts.all):
        notes = ("How many GPUs there are in all is not clear from the words.",)
    row: dict[str, Any] = of_machine or {}
    return Hardware(
        gpus=str(gpus or ""),
        nodes=str(nodes or ""),
        gpu=name,
        gpu_memory=_possible(name, memory) or str(row.get("memory", "")),
        host_memory=host,
        inter=str(row.get("inter", "")) if nodes != 1 else "",
        intra=str(row.get("intra", "")),
        notes=notes,
    )


# ---------------------------------------------------------------------------------------------------------- memory


def _memory(words: list[Word]) -> tuple[list[Word], str, str]:
    """The words without sizes of memory; the one that stands beside a GPU, and the one of a host."""
    kept: list[Word] = []
    beside: set[str] = set()
    host: set[str] = set()
    hosts = any(word.kind in "DdMV" for word in words)
    for at, word in enumerate(words):
        if word.kind == "R":
            host.add(_size(word.text))
            continue
        if word.kind == "E" and beside and not hosts and words[at - 1].kind == "Y":
            continue  # "4 V100s, 16GB each": there are no hosts that it could be of
        if word.kind != "Y":
            kept.append(word)
            continue
        before = [one.kind for one in words[max(0, at - 3) : at]]
        after = [one.kind for one in words[at + 1 : at + 3]]
        if any(kind in "GgMX" for kind in before[-1:]) or (before[-1:] == ["F"] and before[-2:-1] in (["G"], ["g"])):
            beside.add(_size(word.text))
            if before[-1] == "F":
                kept.pop()
        elif any(kind in "Gg" for kind in after):
            beside.add(_size(word.text))
        else:
            kept.append(word._replace(kind="w"))
    return kept, beside.pop() if len(beside) == 1 else "", host.pop() if len(host) == 1 else ""


def _size(text: str) -> str:
    found = re.search(r"(\d+(?:\.\d)?)[- ]?(?:([TG])(iB)?|$)", text, re.IGNORECASE)
    return f"{found[1]}{(found[2] or 'G').upper()}{'i' if found[3] else ''}B" if found else ""


def _possible(name: str, memory: str) -> str:
    """A size that stands beside a GPU's name, unless no such GPU has as much: then it is that of all of them, or of something else."""
    if not memory or not name:
        return memory
    from shardguide.knowledge.hardware.memory import parse_memory
    from shardguide.knowledge.hardware.table import find

    largest = max((row.limit for row in find(name, every=True)), default=0)
    return "" if 0 < largest < parse_memory(memory).decimal else memory


# ----------------------------------------------------------------------------------------------------------- names


def _merged(words: list[Word]) -> list[Word]:
    """A GPU's name and the word GPU beside it are one word: "8 GPU H100", "8张A800". A count behind comes to the front: "H100 8枚"."""
    out: list[Word] = []
    for word in words:
        if word.kind in "gC" and word.text != "台" and len(out) > 1 and out[-1].kind == "N":
            if out[-2].kind == "G":
                out[-2:] = [out[-1], out[-2]]
                continue
            if word.kind == "C":
                out.append(word)
                continue
        if word.kind in "Gg" and out and out[-1].kind == "C":
            out[-1] = word  # 8个H100
        elif word.kind in "Gg" and out and out[-1].kind in "Gg":
            out[-1] = out[-1] if out[-1].kind == "G" else word
        elif word.kind == "G" and len(out) > 1 and out[-1].kind == "Q" and out[-2].kind == "g":
            out[-2:] = [word]  # GPU=H100
        else:
            out.append(word)
    return out


def _names(words: list[Word]) -> tuple[str, dict[str, Any] | None]:
    """The one GPU that is named, and the one machine; "" and None where there are several."""
    machines = [machine(word.text) for word in words if word.kind == "M"]
    rows = {row["names"][0]: row for row in machines}
    one = next(iter(rows.values())) if len(rows) == 1 else None
    kinds = {_name(word.text): None for word in words if word.kind == "G"}
    if one is not None:
        kinds = {name: None for name in kinds if name not in one["gpu"] and one["gpu"] not in name}
        return ("" if kinds else one["gpu"]), (None if kinds else one)
    # "A100 ... A100 SXM4" is one GPU, said more and less exactly.
    longest = [name for name in kinds if not any(name != other and other.startswith(name) for other in kinds)]
    return (longest[0] if len(longest) == 1 and not rows else ""), None


_SHORT = re.compile(r"(?:[2345]0[5-9]0|A[456]000)\b")  # said without RTX


def _name(text: str) -> str:
    """A GPU's name as the table has it: "rtx 4090s" to "RTX 4090", "a100-sxm4" to "A100 SXM4"."""
    name = text if text.lower().endswith("l40s") else re.sub(r"'?[sS]$", "", text)
    name = " ".join(re.sub(r"-(?=[A-Za-z])", " ", name).upper().split())
    name = re.sub(r"^(RTX|GTX) ?(?=A?\d)", r"\1 ", name.replace("MI ", "MI"))
    return f"RTX {name}" if _SHORT.match(name) else name


# ---------------------------------------------------------------------------------------------------------- counts


def _count(words: list[Word]) -> _Counts:
    found = _Counts(words)
    for form, means in data()["hardware"]["forms"]:
        found.take(form, *(getattr(found, name) for name in means))
    _of_them(found)
    # A number and a word that is not known before the count, "4 uzlů po 8": it may be one of hosts.
    found.doubt = bool(re.search(r"NW{1,2}[FEf]?_", found.row)) and bool(found.some)
    return found


def _of_them(found: _Counts) -> None:
    """What "8 of them" are of: the host, GPU or machine that was named last."""
    match = re.search(r"(N)H", found.row)
    if match is None:
        return
    before = [word.kind for word in found.words[: match.start()]]
    value = found.words[match.start()].value
    last = next((kind for kind in reversed(before) if kind in "GgDdM"), "")
    if last == "D":
        found.hosts.append(value)
    elif last:
        found.some.append(value)  # "MI300X node, 8 of them": the GPUs of the one node


def _resolved(found: _Counts, of_machine: dict[str, Any] | None) -> tuple[int, int, tuple[str, ...]]:
    """Hosts and GPUs in all, 0 for what stays open, and what is to be said about it."""
    if of_machine is not None:
        nodes, gpus = _by_machine(found, of_machine)
        note = " One of them is taken; say how many there are, if there are more." if nodes == 1 and found.alone else ""
        return nodes, gpus, (_about(of_machine) + note,)
    hosts, each, all_, some = (set(one) for one in (found.hosts or found.one, found.each, found.all, found.some))
    nodes = hosts.pop() if len(hosts) == 1 else 0
    total = all_.pop() if len(all_) == 1 else 0
    if hosts or all_ or len(each) > 1:  # said in two ways that do not agree
        return (0 if hosts else nodes), (0 if all_ else total), ()
    one = each.pop() if each else 0
    if one and nodes:
        return nodes, (one * nodes if total in (0, one * nodes) else 0), ()
    if total:
        return nodes, total, ()
    if len(some) != 1 or found.doubt:
        return nodes, 0, ()
    count = some.pop()
    if one:  # "8 per node, 64 GPUs"
        return (count // one, count, ()) if count > one and count % one == 0 else (0, 0, ())
    if nodes < 2 or (count > NODE and count % nodes == 0):
        return nodes, count, ()
    if count <= NODE and (count < nodes or count % nodes):
        return nodes, count * nodes, ()  # they cannot be all
    open_ = f"Whether {count} GPUs are those of one of the {nodes} nodes or of all is not clear from the words."
    return nodes, 0, (open_,)


def _by_machine(found: _Counts, row: dict[str, Any]) -> tuple[int, int]:
    """Hosts and GPUs in all of machines of one kind; 0 where their number is not said, or what is said does not fit it."""
    hosts, gpus = int(row.get("nodes", 1)), int(row["gpus"])
    counted = set(found.machines) or (set(found.hosts) if hosts == 1 else set())
    total = set(found.all) or set(found.some)
    if len(counted) > 1 or len(total) > 1 or not set(found.each) <= {gpus}:
        return 0, 0
    if counted:
        count = counted.pop()
        return (count * hosts, count * gpus) if total <= {gpus, count * gpus} else (0, 0)
    in_all = total.pop() if total else 0
    if not in_all and hosts == 1 and found.alone:
        return 1, gpus
    return (in_all // gpus, in_all) if hosts == 1 and in_all % gpus == 0 else (0, 0)


def _about(row: dict[str, Any]) -> str:
    gpus, memory = int(row["gpus"]), row.get("memory", "")
    what = f"{gpus} {row['gpu']}{f' of {memory}' if memory else ''}"
    hosts = f" on {row['nodes']} nodes" if row.get("nodes", 1) > 1 else ""
    return f"{row['names'][0]} is read as {what}{hosts} ({row['title']}, {row['url']})."
