"""A hundred mistakes of set-up, DDP, data loading and API in many spellings, and correct programs that look like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardguide.code.review.engine import review
from shardguide.knowledge import rule_store

tomllib = pytest.importorskip("tomllib")  # the product runs on 3.10; its tests' data are TOML

DATA = tomllib.loads((Path(__file__).parent / "variants.toml").read_text(encoding="utf-8"))


def codes(text: str, folder: Path, release: str = "2.13") -> set[str]:
    (folder / "train.py").write_text(text)
    result = review((str(folder / "train.py"),), release, rule_store.applying(release))
    assert not result.problems
    return {finding.code for finding in result.findings}


def test_the_correct_program(tmp_path) -> None:
    assert codes(DATA["base"], tmp_path) == set()


@pytest.mark.parametrize("at", range(len(DATA["variant"])))
def test_variant(at: int, tmp_path) -> None:
    one, text = DATA["variant"][at], DATA["base"]
    for old, new in one["change"]:
        assert old in text
        text = text.replace(old, new)
    assert one["code"] in codes(text, tmp_path)


HEAD = "import os\nimport torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
QUIET = {
    "the trainers beside a parameter server": """
rank = int(os.environ["RANK"])
if rank < 2:
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = DDP(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    dist.destroy_process_group()
""",
    "a device by the rank within the machine": """
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
""",
    "an API that is asked for first": """
def gather(out, x):
    if hasattr(dist, "all_gather_single"):
        dist.all_gather_single(out, x)
    else:
        dist.all_gather_into_tensor(out, x)


try:
    from torch.distributed.checkpoint._hf_storage import HuggingFaceStorageReader
except ImportError:
    HuggingFaceStorageReader = None


def build(version):
    if torch.__version__ < "2.6":
        raise ValueError(version)
    from torch.distributed._composable.fsdp import fully_shard

    return fully_shard
""",
    "a rank that grows in a loop": """
def ranks(rank, size):
    rank = rank + size
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    url = "tcp://"
    url = url + "host"
    return url
""",
    "parameters that change before DDP": """
def build(module):
    for parameter in module.parameters():
        parameter.requires_grad = False
    module.head = torch.nn.Linear(2, 2)
    return DDP(module.to(torch.bfloat16))
""",
    "names that every release exports though no index lists them": """
from torch.distributed import *
from torch.distributed.fsdp.fully_sharded_data_parallel import BackwardPrefetch, ShardingStrategy
""",
}


@pytest.mark.parametrize("name", QUIET)
def test_correct_programs_are_quiet(name: str, tmp_path) -> None:
    assert codes(HEAD + QUIET[name], tmp_path) == set()


def test_missing_names_of_classes_in_C_are_not_claimed(tmp_path) -> None:
    """The index knows of ``Store.clone`` since 2.14 only, from a stub; older releases may have it too."""
    assert codes("import torch.distributed as dist\n\nprint(dist.Store.clone)\n", tmp_path) == set()


def test_modules_of_other_releases(tmp_path) -> None:
    text = "from torch.distributed.checkpoint._hf_storage import HuggingFaceStorageReader\n"
    assert codes(text, tmp_path, "2.7") == set() and codes(text, tmp_path, "2.6") == {"FSD909"}
