"""The arithmetic that decisions ask for: states of a layout, padding, and how numbers are shown."""

from __future__ import annotations

from shardguide.accounting import Layout as MeshLayout
from shardguide.accounting import RankRun, Request, Survey, lower_bounds, per_rank, take
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple

from .situation import Situation


class Layout(NamedTuple):
    """How the ranks are used. World size = replicate × shard × tp."""

    strategy: str  # "full", "grad_op", "hybrid", "none"
    replicate: int
    shard: int
    tp: int
    placements: tuple[tuple[str, int], ...] = ()  # (parameter name, dim) where not dim 0


class States(NamedTuple):
    """Bytes of the rank that holds most, between optimizer steps."""

    total: int  # of what is known
    complete: bool  # False: a dtype or the optimizer's state is not known, so the total is a lower bound


def said(need: States) -> str:
    """The bytes in words; never a number for what is not known."""
    if not need.total:
        return "bytes not known"
    return gib(need.total) if need.complete else f"at least {gib(need.total)}"


def gib(count: int) -> str:
    """Bytes in the largest binary unit that keeps at least one whole: "14.96 GiB"."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


def percent(share: float) -> str:
    """A share as per cent with one decimal."""
    return f"{100 * share:.1f} %"


OPTIONS = frozenset({"momentum", "amsgrad", "centered", "fused", "capturable"})


def optimizer_parts(text: str) -> tuple[str, dict[str, object]]:
    """``sgd+momentum`` to its name and the options that change its state.

    Raises UnusableInput for an option that is none of those.
    """
    name, *options = text.split("+")
    for option in options:
        if option not in OPTIONS:
            raise UnusableInput(
                f"--optimizer: {option[:40]!r} is no option that changes the state; there are {', '.join(sorted(OPTIONS))}."
            )
    return name, {option: 0.9 if option == "momentum" else True for option in options}


def request(s: Situation, layout: Layout, mp: tuple[str, str] = ("", ""), offload: bool = False) -> Request:
    """The accounting's question for this layout; ``mp`` is (param_dtype, reduce_dtype) of the policy."""
    name, hyper = optimizer_parts(s.optimizer)
    if name == "muon":
        hyper |= {"others": "adamw", "other_names": _outside_blocks(s)}
    return Request(
        model=s.model,
        layout=MeshLayout(layout.replicate, layout.shard, layout.tp),
        strategy=layout.strategy,
        param_dtype="" if s.param_dtype == "stored" else s.param_dtype,
        mp_param_dtype=mp[0],
        mp_reduce_dtype=mp[1],
        optimizer=name,
        hyper=hyper,
        offload=offload,
        placements=dict(layout.placements) or None,
        reshard_after_forward=False if layout.strategy == "grad_op" else None,
        release=s.release.version,
    )


def _outside_blocks(s: Situation) -> tuple[str, ...]:
    """What the plan's code gives to AdamW beside Muon: everything that is not in a repeated layer (and what is no matrix)."""
    containers = {
        module.rpartition(".")[0] + "." for unit in s.model.units if unit.role == "block" for module in unit.modules
    }
    prefixes = tuple(containers)
    return tuple(one.name for one in s.model.parameters if prefixes and not one.name.startswith(prefixes))


def heaviest(runs: tuple[RankRun, ...]) -> RankRun:
    """The run of ranks that holds most."""
    return max(runs, key=lambda run: known_bytes(run)[0])


def known_bytes(run: RankRun) -> tuple[int, bool]:
    """Bytes of parameters, gradients and optimizer state of one rank, and whether all three are known."""
    parts = (run.parameter_bytes, run.gradient_bytes, run.optimizer_bytes)
    return sum(part for part in parts if part is not None), all(part is not None for part in parts)


def survey(s: Situation, layout: Layout) -> Survey:
    """The model's parameters by kind, sorted once: without placements only the group sizes differ between layouts."""
    once: Survey | None
    if layout.placements:
        once = s.memo.get(("survey", layout))
        if once is None:
            once = s.memo["survey", layout] = take(request(s, layout))
        return once
    once = s.memo.get("survey")
    if once is None:
        once = s.memo["survey"] = take(request(s, layout))
    if layout.strategy == "none":
        return once._replace(shard_size=1, replicate_size=layout.replicate * layout.shard)
    return once._replace(shard_size=layout.shard, replicate_size=layout.replicate)


def states(s: Situation, layout: Layout) -> States:
    """What the rank that holds most has to hold."""
    if not s.model.parameters:
        return _stated(s, layout)
    found: States | None = s.memo.get(layout)
    if found is None:
        runs = per_rank(request(s, layout), survey(s, layout))
        found = s.memo[layout] = States(*known_bytes(heaviest(runs)))
    return found


def _stated(s: Situation, layout: Layout) -> States:
    """A lower bound where only the size is known: some rank holds at least ceil(size / ranks) elements of everything."""
    facts = lower_bounds(request(s, layout))
    return States(sum(int(fact.value) for fact in facts if fact.unit == "bytes"), False)


def padding(s: Situation, layout: Layout) -> float:
    """Share of the stored elements of a shard group that are padding, every parameter sharded on its own dim."""
    if not s.model.parameters or layout.strategy == "none":
        return 0.0
    stored = owned = 0
    sorted_ = survey(s, layout)
    for kind, count in zip(sorted_.kinds, sorted_.counts, strict=True):
        if kind.ignored:
            continue
        elements = 1
        for extent in kind.shape:
            elements *= extent
        rows = max(1, kind.shape[kind.dim] if kind.shape else 1)
        stored += count * -(-rows // layout.shard) * (elements // rows) * layout.shard
        owned += count * elements
    return 1 - owned / stored if stored else 0.0
