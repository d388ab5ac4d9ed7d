"""Make the traces of tests/diagnose/traces again: PyTorch's profiler over DDP on two CPU processes with Gloo.

    python -m tests.diagnose.make_traces

``late``: rank 1 sleeps 30 ms in every step before its forward. ``even``: no rank does. Host name and paths are replaced; all
numbers are as the profiler wrote them, so they differ from run to run.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "traces"


def _body(rank: int, folder: str, sleeps: float) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    from tests.snippets import gloo

    gloo.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(256, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 8),
    ]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=3)) as profiler:
        for _ in range(5):
            if rank == 1:
                time.sleep(sleeps)
            model(torch.randn(64, 256)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json")


def main() -> None:
    import torch  # noqa: F401 - before the forks

    from tests.snippets import gloo

    HERE.mkdir(exist_ok=True)
    for name, sleeps in (("late", 0.03), ("even", 0.0)):
        with tempfile.TemporaryDirectory() as folder:
            gloo.run(2, lambda rank, folder=folder, sleeps=sleeps: _body(rank, folder, sleeps))  # type: ignore[misc]
            for rank in range(2):
                trace: dict[str, Any] = json.loads(Path(folder, f"rank{rank}.json").read_text(encoding="utf-8"))
                trace["host_name"] = "localhost"
                trace["traceName"] = f"rank{rank}.json"
                target = HERE / f"{name}-rank{rank}.json.gz"
                target.write_bytes(gzip.compress(json.dumps(trace, indent=1).encode(), mtime=0))


if __name__ == "__main__":
    main()
