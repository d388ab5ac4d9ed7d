"""What looks like a mistake and is none: forms met in public programs, beside the mistake that they look like."""

from __future__ import annotations

import pytest

from shardguide.code.review.engine import review
from shardguide.knowledge import rule_store

ALL = frozenset(rule_store.codes())
DIST = "import torch\nimport torch.distributed as dist\n"
# code, name of the file, what is no mistake, what is one
FORMS = {
    "a deprecated function is the key of a table": (
        "FSD903",
        "train.py",
        DIST + "TABLE = {dist.all_gather_into_tensor: 1}\n",
        DIST + "gather = dist.all_gather_into_tensor\n",
    ),
    "a deprecated class is replaced": (
        "FSD903",
        "train.py",
        DIST + "torch.cuda.amp.GradScaler = None\n",
        DIST + "scaler = torch.cuda.amp.GradScaler()\n",
    ),
    "a deprecated argument is None": (
        "FSD905",
        "train.py",
        "from torch.nn.parallel import DistributedDataParallel as DDP\n\n\ndef f(m):\n    return DDP(m, broadcast_buffers=None)\n",
        "from torch.nn.parallel import DistributedDataParallel as DDP\n\n\ndef f(m):\n    return DDP(m, broadcast_buffers=False)\n",
    ),
    "bytes that the program has in hand": (
        "FSD704",
        "train.py",
        "import io\n" + DIST + "\n\ndef f(b):\n    part = io.BytesIO(b)\n    return torch.load(part, weights_only=False)\n",
        "import io\n" + DIST + "\n\ndef f(b):\n    part = open(b)\n    return torch.load(part, weights_only=False)\n",
    ),
    "a test loads what it has written": (
        "FSD704",
        "test_save.py",
        DIST + "\n\ndef test_save(p):\n    torch.save({}, p)\n    torch.load(p, weights_only=False)\n",
        "",
    ),
    "a file of each rank's own": (
        "FSD705",
        "train.py",
        DIST + 'dist.init_process_group("nccl")\nrank = dist.get_rank()\nstate = torch.load(f"state_{rank}.pt")\n',
        DIST + 'dist.init_process_group("nccl")\nrank = dist.get_rank()\nstate = torch.load("state.pt")\n',
    ),
    "one layer has no parts to shard apart": (
        "FSD403",
        "train.py",
        "from torch import nn\nfrom torch.distributed.fsdp import fully_shard\n\nmodel = nn.Linear(4, 4)\nfully_shard(model)\n",
        "from torch import nn\nfrom torch.distributed.fsdp import fully_shard\n\nmodel = nn.Transformer()\nfully_shard(model)\n",
    ),
    "DeepSpeed's launcher passes the argument": (
        "FSD114",
        "train.py",
        'import argparse\nimport deepspeed\nimport torch\n\nparser = argparse.ArgumentParser()\nparser.add_argument("--local_rank")\n',
        'import argparse\nimport torch\n\nparser = argparse.ArgumentParser()\nparser.add_argument("--local_rank")\n',
    ),
    "DataParallel is the way for one process, beside DDP": (
        "FSD510",
        "train.py",
        "import torch\nfrom torch import nn\n\n\ndef f(m, many):\n    if many:\n"
        "        return nn.parallel.DistributedDataParallel(m)\n    return nn.DataParallel(m)\n",
        "import torch\nfrom torch import nn\n\n\ndef f(m, many):\n    return nn.DataParallel(m)\n",
    ),
    "InfiniBand is off where EFA is in use": (
        "FSD042",
        "job.sbatch",
        "#!/bin/bash\n#SBATCH --nodes=2\nexport FI_PROVIDER=efa\nexport NCCL_IB_DISABLE=1\nsrun python train.py\n",
        "#!/bin/bash\n#SBATCH --nodes=2\nexport NCCL_IB_DISABLE=1\nsrun python train.py\n",
    ),
    "the rank of a LoRA matrix": (
        "FSD201",
        "train.py",
        DIST + "\n\ndef f(x, config):\n    if config.lora.rank > 0:\n        dist.all_reduce(x)\n",
        DIST + "\n\ndef f(x, config):\n    if config.rank > 0:\n        dist.all_reduce(x)\n",
    ),
    "below 0 there are no ranks": (
        "FSD201",
        "train.py",
        DIST + "\n\ndef f(local_rank):\n    if local_rank not in [-1, 0]:\n        dist.barrier()\n    yield\n"
        "    if local_rank == 0:\n        dist.barrier()\n",
        DIST + "\n\ndef f(local_rank):\n    if local_rank not in [-1, 0]:\n        dist.barrier()\n    yield\n",
    ),
    "the handler's collective stands under another test": (
        "FSD202",
        "train.py",
        DIST + "\n\ndef f(x, training):\n    try:\n        x.sqrt_()\n    except RuntimeError:\n        if training:\n            dist.all_reduce(x)\n",
        DIST + "\n\ndef f(x, training):\n    try:\n        x.sqrt_()\n    except RuntimeError:\n        dist.all_reduce(x)\n",
    ),
}  # fmt: skip


def codes(name: str, text: str, tmp_path) -> set[str]:
    (tmp_path / name).write_text(text)
    return {finding.code for finding in review((str(tmp_path / name),), "2.13", ALL).findings}


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_said_of_what_is_right(form: str, tmp_path) -> None:
    code, name, right, wrong = FORMS[form]
    assert code not in codes(name, right, tmp_path)
    if wrong:
        assert code in codes(name, wrong, tmp_path)


SCRIPT = """import torch
from torch.utils.data import DataLoader, DistributedSampler


def main(data):
    sampler = DistributedSampler(data)
    for epoch in range(3):
        {told}
        for batch in DataLoader(data, sampler=sampler):
            print(batch)


if __name__ == "__main__":
    main([])
"""


def test_one_script_that_calls_set_epoch_does_not_speak_for_another(tmp_path) -> None:
    (tmp_path / "one.py").write_text(SCRIPT.format(told="sampler.set_epoch(epoch)"))
    (tmp_path / "other.py").write_text(SCRIPT.format(told="pass"))
    found = [(one.path[-8:], one.code) for one in review((str(tmp_path),), "2.13", ALL).findings]
    assert found == [("other.py", "FSD801")]


OFFLOAD = """import torch.distributed as dist
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard


def main(model):
    dist.init_process_group("nccl")
    for block in model.blocks:
        fully_shard(block, offload_policy=CPUOffloadPolicy())
    fully_shard(model, offload_policy=CPUOffloadPolicy())
"""


def test_the_backend_of_another_program_does_not_matter_to_an_offloaded_model(tmp_path) -> None:
    (tmp_path / "train.py").write_text(OFFLOAD)
    (tmp_path / "generate.py").write_text('import torch.distributed as dist\n\ndist.init_process_group("nccl")\n')
    found = [one.path[-8:] for one in review((str(tmp_path),), "2.13", ALL).findings if one.code == "FSD414"]
    assert found == ["train.py"]


STALE = """import torch
from torch.distributed.fsdp import fully_shard


def follow(optimizer, model):
    for group in optimizer.param_groups:
        group["params"] = list(model.parameters())


def build(model, repair):
    optimizer = torch.optim.AdamW(model.parameters())
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
{told}    return model, optimizer
"""


@pytest.mark.parametrize(
    ("told", "said"),
    [("    follow(optimizer, model)\n", []), ("    if repair:\n        follow(optimizer, model)\n", [False])],
)
def test_an_optimizer_that_is_given_its_new_parameters(told: str, said: list[bool], tmp_path) -> None:
    (tmp_path / "train.py").write_text(STALE.format(told=told))
    found = [one.certain for one in review((str(tmp_path),), "2.13", ALL).findings if one.code == "FSD401"]
    assert found == said
