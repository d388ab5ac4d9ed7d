"""torchtitan's job configuration in TOML: degrees of parallelism, alone and against the processes of its launch."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple

from .report import Report
from .words import Text, Word

_DEGREES = (
    "data_parallel_replicate_degree",
    "data_parallel_shard_degree",
    "context_parallel_degree",
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
)
LIMIT = 256 << 10


class Degrees(NamedTuple):
    """The degrees of one file."""

    text: Text
    values: dict[str, tuple[int, Word]]


def read(text: Text, where: str) -> Degrees | None:
    """The degrees; None for any other TOML. Raises UnusableInput for what is no TOML."""
    if len(text.text) > LIMIT:
        return None
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        loaded: dict[str, Any] = tomllib.loads(text.text)
    except (tomllib.TOMLDecodeError, RecursionError):
        raise UnusableInput(f"{where}: this is not valid TOML.") from None
    section = loaded.get("parallelism")
    if not isinstance(section, dict):
        return None
    values: dict[str, tuple[int, Word]] = {}
    inside = False
    for number, line in enumerate(text.text.split("\n"), 1):
        bare = line.strip()
        if bare.startswith("["):
            inside = bare.partition("#")[0].strip() == "[parallelism]"
        name = bare.partition("=")[0].strip()
        if inside and name in _DEGREES and isinstance(section.get(name), int) and not isinstance(section[name], bool):
            values[name] = (section[name], Word(name, number, len(line) - len(line.lstrip()) + 1))
    return Degrees(text, values) if values else None


def alone(found: Degrees, report: Report) -> None:
    """Degrees that no number of processes fits."""
    for name, (value, at) in found.values.items():
        least = "-1 (what is left) or at least 1" if name == "data_parallel_shard_degree" else "at least 1"
        if value < 1 and not (value == -1 and name == "data_parallel_shard_degree"):
            report.add("FSD016", found.text, at, True, what=f"{name} is {value}; it must be {least}")


def beside(found: Degrees, processes: int, launch: str, report: Report) -> None:
    """The product of the degrees against the processes that a launch of this file starts."""
    product, rest = 1, "data_parallel_shard_degree" not in found.values
    for name in _DEGREES:
        value = found.values[name][0] if name in found.values else 1
        if value == -1 and name == "data_parallel_shard_degree":
            rest = True
        elif value < 1:
            return
        elif name != "data_parallel_shard_degree" or name in found.values:
            product *= value
    at = next(iter(found.values.values()))[1]
    what = ""
    if rest and processes % product:
        what = (
            f"the degrees make {product} without sharding, which does not divide the {processes} processes of {launch}"
        )
    elif not rest and product != processes:
        what = f"the degrees make {product}, but {launch} starts {processes} processes"
    if what:
        report.add("FSD016", found.text, at, True, what=what)
