"""Memory snapshots and GPU traces that no GPU made: built after the formats in PyTorch's and Kineto's sources, and nothing more.

What is built here is synthetic. ``test_memory.py`` hands the snapshots to PyTorch's own reader (torch.cuda._memory_viz), so that
their form is right; the form of the traces is that of ``output_json.cpp`` in Kineto.
"""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

MIB = 1 << 20
GIB = 1 << 30
SITE = "/opt/venv/lib/python3.11/site-packages/"
Frames = list[tuple[str, int, str]]

# Stacks, innermost first, as torch.cuda.memory records them.
USER: Frames = [("/home/user/train.py", 88, "train"), ("/home/user/train.py", 120, "<module>")]
STACKS: dict[str, Frames] = {
    "all_gather": [
        (SITE + "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 108, "allocate"),
        (SITE + "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 351, "foreach_all_gather"),
        (SITE + "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py", 406, "unshard"),
        (SITE + "torch/nn/modules/module.py", 1789, "_call_impl"),
        *USER,
    ],
    "reduce_scatter": [
        (SITE + "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 597, "foreach_reduce"),
        (SITE + "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py", 661, "post_backward"),
        (SITE + "torch/autograd/graph.py", 979, "_engine_run_backward"),
        *USER,
    ],
    "optimizer_state": [
        (SITE + "torch/optim/adam.py", 178, "_init_group"),
        (SITE + "torch/optim/adam.py", 241, "step"),
        (SITE + "torch/optim/optimizer.py", 514, "wrapper"),
        *USER,
    ],
    "optimizer_step": [
        (SITE + "torch/optim/adam.py", 790, "_multi_tensor_adam"),
        (SITE + "torch/optim/adam.py", 247, "step"),
        *USER,
    ],
    "forward": [
        ("/build/pytorch/aten/src/ATen/native/cuda/Blas.cpp", 410, "at::native::addmm_out_cuda_impl"),
        (SITE + "torch/nn/modules/linear.py", 134, "forward"),
        (SITE + "torch/nn/modules/module.py", 1789, "_call_impl"),
        ("/home/user/model.py", 41, "forward"),
        *USER,
    ],
    "recompute": [
        (SITE + "torch/nn/modules/linear.py", 134, "forward"),
        ("/home/user/model.py", 41, "forward"),
        (SITE + "torch/utils/checkpoint.py", 1123, "recompute_fn"),
        (SITE + "torch/utils/checkpoint.py", 1100, "unpack_hook"),
        (SITE + "torch/autograd/graph.py", 979, "_engine_run_backward"),
        *USER,
    ],
    "loss": [(SITE + "torch/nn/functional.py", 3555, "cross_entropy"), *USER],
    "state_dict": [
        (SITE + "torch/distributed/tensor/_redistribute.py", 1918, "forward"),
        (SITE + "torch/distributed/tensor/_api.py", 760, "redistribute"),
        (SITE + "torch/distributed/_state_dict_utils.py", 285, "dtensor_func"),
        (SITE + "torch/distributed/_state_dict_utils.py", 240, "_gather_state_dict"),
        *USER,
    ],
    "backward": [
        ("??", 0, "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)"),
        ("??", 0, "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"),
    ],
    "place": [
        (SITE + "torch/nn/modules/module.py", 1369, "convert"),
        (SITE + "torch/nn/modules/module.py", 955, "_apply"),
        (SITE + "torch/nn/modules/module.py", 1381, "to"),
        *USER,
    ],
    "other": [("/home/user/data.py", 12, "collate"), *USER],
    "no stack": [],
}


def frames(stack: Frames) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in stack]


_shared = {name: frames(stack) for name, stack in STACKS.items()}


class Snapshot:
    """Segments filled with blocks one after the other."""

    def __init__(self) -> None:
        self.segments: list[dict[str, Any]] = []
        self.trace: list[dict[str, Any]] = []
        self.address = 0x7F0000000000

    def segment(self, *blocks: tuple[str, int], stream: int = 0, pool: tuple[int, int] = (0, 0)) -> Snapshot:
        """Blocks of (who asked, bytes); "" is a free one, "pending" one that waits for a stream."""
        made = []
        at = self.address
        for name, size in blocks:
            state = {"": "inactive", "pending": "active_pending_free"}.get(name, "active_allocated")
            held = state == "active_allocated"
            made.append(
                {
                    "address": at,
                    "size": size,
                    "requested_size": size - 100 if held else 0,
                    "state": state,
                    "frames": _shared[name] if held else [],
                }
            )
            at += size
        total = sum(size for _, size in blocks)
        self.segments.append(
            {
                "device": 0,
                "address": self.address,
                "total_size": total,
                "allocated_size": sum(size for name, size in blocks if name not in ("", "pending")),
                "active_size": sum(size for name, size in blocks if name),
                "requested_size": sum(one["requested_size"] for one in made),
                "stream": stream,
                "segment_type": "large",
                "segment_pool_id": pool,
                "is_expandable": False,
                "frames": [],
                "blocks": made,
            }
        )
        self.trace.append(self._entry("segment_alloc", self.address, total, "other"))
        self.address += total + (1 << 30)
        return self

    @staticmethod
    def _entry(action: str, address: int, size: int, who: str) -> dict[str, Any]:
        key = "device_free" if action == "oom" else "addr"
        return {
            "action": action,
            key: address,
            "size": size,
            "stream": 0,
            "time_us": 1_780_000_000_000_000,
            "frames": _shared[who],
        }

    def oom(self, who: str, size: int, free: int, *, later: bool = False) -> Snapshot:
        self.trace.append(self._entry("oom", free, size, who))
        if later:
            self.trace.append(self._entry("free_requested", self.segments[0]["address"], 1024, "other"))
        self.trace.append(self._entry("snapshot", 0, 0, "other"))
        return self

    def content(self, **settings: Any) -> dict[str, Any]:
        return {
            "segments": self.segments,
            "device_traces": [self.trace],
            "allocator_settings": {
                "PYTORCH_CUDA_ALLOC_CONF": "",
                "max_split_size": -1,
                "garbage_collection_threshold": 0.0,
                "expandable_segments": False,
                "roundup_power2_divisions": {"1": 0, "2": 0},
                **settings,
            },
            "external_annotations": [],
        }

    def write(self, path: Path, **settings: Any) -> Path:
        data = pickle.dumps(self.content(**settings))
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        return path


def fragmented() -> Snapshot:
    """40 GiB in use, 20 GiB idle in pieces of 512 MiB, and 1 GiB asked for."""
    made = Snapshot()
    for _ in range(40):
        made.segment(("forward", GIB), ("", 512 * MIB))
    return made.oom("all_gather", GIB, 300 * MIB)


def full(who: str = "forward", asking: str = "forward") -> Snapshot:
    """79 GiB in use, most of it asked for by one place, and nothing idle to speak of."""
    made = Snapshot()
    made.segment(("place", 4 * GIB), ("optimizer_state", 8 * GIB))
    for _ in range(67):
        made.segment((who, GIB - 2 * MIB), ("", 2 * MIB))
    return made.oom(asking, GIB, 200 * MIB)


class Gpu:
    """A GPU trace in Kineto's form."""

    def __init__(self, rank: int, world: int = 2) -> None:
        self.rank, self.world = rank, world
        self.events: list[dict[str, Any]] = []

    def kernel(self, name: str, start: float, duration: float, stream: int = 7, **args: Any) -> Gpu:
        self.events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": name,
                "pid": self.rank,
                "tid": stream,
                "ts": start,
                "dur": duration,
                "args": {"device": self.rank, "stream": stream, "correlation": len(self.events), **args},
            }
        )
        return self

    def gather(self, start: float, duration: float) -> Gpu:
        args = {"Collective name": "_allgather_base", "Process Group Name": "0", "Group size": self.world}
        name = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        return self.kernel(name, start, duration, stream=20, **args)

    def step(self, number: int, start: float, duration: float) -> Gpu:
        for category, pid in (("user_annotation", 4242), ("gpu_user_annotation", self.rank)):
            self.events.append(
                {
                    "ph": "X",
                    "cat": category,
                    "name": f"ProfilerStep#{number}",
                    "pid": pid,
                    "tid": 7,
                    "ts": start,
                    "dur": duration,
                }
            )
        return self

    def text(self) -> str:
        return json.dumps(
            {
                "schemaVersion": 1,
                "deviceProperties": [{"id": self.rank, "name": "NVIDIA H100 80GB HBM3"}],
                "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.world, "pg_count": 1},
                "displayTimeUnit": "ms",
                "baseTimeNanoseconds": 1_790_857_026_000_000_000,
                "traceEvents": [
                    {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
                    *self.events,
                ],
                "traceName": f"rank{self.rank}.json",
            },
            indent=1,
        )

    def write(self, path: Path) -> Path:
        data = self.text().encode()
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        return path
