"""Lines that belong together are one answer, on any terminal and in a pipe; pages fit the window and end where their words end."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from shardguide.frontends.chat import lines

from .test_terminal import ESCAPES, MODEL, PASTED, Person, folder

__all__ = ["folder"]  # the fixture

MESSAGE = "RuntimeError: trying to initialize the default process group twice!"
PLAIN = f'{PASTED}:\n  File "train.py", line 3, in <module>\n    main()\n{MESSAGE}\n'
RANKS = "".join(f"[rank{rank}]: {line}\n" for rank in (0, 1) for line in PLAIN.splitlines())
CHAINED = f"{PASTED}:\n  File \"a.py\", line 1, in f\nKeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n{PLAIN}"


@pytest.mark.parametrize("log", [PLAIN, RANKS, CHAINED], ids=["plain", "ranks", "chained"])
def test_a_traceback_in_a_pipe_is_one_answer(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"plan\n{log}draft\nquit"))
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    got = [lines.read("> ", ()) for _ in range(4)]
    assert got == ["plan", log.rstrip("\n"), "draft", "quit"]
    with pytest.raises(EOFError):
        lines.read("> ", ())


def test_a_traceback_is_read_whole_by_the_command(folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "shardguide", "chat", "--torch", "2.13", "--notebook", str(folder / "n.db")],
        input=f"{PLAIN}draft\n", cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "Certain: group_initialised_twice" in ran.stdout and "Not known here" not in ran.stdout


def test_a_paste_that_the_terminal_does_not_mark(folder: Path) -> None:
    me = Person(folder, "chat", "--torch", "2.13")
    me.sees("help shows more.")
    me.child.send(RANKS.replace("\n", "\r"))
    me.sees("group_initialised_twice")
    me.sees("ask on.")
    me.says("bye")
    text = me.ends()
    assert "Not known here" not in text and "In a conversation" not in text


def test_what_is_typed_ahead_stays_apart(folder: Path) -> None:
    me = Person(folder, "chat", "--torch", "2.13")
    me.sees("help shows more.")
    me.child.send("backend\rcuda\rethernet\r")
    me.sees("operating system")
    me.says("quit")
    me.ends()


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_a_page_fits_the_window_and_has_no_blanks_behind_its_words(folder: Path, term: str) -> None:
    width = 60
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "SHARDGUIDE_HOME": str(folder / "s"),
        "LC_ALL": "C.UTF-8",
        "TERM": term,
    }
    child = pexpect.spawn(
        sys.executable, ["-m", "shardguide", "plan", str(MODEL), "--gpus", "16", "--nodes", "2", "--torch", "2.13", "--no-input"],
        cwd=str(folder), env=env, encoding="utf-8", timeout=60, dimensions=(50, width),
    )  # fmt: skip
    child.expect(pexpect.EOF)
    page = ESCAPES.sub("", child.before).split("\n")
    assert len(page) > 20
    assert not [line for line in page if line != line.rstrip() and not line.startswith("    ")]
    prose = [line for line in page if not re.search(r"\S{30}", line)]
    assert max(map(len, prose)) <= width
