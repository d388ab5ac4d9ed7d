"""The layout of ranks: which shard, replica and tensor-parallel slice each global rank holds.

Source: ``torch.distributed.device_mesh.init_device_mesh(device_type, (replicate, shard, tp))`` lays ranks out row by
row, so the last dimension (tensor parallel) changes fastest.
"""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple


class Layout(NamedTuple):
    """Sizes of the three mesh dimensions; a dimension of size 1 is left out of the real mesh."""

    replicate_size: int = 1  # ranks that hold the same shard (HSDP, or DDP when nothing is sharded)
    shard_size: int = 1  # ranks over which fully_shard splits each parameter
    tp_size: int = 1  # ranks over which tensor parallelism splits each parameter first

    @property
    def world(self) -> int:
        """World size: the product of the three."""
        return self.replicate_size * self.shard_size * self.tp_size

    def rank(self, replicate: int, shard: int, tp: int = 0) -> int:
        """Global rank at these coordinates."""
        return (replicate * self.shard_size + shard) * self.tp_size + tp

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """(replicate, shard, tp) of a global rank."""
        rest, tp = divmod(rank, self.tp_size)
        replicate, shard = divmod(rest, self.shard_size)
        return replicate, shard, tp
