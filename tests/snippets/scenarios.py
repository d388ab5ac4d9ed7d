"""Which snippets are executed: for each kind, combinations in which every pair of forms that can meet does meet.

``choices`` names the forms; ``spec_of`` makes a specification of one combination; ``cover`` picks, greedily and always in the same
way, combinations until no possible pair is left out. The record (data/record.json) lists the picks in this order.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations, product
from typing import NamedTuple

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge.snippets import TrainingSpec, ddp, fsdp1, fsdp2

from .models import FAMILIES, TP_PLAN


class Scenario(NamedTuple):
    """One run."""

    kind: str
    family: str
    spec: TrainingSpec
    world: int
    forms: tuple[str, ...]

    @property
    def name(self) -> str:
        """For pytest: the forms that are not the usual ones."""
        usual = {
            "none",
            "1",
            "off",
            "default",
            "float32",
            "norm",
            "public",
            "model",
            "shard",
            "single",
            "adamw",
            "random",
        }
        short = [form.split("=")[1] for form in self.forms if form.split("=")[1] not in usual]
        return "-".join([self.kind, self.family, *short])


MODULES = {"fsdp2": fsdp2, "fsdp1": fsdp1, "ddp": ddp}
SHARED: dict[str, tuple[str, ...]] = {
    "family": tuple(FAMILIES),
    "meta": ("yes", "no"),
    "checkpointing": ("off", "on"),
    "weights": ("random", "pretrained"),
    "mixed": ("none", "bf16", "fp16"),
    "optimizer": ("adamw", "adam", "sgd", "sgd_momentum", "rmsprop", "adagrad"),
    "clip": ("norm", "none"),
    "accumulate": ("1", "sync", "no_sync"),
    "dtype": ("float32", "bfloat16"),
    "frozen": ("none", "some"),
    "offload": ("none", "cpu"),
    "ignored": ("none", "some"),
}


class Setting(NamedTuple):
    """For which release, device and transformers the combinations are made."""

    release: str = "2.13"
    device: str = "cpu"  # "cpu": what can run here; "cuda": everything that is offered
    implementation: str = "transformers5"


HERE = Setting()
CHOICES: dict[str, dict[str, tuple[str, ...]]] = {
    "fsdp2": {
        **SHARED,
        "wrapping": ("list", "single", "own"),
        "mesh": ("shard", "replicate+shard", "shard+tp"),
        "reshard": ("default", "bool", "int"),
        "placement": ("none", "dims"),
        "weights": ("random", "pretrained", "dcp"),
        "optimizer": (*SHARED["optimizer"], "muon"),
    },
    "fsdp1": {
        **SHARED,
        "wrapping": ("list", "own"),
        "mesh": ("shard", "replicate+shard"),
        "reshard": ("default", "bool"),
    },
    "ddp": {**SHARED, "mesh": ("shard",), "offload": ("none",), "ignored": ("none",)},
}


def spec_of(kind: str, choice: dict[str, str], setting: Setting) -> tuple[TrainingSpec, int] | None:
    """The specification and the number of processes; None where the choices do not go together."""
    family = FAMILIES[choice["family"]]
    wrapping, mesh = choice.get("wrapping", "single"), choice["mesh"]
    if (wrapping == "list") and not family.head:
        return None
    if wrapping == "own" and family.architecture:
        return None
    if "tp" in mesh and choice["family"] != "llama":
        return None
    if choice["ignored"] == "some" and (choice["frozen"] == "some" or family.tied):
        return None
    if choice["weights"] == "pretrained" and not family.architecture and (choice["meta"] == "no" or kind != "fsdp2"):
        return None  # the user's own build_model() reads the weights then
    if choice["mixed"] == "fp16" and choice["dtype"] == "bfloat16":
        return None  # nobody scales gradients into bf16 states
    sizes = {
        "shard": (("shard", 2),),
        "replicate+shard": (("replicate", 2), ("shard", 2)),
        "shard+tp": (("shard", 2), ("tp", 2)),
    }[mesh]
    if choice.get("reshard") == "int":
        if mesh != "shard":
            return None
        sizes = (("shard", 4),)
    reshard: tuple[tuple[str, bool | int], ...] = ()
    if choice.get("reshard") == "bool":
        reshard = (("block", False), ("head", False), ("root", True))
    elif choice.get("reshard") == "int":
        reshard = (("block", 2),)
    spec = TrainingSpec(
        release=setting.release,
        device_type=setting.device,
        backend="gloo" if setting.device == "cpu" else "cpu:gloo,cuda:nccl",
        implementation=setting.implementation,
        architecture=family.architecture,
        units=() if wrapping == "own" else family.units(wrapping == "list"),
        mesh=sizes,
        reshard_after_forward=reshard,
        mp_param={"none": "", "bf16": "bfloat16", "fp16": "float16"}[choice["mixed"]],
        mp_reduce="float32" if choice["mixed"] == "bf16" else "",
        offload="pageable" if choice["offload"] == "cpu" else "",
        placements=family.placed if choice.get("placement") == "dims" else (),
        ignored=(family.frozen,) if choice["ignored"] == "some" else (),
        frozen=(family.frozen,) if choice["frozen"] == "some" else (),
        tied=family.tied,
        activation_checkpointing=choice["checkpointing"] == "on",
        param_dtype=choice["dtype"],
        optimizer=choice["optimizer"],
        clip_norm=0.5 if choice["clip"] == "norm" else None,
        accumulation=1 if choice["accumulate"] == "1" else 2,
        accumulation_no_sync=choice["accumulate"] == "no_sync",
        meta_init=choice["meta"] == "yes",
        weights=choice["weights"],
        tp_plan=TP_PLAN if "tp" in mesh else (),
    )
    try:
        MODULES[kind].render(spec)
    except UnusableInput:
        return None
    world = 1
    for _, size in sizes:
        world *= size
    return spec, world


# The family is no form of a snippet: it need not meet these.
FAMILY_FREE = ("optimizer", "clip", "accumulate", "dtype", "reshard")


@cache
def cover(kind: str, setting: Setting = HERE) -> tuple[Scenario, ...]:
    """Combinations in which every possible pair of choices occurs, in a fixed order."""
    choices = CHOICES[kind]
    names = list(choices)
    missing = {
        ((a, x), (b, y))
        for a, b in combinations(names, 2)
        if not (a == "family" and b in FAMILY_FREE)
        for x, y in product(choices[a], choices[b])
    }
    picked: list[Scenario] = []
    impossible: set[tuple[tuple[str, str], tuple[str, str]]] = set()
    while missing:
        first, second = min(missing, key=lambda pair: (names.index(pair[0][0]), names.index(pair[1][0]), pair))
        best = _complete(kind, choices, names, dict([first, second]), missing, setting)
        if best is None:
            impossible.add((first, second))
            missing.discard((first, second))
            continue
        found = spec_of(kind, best, setting)
        assert found is not None
        missing -= {((a, best[a]), (b, best[b])) for a, b in combinations(names, 2)}
        spec, world = found
        picked.append(Scenario(kind, best["family"], spec, world, tuple(MODULES[kind].features(spec))))
    return tuple(picked)


@cache
def typical(kind: str = "fsdp2") -> tuple[Scenario, ...]:
    """What plans most often come to, each combination as a whole: FSDP2, meta device, AdamW, clipping."""
    base = {name: values[0] for name, values in CHOICES[kind].items()}
    result = []
    for family, wrapping in (("llama", "list"), ("gemma", "single")):
        for mesh, mixed, checkpointing, offload, reshard in product(
            ("shard", "replicate+shard"), ("none", "bf16"), ("off", "on"), ("none", "cpu"), ("default", "bool")
        ):
            choice = {
                **base,
                "family": family,
                "wrapping": wrapping,
                "mesh": mesh,
                "mixed": mixed,
                "checkpointing": checkpointing,
                "offload": offload,
                "reshard": reshard,
            }
            found = spec_of(kind, choice, HERE)
            assert found is not None
            spec, world = found
            result.append(Scenario(kind, family, spec, world, tuple(MODULES[kind].features(spec))))
    return tuple(result)


def _complete(
    kind: str,
    choices: dict[str, tuple[str, ...]],
    names: list[str],
    fixed: dict[str, str],
    missing: set[tuple[tuple[str, str], tuple[str, str]]],
    setting: Setting,
) -> dict[str, str] | None:
    """``fixed`` extended by a choice for every name so that it renders and covers many missing pairs; None if nothing renders."""

    def gain(partial: dict[str, str], name: str, value: str) -> int:
        pairs = (
            ((name, value), (o, v)) if names.index(name) < names.index(o) else ((o, v), (name, value))
            for o, v in partial.items()
        )
        return sum(pair in missing for pair in pairs)

    budget = [4000]

    def extend(partial: dict[str, str], left: list[str]) -> dict[str, str] | None:
        if budget[0] <= 0:
            return None
        budget[0] -= 1
        defaults = {name: choices[name][0] for name in left}
        if not left:
            return dict(partial) if spec_of(kind, partial, setting) else None
        name = left[0]
        values = sorted(choices[name], key=lambda value: (-gain(partial, name, value), choices[name].index(value)))
        for value in values:
            trial = {**partial, name: value}
            if len(left) > 1 and not _hopeful(kind, {**defaults, **trial}, left[1:], choices, setting):
                continue
            done = extend(trial, left[1:])
            if done is not None:
                return done
        return None

    return extend(fixed, [name for name in names if name not in fixed])


def _hopeful(
    kind: str, guess: dict[str, str], left: list[str], choices: dict[str, tuple[str, ...]], setting: Setting
) -> bool:
    """Whether some simple completion renders: the usual forms, and each family with each wrapping."""
    if spec_of(kind, guess, setting):
        return True
    loose = [name for name in ("family", "wrapping", "meta", "mesh") if name in left]
    return any(
        spec_of(kind, {**guess, **dict(zip(loose, values, strict=True))}, setting)
        for values in product(*(choices[name] for name in loose))
    )
