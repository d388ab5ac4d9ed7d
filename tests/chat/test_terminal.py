"""The conversation on a real terminal (a pseudo-terminal with prompt_toolkit on it): all eight workflows, and what can happen on the way."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pexpect
import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "llama-3.1-8b"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x1b\][^\x07]*\x07|\r")


PASTED = "Traceback (most recent call last)"  # what a test pastes itself


def _heeds_ctrl_c() -> None:
    """A job in the background ignores SIGINT and hands that down; a person's terminal does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Person:
    """Types at ``shardguide`` on a terminal of 100 columns."""

    def __init__(self, folder: Path, *arguments: str, **env: str) -> None:
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "SHARDGUIDE_HOME": str(folder / "state"), "LC_ALL": "C.UTF-8", "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1", **env,
        }  # fmt: skip
        self.child = pexpect.spawn(
            sys.executable, ["-m", "shardguide", *arguments], cwd=str(folder), env=self.env, encoding="utf-8", timeout=60,
            dimensions=(50, 100), preexec_fn=_heeds_ctrl_c,
        )  # fmt: skip
        self.text = ""

    def sees(self, words: str) -> str:
        """Wait until these words are on the screen; returns what came before them since the last time."""
        between = r"(?:\s|\x1b\[[0-9;?]*[a-zA-Z])+"  # a line may be broken anywhere, and colours set anew
        pattern = between.join(re.escape(word) for word in words.split())
        try:
            self.child.expect(pattern)
        except (pexpect.TIMEOUT, pexpect.EOF):
            raise AssertionError(
                f"{words!r} did not come; last: {ESCAPES.sub('', self.child.before or '')[-1500:]}"
            ) from None
        got = ESCAPES.sub("", self.child.before + self.child.after)
        self.text += got
        return got

    def says(self, line: str) -> None:
        self.child.sendline(line)

    def ends(self) -> str:
        self.child.expect(pexpect.EOF)
        self.text += ESCAPES.sub("", self.child.before)
        self.child.close()
        assert self.child.exitstatus == 0 and "Traceback" not in self.text.replace(PASTED, ""), self.text[-2000:]
        return self.text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_all_eight_workflows(folder: Path) -> None:
    """One conversation: each workflow to its answer; one is interrupted and goes on, one answer is corrected, two follow-ups are asked,
    one answer is approved and one is applied."""
    me = Person(folder, "chat", "--torch", "2.13")
    # W1, in words: what they say is filled in, the rest is asked; the optimizer is corrected
    me.sees("What is it about?")
    me.says(f"how should I configure FSDP for {MODEL} on 16 H100 SXM GPUs on 2 nodes")
    me.sees("I take this as: plan")
    me.sees("What links the nodes?")  # an H100 SXM brings its own link within a node
    me.says("?")
    me.sees("ibv_devinfo")
    me.says("infiniband")
    me.sees("Which optimizer is used?")
    me.says("sgd")
    me.sees("In which dtype")
    me.says("optimizer = adamw")
    me.sees("optimizer is now adamw.")
    me.says("float32")
    me.sees("sharding")
    me.sees("NAME = VALUE; or ask on.")
    me.says("why not full sharding?")
    me.sees("Why not full")
    me.sees("ask on.")
    me.says("show the FSDP1 form")
    me.sees("fsdp1")
    me.sees("ask on.")
    me.says("apply")
    me.sees("Type yes to confirm:")
    me.says("yes")
    me.sees("Wrote shardguide/")
    me.sees("ask on.")
    me.says("yes")
    me.sees("Approved:")
    # W2
    me.sees("What is it about?")
    me.says("join")
    me.sees("What communicates in the training loop?")
    me.says("ddp")
    me.sees("different numbers of batches?")
    me.says("yes")
    me.sees("all stop (stop)?")
    # Ctrl-C in the middle: what was said is kept
    me.child.sendintr()
    me.sees("offers to go on")
    me.ends()
    assert (folder / "shardguide" / "train_fsdp2.py").exists()

    me = Person(folder, "chat", "--torch", "2.13")
    me.sees("Last time join was left open")
    me.says("yes")
    me.sees("all stop (stop)?")
    me.says("drain")
    me.sees("other collectives in the loop")
    me.says("no")
    me.sees("ask on.")
    me.says("draft")
    me.sees("Left as a draft")
    # W3
    me.sees("What is it about?")
    me.says("should I use nccl or gloo on NVIDIA GPUs under Linux?")
    me.sees("ask on.")  # the network is known from the plan
    me.says("no")
    me.sees("Turned down")
    # W4
    me.sees("What is it about?")
    me.says("explain")
    me.sees("Which subject?")
    me.says("gradient-clipping")
    me.sees("ask on.")
    me.says("draft")
    # W5
    me.sees("What is it about?")
    me.says("fsdp2")
    me.sees("What do you want FSDP2 for?")
    me.says("compile")
    me.sees("ask on.")
    me.says("for 2.8?")
    me.sees("PyTorch 2.8")
    me.sees("ask on.")
    me.says("draft")
    # W6
    me.sees("What is it about?")
    me.says("tune")
    me.sees("What do you run now?")
    me.says("api=fsdp1 param=fp16")
    me.sees("draft")
    me.says("draft")
    # W7
    me.sees("What is it about?")
    me.says("diagnose")
    me.sees("What happens?")
    me.says("RuntimeError: trying to initialize the default process group twice!")
    me.sees("initiali")
    me.sees(">")
    me.says("draft")
    # W8
    me.sees("What is it about?")
    me.says("init_process_group with torchrun, env:// and nccl")
    me.sees("destroy_process_group")
    me.sees("ask on.")
    me.says("yes")
    me.sees("Approved:")
    me.sees("What is it about?")
    me.says("quit")
    me.ends()


def test_alone_on_a_terminal_it_opens(folder: Path) -> None:
    me = Person(folder)
    me.sees("What is it about?")
    me.says("quit")
    me.ends()


def test_without_colour(folder: Path) -> None:
    me = Person(folder, "chat", "--torch", "2.13", NO_COLOR="1")
    me.sees("What is it about?")
    me.says("backend")
    me.sees("On which kind of device")
    me.says("quit")
    text = me.child.before or ""
    me.ends()
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", text)


@pytest.mark.parametrize("at", ["start", "question", "answer"])
def test_interrupted_anywhere_it_goes_on(folder: Path, at: str) -> None:
    me = Person(folder, "chat", "--torch", "2.13")
    me.sees("What is it about?")
    if at != "start":
        me.says("backend")
        me.sees("On which kind of device")
    if at == "answer":
        me.says("cuda")
        me.sees("What links the nodes?")
        me.says("ethernet")
        me.sees("Which operating system")
        me.says("linux")
        me.sees("ask on.")
    me.child.sendintr()
    me.ends()
    me = Person(folder, "chat", "--torch", "2.13")
    if at == "start":
        me.sees("What is it about?")
    else:
        me.sees("Last time backend was left open")
        me.says("yes")
        me.sees("On which kind of device" if at == "question" else "ask on.")
    me.says("quit")
    me.ends()


def test_killed_it_goes_on(folder: Path) -> None:
    me = Person(folder, "chat", "--torch", "2.13")
    me.sees("What is it about?")
    me.says("backend")
    me.sees("On which kind of device")
    me.says("xpu")
    me.sees("What links the nodes?")
    me.child.kill(9)
    me.child.close(force=True)
    me = Person(folder, "chat", "--torch", "2.13")
    assert "device = xpu" in me.sees("Last time backend was left open (torch = 2.13, device = xpu)")
    me.says("no")
    me.sees("What is it about?")
    me.says("quit")
    me.ends()


def test_many_lines_pasted_are_one_answer(folder: Path) -> None:
    log = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: fully_shard does not support containers that do not implement forward: ModuleList()'
    me = Person(folder, "chat", "--torch", "2.13")
    me.sees("What is it about?")
    me.child.send(f"\x1b[200~{log}\x1b[201~")
    me.child.sendline("")
    me.sees("I take this as: diagnose")
    me.sees("container")
    me.says("quit")
    me.ends()
