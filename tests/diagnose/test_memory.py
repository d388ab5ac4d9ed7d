"""Out of memory: the numbers of messages, what snapshots hold, and which cause is named, with public and synthetic input."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge import diagnosis_store
from shardguide.readers.allocations import asked
from shardguide.readers.heads import is_snapshot
from shardguide.readers.memory_snapshot import read
from shardguide.readers.oom import parse, summary
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose
from shardguide.workflows.diagnose.files import kind_of
from shardguide.workflows.diagnose.memory import IDS
from tests.diagnose.made import GIB, MIB, STACKS, Snapshot, fragmented, full

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")

SOURCE = Path(diagnosis_store.__file__).parent / "diagnoses" / "memory.toml"
DIAGNOSES = tomllib.loads(SOURCE.read_text(encoding="utf-8"))["diagnosis"]


def found(path: Path | str) -> dict[str, Any]:
    return diagnose(DiagnoseRequest((str(path),), torch="2.13.0")).extra


def ids(path: Path | str) -> list[str]:
    return [one["id"] for one in found(path)["diagnoses"]]


# Messages from public threads and repositories, the numbers read off by hand. (MiB unless said otherwise.)
MESSAGES = [
    (  # 2.6, with another process
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 938.00 MiB. GPU 0 has a total capacity of 5.60 GiB of which 49.44 MiB is free. Process 12622 has 948.00 MiB memory in use. Including non-PyTorch memory, this process has 4.06 GiB memory in use. Of the allocated memory 3.73 GiB is allocated by PyTorch, and 233.73 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
        {"backend": "CUDA", "device": 0, "requested": "938.00 MiB", "capacity": "5.60 GiB", "free": "49.44 MiB", "process": "4.06 GiB", "allocated": "3.73 GiB", "unallocated": "233.73 MiB", "others": [(12622, "948.00 MiB")]},
    ),
    (  # 2.1, with its spelling mistake
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacty of 31.74 GiB of which 53.12 MiB is free. Including non-PyTorch memory, this process has 31.68 GiB memory in use. Of the allocated memory 30.16 GiB is allocated by PyTorch, and 1.16 GiB is reserved by PyTorch but unallocated.",
        {"device": 0, "requested": "86.00 MiB", "capacity": "31.74 GiB", "free": "53.12 MiB", "process": "31.68 GiB", "allocated": "30.16 GiB", "unallocated": "1.16 GiB"},
    ),
    (  # 1.x and 2.0
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 4; 31.75 GiB total capacity; 30.29 GiB already allocated; 3.75 MiB free; 30.40 GiB reserved in total by PyTorch)",
        {"device": 4, "requested": "20.00 MiB", "capacity": "31.75 GiB", "free": "3.75 MiB", "allocated": "30.29 GiB"},
    ),
    (  # ROCm, nothing allocated
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 978.00 MiB. GPU 0 has a total capacity of 15.98 GiB of which 630.00 MiB is free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
        {"backend": "HIP", "capacity": "15.98 GiB", "free": "630.00 MiB", "allocated": "0 bytes", "unallocated": "0 bytes"},
    ),
    (
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 192.00 MiB. GPU 3 has a total capacity of 31.89 GiB of which 13.22 GiB is free.",
        {"backend": "XPU", "device": 3, "requested": "192.00 MiB", "capacity": "31.89 GiB", "free": "13.22 GiB"},
    ),
    (  # with private pools
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 47.53 GiB of which 896.00 KiB is free. Process 1686436 has 47.51 GiB memory in use. Of the allocated memory 47.00 GiB is allocated by PyTorch, with 46.22 GiB allocated in private pools (e.g., CUDA Graphs), and 149.10 MiB is reserved by PyTorch but unallocated.",
        {"free": "896.00 KiB", "allocated": "47.00 GiB", "pools": "46.22 GiB", "unallocated": "149.10 MiB", "others": [(1686436, "47.51 GiB")]},
    ),
    (
        "RuntimeError: MPS backend out of memory (MPS allocated: 17.21 GiB, other allocations: 384.00 KiB, max allowed: 20.13 GiB). Tried to allocate 256.00 MiB on private pool.",
        {"backend": "MPS", "device": None, "requested": "256.00 MiB", "allowed": "20.13 GiB", "allocated": "17.21 GiB"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), MESSAGES, ids=range(len(MESSAGES)))
def test_messages(text: str, wanted: dict[str, Any]) -> None:
    oom = parse(text)
    assert oom is not None
    for name, value in wanted.items():
        given = getattr(oom, name)
        if name == "others":
            assert [(pid, size.text) for pid, size in given] == value
        else:
            assert (given.text if hasattr(given, "text") else given) == value, name


def test_bytes_are_exact() -> None:
    oom = parse(MESSAGES[2][0])
    assert oom is not None and oom.unallocated is not None
    # 20.00 MiB; 30.40 GiB - 30.29 GiB, each to the nearest byte of what is printed.
    assert oom.requested.bytes == 20 * MIB
    assert oom.unallocated.bytes == round(30.40 * GIB) - round(30.29 * GIB)


@pytest.mark.parametrize(
    "text",
    ["", "out of memory", "CUDA out of memory.", "Tried to allocate 3 GiB", "CUDA out of memory. Tried to allocate lots",
     "x" * 100_000 + "CUDA out of memory. Tried to allocate 2.00 GiB"],
)  # fmt: skip
def test_no_message(text: str) -> None:
    assert parse(text) is None


# memory_summary() of PyTorch's own function over given statistics: the text below was printed by it (see the test after it).
STATS = {"allocated_bytes": 61_203_283_968, "reserved_bytes": 78_000_000_000, "inactive_split_bytes": 9_663_676_416}


def own_summary(monkeypatch: pytest.MonkeyPatch) -> str:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    names = [
        "allocated_bytes",
        "active_bytes",
        "requested_bytes",
        "reserved_bytes",
        "inactive_split_bytes",
        "allocation",
    ]
    names += ["active", "segment", "inactive_split"]
    stats = {
        f"{name}.{pool}.{kind}": STATS.get(name, 1000) + (GIB if kind == "peak" else 0)
        for name in names
        for pool in ("all", "large_pool", "small_pool")
        for kind in ("current", "peak", "allocated", "freed")
    }
    stats |= {
        f"{name}.{kind}": 0
        for name in ("oversize_allocations", "oversize_segments")
        for kind in ("current", "peak", "allocated", "freed")
    }
    stats |= {"num_ooms": 2, "num_alloc_retries": 17}
    memory = sys.modules["torch.cuda.memory"]
    monkeypatch.setattr(memory, "memory_stats", lambda device=None: stats)
    monkeypatch.setattr(memory, "_get_device_index", lambda device, optional: 3)
    return str(torch.cuda.memory_summary())


@pytest.mark.torch
def test_summary_as_pytorch_prints_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = own_summary(monkeypatch)
    table = summary(text)
    assert table is not None
    assert (table.device, table.ooms, table.retries) == (3, 2, 17)
    for given, name in (
        (table.allocated, "allocated_bytes"),
        (table.reserved, "reserved_bytes"),
        (table.unreleasable, "inactive_split_bytes"),
    ):
        assert given is not None and 0 <= STATS[name] - given.bytes < MIB, name
    log = tmp_path / "train.log"
    log.write_text("step 1\n" + "".join(f"[rank3]: {line}\n" for line in text.splitlines()), encoding="utf-8")
    record = diagnose(DiagnoseRequest((str(log),), torch="2.13.0"))
    assert [one["id"] for one in record.extra["diagnoses"]] == ["allocator_retries"]
    assert record.extra["diagnoses"][0]["ranks"] == [3]
    numbers = {fact.id: (fact.value, fact.unit) for fact in record.facts}
    assert numbers["summary0.gpu3.allocated"] == (str(STATS["allocated_bytes"] >> 20), "MiB")
    assert numbers["summary0.gpu3.retries"] == (17, "")


@pytest.mark.parametrize("one", DIAGNOSES, ids=lambda one: one["id"])
def test_example_and_near_miss(one: dict[str, Any], tmp_path: Path) -> None:
    for name in ("example", "near_miss"):
        (tmp_path / f"{name}.log").write_text(one[name], encoding="utf-8")
    first = ids(tmp_path / "example.log")
    assert first and first[0] == one["id"]
    assert one["id"] not in ids(tmp_path / "near_miss.log")


# Public messages with what their threads show or their numbers allow: the first diagnosis and its confidence, written before any run.
READ = [
    # A language model server holds the GPU; PyTorch holds nothing.
    ('  File "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1326, in convert\n' + MESSAGES[3][0], "oom_other_process", "likely"),
    # 83.05 - 0.14 - 23.33 GiB are held by what this container does not see.
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 768.00 MiB. GPU 0 has a total capacity of 83.05 GiB of which 140.38 MiB is free. Including non-PyTorch memory, this process has 23.33 GiB memory in use. Of the allocated memory 21.92 GiB is allocated by PyTorch, with 104.00 MiB allocated in private pools (e.g., CUDA Graphs), and 797.79 MiB is reserved by PyTorch but unallocated.", "oom_other_process", "likely"),
    # One image of a vision model: 19.68 of 23.68 GiB in one tensor.
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 19.68 GiB. GPU 0 has a total capacity of 23.68 GiB of which 11.88 GiB is free. Including non-PyTorch memory, this process has 11.79 GiB memory in use. Of the allocated memory 11.44 GiB is allocated by PyTorch, and 43.59 MiB is reserved by PyTorch but unallocated.", "oom_one_large_tensor", "likely"),
    (MESSAGES[5][0], "oom_cuda_graph_pools", "likely"),
    # 1.16 GiB idle of 31.32 (4 %): less than a tenth, and more than the 86 MiB that were asked for.
    (MESSAGES[1][0], "fragmentation", "possible"),
    # 0.11 GiB idle of 30.40: nothing.
    (MESSAGES[2][0], "oom_capacity", "likely"),
    # Windows lends host memory to the GPU: more is allocated than there is.
    ("CUDA out of memory. Tried to allocate 90.00 MiB. GPU 0 has a total capacity of 15.99 GiB of which 0 bytes is free. Of the allocated memory 29.53 GiB is allocated by PyTorch, and 25.74 MiB is reserved by PyTorch but unallocated.", "oom_capacity", "likely"),
    ("RuntimeError: CUDA out of memory. Tried to allocate 376.00 MiB (GPU 0; 3.95 GiB total capacity; 1.72 GiB already allocated; 354.88 MiB free; 2.46 GiB reserved in total by PyTorch)", "fragmentation", "likely"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted", "confidence"), READ, ids=range(len(READ)))
def test_public_messages(text: str, wanted: str, confidence: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(text + "\n", encoding="utf-8")
    first = found(tmp_path / "train.log")["diagnoses"][0]
    assert (first["id"], first["confidence"]) == (wanted, confidence)


def test_all_of_them_are_decided_here() -> None:
    by_code = {one["id"] for one in DIAGNOSES if one.get("code") == "memory"}
    assert by_code == set(IDS)


def test_ranks_and_place_of_a_whole_traceback(tmp_path: Path) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/user/train.py", line 88, in train',
        "    optimizer.step()",
        '  File "/opt/venv/lib/python3.11/site-packages/torch/optim/adam.py", line 247, in step',
        "    adam(",
        '  File "/opt/venv/lib/python3.11/site-packages/torch/optim/adam.py", line 790, in _multi_tensor_adam',
        "    exp_avg_sq_sqrt = torch._foreach_sqrt(device_exp_avg_sqs)",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB. GPU 1 has a total capacity of 79.10 GiB of which 300.00 MiB is free. Including non-PyTorch memory, this process has 78.80 GiB memory in use. Of the allocated memory 76.90 GiB is allocated by PyTorch, and 410.00 MiB is reserved by PyTorch but unallocated.",
    ]
    log = tmp_path / "train.log"
    log.write_text("".join(f"[rank{rank}]: {line}\n" for rank in (1, 5) for line in lines), encoding="utf-8")
    record = diagnose(DiagnoseRequest((str(log),), torch="2.13.0"))
    first = record.extra["diagnoses"][0]
    assert first["id"] == "oom_optimizer_foreach" and first["ranks"] == [1, 5]
    assert first["place"] == "/home/user/train.py:88 in train"
    assert first["evidence"][0]["line"] == 8
    assert "torch/optim/adam.py:790 in _multi_tensor_adam" in first["evidence"][1]["text"]
    numbers = {fact.id: (fact.value, fact.unit) for fact in record.facts}
    assert numbers["oom.0.rank1.allocated"] == ("76.90", "GiB")
    assert numbers["oom.1.rank5.unallocated_share"][0] == f"{100 * 410 / (76.90 * 1024 + 410):.1f}"


def test_categories_of_stacks() -> None:
    assert {name: asked(stack).category for name, stack in STACKS.items()} == {name: name for name in STACKS}


@pytest.mark.torch
def test_stacks_of_real_training() -> None:
    """What FSDP2, FSDP1, an optimizer and state dicts really ask for, as their own stacks have it (2 processes, Gloo)."""
    pytest.importorskip("torch", reason="needs PyTorch")
    from tests.snippets import gloo

    seen = gloo.run(2, _watched)[0]
    wanted = {
        "build": {"place"},
        "forward": {"all_gather", "forward"},
        "loss": {"loss"},
        "backward": {"all_gather", "reduce_scatter", "backward"},
        "recompute": {"backward", "recompute"},
        "clip": {"clip"},
        "step": {"optimizer_state", "optimizer_step"},
        "full_tensor": {"full_tensor"},
        "get": {"state_dict"},
        "set": {"broadcast_full"},
        "fsdp1 forward": {"all_gather", "forward"},
        "fsdp1 backward": {"all_gather", "reduce_scatter", "backward"},
        "fsdp1 get": {"state_dict"},
        "fsdp1 summon": {"summon"},
    }
    assert {phase: set(of) for phase, of in seen.items()} == wanted


def _watched(rank: int) -> dict[str, list[str]]:
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.checkpoint import checkpoint

    from tests.snippets import gloo

    gloo.init()
    seen: dict[str, set[str]] = {}
    phase = [""]
    # Operators that make tensors, and collectives; views and bookkeeping ask for no memory.
    made = ("empty", "zeros_like", "addmm", "mm.default", "relu", "threshold", "foreach_sqrt", "foreach_norm", "clone", "log_softmax",
            "nll_loss", "all_gather", "allgather", "reduce_scatter", "broadcast", "uniform", "_to_copy", "copy_in", "stack.")  # fmt: skip

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(word in str(func) for word in made):
                stack, frame = [], sys._getframe(1)
                while frame is not None:
                    if frame.f_code.co_filename != __file__:
                        stack.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
                    frame = frame.f_back  # type: ignore[assignment]
                seen.setdefault(phase[0], set()).add(asked(stack).category)
            return func(*args, **(kwargs or {}))

    def linear() -> Any:
        return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())

    with Watch():
        phase[0] = "build"
        linear().to(torch.bfloat16)
    model = torch.nn.Sequential(linear(), linear())
    for module in model:
        fully_shard(module)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    inputs, targets = torch.ones(4, 16), torch.zeros(4, dtype=torch.long)
    full_options = StateDictOptions(full_state_dict=True)
    with Watch():
        phase[0] = "forward"
        out = model(inputs)
        phase[0] = "loss"
        loss = torch.nn.functional.cross_entropy(out, targets)
        phase[0] = "backward"
        loss.backward()
        phase[0] = "clip"
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        phase[0] = "step"
        optimizer.step()
        phase[0] = "full_tensor"
        for parameter in model.parameters():
            parameter.full_tensor()
        phase[0] = "get"
        state = get_model_state_dict(model, options=full_options)
        phase[0] = "set"
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(model, state, options=options)
    plain = linear()
    out = checkpoint(plain, inputs.requires_grad_(), use_reentrant=False)
    with Watch():
        phase[0] = "recompute"
        out.sum().backward()
    cpu = torch.device("cpu")
    units = [FullyShardedDataParallel(linear(), device_id=cpu) for _ in range(2)]
    old = FullyShardedDataParallel(torch.nn.Sequential(*units), device_id=cpu)
    with Watch():
        phase[0] = "fsdp1 forward"
        loss = old(torch.ones(4, 16)).sum()
        phase[0] = "fsdp1 backward"
        loss.backward()
        phase[0] = "fsdp1 get"
        with FullyShardedDataParallel.state_dict_type(old, StateDictType.FULL_STATE_DICT):
            old.state_dict()
        phase[0] = "fsdp1 summon"
        with FullyShardedDataParallel.summon_full_params(old):
            pass
    return {name: sorted(of) for name, of in seen.items()}


# Snapshots, all synthetic.
MADE = {"fragmented": fragmented, "full": full, "mixed": lambda: mixed()}


def mixed() -> Snapshot:
    made = Snapshot()
    made.segment(("all_gather", 30 * MIB), ("", 10 * MIB), ("reduce_scatter", 20 * MIB), ("pending", 4 * MIB))
    made.segment(("optimizer_state", 24 * MIB), ("no stack", 2 * MIB), ("backward", 38 * MIB), stream=7)
    return made.segment(("loss", 8 * MIB), ("", 12 * MIB), pool=(0, 1))


@pytest.mark.torch
@pytest.mark.parametrize("name", MADE)
def test_sums_are_those_of_pytorchs_own_reader(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    from torch.cuda import _memory_viz

    made = MADE[name]()
    content = pickle.loads(pickle.dumps(made.content()))  # noqa: S301 - made above
    snapshot = read(str(made.write(tmp_path / "snapshot.pickle")))
    (device,) = snapshot.devices
    # The tool that PyTorch ships says what it reads: it raises where sizes do not add up.
    text = _memory_viz.segsum(content)
    assert f"segments: {device.segments}\n" in text
    assert f"total_reserved: {_memory_viz.Bytes(device.reserved)}\n" in text
    assert f"total_allocated: {_memory_viz.Bytes(device.requested)}\n" in text
    assert "raise OutOfMemoryError" in _memory_viz.trace(content) or not snapshot.ooms
    lines: list[str] = []
    _memory_viz.memory(content, format_flamegraph=lambda text: lines.extend(text.splitlines()))
    by_state: dict[str, int] = {}
    for line in lines:
        stack, _, size = line.rpartition(" ")
        state = stack.split(";")[1]
        by_state[state] = by_state.get(state, 0) + int(size)
    assert by_state.get("active_allocated", 0) == device.allocated
    assert by_state.get("active_pending_free", 0) == device.pending
    assert by_state.get("inactive", 0) == device.unallocated


def test_what_a_snapshot_holds(tmp_path: Path) -> None:
    snapshot = read(str(mixed().write(tmp_path / "snapshot.pickle.gz")))
    (device,) = snapshot.devices
    assert (device.reserved, device.allocated, device.pending) == (148 * MIB, 122 * MIB, 4 * MIB)
    assert (device.unallocated, device.largest_free, device.free_blocks) == (22 * MIB, 12 * MIB, 2)
    assert device.private == 20 * MIB and device.allocated - device.requested == 600
    assert dict(device.categories) == {
        "backward": 38 * MIB, "all_gather": 30 * MIB, "optimizer_state": 24 * MIB, "reduce_scatter": 20 * MIB,
        "loss": 8 * MIB, "no stack": 2 * MIB,
    }  # fmt: skip
    places = {place.category: place.place for place in device.places}
    assert places["all_gather"] == "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py:351 in foreach_all_gather"


def test_fragmented_snapshot(tmp_path: Path) -> None:
    record = diagnose(DiagnoseRequest((str(fragmented().write(tmp_path / "rank3.pickle")),), torch="2.13.0"))
    first = record.extra["diagnoses"][0]
    assert (first["id"], first["confidence"], first["ranks"]) == ("fragmentation", "certain", [3])
    text = " ".join(line["text"] for line in first["evidence"])
    assert "20.00 GiB lie idle" in text and "has 512.00 MiB" in text and "1024.00 MiB were asked for" in text
    assert first["place"] == "/home/user/train.py:88 in train"
    numbers = {fact.id: fact.value for fact in record.facts}
    assert numbers["memory.rank3.gpu0.reserved"] == 60 * GIB
    assert numbers["memory.rank3.gpu0.unallocated"] == 20 * GIB
    assert numbers["memory.rank3.oom0.requested"] == GIB
    assert numbers["memory.rank3.oom0.device_free"] == 300 * MIB


def test_later_and_expandable_are_less_sure(tmp_path: Path) -> None:
    made = fragmented()
    made.oom("all_gather", GIB, 300 * MIB, later=True)
    assert found(made.write(tmp_path / "later.pickle"))["diagnoses"][0]["confidence"] != "certain"
    record = found(fragmented().write(tmp_path / "expandable.pickle", expandable_segments=True))
    by_id = {one["id"]: one["confidence"] for one in record["diagnoses"]}
    assert by_id["fragmentation"] == "possible"


@pytest.mark.parametrize(
    ("who", "asking", "wanted"),
    [
        ("forward", "forward", "oom_activations"),
        ("recompute", "backward", "oom_activations"),
        ("all_gather", "all_gather", "oom_all_gather_buffers"),
        ("reduce_scatter", "reduce_scatter", "oom_reduce_scatter_buffers"),
        ("other", "optimizer_state", "oom_optimizer_state"),
        ("other", "optimizer_step", "oom_optimizer_foreach"),
        ("other", "state_dict", "oom_full_state_dict_on_gpu"),
        ("other", "place", "oom_model_placement"),
    ],
)
def test_full_snapshot(who: str, asking: str, wanted: str, tmp_path: Path) -> None:
    diagnoses = found(full(who, asking).write(tmp_path / "snapshot.pickle"))["diagnoses"]
    assert (diagnoses[0]["id"], diagnoses[0]["confidence"]) == (wanted, "likely")
    assert "fragmentation" not in [one["id"] for one in diagnoses]
    assert diagnoses[-1]["id"] == "oom_capacity"


def test_a_snapshot_without_failure_is_none(tmp_path: Path) -> None:
    record = diagnose(DiagnoseRequest((str(mixed().write(tmp_path / "snapshot.pickle")),), torch="2.13.0"))
    assert record.extra["outcome"] == "no_failure" and not record.extra["diagnoses"]
    assert {fact.id: fact.value for fact in record.facts}["memory.gpu0.by.loss"] == 8 * MIB


def test_older_and_other_forms(tmp_path: Path) -> None:
    content = mixed().content()
    for segment in content["segments"]:  # up to 2.0
        for block in segment["blocks"]:
            stack = block.pop("frames")
            size = block.pop("requested_size")
            if block["state"] == "active_allocated":
                block["history"] = [{"addr": 0, "real_size": size, "frames": stack}]
            elif block["state"] == "active_pending_free":
                block["state"] = "active_awaiting_free"
    (tmp_path / "old.pickle").write_bytes(pickle.dumps(content, protocol=2))
    (tmp_path / "segments.pickle").write_bytes(pickle.dumps(mixed().segments))
    (tmp_path / "snapshot.json").write_text(json.dumps(mixed().content()), encoding="utf-8")
    wanted = read(str(mixed().write(tmp_path / "new.pickle"))).devices
    for name in ("old.pickle", "segments.pickle", "snapshot.json"):
        assert kind_of((tmp_path / name).read_bytes()[:4096]) == "memory snapshot", name
        assert read(str(tmp_path / name)).devices == wanted, name
    assert kind_of(gzip.compress((tmp_path / "new.pickle").read_bytes())[:4096]) == "memory snapshot"


class Hostile:
    def __reduce__(self) -> Any:
        return os.system, ("touch executed",)


def changed(change: Callable[[list[Any]], Any]) -> bytes:
    content = mixed().content()
    change(content["segments"])
    return pickle.dumps(content)


def many() -> bytes:
    """A segment of two million blocks, referred to forty times."""
    one = mixed().segments[0]
    return pickle.dumps({"segments": [{**one, "blocks": one["blocks"] * 500_000}] * 40})


def cyclic() -> bytes:
    around: list[Any] = []
    around.append(around)
    return pickle.dumps({"segments": around})


HOSTILE: dict[str, Callable[[], bytes]] = {
    "call": lambda: pickle.dumps({"segments": [Hostile()]}),
    "class": lambda: pickle.dumps({"segments": [Path("x")]}),
    "cut": lambda: pickle.dumps(mixed().content())[:2000],
    "noise": lambda: b"\x80\x04" + bytes(range(256)) + b"segments",
    "cyclic": cyclic,
    "deep": lambda: b"\x80\x04]" + b"(" * 50_000,
    "deep_json": lambda: b'{"segments": ' + b"[" * 200_000,
    "huge": lambda: changed(lambda segments: segments[0].update(total_size=10**30)),
    "negative": lambda: changed(lambda segments: segments[0]["blocks"][0].update(size=-1)),
    "sums": lambda: changed(lambda segments: segments[0]["blocks"].pop()),
    "state": lambda: changed(lambda segments: segments[0]["blocks"][0].update(state="allocated")),
    "types": lambda: pickle.dumps({"segments": [1, "a", None]}),
    "traces": lambda: pickle.dumps({"segments": [], "device_traces": [[{"action": "oom"}]]}),
    "many": many,
    "bomb": lambda: gzip.compress(b"\x80\x04segments" + b"\x00" * (270 << 20), 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_snapshots_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "snapshot.pickle").write_bytes(HOSTILE[name]())
    with pytest.raises(UnusableInput) as refused:
        read("snapshot.pickle")
    assert str(refused.value).startswith("snapshot.pickle") and "\n" not in str(refused.value)
    assert not (tmp_path / "executed").exists()


def test_every_cut_is_refused_or_whole(tmp_path: Path) -> None:
    good = pickle.dumps(mixed().content())
    for end in range(2, len(good) - 1, 97):
        (tmp_path / "cut.pickle").write_bytes(good[:end])
        with pytest.raises(UnusableInput):
            read(str(tmp_path / "cut.pickle"))


def test_damaged_beside_others(tmp_path: Path) -> None:
    fragmented().write(tmp_path / "rank0.pickle")
    (tmp_path / "rank1.pickle").write_bytes(pickle.dumps({"segments": [Hostile()]}))
    record = diagnose(DiagnoseRequest((str(tmp_path),), torch="2.13.0"))
    assert record.extra["diagnoses"][0]["id"] == "fragmentation"
    assert any("rank1.pickle is no plain dump" in line for line in record.not_done)


def test_log_and_snapshot_of_a_rank_are_one_diagnosis(tmp_path: Path) -> None:
    text = DIAGNOSES[0]["example"].strip()
    (tmp_path / "train.log").write_text(f"[rank5]: {text}\n", encoding="utf-8")
    fragmented().write(tmp_path / "rank3.pickle")
    diagnoses = found(tmp_path)["diagnoses"]
    assert [one["id"] for one in diagnoses].count("fragmentation") == 1
    first = diagnoses[0]
    assert (first["id"], first["confidence"], first["ranks"]) == ("fragmentation", "certain", [3, 5])
    assert {Path(line["file"]).name for line in first["evidence"]} == {"rank3.pickle", "train.log"}


def test_memory_stats(tmp_path: Path) -> None:
    stats = {"active.all.current": 5, "allocated_bytes.all.current": 70 * GIB, "allocated_bytes.all.peak": 75 * GIB}
    stats |= {
        "reserved_bytes.all.current": 78 * GIB,
        "reserved_bytes.all.peak": 79 * GIB,
        "num_alloc_retries": 12,
        "num_ooms": 0,
    }
    for rank, retries in ((0, 0), (1, 12)):
        (tmp_path / f"stats_rank{rank}.json").write_text(
            json.dumps({**stats, "num_alloc_retries": retries}), encoding="utf-8"
        )
    record = diagnose(DiagnoseRequest((str(tmp_path),), torch="2.13.0"))
    assert [(one["id"], one["ranks"]) for one in record.extra["diagnoses"]] == [("allocator_retries", [1])]
    numbers = {fact.id: fact.value for fact in record.facts}
    assert numbers["stats.rank0.peak_allocated"] == 75 * GIB and numbers["stats.rank1.alloc_retries"] == 12


@pytest.mark.parametrize(
    "head",
    [
        b"[rank0]: segments are allocated",
        b'{"step": 1, "max_memory_allocated": 3}',
        b"\x80\x04}(\x8c\x07version",
        b"\x1f\x8b\x08\x00",
        b"",
    ],
)
def test_what_is_no_snapshot(head: bytes) -> None:
    assert not is_snapshot(head)
    assert kind_of(head) not in ("memory snapshot", "memory stats", "trace")


KILLED = [
    "slurmstepd: error: Detected 1 oom_kill event in StepId=647226.7. Some of the step tasks have been OOM Killed.",
    "    Last State:     Terminated  Reason:  OOMKilled  Exit Code: 137",
    "[337533.31] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/job,task_memcg=/job,task=python,pid=23793,uid=0",
]


@pytest.mark.parametrize("line", KILLED)
def test_limits_of_host_memory(line: str, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(f"{line}\n", encoding="utf-8")
    assert ids(tmp_path / "job.log") == ["host_oom_cgroup"]


HEALTHY = [
    "step 10 | loss 2.31 | max memory allocated 71.2 GiB | out of memory guard: off",
    "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid out of memory errors",
    "Loading checkpoint shards: 100%|##########| 9/9 [04:50<00:00, 32.3s/it]",
    "|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |",
    "model.layers.0 in forward: 512 MiB, in backward: 1024 MiB",
    "batch size finder: batch of 64 ran out of memory, using 32",
    '            "OOMKilled": false,',
    "slurmstepd: info: Detected 0 oom_kill events in StepId=647226.7",
]


@pytest.mark.parametrize("line", HEALTHY)
def test_healthy_lines(line: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(f"{line}\ntraining finished\n", encoding="utf-8")
    assert found(tmp_path / "train.log")["outcome"] == "no_failure"
