"""The state that each optimizer keeps per parameter, and which optimizers it is known for.

Sources: the ``_init_group`` of each class in ``torch/optim``; that of 2.13.0 by stepping the real optimizer on
parameters sharded by the real ``fully_shard``, that of the other releases by comparing the source (2.4 to 2.15 create
the same tensors; before 2.4 RMSprop, Adadelta and Rprop count their steps in a Python integer).
"""

from __future__ import annotations

from collections.abc import Mapping

from shardguide.guidance.hints import Any, NamedTuple

from .records import SHARDED, Request, release_minor
from .survey import Kind, Survey, take

EXACT, REFUSED, OPEN = "exact", "refused", "not worked out"
SCALAR_BYTES = 4  # _get_scalar_dtype() is float32 unless torch.set_default_dtype(torch.float64) was called


class Support(NamedTuple):
    """Whether an optimizer's state can be given to the byte."""

    status: str  # "exact", "refused", "not worked out"
    reason: str
    error: str = ""  # what PyTorch raises, when refused
    source: str = ""  # dotted object


class State(NamedTuple):
    """State per parameter: ``tensors`` of the shape and dtype of the local parameter, and ``scalars`` of 4 bytes."""

    tensors: int
    scalars: int


_CLASSES = {
    "adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "adagrad": "Adagrad", "rmsprop": "RMSprop", "adamax": "Adamax",
    "nadam": "NAdam", "radam": "RAdam", "adadelta": "Adadelta", "asgd": "ASGD", "rprop": "Rprop", "muon": "Muon",
    "adafactor": "Adafactor",
}  # fmt: skip

_EIGHT_BIT = (
    "8-bit Adam comes from torchao or bitsandbytes, and which shards they quantise depends on the library, its version "
    "and the local size (torchao keeps a local shard of under 4096 elements, or not a multiple of 256, unquantised)"
)

# Optimizers outside torch.optim, or whose state does not go parameter by parameter.
_UNKNOWN = {
    "lbfgs": "torch.optim.LBFGS keeps a history of flattened steps that grows as it runs",
    "sparseadam": "torch.optim.SparseAdam takes sparse gradients only, which fully_shard does not produce",
    "adamw8bit": _EIGHT_BIT,
    "adam8bit": _EIGHT_BIT,
    "lion": "torch.optim has no Lion; the state depends on the implementation used",
}

_ADAFACTOR_ERROR = (
    "RuntimeError: aten.pow_.Scalar: in-place operations that require placement changes are not supported. "
    "The input has placement (_NormPartial(2),), but no valid strategy preserves this placement."
)
_RPROP_ERROR = (
    "RuntimeError: aten.index_put_.default: in-place operations that require placement changes are not supported. "
    "The input has placement (Shard(dim=0),), but no valid strategy preserves this placement."
)
_MUON_NARROW_ERROR = (
    "RuntimeError: aten.add_.Tensor: in-place operations that require placement changes are not supported. "
    "The input has placement (Shard(dim=0),), but no valid strategy preserves this placement."
)
_MUON_2D_ERROR = "ValueError: Muon only supports 2D parameters whereas we found a parameter with size: torch.Size({})"

FIRST_RELEASE = {"adafactor": (2, 5), "muon": (2, 9)}


def state(optimizer: str, hyper: Mapping[str, Any], release: str = "") -> State | None:
    """State per parameter of an optimizer; None when it does not go parameter by parameter or is not known."""
    if optimizer in ("adam", "adamw"):
        return State(3 if hyper.get("amsgrad") else 2, 1)
    if optimizer == "sgd":
        return State(1 if hyper.get("momentum") else 0, 0)
    if optimizer == "adagrad":
        return State(1, 1)
    if optimizer == "rmsprop":
        return State(1 + bool(hyper.get("momentum")) + bool(hyper.get("centered")), _step(release))
    if optimizer in ("adamax", "radam"):
        return State(2, 1)
    if optimizer == "nadam":
        return State(2, 2)
    if optimizer in ("adadelta", "rprop"):
        return State(2, _step(release))
    if optimizer == "asgd":
        return State(1, 3)
    if optimizer == "muon":
        return State(1, 0)
    return None


def _step(release: str) -> int:
    return 0 if release_minor(release) < (2, 4) else 1


def scalars_on_device(optimizer: str, hyper: Mapping[str, Any]) -> bool:
    """Whether the zero-dimensional state lies where its parameter lies; else it is in host memory.

    ``fused`` and ``capturable`` put ``step`` on the parameter's device; ASGD's scalars always lie there.
    """
    return optimizer == "asgd" or bool(hyper.get("fused")) or bool(hyper.get("capturable"))


def optimizer_support(optimizer: str, release: str = "", strategy: str = "full") -> Support:
    """Whether the state of ``optimizer`` is exact, refused or not worked out for a release and strategy.

    For a model at hand, `support` also sees what an optimizer refuses about its parameters.
    """
    name = optimizer.lower()
    minor = release_minor(release)
    ran = minor == (2, 13)
    if name in _UNKNOWN:
        return Support(OPEN, _UNKNOWN[name] + ".")
    if name not in _CLASSES:
        return Support(OPEN, f"{optimizer[:40]} is not an optimizer of torch.optim that Shardguide knows.")
    source = f"torch.optim.{_CLASSES[name]}"
    first = FIRST_RELEASE.get(name, (0, 0))
    if minor < first:
        text = f"torch.optim has {_CLASSES[name]} from {first[0]}.{first[1]} on."
        error = f"AttributeError: module 'torch.optim' has no attribute '{_CLASSES[name]}'"
        return Support(REFUSED, text, error, source)
    if name in ("adafactor", "rprop") and strategy in SHARDED:
        if not ran:
            return Support(
                OPEN, f"{_CLASSES[name]} fails on DTensor parameters in 2.13; not run in this release.", "", source
            )
        error = _ADAFACTOR_ERROR if name == "adafactor" else _RPROP_ERROR
        return Support(
            REFUSED, f"{_CLASSES[name]}.step() fails on the DTensor parameters of fully_shard.", error, source
        )
    if ran:
        return Support(EXACT, "The state was compared with the real optimizer's, tensor by tensor.", "", source)
    return Support(EXACT, "The optimizer's source creates the same state as in 2.13, where it was run.", "", source)


def support(request: Request, survey: Survey | None = None) -> Support:
    """As `optimizer_support`, for this very model: Muon's limits on shapes, and its companion for everything else."""
    name = request.optimizer
    if not name:
        return Support(OPEN, "The optimizer is not known yet.")
    first = optimizer_support(name, request.release, request.strategy)
    if name != "muon" or first.status != EXACT:
        return first
    survey = take(request) if survey is None else survey
    companion = str(request.hyper.get("others", ""))
    for kind in survey.kinds:
        if not kind.trainable:
            continue
        if companion and _goes_to_other(kind):
            continue
        if len(kind.shape) != 2:
            text = f"Muon takes 2-D parameters only, not {kind.name}: give the rest to a companion such as AdamW."
            return Support(REFUSED, text, _MUON_2D_ERROR.format(list(kind.shape)), first.source)
        if request.strategy in SHARDED and not kind.ignored and kind.tp_dim >= 0:
            return Support(OPEN, "Muon with tensor parallelism was not run.", "", first.source)
        if request.strategy in SHARDED and not kind.ignored and kind.dim:
            return Support(OPEN, f"Muon on {kind.name}, sharded on dim {kind.dim}, was not run.", "", first.source)
        if request.strategy in SHARDED and not kind.ignored and kind.shape[0] < survey.shard_size:
            if release_minor(request.release) != (2, 13):
                return Support(
                    OPEN, f"Muon fails in 2.13 when a shard is empty ({kind.name}); not run here.", "", first.source
                )
            text = f"Muon.step() fails on {kind.name}: its dim 0 of {kind.shape[0]} is smaller than the shard size."
            return Support(REFUSED, text, _MUON_NARROW_ERROR, first.source)
    if companion:
        second = optimizer_support(companion, request.release, request.strategy)
        if second.status != EXACT:
            return second
    return first


def _goes_to_other(kind: Kind) -> bool:
    """Muon's companion takes what is named in ``other_names`` and everything that is not 2-D."""
    return kind.other or len(kind.shape) != 2


def state_elements(kind: Kind, local: tuple[int, ...], owned: int, request: Request) -> tuple[int, int] | None:
    """(elements of state tensors, number of scalars) for one parameter on a rank that owns ``owned`` elements of it.

    ``local`` is the shape before fully_shard. None when the state is not known. Elements have the parameter's dtype.
    """
    name, hyper = request.optimizer, request.hyper
    if name == "muon" and hyper.get("others") and _goes_to_other(kind):
        name = str(hyper["others"])
        hyper = hyper.get("other_hyper", {})
    if name == "adafactor":  # whole parameters only: refused under fully_shard
        numel = 1
        for extent in local:
            numel *= extent
        if len(local) < 2:
            return numel, 1
        return (numel // local[-1] if local[-1] else 0) + (numel // local[-2] if local[-2] else 0), 1
    found = state(name, hyper, request.release)
    return None if found is None else (found.tensors * owned, found.scalars)
