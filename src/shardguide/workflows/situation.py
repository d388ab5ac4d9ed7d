"""What a plan is made for: everything known about the model, the cluster and the run, in one immutable value."""

from __future__ import annotations

from shardguide.guidance.hints import TYPE_CHECKING, Any, NamedTuple
from shardguide.guidance.model import Model
from shardguide.guidance.record import Release

if TYPE_CHECKING:
    from shardguide.readers.measured import Measured


class Memory(NamedTuple):
    """Memory of one device or host, as stated and as bytes."""

    bound: int  # bytes that nothing may exceed: a stated "80GB" read as GiB, or a named GPU's own total
    text: str  # in a sentence, e.g. "79.65 GiB"
    detail: str = ""  # where the bound comes from, both readings of a stated size included


class Situation(NamedTuple):
    """The facts that the decisions of a plan rest on. Unknown is "" or None or 0, never a guess."""

    release: Release
    minor: tuple[int, int]  # (2, 13); (0, 0) when the release is unknown
    model: Model
    world: int  # ranks in all; 0 if unknown
    nodes: int  # 0 if unknown
    tp: int  # tensor-parallel degree, 1 without
    device: str  # "cuda", "rocm", "xpu", "cpu" or ""
    gpu: str  # canonical name, "" if only the memory is known
    memory: Memory | None
    host_memory: Memory | None
    bf16: bool | None  # native bfloat16 of the device; None if unknown
    compute_capability: str
    intra: str
    inter: str
    optimizer: str
    param_dtype: str  # canonical name; "stored" for each parameter's own
    strategy: str  # "auto" or what the user asked for
    shard_size: int  # size of the shard group that the user asked for; 0 if none
    offload: str  # "auto", "yes", "no"
    measured: tuple[Measured, ...] = ()
    current: Any = None  # code.current.Current
    weights: str = "random"  # what the code starts from
    scalars: tuple[str, ...] = ()  # parameters of no dimension, counted here as one element
    memo: dict[Any, Any] = {}  # noqa: RUF012 - arithmetic done once per layout; prepare() gives each situation its own

    @property
    def per_node(self) -> int:
        """GPUs per node; the whole world while the number of nodes is unknown."""
        return self.world // self.nodes if self.nodes else self.world

    @property
    def dp(self) -> int:
        """Data-parallel degree: the ranks that FSDP shards or replicates over."""
        return self.world // self.tp

    @property
    def dp_per_node(self) -> int:
        """Data-parallel ranks of one node."""
        return max(1, self.per_node // self.tp)

    @property
    def torch_device(self) -> str:
        """The device type as PyTorch names it: ROCm builds call it cuda."""
        return {"rocm": "cuda", "": "cuda"}.get(self.device, self.device)

    @property
    def main_dtype(self) -> str:
        """The dtype that the parameters are kept in; with "stored" the one of most trainable elements."""
        if self.param_dtype != "stored":
            return self.param_dtype
        held: dict[str, int] = {}
        for one in self.model.parameters:
            if one.requires_grad:
                held[one.dtype] = held.get(one.dtype, 0) + one.numel
        return max(held, key=lambda dtype: held[dtype], default="")

    def has_fsdp2(self) -> bool:
        """Whether this release has fully_shard in its present form, public or not."""
        return self.minor >= (2, 3) or self.minor == (0, 0)

    def at_least(self, major: int, minor: int) -> bool:
        """Whether the release is known to be this one or newer; an unknown release counts as the newest."""
        return self.minor >= (major, minor) or self.minor == (0, 0)
