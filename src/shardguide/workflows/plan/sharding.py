"""Decision ``sharding``: full, gradient-and-optimizer only, hybrid or none, by arithmetic on the stated facts.

What PyTorch documents (which strategy does what, whom it is for) comes from the claims. Where the documentation gives no
number, the thresholds below are Shardguide's own; they are named as such in the answer, since they are starting points
to be measured and not facts.
"""

from __future__ import annotations

from shardguide.accounting import groups
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Alternative, Decision

from ..numbers import Layout, States, gib, padding, percent, request, states
from ..situation import Situation
from .measuring import Links, change, links
from .memory import Peak
from .mesh import MATERIAL, place
from .precision import policy

# Share of a GPU's memory that parameters, gradients and optimizer state may take before the less sharded form is no
# longer the first choice: what is left is for activations and buffers, which only a measurement can tell.
ROOM = 4  # states at most a quarter of the memory


class Candidate(NamedTuple):
    """One way of sharding, with the largest rank's bytes for it."""

    layout: Layout
    states: States

    def roomy(self, s: Situation) -> bool:
        """Whether the states leave three quarters of the memory for what must be measured."""
        return s.memory is not None and self.states.complete and self.states.total * ROOM <= s.memory.bound

    def impossible(self, s: Situation) -> bool:
        """Whether the states alone exceed the memory."""
        return s.memory is not None and self.states.total > s.memory.bound

    def needs(self, s: Situation) -> str:
        """The arithmetic in words."""
        least = "" if self.states.complete else "at least "
        if not self.states.total:
            return "bytes that are not known before the dtype is"
        if s.memory is None:
            return f"{least}{gib(self.states.total)} on the largest rank"
        return f"{least}{gib(self.states.total)} of {s.memory.text} on the largest rank"


def candidate(s: Situation, strategy: str, shard_size: int) -> Candidate:
    """The strategy, its parameters placed, with its exact states; ``shard_size`` is the size of one shard group."""
    layout = place(s, Layout(strategy, s.dp // shard_size, shard_size, s.tp))
    return Candidate(layout, states(s, layout))


def hybrid_sizes(s: Situation) -> list[int]:
    """Shard groups made of whole nodes, smallest first; the whole world is full sharding and not among them."""
    if s.nodes < 2:
        return []
    if not s.has_fsdp2():  # HYBRID_SHARD makes the groups of a node by itself; other groups are not offered there
        return [s.dp_per_node] if s.dp_per_node > 1 else []
    return [s.dp_per_node * n for n in range(1, s.nodes) if s.nodes % n == 0 and s.dp_per_node * n > 1]


def _hybrid(s: Situation, full: Candidate, measured: Links | None) -> Candidate | None:
    """The smallest roomy group of whole nodes, where it has a reason: it spares the slow link, or padding."""
    for size in hybrid_sizes(s):
        found = candidate(s, "hybrid", size)
        if not found.roomy(s):
            continue
        # Multi-node NVLink is no slower link to spare; with one GPU a node there is no link within.
        slower = measured.slower if measured else s.inter not in ("", "nvlink")
        within_node = size == s.dp_per_node > 1 and s.intra != "" and slower
        spares_padding = padding(s, full.layout) > MATERIAL > padding(s, found.layout)
        return found if within_node or spares_padding else None
    return None


def choose(s: Situation, measured: Links | None = None) -> tuple[Candidate, str]:
    """The candidate and the key of the reason for it; ``measured`` links count instead of what the network is called."""
    everything = candidate(s, "full", s.dp)
    if s.strategy != "auto":
        size = {"none": 1, "hybrid": s.shard_size or s.dp_per_node}.get(s.strategy, s.dp)
        return candidate(s, s.strategy, size), "asked"
    if s.shard_size:
        return candidate(s, "hybrid", s.shard_size), "asked"
    if s.dp == 1 and s.tp == 1 and (s.offload != "yes" or s.device == "cpu"):
        return candidate(s, "none", 1), "single"
    if s.dp == 1 and s.tp > 1:
        return everything, "tp_only"
    if s.offload == "yes" and s.device != "cpu":
        return everything, "offload"
    whole = candidate(s, "none", 1)
    if s.tp == 1 and whole.roomy(s):
        return whole, "small"
    hybrid = _hybrid(s, everything, measured)
    if hybrid is not None:
        return hybrid, "within_node" if hybrid.layout.shard == s.dp_per_node else "fewer_ranks"
    return everything, "memory" if whole.impossible(s) else "default"


FSDP1_NAMES = {"full": "FULL_SHARD", "grad_op": "SHARD_GRAD_OP", "hybrid": "HYBRID_SHARD"}


def _chosen_text(s: Situation, layout: Layout) -> str:
    if layout.strategy == "none":
        return "none: DistributedDataParallel" if s.dp > 1 else "none: one process, no sharding"
    name = FSDP1_NAMES[layout.strategy]
    what = {
        "full": "everything sharded",
        "grad_op": "gradients and optimizer state sharded at all times, parameters between steps,",
        "hybrid": "everything sharded",
    }[layout.strategy]
    if layout.strategy == "hybrid":
        node = " (one node)" if s.nodes > 1 and layout.shard == s.dp_per_node else ""
        groups = "1 group" if layout.replicate == 1 else f"{layout.replicate} groups"
        return f"hybrid: {what} over groups of {layout.shard} ranks{node}, replicated over {groups} (FSDP1: {name})"
    return f"{layout.strategy}: {what} over all {layout.shard} data-parallel ranks (FSDP1: {name})"


def _reasons(s: Situation, best: Candidate, key: str) -> list[str]:
    whole = candidate(s, "none", 1)
    reasons = {
        "asked": [f"You asked for it; by arithmetic it takes {best.needs(s)}."],
        "single": [f"There is one GPU, so there is nothing to shard over; the states take {best.needs(s)}."],
        "tp_only": [f"All {s.world} GPUs are taken by tensor parallelism; the data-parallel degree is 1."],
        "offload": ["CPU offload is a policy of fully_shard, so the model is sharded."],
        "small": [
            f"Replicated, the model takes {best.needs(s)}: at most a quarter (Shardguide's threshold). Memory is not the "
            "bottleneck that FSDP trades communication for."
        ],
        "within_node": [
            f"One node's {best.layout.shard} GPUs hold the states: {best.needs(s)}, at most a quarter (Shardguide's threshold).",
            f"Gathers and reduce-scatters stay on {s.intra} within a node; only the gradient shards' all-reduce crosses {s.inter}.",
        ],
        "fewer_ranks": [
            f"Groups of {best.layout.shard} ranks hold the states: {best.needs(s)}, at most a quarter (Shardguide's threshold).",
            f"Over all {s.dp} ranks {percent(padding(s, candidate(s, 'full', s.dp).layout))} of the stored elements would be "
            f"padding, over {best.layout.shard} it is {percent(padding(s, best.layout))}.",
        ],
        "memory": [
            f"Replicated it cannot fit: {whole.needs(s)}. Sharded over {best.layout.shard} ranks: {best.needs(s)}.",
        ],
        "default": [
            f"It needs the least memory per rank: {best.needs(s)}; replicated it would be {whole.needs(s)}."
            if best.states.total
            else "It needs the least memory per rank: each holds a share of parameters, gradients and optimizer state.",
        ],
    }[key]
    if best.impossible(s):
        enough = smallest(s)
        more = (
            f" At least {enough} such GPUs would hold the states by arithmetic, under full sharding." if enough else ""
        )
        reasons = [
            f"On the GPUs as stated this cannot fit: {best.needs(s)}.{more}",
            *(reasons if key == "asked" else ()),
        ]
    return reasons


def smallest(s: Situation) -> int:
    """The smallest number of GPUs whose memory holds the states under full sharding; 0 if unknown.

    Arithmetic on the states alone, so a lower bound: what activations and buffers take comes on top.
    """
    if s.memory is None or not s.model.parameters:
        return 0

    def impossible(shard: int) -> bool:
        layout = place(s, Layout("full", 1, shard, s.tp))
        return states(s, layout).total > (s.memory.bound if s.memory else 0)

    low, high = 1, 1
    while impossible(high):
        low, high = high, high * 2
        if high > 1 << 20:
            return 0
    while low < high:
        middle = (low + high) // 2
        if impossible(middle):
            low = middle + 1
        else:
            high = middle
    return high * s.tp


def _alternatives(s: Situation, best: Candidate, measured: str) -> list[Alternative]:
    """Every other strategy with why it was not taken; ``measured`` is the strategy that a measurement ruled out, or ""."""
    if s.dp == 1:
        why = "There is one data-parallel rank: nothing to shard over. With --offload yes it would move the states to the host."
        return (
            [Alternative("full", why)]
            if best.layout.strategy == "none"
            else [Alternative("none", "CPU offload and tensor parallelism are planned with fully_shard.")]
        )
    out = []
    chosen = best.layout.strategy
    whole, full = candidate(s, "none", 1), candidate(s, "full", s.dp)
    if chosen != "full":
        out.append(Alternative("full", _why_not_full(s, best, full)))
    if chosen != "grad_op":
        out.append(
            Alternative(
                "grad_op",
                "It keeps the unsharded parameters from forward to backward (see reshard_after_forward) to save one gather a "
                "layer; its shards are those of full sharding. Take it when the measured headroom exceeds "
                "that amount.",
            )
        )
    if chosen != "hybrid":
        why = "Your measurement is too short for its larger shards." if measured == "hybrid" else _why_not_hybrid(s)
        out.append(Alternative("hybrid", why))
    if chosen != "none":
        if measured == "none":
            why = "Your measurement is too short for a whole replica on every rank."
        elif whole.impossible(s):
            why = f"Every rank would hold everything, which cannot fit: {whole.needs(s)}."
        else:
            why = f"Every rank would hold everything: {whole.needs(s)}. Not ruled out by arithmetic; measure before relying on it."
            if not whole.states.total:
                why = "Every rank would hold everything; whether that is ruled out is not known before the dtype is."
        out.append(Alternative("none (DDP)", why))
    if s.tp == 1 and s.dp >= 64:
        experts = any(".experts." in one.name for one in s.model.parameters[-40:])
        out.append(
            Alternative(
                "FSDP with tensor parallelism (--tp)"
                + (", pipeline or expert parallelism" if experts else " or pipeline parallelism"),
                "It adds communication within every layer (or idle stages), which nothing stated so far asks for. Consider it when "
                f"{s.dp} sequences a step, one for each data-parallel rank, are too large a batch, or one layer's unsharded "
                "parameters and activations are too large for a GPU.",
            )
        )
    return out


def _why_not_full(s: Situation, best: Candidate, full: Candidate) -> str:
    if best.impossible(s):
        return f"It is what spares most: {full.needs(s)}."
    return {
        "none": "It gathers every layer's parameters twice a step to save memory that the arithmetic does not show as short "
        f"(it would leave {full.needs(s)}); take it if the measured peak is too high.",
        "hybrid": f"It would take {gib(full.states.total)} instead of {gib(best.states.total)}, which the arithmetic does not ask "
        f"for, and gather every layer over all {s.dp} ranks{' and the ' + s.inter + ' network' if s.inter else ''}.",
        "grad_op": "It frees the parameters after forward and gathers them again for backward: less memory, more communication.",
    }[best.layout.strategy]


def _why_not_hybrid(s: Situation) -> str:
    if s.nodes == 1:
        return (
            "There is one node, so there is no slower network between groups to spare; replicas would only take memory."
        )
    if not s.nodes:
        return "The number of nodes is not known."
    sizes = hybrid_sizes(s)
    if not sizes:
        return "No group of whole nodes divides the ranks."
    one = candidate(s, "hybrid", sizes[0])
    nodes = sizes[0] // s.dp_per_node
    group = f"one node's {sizes[0]} ranks" if nodes == 1 else f"groups of {sizes[0]} ranks ({nodes} nodes)"
    if one.impossible(s):
        larger = [size for size in sizes if candidate(s, "hybrid", size).roomy(s)]
        more = (
            f" Groups of {larger[0]} ranks would span nodes, so every gather would cross the network as well."
            if larger
            else ""
        )
        return f"The shards of {group} cannot fit: {one.needs(s)}.{more}"
    if not one.states.complete or s.memory is None:
        return f"Whether {group} hold the states is not worked out yet: {one.needs(s)}."
    if not one.roomy(s):
        return (
            f"Sharding over {group} would take {one.needs(s)}: over a quarter (Shardguide's threshold). Not ruled out; measure the "
            "full form first."
        )
    if s.strategy != "auto":
        return f"You asked for another; by arithmetic {group} hold the states: {one.needs(s)}."
    if nodes > 1:
        return f"Over {group} it would take {one.needs(s)}, and every gather would cross the network between nodes all the same."
    return f"It would take {one.needs(s)}, and there is no slower network between the nodes to spare."


def _may_be_hybrid(s: Situation, best: Candidate, measured: Links | None) -> bool:
    """Whether full sharding stands only because the states are known as a lower bound, which one node would hold."""
    if (
        best.layout.strategy != "full"
        or s.strategy != "auto"
        or best.states.complete
        or s.dp_per_node not in hybrid_sizes(s)
    ):
        return False
    one = candidate(s, "hybrid", s.dp_per_node)
    slower = measured.slower if measured else s.inter not in ("", "nvlink")
    return s.intra != "" and slower and s.memory is not None and 0 < one.states.total * ROOM <= s.memory.bound


SOURCES = {
    "full": ["fsdp2.what", "fsdp1.full_shard", "practice.fsdp_when", "practice.strategy_map.full"],
    "grad_op": ["fsdp1.shard_grad_op", "fsdp2.reshard.false", "practice.strategy_map.grad_op"],
    "hybrid": ["fsdp1.hybrid_shard", "fsdp2.mesh.hsdp", "practice.strategy_map.hybrid"],
    "none": ["ddp.replica", "practice.ddp_first"],
}


def decide(s: Situation, peak: Peak | None = None) -> tuple[Decision, Layout]:
    """The decision and the layout that everything else follows."""
    measured = links(s)
    best, key = choose(s, measured)
    reasons = _reasons(s, best, key)
    if measured is not None:
        before = choose(s)[0].layout
        changed = before != best.layout
        reasons.append(
            f"{'Changed by your' if changed else 'Not changed by your'} measurement of the links ({measured.words()}): "
            + ("the network is the slower one" if measured.slower else "the network is not clearly slower")
            + (f", so {best.layout.strategy} instead of {before.strategy}." if changed else ".")
        )
    was = ""
    may_be_hybrid = _may_be_hybrid(s, best, measured)
    if may_be_hybrid:
        reasons.append(
            f"Open, since the states are known as a lower bound only: where {'what is asked' if s.model.parameters else 'a config.json'} "
            f"shows that one node's {s.dp_per_node} ranks hold them, hybrid takes its place."
        )
    if peak is not None:
        full = candidate(s, "full", s.dp)
        strategy, why = change(s, best.layout, best.states.total, peak, unsharded(s, full.layout), full.states.total)
        if strategy:
            was = best.layout.strategy
            best = candidate(s, strategy, s.dp)
            reasons = [why]
        elif why:
            reasons.append(why)
    alternatives = _alternatives(s, best, was)
    sources = list(SOURCES[best.layout.strategy])
    if any("parallelism" in alternative.choice for alternative in alternatives):
        sources += ["practice.tp_pp_when", "practice.beyond_512"]
    if not s.has_fsdp2():
        reasons.append(
            "This release has no fully_shard (it came with 2.3), so the plan is for FSDP1, FullyShardedDataParallel."
        )
    decision = Decision(
        "sharding",
        _chosen_text(s, best.layout),
        tuple(reasons),
        tuple(alternatives),
        tuple(sources),
        open=may_be_hybrid or (key in ("small", "default") and not best.states.complete),
    )
    return decision, best.layout


def unsharded(s: Situation, layout: Layout) -> int:
    """Bytes of the whole model unsharded in the compute dtype, padded as the all-gathers leave it; 0 if unknown."""
    chosen = policy(s)
    return sum(group.unsharded_bytes or 0 for group in groups(request(s, layout, (chosen.param, chosen.reduce))))
