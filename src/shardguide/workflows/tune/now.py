"""The current settings of precision and offload, from code, YAML or what was said, as one value."""

from __future__ import annotations

from shardguide.code.current import Current
from shardguide.guidance.dtypes import dtype_name
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple

from ..request import NOW_KEYS

UNKNOWN = "unknown"  # neither said nor readable without running the code; "" stands for None, as PyTorch has it
SHARDED = "sharded"  # over all ranks, but whether parameters are kept after forward cannot be read


class Now(NamedTuple):
    """What runs, today or as recommended."""

    api: str = UNKNOWN  # "fsdp2", "fsdp1", "ddp"
    strategy: str = UNKNOWN  # "full", "grad_op", "hybrid", "none", SHARDED
    shard: int = 0  # ranks of a shard group, of a mesh that was read; 0: not stated
    replicate: int = 0
    tp: int = 0
    param: str = UNKNOWN  # compute dtype; under DDP that of autocast
    reduce: str = UNKNOWN
    output: str = UNKNOWN
    buffer: str = UNKNOWN  # FSDP1's buffer_dtype
    cast_inputs: str = UNKNOWN  # "True", "False"
    autocast: str = UNKNOWN  # dtype of torch.autocast beside FSDP
    offload: str = UNKNOWN  # "", "pinned", "pageable", "yes" (whether it is pinned cannot be read)
    scaler: str = UNKNOWN  # "", "GradScaler", "ShardedGradScaler"
    clipping: str = UNKNOWN  # what is called
    backend: str = UNKNOWN  # "": init_process_group without one
    wrapping: tuple[str, ...] | None = None  # roles wrapped on their own beside the root; None: not read
    classes: tuple[str, ...] = ()  # classes that an auto_wrap_policy names
    gathers: tuple[tuple[str, int], ...] = ()  # all-gathers a step by role, "root" among them; absent: not known
    orig_params: bool | None = None  # FSDP1's use_orig_params
    optimizer: str = ""  # as --optimizer takes it; "" if none was read
    world: int = 0  # processes, where the file states them
    known: bool = False  # whether anything was read or said
    where: tuple[tuple[str, str], ...] = ()  # (field, file:line or "user")
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()  # what numbers rest on that was not read

    def place(self, field: str) -> str:
        """Where a field was read; "" if nowhere."""
        return dict(self.where).get(field, "")


class Reading:
    """Collects fields while a file is read; the first place of each."""

    def __init__(self, current: Current) -> None:
        self.current = current
        self.fields: dict[str, object] = {}
        self.where: dict[str, str] = {}
        self.notes: list[str] = []
        self.assumed: list[str] = []

    def set(self, field: str, value: object, where: str) -> None:
        """A field, unless it is there already."""
        if field not in self.fields:
            self.fields[field] = value
            self.where[field] = where

    def text(self, field: str) -> str:
        """A field that was set to text; UNKNOWN otherwise."""
        return str(self.fields.get(field, UNKNOWN))


_OFFLOAD = {"yes": "pinned", "pinned": "pinned", "pageable": "pageable", "no": "", "none": ""}


def from_words(pairs: tuple[str, ...]) -> dict[str, str]:
    """``--now param=bf16`` to checked settings. Raises UnusableInput for a key or value that makes no sense."""
    out: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or key not in NOW_KEYS:
            raise UnusableInput(f"--now takes KEY=VALUE with one of {', '.join(NOW_KEYS)}, not {pair[:60]!r}.")
        if key in ("param", "reduce", "output"):
            out[key] = "" if value.lower() in ("none", "") else dtype_name(value)
            if out[key] not in ("", "float32", "bfloat16", "float16", "float64"):
                raise UnusableInput(f"--now {key} must be float32, bfloat16, float16 or none, not {value[:40]!r}.")
        elif key == "strategy":
            if value not in ("full", "grad_op", "hybrid", "none"):
                raise UnusableInput(f"--now strategy must be full, grad_op, hybrid or none, not {value[:40]!r}.")
            out[key] = value
        elif key == "offload":
            if value not in _OFFLOAD:
                raise UnusableInput(f"--now offload must be yes, no, pinned or pageable, not {value[:40]!r}.")
            out[key] = _OFFLOAD[value]
        elif key == "scaler":
            if value not in ("yes", "no"):
                raise UnusableInput(f"--now scaler must be yes or no, not {value[:40]!r}.")
            out[key] = "GradScaler" if value == "yes" else ""
        elif value in ("fsdp1", "fsdp2", "ddp"):
            out[key] = value
        else:
            raise UnusableInput(f"--now api must be fsdp1, fsdp2 or ddp, not {value[:40]!r}.")
    if out.get("api") == "ddp":
        if out.get("strategy", "none") != "none":
            raise UnusableInput(f"--now api=ddp and strategy={out['strategy']} contradict: DDP shards nothing.")
        if out.get("offload"):
            raise UnusableInput("--now api=ddp and offload=yes contradict: CPU offload is a policy of FSDP.")
    if out.get("api") == "fsdp1" and out.get("scaler"):
        out["scaler"] = "ShardedGradScaler"  # what scaling means there; code says which one it is
    return out


def read(current: Current | None, said: dict[str, str], minor: tuple[int, int] = (0, 0)) -> Now:
    """The settings of ``current`` for the release ``minor``; those that were said win."""
    values: dict[str, object] = {}
    where: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    if current is not None:
        reading = Reading(current)
        if current.language == "python":
            from .read_code import read_code

            read_code(reading, minor)
        elif current.strategy != "deepspeed":
            from .read_accelerate import read_accelerate

            read_accelerate(reading)
        values, where = reading.fields, reading.where
        notes, assumed = tuple(reading.notes), tuple(reading.assumed)
    values |= said
    where |= dict.fromkeys(said, "user")
    known = any(name not in ("optimizer", "world") for name in values)
    if values.get("api") == "ddp":
        values |= {"strategy": "none", "offload": ""}
    if "strategy" in said or "api" in said:  # what the file's wrapping costs does not hold for another strategy
        values |= {"gathers": (), "wrapping": None}
    now = Now(**values, known=known, where=tuple(sorted(where.items())), notes=notes, assumed=assumed)  # type: ignore[arg-type]
    return _usual_wrapping(now) if now.wrapping is None else now


def _usual_wrapping(now: Now) -> Now:
    """All-gathers for the recommended wrapping, where the present one was not read: said, not called exact."""
    if now.gathers or now.strategy not in ("full", "grad_op", "hybrid") or now.api not in ("fsdp1", "fsdp2"):
        return now
    words = "your wrapping was not read, so the recommended one is taken"
    return now._replace(gathers=usual_gathers(now.api, now.strategy), assumed=(*now.assumed, words))


def usual_gathers(api: str, strategy: str) -> tuple[tuple[str, int], ...]:
    """All-gathers a step of each group in the code that Shardguide shows.

    The root is not resharded after forward, and under FSDP2 the last group (norm and head) neither.
    """
    twice = 1 if strategy == "grad_op" else 2
    if api == "fsdp1":
        return (("block", twice), ("root", 1))
    return (("block", twice), ("embedding", twice), ("head", 1), ("root", 1))
