"""The snippets of a plan: training code for this very model, launch files, and what measures."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.model import Model
from shardguide.guidance.record import Snippet
from shardguide.knowledge import snippets
from shardguide.knowledge.snippets import LaunchSpec, TrainingSpec

from ..numbers import Layout, optimizer_parts
from ..situation import Situation
from .precision import Policy
from .running import backend_string


class Rendered:
    """Snippets, and what could not be rendered with the reason."""

    def __init__(self) -> None:
        self.snippets: list[Snippet] = []
        self.not_done: list[str] = []

    def add(self, what: str, make: object, *arguments: object) -> None:
        """One snippet; a combination that is not offered is said, not hidden."""
        try:
            self.snippets.append(make(*arguments))  # type: ignore[operator]
        except UnusableInput as error:
            self.not_done.append(f"{what}: {error}")


def training_spec(s: Situation, layout: Layout, policy: Policy, offload: bool, checkpointing: bool) -> TrainingSpec:
    """The plan's choices as the snippets take them."""
    mesh = [("shard", layout.shard)]
    if layout.replicate > 1:
        mesh.insert(0, ("replicate", layout.replicate))
    if layout.tp > 1:
        mesh.append(("tp", layout.tp))
    if layout.strategy == "grad_op":
        reshard: tuple[tuple[str, bool | int], ...] = tuple(
            (role, False) for role in ("block", "embedding", "head", "root")
        )
    else:
        reshard = (("block", True), ("head", False))
    return TrainingSpec(
        release=f"{s.minor[0]}.{s.minor[1]}" if s.minor[0] else "2.13",
        device_type=s.torch_device,
        backend=backend_string(s, offload),
        architecture=s.model.architecture if s.model.implementation.startswith("transformers") else "",
        implementation=s.model.implementation if s.model.implementation.startswith("transformers") else "transformers5",
        units=s.model.units,
        mesh=tuple(mesh),
        reshard_after_forward=reshard,
        mp_param=policy.param,
        mp_reduce=policy.reduce,
        mp_output=policy.output,
        offload="pinned" if offload else "",
        placements=patterns(s.model, layout.placements),
        ignored=tuple(dict.fromkeys(_starred(one.name) for one in s.model.parameters if one.ignored)),
        weights=s.weights,
        tied=tuple((p.name, *p.aliases) for p in s.model.parameters if p.aliases),
        activation_checkpointing=checkpointing,
        param_dtype=s.main_dtype or "float32",
        optimizer={"sgd+momentum": "sgd_momentum"}.get(s.optimizer, optimizer_parts(s.optimizer)[0]) or "adamw",
        tp_plan=s.model.tp_plan if layout.tp > 1 else (),
    )


def script(s: Situation, layout: Layout) -> str:
    """The name under which the plan's training code is written, so that its launch files start it."""
    return "train_ddp.py" if layout.strategy == "none" else "train_fsdp2.py" if s.has_fsdp2() else "train_fsdp1.py"


def patterns(model: Model, placements: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Names with their layer numbers starred, so that one line stands for every layer, where that is unambiguous."""
    if not placements:
        return ()
    placed = dict(placements)
    out: dict[str, int] = {}
    for name, dim in placements:
        out.setdefault(_starred(name), dim)
    for parameter in model.parameters:
        star = _starred(parameter.name)
        if star in out and placed.get(parameter.name, 0) != out[star]:
            return placements
    return tuple(out.items())


def _starred(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def render(
    s: Situation, layout: Layout, policy: Policy, offload: bool, checkpointing: bool, also: tuple[str, ...]
) -> Rendered:
    """Every snippet of the plan."""
    out = Rendered()
    spec = training_spec(s, layout, policy, offload, checkpointing)
    launch = LaunchSpec(
        nodes=max(1, s.nodes),
        per_node=max(1, s.per_node),
        script=script(s, layout),
        device_type=s.torch_device,
        release=spec.release,
        gpu_resource={"rocm": "amd.com/gpu", "xpu": "gpu.intel.com/i915"}.get(s.device, "nvidia.com/gpu"),
        cpu_work=offload or s.device == "cpu",
        training=spec,
    )
    if layout.strategy == "none":
        out.add("code", snippets.render_ddp, spec)
    elif s.has_fsdp2():
        out.add("code", snippets.render_fsdp2, spec)
    else:
        out.add("code", snippets.render_fsdp1, spec)
    if "fsdp1" in also and s.has_fsdp2():
        out.add("FSDP1 form", snippets.render_fsdp1, spec)
    out.add("torchrun", snippets.render_launch, "torchrun", launch)
    out.add("Slurm", snippets.render_launch, "sbatch", launch)
    out.add("Kubernetes", snippets.render_launch, "kubernetes", launch)
    for kind in ("accelerate", "torchtitan"):
        if kind in also:
            out.add(kind, snippets.render_launch, kind, launch)
    if s.device != "cpu":
        out.add("measuring", snippets.measure, spec)
    if not s.model.parameters:
        out.add("shape manifest", snippets.manifest, spec.release)
    return out
