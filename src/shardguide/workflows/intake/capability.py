"""A question on what a backend can do: the cells of PyTorch's capability table that answer it."""

from __future__ import annotations

import re

_OPERATION = re.compile(
    r"\b(?:(?P<all>all)[-_ ]?(?P<kind>reduce|gather|to[-_ ]?all)|(?P<rs>reduce[-_ ]?scatter)|"
    r"(?P<one>broadcast|barrier|scatter|reduce|i?send|i?recv|gather))"
    r"(?:_(?:into_)?(?:tensor|single|object|object_list))?s?\b",
    re.IGNORECASE,
)
_BACKEND = re.compile(r"\b(gloo|nccl|mpi|xccl)\b", re.IGNORECASE)
_GPU = re.compile(r"\b(?:gpus?|cuda|nvidia|rocm|xpu|device tensors?)\b", re.IGNORECASE)
_CPU = re.compile(r"\b(?:cpus?|host tensors?)\b", re.IGNORECASE)
# Yes or no, and which.
_ASKS = re.compile(
    r"^\W*(?:does|do|can|could|is|are|has|have|will|would|which|what)\b|\?\s*$|\b(?:supports?|supported|implements?|work(?:s|ing)?|available)\b",
    re.IGNORECASE,
)
_CHOICE = re.compile(r"\b(?:which|what|best|right) backend\b|\b(?:vs\.?|versus|or)\b", re.IGNORECASE)


def operations(words: str) -> tuple[str, ...]:
    """The operations of the table that words name."""
    found: dict[str, None] = {}
    for match in _OPERATION.finditer(words):
        if match["all"]:
            kind = match["kind"].lower()
            found["all_to_all" if kind.startswith("to") else f"all_{kind}"] = None
        elif match["rs"]:
            found["reduce_scatter"] = None
        else:
            name = match["one"].lower()
            found[name.removeprefix("i") if name in ("isend", "irecv") else name] = None
    return tuple(found)


def asked(words: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The backends and the operations of a question on what these can do; empty where it is none."""
    named = tuple(dict.fromkeys(found.lower() for found in _BACKEND.findall(words)))
    wanted = operations(words)
    if not named or not wanted or len(words) > 300 or not _ASKS.search(words) or _CHOICE.search(words):
        return (), ()
    return named, wanted


def answers(words: str, release: str) -> tuple[str, ...]:
    """One sentence for each backend and operation that was asked for, from the table of a release."""
    from shardguide.knowledge import backends, releases
    from shardguide.knowledge.backends.table import DEPENDS, NO, YES

    named, wanted = asked(words)
    if not named:
        return ()
    minor = (releases.nearest(release) or "") if release else ""
    table = backends.table(minor)
    gpu, cpu = bool(_GPU.search(words)), bool(_CPU.search(words))
    kinds = [kind for kind, said in (("cpu", cpu or not gpu), ("gpu", gpu or not cpu)) if said]
    out = []
    for backend in named:
        for one in wanted:
            for kind in kinds:
                cell = backends.cell(one, backend, kind, minor)
                says = {YES: "yes", NO: "no", DEPENDS: "it depends on the MPI that PyTorch was built with"}.get(
                    cell.mark, "that table has no such column" if cell.mark == "-" else "not read for these releases"
                )
                more = "".join(f"; {text}" for text in (cell.beside, cell.ran and f"it ran: {cell.ran}") if text)
                out.append(f"{one} by {backend} on {kind.upper()} tensors: {says}{more}.")
    return (f"{' '.join(out)} (Capability table of PyTorch {table.releases}, {table.url})",)
