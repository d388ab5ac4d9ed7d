"""Decisions ``wrapping`` and ``reshard_after_forward``: what is gathered together, and how long it stays."""

from __future__ import annotations

from shardguide.accounting import Group
from shardguide.guidance.record import Alternative, Decision
from shardguide.knowledge import releases

from ..numbers import Layout, gib, padding, percent
from ..situation import Situation


def wrapping(s: Situation, layout: Layout, groups: tuple[Group, ...]) -> Decision:
    """Which modules get a communication group of their own."""
    if layout.strategy == "none":
        why = "DDP sorts gradients into buckets by itself; modules are not wrapped one by one."
        if layout.replicate == 1:
            why = "One rank has nothing to reduce; DistributedDataParallel around it lets the same script run on more."
        each = Alternative("fully_shard on each layer", "It is what shards; see the decision on sharding.")
        return Decision("wrapping", "the whole model in one DistributedDataParallel", (why,), (each,), ("ddp.replica",))
    blocks = [unit for unit in s.model.units if unit.role == "block"]
    others = [unit for unit in s.model.units if unit.role != "block"]
    if not blocks:
        why = "The shapes of this input do not say which modules repeat; name your layer class and call fully_shard on each."
        return Decision(
            "wrapping",
            "your repeated layer class, bottom-up, then the root",
            (why, "fully_shard on the root alone would gather the whole model at once."),
            (
                Alternative(
                    "the root only", "One group for everything: no overlap, and the whole model unsharded at once."
                ),
            ),
            ("fsdp2.bottom_up", "fsdp2.not_only_root", "fsdp1.auto_wrap", "practice.layers_then_root"),
            open=True,
        )
    names = " and ".join(sorted({unit.module_class or "each repeated layer" for unit in blocks}))
    extra = "".join(f", {' + '.join(unit.modules)}" for unit in others)
    largest = max((group.unsharded_bytes or 0 for group in groups), default=0)
    root = (
        "then the root" if any(not group.modules for group in groups) else "then the root, which holds none of its own"
    )
    reasons = [
        "One communication group a call: a module's parameters that no earlier call took are gathered together, so the calls go "
        "bottom-up and the root comes last.",
    ]
    if largest:
        reasons.append(
            f"The largest group is {gib(largest)} unsharded in the compute dtype; at least that is gathered at once."
        )
    sources = [
        "fsdp2.grouping",
        "fsdp2.bottom_up",
        "fsdp2.not_only_root",
        "fsdp1.auto_wrap",
        "practice.layers_then_root",
    ]
    if any(parameter.aliases for parameter in s.model.parameters):
        reasons.append(
            "The input embedding and the output projection are one tensor, so both stay with the root: one group must hold tied "
            "weights" + (" (two groups raise an error from 2.12 on)." if s.at_least(2, 12) else ".")
        )
        sources += ["fsdp2.tied", "fsdp1.shared_params", "practice.tied_group"]
    elif others:
        reasons.append(
            "Embedding and head have groups of their own: the embedding is not needed again until the end of backward, and the final "
            "norm and head are used last in forward and first in backward."
        )
        sources.append("fsdp2.list_of_modules")
    more, claims = _around(s, layout)
    reasons += more
    sources += claims
    return Decision(
        "wrapping",
        f"{len(groups)} communication groups: {len(blocks)} × {names}{extra}, {root}",
        tuple(reasons),
        (
            Alternative(
                "the root only", "One group for everything: no overlap, and the whole model unsharded at once."
            ),
            Alternative("every Linear by itself", "Many small collectives; each costs its latency."),
        ),
        tuple(sources),
    )


def _around(s: Situation, layout: Layout) -> tuple[list[str], list[str]]:
    """What belongs to the calls: where fully_shard is imported from, initialisation, frozen parameters, uneven rows."""
    reasons = [
        "Build the model on the meta device, shard it, allocate it with to_empty, then initialise or load parameters and buffers."
    ]
    sources = ["practice.meta_after_sharding", "meta.reset"]
    path = releases.fsdp2_path(s.release.version) if s.release.version else ""
    if path and not s.at_least(2, 6):
        reasons.append(
            f"In this release fully_shard is imported from {path}; torch.distributed.fsdp has it from 2.6 on."
        )
    elif path:
        reasons.append(f"fully_shard is imported from {path}.")
        sources.append("fsdp2.import_path")
    if any(not one.requires_grad for one in s.model.parameters):
        reasons.append(
            "Frozen and trainable parameters may share a group"
            + ("." if s.at_least(2, 8) else ", of one dtype in releases before 2.8.")
            + " Frozen ones hold no gradient and no optimizer state."
        )
        sources += ["practice.frozen_fsdp2", "fsdp2.uniform_dtype"]
    share = padding(s, layout)
    if share:
        reasons.append(
            f"Rows that {layout.shard} ranks do not divide are padded: {percent(share)} of what the ranks store, counted in the accounting."
        )
        sources.append("fsdp2.padding")
    return reasons, sources


def reshard(s: Situation, layout: Layout, groups: tuple[Group, ...]) -> Decision:
    """Whether a group's parameters are freed after forward."""
    whole = sum(group.unsharded_bytes or 0 for group in groups)
    sources = ["fsdp2.reshard.true", "fsdp2.reshard.false", "fsdp1.full_shard", "fsdp1.shard_grad_op"]
    if layout.strategy == "none":
        other = Alternative("True or False", "They are fully_shard's; every rank keeps its whole replica.")
        return Decision("reshard_after_forward", "does not apply", ("Nothing is sharded.",), (other,), ("ddp.replica",))
    held = f"{gib(whole)} (all groups unsharded, compute dtype)" if whole else "all groups' unsharded parameters"
    keep = Alternative(
        "False", f"Every rank would hold {held} from forward to backward, to save one all-gather a group."
    )
    divisors = [size for size in range(2, layout.shard) if layout.shard % size == 0]
    size = s.dp_per_node if s.dp_per_node in divisors else next(iter(divisors), 0)
    number = Alternative(
        f"an int, e.g. {size}",
        "Parameters are resharded to a smaller group after forward, so that backward gathers over fewer ranks; every call with an "
        "int builds a process group of its own.",
    )
    if layout.strategy == "grad_op":
        return Decision(
            "reshard_after_forward",
            "False for every group",
            (f"That is what gradient-and-optimizer sharding is: {held} stays from forward to backward.",),
            (
                Alternative("True", "Frees them after forward and gathers them again: full sharding."),
                *((number,) if size and not layout.placements else ()),
            ),
            tuple(sources),
        )
    head = any(unit.role == "head" for unit in s.model.units)
    reasons = [
        "Freed after forward and gathered again for backward: the least memory, one more all-gather a group.",
    ]
    if s.at_least(2, 8):
        choice = "True for the layers and the embedding; None for the root, which keeps its own after forward"
        reasons.append(
            "None means True for every module but the root; from 2.8 on an explicit True on the root is honoured."
        )
        sources += ["fsdp2.reshard.default", "fsdp2.reshard.root"]
    else:
        choice = "True for the layers; the root keeps its parameters after forward whatever is passed"
        reasons.append("In releases before 2.8 the root is never resharded after forward.")
        sources.append("fsdp2.reshard.default_before_2_8")
    if head:
        choice += "; False for the norm and head, next in backward"
        sources.append("practice.last_layers")
    alternatives = [keep]
    if layout.replicate == 1 and s.nodes > 1 and layout.tp == 1 and size and not layout.placements:
        alternatives.append(number)
        sources += ["fsdp2.reshard.int", "fsdp2.reshard.int_mesh"]
    return Decision("reshard_after_forward", choice, tuple(reasons), tuple(alternatives), tuple(sources))
