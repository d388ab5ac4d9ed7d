"""Gloo processes that hang, each case in another way: python train.py CASE OUT RANKS PORT. See ../make_stacks.py."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(3600)
        return torch.zeros(4)


def evaluate():
    dist.barrier()


def preprocess():
    time.sleep(3600)


def synchronise(t):
    dist.all_reduce(t)


def write(path, state):
    torch.save(state, path)


def hold():
    sum(range(10**12))


def slow_backend(module, inputs):
    time.sleep(3600)
    return module.forward


def main(case, rank, world, out):
    if case == "setup" and rank == world - 1:
        preprocess()
    dist.init_process_group("gloo")
    t = torch.ones(4)
    dist.all_reduce(t)
    if case == "faulthandler":
        file = open(out / f"rank{rank}.log", "w")  # noqa: SIM115, PTH123
        faulthandler.dump_traceback_later(4, file=file)
    if case in ("sleep", "faulthandler"):
        preprocess() if rank == 2 else synchronise(t)
    elif case == "different":
        evaluate() if rank == 1 else synchronise(t)
    elif case in ("loader", "loader_inline"):
        loader = DataLoader(Slow(), num_workers=1 if case == "loader" else 0)
        batches = iter(loader)
        next(batches) if rank == 1 else synchronise(t)
    elif case == "saving":
        if rank == 0:
            os.mkfifo(out / "left.pt")
            write(out / "left.pt", {"w": torch.zeros(1 << 20)})
        evaluate()
    elif case == "same":
        time.sleep(3600) if rank == world - 1 else synchronise(t)
    elif case == "gil":
        if rank == 1:
            threading.Thread(target=hold, daemon=True).start()
            time.sleep(1)
        synchronise(t)
    elif case == "compiling":
        model = torch.compile(nn.Linear(4, 4), backend=slow_backend)
        if rank == 0:
            model(t)
        synchronise(t)
    elif case == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        for part in (model[0], model[2], model):
            fully_shard(part)
        if rank == 2:
            preprocess()
        model(torch.ones(2, 8)).sum().backward()
    elif case == "ddp":
        model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
        loss = model(torch.ones(2, 8)).sum()
        if rank == 2:
            preprocess()
        loss.backward()
    elif case == "debugger":
        if rank == 0:
            read, _ = os.pipe()
            sys.stdin = os.fdopen(read)
            import pdb

            pdb.set_trace()
        synchronise(t)
    elif case == "wait":
        if rank == 0:
            work = dist.irecv(t, 1)
            work.wait()
        evaluate()
    elif case == "ended":
        if rank == 1:
            keeps = threading.Thread(target=preprocess)
            keeps.start()
            return
        synchronise(t)


if __name__ == "__main__":
    case, out, world, port = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    pids = []
    for rank in range(world):
        pid = os.fork()
        if not pid:
            os.environ["RANK"] = str(rank)
            main(case, rank, world, out)
            sys.exit()
        pids.append(pid)
    print(*pids, flush=True)
    time.sleep(3600)
