"""Values: what names stand for over methods, calls, containers, decorators and files."""

from __future__ import annotations

import textwrap

import pytest

from shardguide.code.review.engine import review

HEAD = "import torch\nimport torch.distributed as dist\n"


def test_the_optimizer_of_another_method(tmp_path) -> None:
    """Values over the methods of one class, whose order run() gives."""
    text = """
        from torch.distributed.fsdp import fully_shard

        class Trainer:
            def __init__(self, model):
                self.model = model

            def shard(self):
                for block in self.model.blocks:
                    fully_shard(block)
                fully_shard(self.model)

            def optimize(self):
                self.optimizer = torch.optim.AdamW(self.model.parameters())

            def run(self):
                self.{one}()
                self.{other}()
        """
    for one, other, lines in (("optimize", "shard", [14]), ("shard", "optimize", [])):
        (tmp_path / "train.py").write_text(HEAD + textwrap.dedent(text.format(one=one, other=other)))
        result = review((str(tmp_path),), "2.13", frozenset(["FSD401"]))
        assert [(finding.line - 2, finding.certain) for finding in result.findings] == [(n, True) for n in lines]


FLOWS = {
    "a tuple that is returned": """
        def build(m):
            model = FSDP(m)
            return model, torch.optim.SGD(model.parameters())

        def main(m):
            model, optimizer = build(m)
            model.state_dict() if dist.get_rank() == 0 else None
        """,
    "a dictionary": """
        def main(m):
            state = {"model": FSDP(m), "step": 0}
            if dist.get_rank() == 0:
                state["model"].state_dict()
        """,
    "a dataclass": """
        from dataclasses import dataclass

        @dataclass
        class Config:
            model: object
            step: int = 0

        def main(m):
            config = Config(model=FSDP(m))
            if dist.get_rank() == 0:
                config.model.state_dict()
        """,
    "a namespace": """
        from types import SimpleNamespace

        def main(m):
            held = SimpleNamespace(model=FSDP(m))
            if dist.get_rank() == 0:
                held.model.state_dict()
        """,
    "keywords handed on": """
        def save(step, model=None):
            if dist.get_rank() == 0:
                model.state_dict()

        def outer(*args, **kwargs):
            save(*args, **kwargs)

        def main(m):
            outer(1, model=FSDP(m))
        """,
    "arguments handed on": """
        def save(step, model):
            if dist.get_rank() == 0:
                model.state_dict()

        def outer(*args):
            save(*args)

        def main(m):
            outer(1, FSDP(m))
        """,
    "partial": """
        from functools import partial

        def save(step, model):
            if dist.get_rank() == 0:
                model.state_dict()

        def main(m):
            later = partial(save, model=FSDP(m))
            later(1)
        """,
    "a decorator of the project": """
        def first_only(function):
            def wrapper(*args, **kwargs):
                if dist.get_rank() == 0:
                    return function(*args, **kwargs)
            return wrapper

        @first_only
        def save(model):
            model.state_dict()

        def main(m):
            save(FSDP(m))
        """,
    "getattr": """
        def main(m):
            model = FSDP(m)
            take = getattr(model, "state_dict", None)
            if dist.get_rank() == 0:
                take()
        """,
    "a method of a base class": """
        class Base:
            def save(self):
                if dist.get_rank() == 0:
                    self.model.state_dict()

        class Trainer(Base):
            def __init__(self, m):
                self.model = FSDP(m)

        def main(m):
            Trainer(m).save()
        """,
}


@pytest.mark.parametrize("name", FLOWS)
def test_values_are_followed(tmp_path, name: str) -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    (tmp_path / "train.py").write_text(HEAD + head + textwrap.dedent(FLOWS[name]))
    result = review((str(tmp_path),), "2.13", frozenset(["FSD701"]))
    assert [(one.code, one.certain) for one in result.findings] == [("FSD701", True)]


def test_a_helper_without_a_word_of_torch(tmp_path) -> None:
    (tmp_path / "helper.py").write_text("def only_first(args):\n    return args.rank == 0\n")
    body = "from helper import only_first\n\ndef f(args):\n    if only_first(args):\n        dist.barrier()\n"
    (tmp_path / "train.py").write_text(HEAD + body)
    result = review((str(tmp_path),), "2.13", frozenset(["FSD201"]))
    assert [(one.line, one.code, one.certain) for one in result.findings] == [(7, "FSD201", False)]


def test_imports_are_read_alike() -> None:
    """By the review and by what reads a current program."""
    import ast

    from shardguide.code.imports import bind_imports
    from shardguide.code.syntax import Names

    text = """
import torch.distributed as dist, os.path
from . import a, b as c
from .. import d
from ..e import f
from .g import *
from torch import nn
try:
    from one import x
except ImportError:
    from two import x
"""
    imports: dict[str, str] = {}
    stars: list[str] = []
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            bind_imports(node, imports, stars)
    assert imports == {
        "dist": "torch.distributed", "os": "os", "a": ".a", "c": ".b", "d": "..d", "f": "..e.f", "nn": "torch.nn",
        "x": "one.x",
    }  # fmt: skip
    names = Names(tree, text)
    assert (names.imports, names.stars) == (imports, stars) and stars == [".g"]
