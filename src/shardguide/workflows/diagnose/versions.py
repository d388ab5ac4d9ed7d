"""Versions that the logs themselves say: of PyTorch, NCCL, CUDA, the driver and Python (collect_env's report, NCCL's first line)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardguide.guidance.hints import Any
from shardguide.readers.logs.records import Evidence

_VALUE = r"\s*(?P<version>\d[\w.+-]{0,40})"
_SAID = (
    ("PyTorch", re.compile(r"^\s*PyTorch version\s*:" + _VALUE)),
    ("CUDA (build)", re.compile(r"^\s*CUDA used to build PyTorch\s*:" + _VALUE)),
    ("CUDA (installed)", re.compile(r"^\s*CUDA runtime version\s*:" + _VALUE)),
    ("ROCm (build)", re.compile(r"^\s*ROCM used to build PyTorch\s*:" + _VALUE)),
    ("NVIDIA driver", re.compile(r"^\s*Nvidia driver version\s*:" + _VALUE)),
    ("Python", re.compile(r"^\s*Python version\s*:" + _VALUE)),
    ("NCCL", re.compile(r"\bNCCL version" + _VALUE)),
)
MOST = 24


def from_logs(logs: Sequence[Evidence]) -> list[dict[str, Any]]:
    """Every version that is said, once each, with the first place; two of one kind are both listed."""
    out: dict[tuple[str, str], dict[str, Any]] = {}
    for log in logs:
        for event in log.events:
            if "version" not in event.text and "used to build" not in event.text:
                continue
            for what, pattern in _SAID:
                found = pattern.search(event.text)
                if found and len(out) < MOST:
                    version = found["version"].rstrip(".")
                    out.setdefault(
                        (what, version), {"what": what, "version": version, "file": event.file, "line": event.line}
                    )
    return list(out.values())
