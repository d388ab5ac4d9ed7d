"""How fast ``shardguide diagnose`` reads a long log of many ranks, and how much memory that takes; grep beside it.

    python benchmarks/diagnose_logs.py [--megabytes 2000] [--folder DIR]

Every row is a fresh process over a log that is made here: 64 ranks, training lines, NCCL INFO lines, progress bars, colours,
warnings, and at the end a rank that runs out of memory while the others wait for it. MB/s is the log's size divided by user
plus system time of the whole process, start-up included. Status 1 when a limit is exceeded or the diagnosis is wrong.
"""

# Few imports: a process that is started inherits the peak memory of the one that starts it (see README.md).
from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from run import interpreter, once

RANKS = 64
CULPRIT = 17
LEAST = 200  # MB/s a core
MOST = 80  # MB
GROWTH = 1.15  # of peak memory, from a tenth of the log to the whole
POOL = 8 << 20  # bytes of different lines; the log repeats them

_TRACEBACK = """\
[rank{r}]: Traceback (most recent call last):
[rank{r}]:   File "/workspace/train.py", line 412, in <module>
[rank{r}]:     main()
[rank{r}]:   File "/workspace/train.py", line 388, in main
[rank{r}]:     loss = model(batch["input_ids"], labels=batch["labels"]).loss
[rank{r}]:   File "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1780, in _wrapped_call_impl
[rank{r}]:     return self._call_impl(*args, **kwargs)
[rank{r}]:   File "/opt/venv/lib/python3.12/site-packages/torch/nn/functional.py", line 3504, in cross_entropy
[rank{r}]:     return torch._C._nn.cross_entropy_loss(
[rank{r}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 15.66 GiB. GPU 1 has a total capacity of 79.11 GiB \
of which 9.30 GiB is free. Including non-PyTorch memory, this process has 69.80 GiB memory in use. Of the allocated memory \
66.52 GiB is allocated by PyTorch, and 1.02 GiB is reserved by PyTorch but unallocated.
"""
_WAITS = """\
[rank{r}]:[E1129 14:22:31.{r:06d} ProcessGroupNCCL.cpp:685] [Rank {r}] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=48211, OpType=_ALLGATHER_BASE, NumelIn=27264000, NumelOut=1744896000, Timeout(ms)=600000) ran for 600041 \
milliseconds before timing out.
[rank{r}]:[E1129 14:22:31.{r:06d} ProcessGroupNCCL.cpp:2238] [PG ID 0 PG GUID 0(default_pg) Rank {r}] failure detected by \
watchdog at work sequence id: 48211 PG status: last enqueued work: 48214, last completed work: 48210
"""


def pool() -> list[bytes]:
    """Lines of the usual kinds, POOL bytes of them, one list entry for each rank's turn."""
    draw = random.Random(4)
    out, size, step = [], 0, 0
    while size < POOL:
        step += 1
        for rank in range(RANKS):
            host, local = f"node-{rank // 8:02d}", rank % 8
            lines = [
                f"[rank{rank}]: 2026-11-29 12:{step // 60 % 60:02d}:{step % 60:02d},{draw.randrange(1000):03d} - train - INFO - "
                f"step {step} loss {3 * draw.random():.4f} grad_norm {draw.random():.3f} lr 1.00e-04 "
                f"tokens/s {draw.randrange(9000, 11000)} memory 61.2GiB({draw.random():.2f}%)"
            ]
            kind = draw.random()
            if kind < 0.10:
                peer = (rank + 1) % RANKS
                lines.append(
                    f"{host}:{1000 + rank}:{2000 + rank} [{local}] NCCL INFO Channel {draw.randrange(16):02d}/0 : {rank}[{local}] -> "
                    f"{peer}[{peer % 8}] via P2P/CUMEM/read"
                )
            elif kind < 0.13:
                bars = [
                    f"Epoch 1:  {at}%|{'█' * (at // 10):<10}| {at}/100 [00:{at:02d}<00:10, 3.2it/s]"
                    for at in range(0, 100, 20)
                ]
                lines.append("\r".join(bars))
            elif kind < 0.15:
                lines.append(
                    f"\x1b[32m[default{local}]:INFO\x1b[0m \x1b[1mcheckpoint written\x1b[0m in {draw.random():.2f} s"
                )
            elif kind < 0.153:
                lines.append(
                    f"[rank{rank}]: /opt/venv/lib/python3.12/site-packages/torch/utils/data/dataloader.py:627: UserWarning: This "
                    "DataLoader will create 16 worker processes in total."
                )
            out.append(("\n".join(lines) + "\n").encode())
            size += len(out[-1])
    return out


def pieces(size: int) -> Iterator[bytes]:
    """The log in pieces, about ``size`` bytes."""
    whole = b"".join(pool())
    for _ in range(size // len(whole)):
        yield whole
    yield whole[: whole.rfind(b"\n", 0, size % len(whole)) + 1]
    yield _TRACEBACK.format(r=CULPRIT).encode()
    yield "".join(_WAITS.format(r=rank) for rank in range(RANKS) if rank != CULPRIT).encode()


def write(path: Path, size: int) -> None:
    """The log of that size, written by a process of its own, so that this one stays small."""
    pid = os.fork()
    if pid == 0:
        with path.open("wb") as file:
            file.writelines(pieces(size))
        os._exit(0)
    os.waitpid(pid, 0)


def command(python: str, path: Path, notebook: Path) -> list[str]:
    options = ["--json", "--torch", "2.13", "--no-input", "--executor", "serial", "--notebook", str(notebook)]
    return [python, "-m", "shardguide", "diagnose", str(path), *options]


def culprits(call: list[str]) -> list[int]:
    """The ranks of the first diagnosis."""
    record = json.loads(subprocess.run(call, capture_output=True, check=True).stdout)
    ranks: list[int] = record["diagnoses"][0]["ranks"]
    return ranks


def words(path: Path) -> int:
    """The fragments that diagnose looks for, as grep's pattern file; returns how many."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        from shardguide.knowledge.diagnosis_store import words as known

        found = known()
        path.write_text("\n".join(one for one in found if "\n" not in one) + "\n", encoding="utf-8")
        os.write(writing, str(len(found)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return int(os.read(reading, 20))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the log (default 2000)")
    parser.add_argument("--folder", help="where the log is made (default: the system's folder for temporary files)")
    arguments = parser.parse_args()
    python = interpreter()
    good = True
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        patterns = Path(folder) / "words"
        count = words(patterns)
        print(f"Python {sys.version.split()[0]}; {RANKS} ranks in one log; {count} words are looked for")
        print(f"{'':<34}{'MB':>8}{'CPU s':>9}{'MB/s':>9}{'peak MB':>10}")
        peaks = []
        for size in (arguments.megabytes // 10, arguments.megabytes):
            log = Path(folder) / "train.log"
            write(log, size * 10**6)
            megabytes = log.stat().st_size / 1e6
            call = command(python, log, Path(folder) / "notebook.db")
            cpu, memory = once(call, False, dict(os.environ))
            right = size >= 1000 or culprits(call) == [
                CULPRIT
            ]  # the end is the same, so the short log answers for both
            fast = size < 1000 or megabytes / cpu >= LEAST
            peaks.append(memory)
            good = good and right and fast and memory <= MOST * 10**6
            remark = ("" if right else "  WRONG RANK") + ("" if fast else "  SLOW")
            print(
                f"{'shardguide diagnose':<34}{megabytes:>8.0f}{cpu:>9.2f}{megabytes / cpu:>9.0f}{memory / 1e6:>10.1f}{remark}"
            )
        for name, call in (
            (
                "grep -c -F -f words",
                ["/usr/bin/env", "LC_ALL=C", "grep", "-a", "-c", "-F", "-f", str(patterns), str(log)],
            ),
            ("wc -l", ["/usr/bin/env", "LC_ALL=C", "wc", "-l", str(log)]),
        ):
            cpu, memory = once(call, False, dict(os.environ))
            print(f"{name:<34}{megabytes:>8.0f}{cpu:>9.2f}{megabytes / cpu:>9.0f}{memory / 1e6:>10.1f}")
    if peaks[1] > GROWTH * peaks[0]:
        print(f"memory grows with the log: {peaks[0] / 1e6:.1f} MB, then {peaks[1] / 1e6:.1f} MB")
        good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
