"""Hostile and broken Python: one sentence for each file that cannot be read, bounded time and memory, and the rest goes on."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardguide.code.review.engine import review
from shardguide.knowledge import rule_store

ALL = frozenset(code for code in rule_store.codes() if not code.startswith("FSD0"))
GOOD = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.all_reduce(x)\n"
T = b"import torch\n"

# What is in the file, and words of the one sentence that is said of it.
BROKEN: dict[str, tuple[bytes, str]] = {
    "brackets": (T + b"x = " + b"(" * 5000 + b")" * 5000, "nested"),
    "brackets that don't close": (T + b"x = " + b"[" * 100_000, ""),
    "minus": (T + b"x = " + b"-" * 3000 + b"1\n", "nested"),
    "not": (T + b"x = " + b"not " * 3000 + b"1\n", "nested"),
    "sums": (T + b"x = " + b"+".join([b"1"] * 20_000) + b"\n", "nested"),
    "attributes": (T + b"x = a" + b".b" * 20_000 + b"\n", "nested"),
    "calls": (T + b"x = f" + b"()" * 20_000 + b"\n", "nested"),
    "lambdas": (T + b"x = " + b"lambda: " * 3000 + b"1\n", "nested"),
    "chains of else": (T + b"if a: pass\n" + b"elif b: pass\n" * 5000, "nested"),
    "null": (T + b"x = '\x00'\n", ""),
    "latin": (T + b"x = '\xe9'\n", ""),
    "surrogates": (T + b"x = '\xed\xa0\x80'\n", ""),
    "Python 2": (T + b"print 'x'\n", "not valid Python 3"),
    "exec": (T + b"exec 'x' in {}\n", "not valid Python 3"),
    "tabs": (T + b"if x:\n\ty\n        z\n", "not valid Python 3"),
    "merge": (T + b"<<<<<<< HEAD\nx = 1\n=======\nx = 2\n>>>>>>> other\n", "not valid Python 3"),
    "half": (T + b"def f(:\n", "not valid Python 3"),
    "a string without end": (T + b"x = '''" + b"a\n" * 1000, "not valid Python 3"),
    "a number": (T + b"x = " + b"9" * 100_000 + b"\n", ""),
    "of tomorrow": (T + b"match = 1\ntype X[T = int] = list[T]\nimport lazy torch\n", "not valid Python 3"),
    "long": (T + b"x = [1, 2, 3]\n" * 200_000, ""),
    "wide": (T + b"x = [" + b"1, " * 400_000 + b"]\n", ""),
    "pickle": (b"\x80\x04torch", ""),
    "gzip": (b"\x1f\x8btorch", ""),
}
# What is odd and can be read.
ODD: dict[str, bytes] = {
    "empty": b"",
    "a byte order mark": b"\xef\xbb\xbf" + T,
    "a comment": b"# torch",
    "utf-16": "import torch\nx = 1\n".encode("utf-16"),
    "blocks": T + b"".join(b" " * i + b"if x:\n" for i in range(99)) + b" " * 99 + b"pass\n",
    "form feeds": T + b"\x0c\nx = 1\n",
    "carriage returns": b"import torch\rx = 1\r",
    "identifiers": "import torch\nπ = 'ä'; \u02b0x = torch.ones(1)\n".encode(),
    "a long line": T + b"x = '" + b"a" * 300_000 + b"'\n",
    "many names": T + b"".join(b"a%d = a%d\n" % (i, i - 1) for i in range(20_000)),
    "stars": b"from torch.distributed import *\nfrom . import *\nfrom .. import *\nfrom bad import *\nbarrier()\n",
    "itself": b"import torch\nfrom bad import f as f\nfrom .bad import g\nf = f\ng(f(f))\n",
    "classes of each other": T + b"class A(B):\n  pass\nclass B(A):\n  pass\nA().f()\nB().parameters()\n",
    "recursion": T + b"def f(x):\n  return g(x)\ndef g(x):\n  return f(x)\nf(torch.distributed.barrier())\n",
    "decorators": T + b"def d(f):\n  def w(*a):\n    return f(*a)\n  return w\n@d\ndef d2(f):\n  return d2(f)\nd2(d)\n",
    "calls of calls": T + b"".join(
        b"def f%d(m):\n  f%d(m); f%d(m); f%d(m)\n" % (i, i + 1, i + 1, i + 1) for i in range(60)
    ) + b"def f60(m):\n  torch.distributed.barrier()\nf0(1)\n",
    "ranks of ranks": b"import torch.distributed as dist\nr = dist.get_rank()\n" + b"".join(
        b"if r == %d:\n  dist.barrier()\n" % (i % 7) for i in range(800)
    ),
    "starred": T + b"def f(*a, **k):\n  f(*a, *a, **k, **k)\nf(*[1], **{'a': f})\n",
    "many functions": T + b"".join(b"def f%d():\n  torch.distributed.barrier()\n" % i for i in range(5000)),
    "matches": T + b"match x:\n" + b"".join(b"  case %d:\n    torch.distributed.barrier()\n" % i for i in range(150)),
}  # fmt: skip


def look(tmp_path: Path, data: bytes, seconds: float = 8.0):
    (tmp_path / "bad.py").write_bytes(data)
    (tmp_path / "good.py").write_text(GOOD)
    start = time.process_time()
    result = review((str(tmp_path),), "2.13", ALL)
    assert time.process_time() - start < seconds
    assert ("good.py", 3, "FSD201") in {(Path(one.path).name, one.line, one.code) for one in result.findings}
    for problem in result.problems:
        assert problem.why.strip() and "\n" not in problem.why and len(problem.why) < 300 and problem.why.endswith(".")
    return result


@pytest.mark.parametrize("name", BROKEN)
def test_one_sentence_and_the_rest_goes_on(tmp_path: Path, name: str) -> None:
    data, words = BROKEN[name]
    result = look(tmp_path, data)
    assert [Path(one.path).name for one in result.problems] == ["bad.py"]
    assert words in result.problems[0].why


@pytest.mark.parametrize("name", ODD)
def test_odd_and_readable(tmp_path: Path, name: str) -> None:
    result = look(tmp_path, ODD[name])
    assert all("followed" in one.why for one in result.problems)


def mutated(text: str, chance: random.Random) -> bytes:
    """A program with a few bytes or lines lost, doubled, exchanged or replaced."""
    data = bytearray(text.encode())
    lines = text.split("\n")
    kind = chance.randrange(6)
    if kind == 0:
        for _ in range(chance.randrange(1, 20)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    elif kind == 1:
        at = chance.randrange(len(data))
        del data[at : at + chance.randrange(1, 200)]
    elif kind == 2:
        one, other = sorted(chance.sample(range(len(lines)), 2))
        lines[one], lines[other] = lines[other], lines[one]
        return "\n".join(lines).encode()
    elif kind == 3:
        at = chance.randrange(len(lines))
        lines[at:at] = [" " * chance.randrange(9) + lines[chance.randrange(len(lines))].strip()] * chance.randrange(
            1, 30
        )
        return "\n".join(lines).encode()
    elif kind == 4:
        words = ("dist", "model", "rank", "optimizer", "self", "x", "None", "0", "*args", "lambda: 0", "[]", "f()")
        one, other = chance.choice(words), chance.choice(words)
        return text.replace(one, other, chance.randrange(1, 9)).encode()
    else:
        at = chance.randrange(len(data))
        data[at:at] = bytes(
            chance.choice((b"(", b")", b":", b"\n    ", b"'''", b"#", b"\\", b"{")) * chance.randrange(1, 9)
        )
    return bytes(data)


def programs() -> list[str]:
    """The examples of the rules, and the programs that explain shows."""
    rules = [rule_store.get(code) for code in rule_store.codes()]
    folder = Path(rule_store.__file__).parent / "patterns"
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))]
    return texts + [text for rule in rules for text in (rule.wrong, rule.right) if "import" in text]


def fuzz(seed: int, rounds: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    texts = programs()
    folder = tmp_path / "fuzz"
    folder.mkdir()
    for i in range(rounds):
        parts = chance.sample(texts, 3)  # functions of one program may call those of another by name
        (folder / f"m{i}.py").write_bytes(mutated("\n".join(parts), chance))
    start = time.process_time()
    result = review((str(folder),), "2.13", ALL)
    assert time.process_time() - start < 5 + rounds / 20
    assert result.files == rounds and result.findings
    assert all(problem.why.endswith(".") and "\n" not in problem.why for problem in result.problems)


def test_mutations(tmp_path: Path) -> None:
    fuzz(5, 300, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_mutations(tmp_path: Path, seed: int) -> None:
    fuzz(100 + seed, 1000, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("data", [b"x = 1\n" * 9_000_000, T + b"x = 1\n" * 1_000_000, b"\x00" * 50_000_000])
def test_huge_files_cost_neither_time_nor_memory(tmp_path: Path, data: bytes) -> None:
    """50 MB, and a generated file of a million lines, with one GiB of address space."""
    (tmp_path / "huge.py").write_bytes(data)
    (tmp_path / "good.py").write_text(GOOD)
    limit = 1 << 30
    ran = subprocess.run(
        [sys.executable, "-m", "shardguide", "review", str(tmp_path), "--torch", "2.13"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert ran.returncode in (1, 2) and "Traceback" not in ran.stderr
    assert "FSD201" in ran.stdout and "huge.py" in ran.stdout + ran.stderr
