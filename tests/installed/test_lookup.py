"""Words are found inside the right definition, by the fast look-up and by following imports."""

import pytest

from shardguide.guidance.record import Release, Reopened
from shardguide.installed import lookup, resolve, signature, verify
from shardguide.installed.lookup import Place, Tree
from shardguide.knowledge import claims_store

SOURCE = '''"""Module words: alpha beta."""
import os
from typing import overload


@overload
def run(a: int) -> int: ...


@overload
def run(a: str) -> str: ...


@some.decorator(1)
def run(
    a,
    *,
    b=None,
):
    """
    Runs the words gamma
    delta over two lines.
    """
    # a comment that goes
    # on in the next line
    return a


class Box(Base):
    """Box words."""

    def open(self, wide: bool = True) -> None:
        """Opens epsilon."""

        def run():
            return "inner zeta"

    async def close(self): return "eta words"


class Boxes:
    def open(self):
        """Another theta."""


if True:
    def guarded(): return "iota words"
else:
    def guarded(): return "kappa words"

CONSTANT = "lambda words"
'''


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "m.py").write_text(SOURCE)
    return Tree(str(tmp_path))


@pytest.mark.parametrize(
    ("definition", "words", "line"),
    [
        ("", "alpha beta", 1),
        ("", "lambda words", 51),
        ("run", "gamma delta over", 21),
        ("run", "def run( a, *, b=None, ):", 15),
        ("run", "def run(a: str) -> str: ...", 11),
        ("run", "goes on in the next line", 24),
        ("Box", "Box words", 30),
        ("Box", "Opens epsilon", 33),
        ("Box.open", "Opens epsilon", 33),
        ("Box.open", "inner zeta", 36),
        ("Box.close", "eta words", 38),
        ("Boxes.open", "Another theta", 43),
        ("guarded", "iota words", 47),
        ("guarded", "kappa words", 49),
    ],
)
def test_found_inside(tree, definition, words, line):
    assert tree.search("torch/m.py", definition, (words,)) == line


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ("run", "alpha beta"),
        ("run", "Box words"),
        ("Box", "Another theta"),
        ("Box.open", "eta words"),
        ("Boxes", "Opens epsilon"),
        ("Boxes.close", "eta words"),
        ("Box.none", "Opens epsilon"),
        ("none", "alpha beta"),
        ("Bo", "Box words"),
        ("run", "gamma  delta"),
    ],
)
def test_not_found_elsewhere(tree, definition, words):
    assert tree.search("torch/m.py", definition, (words,)) is None


def test_alternatives_and_places(tree):
    places = (Place("torch.new", "torch/new.py", "run"), Place("torch.m.run", "torch/m.py", "run"))
    hit = lookup.find(tree, places, ("not there", "gamma delta"))
    assert hit is not None and hit.place.object == "torch.m.run" and hit.reopened == Reopened("torch/m.py", 21)
    assert lookup.missing(tree, places[:1]) and not lookup.missing(tree, places)


def test_unreadable_files(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "binary.py").write_bytes(b"\xff\xfe\x00def run(): 'words here'")
    (tmp_path / "torch" / "huge.py").write_text("def run(): 'words here'\n" + "#" * lookup.LIMIT)
    (tmp_path / "torch" / "loop.py").symlink_to("loop.py")
    (tmp_path / "torch" / "folder.py").mkdir()
    tree = Tree(str(tmp_path))
    assert tree.search("torch/binary.py", "", ("words here",)) == 1  # broken bytes do not hide the rest
    for name in ("huge", "loop", "folder", "none", "nul\0"):
        assert tree.search(f"torch/{name}.py", "", ("words here",)) is None


def package(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(str(folder))


def test_names_are_followed_through_imports(tmp_path):
    tree = package(
        tmp_path,
        {
            "torch/__init__.py": "import torch.distributed\nfrom torch import distributed as distributed\n",
            "torch/distributed/__init__.py": "from .core import *\nfrom . import fsdp\nif True:\n    from .core import _late as late\n",
            "torch/distributed/core.py": (
                "__all__ = ['start']\ndef start(a, b=1): ...\ndef _late(): ...\nalias = start\n"
                "class Base:\n    def shared(self, x): ...\nclass Child(Base):\n    pass\n"
            ),
            "torch/distributed/fsdp/__init__.py": "from .shard import shard\nfrom torch.distributed.core import start as begin\n",
            "torch/distributed/fsdp/shard.py": "def shard(module, *, mesh=None): ...\n",
            "torch/cycle.py": "from torch.cycle import thing\nfrom torch.elcyc import other\n",
            "torch/elcyc.py": "from torch.cycle import other\n",
            "torch/broken.py": "def (:\n",
        },
    )
    resolver = resolve.Resolver(tree)

    def where(name):
        found = resolver.find(name)
        return found and (found.file, found.name)

    assert where("torch.distributed.start") == ("torch/distributed/core.py", "start")
    assert where("torch.distributed.late") == ("torch/distributed/core.py", "_late")
    assert where("torch.distributed.core.alias") == ("torch/distributed/core.py", "start")
    assert where("torch.distributed.fsdp.shard") == ("torch/distributed/fsdp/shard.py", "shard")  # hides the submodule
    assert where("torch.distributed.fsdp.begin") == ("torch/distributed/core.py", "start")
    assert where("torch.distributed.core.Child.shared") == ("torch/distributed/core.py", "Base.shared")
    assert where("torch.distributed.fsdp") == ("torch/distributed/fsdp/__init__.py", "")
    for name in ("torch.cycle.thing", "torch.cycle.other", "torch.broken.x", "torch.distributed.none", "nothing"):
        assert where(name) is None
    call = signature.signature(resolver, resolver.find("torch.distributed.fsdp.shard"))
    assert call == (("module", None), ("*", None), ("mesh", "None"))


def test_a_definition_that_moved_is_found_under_its_name(tmp_path):
    """As in a release later than this knowledge."""
    name = "clip.foreach"
    (words,) = claims_store.get(name).sources
    package(
        tmp_path,
        {
            "torch/__init__.py": "",
            "torch/nn/__init__.py": "from torch.nn import utils as utils\n",
            "torch/nn/utils/__init__.py": "from .elsewhere import clip_grad_norm_\n",
            "torch/nn/utils/elsewhere.py": f'\n\ndef clip_grad_norm_(parameters):\n    """{words.anchors[0]}"""\n',
        },
    )
    claim = verify.claims([name], Release("2.16.0", "installed", str(tmp_path)))[name]
    assert claim.status == "found" and claim.sources[0].reopened == Reopened("torch/nn/utils/elsewhere.py", 4)


SIGNATURES = """
import enum
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, overload

@dataclass
class Parent:
    first: int
    second: list = field(default_factory=list)

@dataclass(frozen=True)
class Child(Parent):
    third: str = "x"
    kind: ClassVar[int] = 3
    hidden: int = field(default=1, init=False)
    last: bool = field(default=False, kw_only=True)

class Row(NamedTuple):
    a: int
    b: int = 2

class Colour(enum.Enum):
    RED = 1

class Plain(Child):
    def __init__(self, x, /, y=1, *rest, z, w=(1, 2), **more): ...
    @staticmethod
    def static(a): ...
    @classmethod
    def build(cls, a): ...
    @property
    def size(self): ...

class Derived(Plain):
    pass
"""


def test_signatures(tmp_path):
    resolver = resolve.Resolver(package(tmp_path, {"torch/s.py": SIGNATURES}))

    def call(name):
        return signature.signature(resolver, resolver.find(f"torch.s.{name}"))

    assert call("Child") == (("first", None), ("second", "list()"), ("third", "'x'"), ("*", None), ("last", "False"))
    assert call("Row") == (("a", None), ("b", "2"))
    assert call("Colour") is None
    plain = (("x", None), ("/", None), ("y", "1"), ("*rest", None), ("z", None), ("w", "(1, 2)"), ("**more", None))
    assert call("Plain") == plain and call("Derived") == plain
    assert call("Plain.static") == (("a", None),) and call("Plain.build") == (("a", None),)
    assert call("Plain.size") is None
