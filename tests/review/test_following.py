"""What is followed: methods that are kept and called later, functions that are handed over, properties, objects that are called."""

from __future__ import annotations

import pytest
from tests.review.test_engine import look

HEAD = "import torch\nimport torch.distributed as dist\nimport helpers\n\n"
# A mistake that shows only where it is known what is called: line 5 of the class, in whatever file.
WORKER = """\
import torch.distributed as dist

class Worker:
    def step(self, main):
        if main:
            dist.barrier()

    def run(self, main):
        work = self.step
        work(main)

    def __call__(self, main):
        self.step(main)

    @property
    def main(self):
        return dist.get_rank() == 0
"""


@pytest.mark.parametrize(
    "body",
    [
        "worker = helpers.Worker()\nstep = worker.step\nstep(dist.get_rank() == 0)\n",
        "helpers.Worker().run(dist.get_rank() == 0)\n",
        "worker = helpers.Worker()\nworker(dist.get_rank() == 0)\n",
        "worker = helpers.Worker()\nworker.step(worker.main)\n",
        "def call(f, *given):\n    f(*given)\n\ncall(helpers.Worker().step, dist.get_rank() == 0)\n",
        "from functools import partial\npartial(helpers.Worker().step, dist.get_rank() == 0)()\n",
        "from functools import partial\npartial(helpers.Worker().step, main=dist.get_rank() == 0)()\n",
        "class Own:\n    def __init__(self):\n        self.work = helpers.Worker().step\n\n"
        "    def go(self):\n        self.work(dist.get_rank() == 0)\n\nOwn().go()\n",
        "steps = {'a': helpers.Worker().step}\nsteps['a'](dist.get_rank() == 0)\n",
        "step = helpers.Worker().step if torch.cuda.is_available() else None\nstep(dist.get_rank() == 0)\n",
    ],
)
def test_a_method_that_is_called_later(tmp_path, body: str) -> None:
    assert ("helpers.py", 6, "FSD201", True) in look(tmp_path, train=HEAD + body, helpers=WORKER)


@pytest.mark.parametrize(
    "body",
    [
        "import helpers\n\ndef call(f):\n    f(dist.get_rank() == 0)\n\ncall(helpers.step)\n",
        "from helpers import step as work\n\nwork(dist.get_rank() == 0)\n",
        "from helpers import step\n\ndef main(f):\n    f(dist.get_rank() == 0)\n\nif __name__ == '__main__':\n    main(step)\n",
    ],
)
def test_a_function_of_another_file_that_is_handed_over(tmp_path, body: str) -> None:
    helper = "import torch.distributed as dist\n\ndef step(main):\n    if main:\n        dist.barrier()\n"
    text = "import torch.distributed as dist\n" + body
    assert ("helpers.py", 5, "FSD201", True) in look(tmp_path, train=text, helpers=helper)


def test_the_forward_of_a_model_runs_where_the_model_is_called(tmp_path) -> None:
    text = """\
        import os
        import torch
        import torch.distributed as dist

        class Net(torch.nn.Module):
            def forward(self, x):
                dist.all_reduce(x)
                return x

        net = Net()
        if int(os.environ["RANK"]) == 0:
            net(torch.ones(1))
        """
    assert look(tmp_path, train=text) == [("train.py", 7, "FSD201", True)]


def test_methods_that_only_others_call_are_read_too(tmp_path) -> None:
    """An object that is handed to a library: its methods run, though nothing here calls them."""
    text = """\
        import torch.distributed as dist
        from library import Trainer

        class Task:
            def __init__(self):
                self.rank = dist.get_rank()

            def after_step(self):
                if self.rank == 0:
                    dist.barrier()

        Trainer(Task()).fit()
        """
    assert look(tmp_path, train=text) == [("train.py", 10, "FSD201", True)]


def test_a_property_that_asks_for_itself_ends(tmp_path) -> None:
    text = """\
        import torch.distributed as dist

        class A:
            @property
            def rank(self):
                return self.rank or dist.get_rank()

        if A().rank == 0:
            dist.barrier()
        """
    look(tmp_path, train=text)


def test_names_of_the_module_are_seen_in_its_functions_and_those_of_a_caller_are_not(tmp_path) -> None:
    text = """\
        import torch.distributed as dist
        from os import environ
        rank = int(environ["RANK"])

        def inner():
            if rank == 0:
                dist.barrier()

        def outer():
            main = rank == 0
            other(0)

        def other(flag):
            if main:
                dist.barrier()

        inner()
        outer()
        """
    assert look(tmp_path, train=text) == [("train.py", 7, "FSD201", True)]


@pytest.mark.parametrize(
    "line, expected",
    [
        ("        return len(str(x).strip())", "matched"),
        ("        print(x)\n        return again(x)", "matched"),
        ("        return elsewhere.work(x)", "unknown"),
        ("        return x.mean()", "unknown"),
    ],
)
def test_helpers_that_only_print_leave_nothing_open(tmp_path, line: str, expected: str) -> None:
    text = f"""\
import torch.distributed as dist
import elsewhere

def main(x):
    if dist.get_rank() == 0:
        tell(x)
    dist.barrier()

if True:
    def tell(x):
{line}

def again(x):
    return sorted(x, key=abs)
"""
    from shardguide.code.review.engine import review

    (tmp_path / "train.py").write_text(text)
    (verdict,) = review((str(tmp_path),), "", frozenset()).collectives
    assert verdict.verdict == expected


def test_the_other_branchs_value_of_an_attribute_is_none_of_this_one(tmp_path) -> None:
    text = """\
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        def build(holder, distributed):
            if distributed:
                holder.model = DDP(holder.model)
            else:
                holder.model = holder.model.cuda()
            return holder
        """
    assert "FSD514" not in [code for _, _, code, _ in look(tmp_path, train=text)]


def test_an_optimizer_that_a_method_makes_of_grouped_parameters(tmp_path) -> None:
    text = """\
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        class GPT(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.head = torch.nn.Linear(4, 4)
                self.head.weight = self.tied = torch.nn.Parameter(torch.zeros(4, 4))
                self.me = [self]

            def optimizer(self):
                named = {name: p for name, p in self.named_parameters()}
                named = {name: p for name, p in named.items() if p.requires_grad}
                decay = [p for name, p in named.items() if p.dim() >= 2]
                rest = [p for name, p in named.items() if p.dim() < 2]
                return torch.optim.AdamW([{"params": decay}, {"params": rest, "weight_decay": 0.0}])

        def train(policy):
            model = GPT()
            optimizer = model.optimizer()
            if torch.cuda.is_available():
                model = FSDP(model, auto_wrap_policy=policy)
            return model, optimizer
        """
    assert ("train.py", 16, "FSD302", False) in [(*one[:3], False) for one in look(tmp_path, train=text)]


SAMPLER = """\
from torch.utils.data import DataLoader, DistributedSampler
{imports}

def loader(dataset, config):
    return DataLoader(dataset, sampler=DistributedSampler(dataset))
{more}
"""


@pytest.mark.parametrize(
    "imports, more, expected",
    [
        ("from deepspeed.ops.adam import FusedAdam", "", True),
        ("import deepspeed", "def start(m):\n    return deepspeed.initialize(model=m)", True),  # it gives no epoch
        ("import lightning", "", False),
        ("from accelerate import Accelerator", "", False),
        ("from transformers import Trainer", "", False),
    ],
)
def test_who_gives_a_sampler_its_epoch(tmp_path, imports: str, more: str, expected: bool) -> None:
    found = look(tmp_path, train=SAMPLER.format(imports=imports, more=more))
    assert any(code == "FSD801" for _, _, code, _ in found) is expected


@pytest.mark.parametrize(
    "imports, more, expected",
    [
        ("from deepspeed.ops.adam import FusedAdam", "", True),
        ("import deepspeed", "print(deepspeed.__version__)", True),
        ("import deepspeed", "deepspeed.init_distributed()", False),
        ("from deepspeed import initialize", "", False),
        ("import deepspeed as ds", "engine = ds.initialize()", False),
    ],
)
def test_where_deepspeed_trains_processes_are_its_own_affair(tmp_path, imports: str, more: str, expected: bool) -> None:
    text = f"import torch.distributed as dist\n{imports}\n{more}\nif __name__ == '__main__':\n    dist.init_process_group('nccl')\n"
    found = look(tmp_path, train=text)
    assert any(code == "FSD106" for _, _, code, _ in found) is expected
