"""What collectives get, and when: sources in groups, sizes, devices, work under way, losses, averages, barriers, threads."""

from __future__ import annotations

import textwrap

import pytest

from shardguide.code.review.engine import review
from shardguide.knowledge import rule_store

HEAD = "import torch\nimport torch.distributed as dist\n"
RULES = frozenset(code for code in rule_store.codes() if "FSD203" < code < "FSD250")

CASES = [
    # a group of each turn, of a part of a mesh, of all ranks
    ("for ranks, group in zip(a, b):\n    dist.broadcast(x, src=0, group=group)", ["FSD214"]),
    ("for ranks, group in zip(a, b):\n    dist.broadcast(x, src=ranks[0], group=group)", []),
    ("for ranks, group in zip(a, b):\n    dist.broadcast(x, group_src=0, group=group)", []),
    ("g = dist.new_group(list(range(4, 8)))\ndist.reduce(x, 0, group=g)", ["FSD214"]),
    ("g = dist.new_group(ranks=[0, 1])\ndist.reduce(x, 0, group=g)", []),
    ("g = dist.new_group(a)\ndist.reduce(x, 0, group=g)", []),
    ("g = dist.group.WORLD\ndist.broadcast(x, 0, group=g)", []),
    # sizes that differ
    ("y = torch.zeros(3 + dist.get_rank())\ndist.all_gather(b, y)", ["FSD224"]),
    ("y = x[x > 0]\ndist.all_gather(b, y)", ["FSD224"]),
    ("y = x[a]\ndist.all_gather(b, y)", []),
    ("y = torch.nn.functional.pad(torch.nonzero(x), a)\ndist.all_gather(b, y)", []),
    # work under way
    ("w = dist.all_reduce(x, async_op=True)\nprint(x.sum())\nw.wait()", ["FSD217"]),
    ("w = dist.all_reduce(x, async_op=True)\nn = x.shape\nw.wait()", []),
    ("w = dist.all_reduce(x, async_op=True)\nx = a\nw.wait()", []),
    ("w = dist.all_reduce(x, async_op=True)\na.append(w)\nx += 1", []),
    ("w = dist.isend(x, 1)\nprint(x)\nw.wait()", []),
    ("w = dist.isend(x, 1)\nx.zero_()\nw.wait()", ["FSD217"]),
    ("w = dist.all_gather(a, x, async_op=True)\nprint(x)\nw.wait()", []),
    ("w = dist.all_reduce(x, async_op=True)\nv = dist.all_reduce(b, group=a, async_op=True)\nw.wait()\nv.wait()", ["FSD216"]),
    ("w = dist.all_reduce(x, async_op=True)\nv = dist.all_reduce(b, async_op=True)\nw.wait()\nv.wait()", []),
    # losses and averages
    ("loss = x.mean()\ndist.all_reduce(loss)\nprint(loss)", []),
    ("loss = x.mean()\nloss.backward()\ndist.all_reduce(loss)", []),
    ("loss = x.mean()\ndist.all_reduce(loss)\nloss = a(x)\nloss.backward()", []),
    ("x /= world_size\ndist.all_reduce(x)\nx /= world_size", ["FSD222"]),
    ("x /= world_size\ndist.all_reduce(x)", []),
    ("dist.all_reduce(x, op=dist.ReduceOp.AVG)\nx /= a", []),
    # barriers
    ("for e in a:\n    for y in b:\n        y.backward()\n        e.step()\n    dist.barrier()", []),
    ("for y in b:\n    y.backward()\n    a.step()\n    if a:\n        dist.barrier()", []),
    # point to point
    ("dist.send(x, dst=1)\ndist.recv(x, src=0)", []),
    ("if dist.get_rank() == 0:\n    dist.send(x, dst=1)\nelse:\n    dist.recv(x, src=0)", []),
    # groups of one's own
    ("dist.new_group([dist.get_rank()], use_local_synchronization=True)", []),
    ("dist.new_group(list(range(dist.get_world_size())))", []),
]  # fmt: skip


@pytest.mark.parametrize("body, codes", CASES)
def test_what_collectives_get(tmp_path, body: str, codes: list[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + "def f(x, a, b, world_size):\n" + textwrap.indent(body, "    ") + "\n")
    assert [one.code for one in review((str(path),), "2.13", RULES).findings] == codes


NCCL = HEAD + "dist.init_process_group({backend})\n{before}\ndef f(x):\n    dist.all_reduce({given})\n"


@pytest.mark.parametrize(
    "backend, before, given, found",
    [
        ('"nccl"', "", "torch.zeros(1)", True),
        ('"nccl"', "", "x.cpu()", True),
        ('"nccl"', "", 'torch.zeros(1, device="cpu")', True),
        ('"nccl"', "", "torch.zeros(1, device=x.device)", False),
        ('"nccl"', "", "torch.zeros(1).cuda()", False),
        ('"nccl"', "", "x", False),
        ('"gloo"', "", "torch.zeros(1)", False),
        ('"cpu:gloo,cuda:nccl"', "", "torch.zeros(1)", False),
        ('"nccl" if torch.cuda.is_available() else "gloo"', "", "torch.zeros(1)", False),
        ('"nccl"', 'torch.set_default_device("cuda")', "torch.zeros(1)", False),
        ('"nccl"', "", "torch.zeros(1), group=x", False),
    ],
)
def test_cpu_tensors_under_nccl(tmp_path, backend: str, before: str, given: str, found: bool) -> None:
    (tmp_path / "train.py").write_text(NCCL.format(backend=backend, before=before, given=given))
    codes = [one.code for one in review((str(tmp_path),), "2.13", frozenset(["FSD215"])).findings]
    assert codes == (["FSD215"] if found else [])
