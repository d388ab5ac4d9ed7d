"""What a file is by its first bytes: asked for every file of a request, so nothing else is imported here."""

from __future__ import annotations


def is_snapshot(head: bytes) -> bool:
    """Whether a file is a snapshot of the CUDA allocator: pickled, or written as JSON."""
    if head[:1] == b"\x80":
        return b"segments" in head[:64] or b"segment_type" in head[:4096] or b"device_traces" in head[:4096]
    if head[:200].lstrip()[:1] not in (b"{", b"["):
        return False
    return b'"segment_type"' in head[:4096] or b'"device_traces"' in head[:4096]


def is_trace(head: bytes) -> bool:
    """Whether a file is a trace of the profiler, in Chrome's format."""
    start = head[:200].lstrip()[:1]
    if start == b"{":
        return b'"traceEvents"' in head or (b'"schemaVersion"' in head and b'"deviceProperties"' in head)
    return start == b"[" and b'"ph"' in head and b'"ts"' in head


# Keys of torch.cuda.memory_stats(), flat and nested. Logs of training in JSON have others.
_STATS = (b'"active.all.', b'"allocated_bytes.all.', b'"allocated_bytes": {', b'"num_alloc_retries"')


def is_stats(head: bytes) -> bool:
    """Whether a file is ``torch.cuda.memory_stats()`` as JSON, of one rank or several."""
    return head[:200].lstrip()[:1] in (b"{", b"[") and any(word in head for word in _STATS)


# The first line of a stack: py-spy's process and thread, faulthandler's announcement and thread.
_STACK = (b"Process ", b"Thread ", b"Current thread 0x", b"Timeout (")
_IN_STACK = (b"\nPython v", b"(idle)", b"(active", b"(most recent call first):")


def is_stacks(head: bytes) -> bool:
    """Whether a file is a dump of stacks: py-spy's, as text or JSON, or faulthandler's."""
    start = head[:1000].lstrip()
    if start[:1] == b"[":
        return b'"thread_id"' in head and b'"frames"' in head
    return start.startswith(_STACK) and any(word in head[:2000] for word in _IN_STACK)


# How the reports of tools about the machine begin.
_REPORT = (
    b"Collecting environment information",
    b"PyTorch version: ",
    b"# nccl-tests version",
    b"# nThread ",
    b"==============NVSMI LOG",
)


def is_report(head: bytes) -> bool:
    """Whether a file begins with the report of a tool about the machine: collect_env, nvidia-smi, its topology, nccl-tests."""
    start = head[:1000].lstrip()
    return (
        start.startswith(_REPORT)
        or (b"NVIDIA-SMI " in start[:400] and b"Driver Version" in head)
        or (b"GPU0" in start[:200] and b"Affinity" in head)
        or (b", memory." in start[:400] and start.startswith((b"index,", b"name,", b"gpu_", b"uuid,", b"timestamp,")))
    )
