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
