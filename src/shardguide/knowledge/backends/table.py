"""Reads the capability table."""

# No pathlib in this module: it is on the way of a command.
# ruff: noqa: PTH118, PTH120, PTH123

from __future__ import annotations

import json
import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.knowledge import releases

BACKENDS = ("gloo", "mpi", "nccl", "xccl")
OPERATIONS = (
    "send",
    "recv",
    "broadcast",
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "barrier",
)
# Functions of torch.distributed that are a form of an operation of the table.
_FORMS = {
    "isend": "send",
    "irecv": "recv",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_object": "all_gather",
    "broadcast_object_list": "broadcast",
    "gather_object": "gather",
    "scatter_object_list": "scatter",
    "reducescatter": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all_single": "all_to_all",
}
YES, NO, DEPENDS, NOT_READ, NO_COLUMN = "y", "n", "?", "~", "-"


class Cell(NamedTuple):
    """What is known about one operation of one backend on one kind of tensor."""

    mark: str  # YES, NO, DEPENDS (the page's "?": on the build), NOT_READ, NO_COLUMN (no such backend in that table)
    ran: str = ""  # how it was run on the release asked for, or on an older one; "" if it was not
    ran_on: str = ""  # the minor release that it was run on
    beside: str = ""  # what the source of that release says beside the table


class Table(NamedTuple):
    """The table of some releases."""

    releases: str  # "2.10-2.15"
    read: str  # what was read to know it
    title: str
    url: str
    section: str
    columns: tuple[tuple[str, str], ...]  # (backend, "cpu" or "gpu"), those that the page has
    rows: dict[str, str]  # operation -> one mark for each of the eight columns
    digests: dict[str, str]  # operation -> SHA-256 of the row's text on the page, white space normalised


_cache: dict[str, Any] = {}


def _data() -> dict[str, Any]:
    if not _cache:
        with open(os.path.join(os.path.dirname(__file__), "capabilities.json"), encoding="utf-8") as file:
            _cache.update(json.load(file))
    return _cache


def operation(name: str) -> str:
    """The operation of the table that a function is a form of: ``all_gather`` of ``dist.all_gather_into_tensor``.

    Raises UnusableInput for a name that the table does not have.
    """
    short = name.strip().lower().replace("-", "_").rpartition(".")[2]
    found = _FORMS.get(short, short)
    if found not in OPERATIONS:
        known = ", ".join(OPERATIONS)
        raise UnusableInput(f"{name.strip()[:40]!r} is not an operation of the capability table; it has {known}.")
    return found


def table(release: str) -> Table:
    """The table of a minor release (``"2.13"``); for ``""`` the newest."""
    name = release or releases.NEWEST
    data = _data()
    entry = next(one for one in data["tables"] if releases.within(name, one["releases"]))
    pairs = tuple(tuple(column.split()) for column in data["columns"])
    marks = {key: row["marks"] for key, row in entry["rows"].items()}
    columns = tuple(
        (pairs[i][0], pairs[i][1]) for i in range(len(pairs)) if any(row[i] != "-" for row in marks.values())
    )
    return Table(
        entry["releases"],
        entry["read"],
        entry["title"],
        entry["url"],
        entry["section"],
        columns,
        marks,
        {key: row["digest"] for key, row in entry["rows"].items() if "digest" in row},
    )


def cell(name: str, backend: str, kind: str, release: str) -> Cell:
    """One cell: ``cell("all_gather", "gloo", "gpu", "2.13")``. ``kind`` is "cpu" or "gpu"."""
    data = _data()
    column = f"{backend} {kind}"
    mark = table(release).rows[name][data["columns"].index(column)]
    ran = data["ran"]
    have = ran["column"] == column and name in ran["operations"]
    beside = "; ".join(
        one["text"]
        for one in data["beside"]
        if one["column"] == column and one["operation"] == name and releases.within(release or "0.0", one["releases"])
    )
    return Cell(mark, ran["how"] if have else "", ran["torch"] if have else "", beside)
