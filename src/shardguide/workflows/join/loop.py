"""The training loop that an answer is for, in one immutable value."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple


class Loop(NamedTuple):
    """What is known of it; "" where nothing is."""

    parts: tuple[str, ...]  # of "ddp", "zero", "fsdp", "own"
    uneven: str  # "yes", "no", "unknown"
    on_exhausted: str  # "drain" or "stop"
    collectives: str  # "yes", "no": of code that is no Joinable
    skew: str  # "small", "large"
    several_groups: bool
    release: str  # minor, "2.13"

    @property
    def fsdp(self) -> bool:
        """Whether FSDP is in it: then no Join over the loop works."""
        return "fsdp" in self.parts

    @property
    def even(self) -> bool:
        """Whether the ranks are known to get as many batches each."""
        return self.uneven == "no"

    @property
    def throws(self) -> bool:
        """Whether all ranks are to stop with the first: wished, or needed because nothing shadows some collectives."""
        return not self.even and (self.collectives == "yes" or self.on_exhausted == "stop")

    @property
    def stale(self) -> bool:
        """Whether a rank that ran out would step ZeroRedundancyOptimizer with its own last gradients."""
        return {"ddp", "zero"} <= set(self.parts) and not self.even and not self.throws

    @property
    def joinables(self) -> str:
        """The list for Join, in the order of the iteration."""
        names = {"ddp": "model", "zero": "set_gradients, optimizer" if self.stale else "optimizer", "own": "own"}
        return f"[{', '.join(names[part] for part in ('ddp', 'zero', 'own') if part in self.parts)}]"
