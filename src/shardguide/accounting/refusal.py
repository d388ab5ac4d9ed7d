"""What fully_shard would refuse about a request, beyond shapes that cannot be sharded at all (see `survey.take`).

Each was reproduced with PyTorch 2.13.0; tests/accounting/test_refusals.py raises the same errors again.
"""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple

from .group import mixed_dtypes, split_ties
from .records import SHARDED, Request, release_minor
from .survey import Survey, take


class Refusal(NamedTuple):
    """One error, and when it would come."""

    error: str  # as PyTorch raises it, up to where names or sizes follow
    when: str  # "fully_shard", "first forward", "first backward"
    why: str
    source: str  # dotted object that raises


_PACKAGE = "torch.distributed.fsdp._fully_shard"


def refusals(request: Request, survey: Survey | None = None) -> tuple[Refusal, ...]:
    """The errors to expect; () when none is known.

    Raises UnusableInput for shapes that cannot be sharded.
    """
    if request.strategy not in SHARDED or not request.model.parameters:
        return ()
    survey = take(request) if survey is None else survey
    found: list[Refusal] = []
    keep, ways = request.reshard_after_forward, survey.shard_size
    if keep is not None and not isinstance(keep, bool):
        if keep < 1 or keep > ways or ways % keep:
            text = (
                f"ValueError: If passing reshard_after_forward as an int, it should be a factor of {ways}, not {keep}"
            )
            why = "Parameters are resharded within groups of that many ranks, so it must divide the shard size."
            found.append(Refusal(text, "fully_shard", why, f"{_PACKAGE}._fsdp_init._get_post_forward_mesh_info"))
        elif 1 < keep < ways:
            source = f"{_PACKAGE}._fsdp_param.FSDPParam.to_sharded_post_forward"
            if request.layout.tp_size > 1 and any(kind.tp_dim >= 0 for kind in survey.kinds):
                text = "NotImplementedError: Resharding to smaller mesh is not supported for DTensor parameters yet"
                found.append(
                    Refusal(text, "first forward", "Tensor parallelism makes the parameters DTensors.", source)
                )
            names = [kind.name for kind in survey.kinds if kind.dim and not kind.ignored]
            if names and release_minor(request.release) == (2, 13):
                why = f"An int reshards on dim 0 only, and {names[0]} is sharded on another dim."
                source = f"{_PACKAGE}._fsdp_collectives.foreach_all_gather_copy_out"
                found.append(Refusal("IndexError: list index out of range", "first backward", why, source))
    for name in mixed_dtypes(request, survey):
        text = "AssertionError: FSDP expects uniform original parameter dtype but got"
        why = f"The group {name} mixes dtypes; give its odd ones a group of their own, or one dtype."
        found.append(
            Refusal(text, "first forward", why, f"{_PACKAGE}._fsdp_param_group.FSDPParamGroup._init_mp_dtypes")
        )
    if release_minor(request.release) >= (2, 12):
        for first, second in split_ties(request.model):
            text = "ValueError: ... is shared with a parameter already managed by another FSDP group."
            why = f"{first} and {second} are one tensor: put both in one fully_shard call, or both in the root."
            source = f"{_PACKAGE}._fsdp_state.FSDPState._validate_no_duplicate_params"
            found.append(Refusal(text, "first forward", why, source))
    return tuple(found)
