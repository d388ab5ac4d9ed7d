# ruff: noqa: PTH110, PTH112, PTH119, PTH122, PTH123
# (os.path as in the rest of the product: pathlib costs start-up time)
"""Files handed over at first contact, sorted by what they are: by their names, and their first bytes where those don't say it."""

from __future__ import annotations

import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.readers.files import shown
from shardguide.readers.heads import is_report, is_snapshot, is_stats, is_trace

MOST = 1000
_CODE = (".py", ".ipynb", ".sh", ".sbatch", ".slurm", ".toml")
_YAML = (".yaml", ".yml")
_MODEL = ("config.json", "model.safetensors.index.json", "manifest.json")
_HEAD = 1 << 16


class Handed(NamedTuple):
    """Paths, each in one of these."""

    code: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()  # logs, dumps, traces, stacks
    reports: tuple[str, ...] = ()  # about the machine
    measured: tuple[str, ...] = ()

    def why(self, tool: str) -> tuple[str, ...]:
        """The kinds of files that speak for a workflow, in words."""
        groups = {
            "code": ("review", "migrate", "tune"),
            "model": ("plan", "tune"),
            "evidence": ("diagnose",),
            "reports": ("plan", "tune", "diagnose"),
        }
        return tuple(
            f"{os.path.basename(paths[0])}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}"
            for kind, tools in groups.items()
            if tool in tools and (paths := getattr(self, kind))
        )


def sort(paths: tuple[str, ...]) -> Handed:
    """Each path by its kind. Raises UnusableInput for one that does not exist."""
    if len(paths) > MOST:
        raise UnusableInput(f"at most {MOST} files at once; hand over their folder.")
    found: dict[str, list[str]] = {name: [] for name in Handed._fields}
    for path in paths:
        if "\x00" in path or not os.path.exists(path):
            raise UnusableInput(f"{shown(path)} does not exist.")
        found[_folder(path) if os.path.isdir(path) else _kind(path)].append(path)
    return Handed(**{name: tuple(ones) for name, ones in found.items()})


def _kind(path: str) -> str:
    name = os.path.basename(path).lower()
    end = os.path.splitext(name)[1]
    if end in _CODE:
        return "code"
    if name in _MODEL or end == ".safetensors":
        return "model"
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise UnusableInput(f"{shown(path)} cannot be read: {(error.strerror or str(error)).lower()}.") from None
    if end in _YAML:
        return "code" if b"fsdp" in head.lower() or b"distributed_type" in head else "evidence"
    if is_report(head):
        return "reports"
    if end == ".json" and b'"model_type"' in head and b'"hidden_size"' in head:
        return "model"
    if end == ".json" and is_stats(head) and not is_snapshot(head) and not is_trace(head):
        return "measured"
    return "evidence"


def _folder(path: str) -> str:
    """A checkpoint's folder, one of code, or one of logs: by what most of its files are."""
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries)[:MOST]
    except OSError as error:
        raise UnusableInput(f"{shown(path)} cannot be read: {(error.strerror or str(error)).lower()}.") from None
    if any(name in _MODEL or name.endswith(".safetensors") for name in names):
        return "model"
    logs = sum(name.endswith((".log", ".out", ".err", ".txt", ".pkl", ".pickle", ".gz")) for name in names)
    code = sum(name.endswith((".py", ".ipynb")) for name in names)
    if code and code >= logs:
        return "code"
    return "evidence" if logs else _deeper(path)


def _deeper(path: str) -> str:
    """A folder of folders: code where any Python file stands below, within a bound."""
    seen = 0
    for _, below, names in os.walk(path):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if any(name.endswith(".py") for name in names):
            return "code"
        seen += 1 + len(names)
        if seen > 20 * MOST:
            break
    return "evidence"
