"""Decision ``mesh``: the DeviceMesh, and the placements where dim 0 is the wrong one to shard."""

from __future__ import annotations

from math import prod

from shardguide.guidance.record import Alternative, Decision

from ..numbers import Layout, padding, percent, survey
from ..situation import Situation

# Padding of the whole model under Shard(0) above which other placements are worth their extra copies, and the share of the
# model's elements that one shape's padding must reach to be moved.
MATERIAL, SHARE = 0.01, 0.001


def place(s: Situation, layout: Layout) -> Layout:
    """The layout with another shard dim for the parameters whose dim 0 is shorter than there are ranks.

    Only where it matters (over 1 % of the stored elements would be padding, and this shape's part of it is not negligible),
    and only on a dim that the shard size divides, which fully_shard demands of every dim but 0.
    """
    if layout.strategy == "none" or layout.tp > 1 or not s.at_least(2, 6) or padding(s, layout) <= MATERIAL:
        return layout
    key = ("placed", layout.shard)
    if key not in s.memo:
        s.memo[key] = _placements(s, layout)
    return layout._replace(placements=s.memo[key])


def _placements(s: Situation, layout: Layout) -> tuple[tuple[str, int], ...]:
    kinds = survey(s, layout)
    wasted: dict[tuple[int, ...], int] = {}
    for kind, count in zip(kinds.kinds, kinds.counts, strict=True):
        if len(kind.shape) > 1 and not kind.ignored and layout.shard > kind.shape[0]:
            row = prod(kind.shape[1:])
            wasted[kind.shape] = wasted.get(kind.shape, 0) + count * row * (layout.shard - kind.shape[0])
    dims: dict[tuple[int, ...], int] = {}
    for shape, elements in wasted.items():
        even = [i for i in range(1, len(shape)) if shape[i] % layout.shard == 0]
        if even and elements >= SHARE * s.model.size:
            dims[shape] = even[0]
    return tuple((one.name, dims[one.shape]) for one in s.model.parameters if one.shape in dims and not one.ignored)


def mesh_text(layout: Layout) -> str:
    """The mesh in one phrase; replicate first, tensor parallel last."""
    if layout.strategy == "none":
        return "the default process group, no mesh" if layout.replicate > 1 else "no mesh: one rank"
    dims = []
    if layout.replicate > 1:
        dims.append(f"replicate={layout.replicate}")
    dims.append(f"shard={layout.shard}")
    if layout.tp > 1:
        dims.append(f"tp={layout.tp}")
    return f"{len(dims)}-D: ({', '.join(dims)})"


def _placed(s: Situation, layout: Layout) -> str:
    names = dict(layout.placements)
    shapes = {str(list(p.shape)): names[p.name] for p in s.model.parameters if p.name in names}
    what = ", ".join(f"{shape} on dim {dim}" for shape, dim in sorted(shapes.items())[:4])
    return f"{len(names)} tensors ({what}{', …' if len(shapes) > 4 else ''})"


def decide(s: Situation, layout: Layout) -> Decision:
    """The mesh of a placed layout."""
    reasons: list[str] = []
    sources: list[str] = []
    alternatives: list[Alternative] = []
    choice = mesh_text(layout)
    plain = layout._replace(placements=())
    if layout.strategy == "none":
        if layout.replicate > 1:
            reasons.append("DDP all-reduces gradients over the default process group.")
        else:
            reasons.append("One rank has nobody to communicate with.")
        mesh = Alternative("a DeviceMesh", "It is for fully_shard and tensor parallelism; nothing is sharded here.")
        return Decision("mesh", choice, tuple(reasons), (mesh,), ("ddp.replica",))
    if layout.replicate > 1:
        reasons.append("fully_shard replicates over the first dimension of a 2-D mesh and shards over the second.")
        reasons.append("The dimensions carry names: fully_shard refuses a 2-D mesh without them.")
        sources += ["fsdp2.mesh.hsdp", "fsdp2.mesh.names", "fsdp1.hybrid.mesh", "mesh.two_d_groups"]
        if s.nodes > 1 and layout.shard * layout.tp == s.per_node:
            reasons.append(
                "Ranks are laid out row by row, so each shard group is one node when a node's ranks are consecutive."
            )
            sources.append("mesh.two_hosts")
        alternatives.append(
            Alternative(f"1-D: (shard={s.dp})", "That is full sharding over all ranks; see the decision on sharding.")
        )
    elif layout.tp > 1:
        reasons.append("fully_shard gets the mesh's shard dimension: one group of ranks for each tensor-parallel rank.")
        sources.append("mesh.what")
    else:
        reasons.append(
            "A 1-D mesh over all data-parallel ranks is what fully_shard makes by itself; stating it gives it a name."
        )
        sources += ["fsdp2.mesh.none", "mesh.what"]
        if s.nodes > 1 and s.dp_per_node > 1:
            alternatives.append(
                Alternative(
                    f"2-D: (replicate={s.nodes}, shard={s.dp_per_node})",
                    "That is hybrid sharding; see the decision on sharding.",
                )
            )
    if layout.tp > 1:
        reasons.append(
            f"Tensor parallelism takes the innermost dimension: its {layout.tp} ranks are neighbours on one node."
        )
        if s.model.parameters:
            split = survey(s, layout)
            pairs = zip(split.kinds, split.counts, strict=True)
            part = sum(count * prod(kind.shape) for kind, count in pairs if kind.tp_dim >= 0)
            reasons.append(
                f"The tensor-parallel plan splits {percent(part / s.model.size)} of the parameters; the rest is whole on each of its ranks."
            )
        sources.append("tp.before_fsdp")
    if not alternatives and layout.tp == 1:
        one = "Two groups on one node would each hold a whole copy; there is no slower network to spare."
        if not s.nodes:
            one = (
                "Whether groups within a node are worth a copy each depends on the number of nodes, which is not known."
            )
        alternatives.append(Alternative("2-D", one if s.dp > 1 else "There is one rank."))
    if layout.tp > 1:
        alternatives.append(
            Alternative(f"1-D: (shard={s.world})", "Without tensor parallelism: every rank takes sequences of its own.")
        )
    if layout.placements:
        before, after = padding(s, plain), padding(s, layout)
        choice += f"; shard_placement_fn for {_placed(s, layout)}"
        reasons.append(
            f"Under Shard(0) {percent(before)} of the stored elements would be padding, since dim 0 has fewer rows than there "
            f"are ranks; on dims that {layout.shard} divides it is {percent(after)}."
        )
        sources += ["fsdp2.padding", "fsdp2.placement_fn", "fsdp2.placement_fn.even", "practice.experts_shard1"]
        alternatives.append(
            Alternative("Shard(0) for every parameter", f"It would store {percent(before)} padding on the ranks.")
        )
    elif padding(s, plain) > MATERIAL:
        reasons.append(
            f"{percent(padding(s, plain))} of the stored elements are padding, and no other dim of those tensors is divisible by "
            f"{layout.shard}: a smaller shard group would spare it."
        )
        sources.append("fsdp2.placement_fn.even")
    return Decision("mesh", choice, tuple(reasons), tuple(alternatives), tuple(dict.fromkeys(sources)))
