"""The pages for people: the answer first, said once, with what to do next, and no wider than the window."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardguide.frontends.render.blocks import Table
from shardguide.frontends.render.plain import render

from .conftest import FULL, ROOT, Shardguide

LOG = ROOT / "tests" / "docs" / "logs" / "killed.log"
WRONG = 'import torch.distributed as dist\n\n\ndef main():\n    dist.init_process_group("gloo", group_name="train")\n'
PAGES = [
    FULL, ["plan", "7b", "--gpus", "8", "--torch", "2.13"],
    ["backend", "--device", "cuda", "--interconnect", "infiniband", "--os", "linux", "--torch", "2.13"],
    ["join", "--with", "ddp,zero", "--uneven", "yes", "--on-exhausted", "drain", "--collectives", "no", "--torch", "2.13"],
    ["fsdp2", "--goal", "memory", "--using", "fsdp1", "--torch", "2.13"], ["explain", "gradient-clipping", "--torch", "2.13"],
    ["ask", "how do I clip gradients with fsdp2?", "--torch", "2.13"], ["diagnose", str(LOG), "--torch", "2.13"],
]  # fmt: skip


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("arguments", PAGES, ids=lambda one: one[0])
def test_a_page_fits_its_window(shardguide: Shardguide, arguments: list[str], columns: int) -> None:
    """Code (four blanks, as it is to be pasted), paths and addresses may be wider; nothing ends in blanks."""
    shardguide.env["COLUMNS"] = str(columns)
    ran = shardguide(*arguments)
    assert ran.status in (0, 3), ran.err
    for line in ran.out.splitlines():
        assert line == line.rstrip(), line
        wide = len(line) > columns and not line.startswith("    ") and not re.search(r"https?://|/\w+/\w+/", line)
        assert not wide, line


def test_a_diagnosis_says_its_title_once_and_asks_for_a_yes(shardguide: Shardguide) -> None:
    ran = shardguide("diagnose", str(LOG), "--torch", "2.13")
    title, _, rest = ran.out.partition("\n")
    assert title.partition(" · ")[0] not in rest
    assert rest.index("fix ") < rest.index(f"{LOG}:")  # what to do before the lines that show it
    identity = re.search(r"Confirm with: shardguide approve ([0-9a-f]+)", " ".join(rest.split()))
    assert identity and shardguide("approve", identity[1]).status == 0
    assert f"Approved: {identity[1]}." in shardguide("diagnose", str(LOG), "--torch", "2.13").out


def test_a_call_that_is_wrong_comes_first(shardguide: Shardguide) -> None:
    call = "dist.init_process_group('nccl', init_method='tcp://10.0.0.1:2222')"
    ran = shardguide("init", "--call", call, "--torch", "2.13")
    assert 0 < ran.out.index("rank and world_size must be passed") < ran.out.index("Decisions")


@pytest.mark.parametrize("command", ["review", "migrate"])
def test_what_can_be_written_says_by_which_command(shardguide: Shardguide, command: str) -> None:
    path = Path(shardguide.folder / "train.py")
    path.write_text(
        WRONG if command == "review"
        else "from torch.distributed.fsdp import FullyShardedDataParallel\n\n\ndef f(m):\n    return FullyShardedDataParallel(m)\n"
    )  # fmt: skip
    ran = shardguide(command, "train.py", "--torch", "2.13")
    said = re.search(r"shardguide apply ([0-9a-f]+) writes", " ".join(ran.out.split()))
    assert said and "1 file," in ran.out and "1 files" not in ran.out
    before = path.read_text()
    assert shardguide("apply", said[1], "--yes").status == 0 and path.read_text() != before


def test_a_wide_table_is_wrapped_where_that_helps() -> None:
    rows = (("a", "one two three four five six"), ("b", "seven"))
    assert render([Table(("", "words"), rows)], 20).splitlines() == [
        "               words",
        "  a    one two three",
        "       four five six",
        "  b            seven",
    ]
    wide = (("a", "x" * 40),)
    assert max(map(len, render([Table(("", "words"), wide)], 20).splitlines())) == 45  # nothing to wrap at
