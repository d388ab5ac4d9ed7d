"""What happens to a conversation: interrupts and kills at every prompt, two at once, no home, no space, a plain terminal, a narrow one."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from .test_terminal import ESCAPES, Person, folder

__all__ = ["folder"]

# What is typed, and what must be on the screen before.
STEPS = (
    ("What is it about?", "backend"), ("On which kind of device", "cuda"), ("What links the nodes?", "ethernet"),
    ("Which operating system", "linux"), ("ask on.", "why not gloo"), ("ask on.", "apply"), ("Type yes to confirm:", "no"), ("ask on.", "yes"),
)  # fmt: skip


@pytest.mark.parametrize("kill", [False, True], ids=["ctrl-c", "kill"])
@pytest.mark.parametrize("at", range(1, len(STEPS)))
def test_stopped_at_any_prompt_it_goes_on(folder: Path, at: int, kill: bool) -> None:
    me = Person(folder, "chat", "--torch", "2.13")
    for before, line in STEPS[:at]:
        me.sees(before)
        me.says(line)
    me.sees(STEPS[at][0])
    if kill:
        me.child.kill(9)
        me.child.close(force=True)
    else:
        me.child.sendintr()
        assert "offers to go on" in me.ends()
    me = Person(folder, "chat", "--torch", "2.13")
    offered = me.sees("Go on with it?")
    assert "Last time backend was left open" in offered
    for name, value in (("device", "cuda"), ("inter", "ethernet"), ("os", "linux"))[: max(0, at - 1)]:
        assert f"{name} = {value}" in offered
    me.says("yes")
    me.sees(STEPS[at][0] if at < 4 else "Is this the backend to use?")
    me.says("quit")
    me.ends()


def test_two_at_once(folder: Path) -> None:
    one = Person(folder, "chat", "--torch", "2.13")
    one.sees("What is it about?")
    one.says("backend")
    one.sees("On which kind of device")
    other = Person(folder, "chat", "--torch", "2.13")
    other.sees("What is it about?")  # the one that goes on is not offered
    other.says("init")
    other.sees("How do the processes find each other?")
    one.says("xpu")
    one.sees("What links the nodes?")
    for me in (one, other):
        me.child.kill(9)
        me.child.close(force=True)
    me = Person(folder, "chat", "--torch", "2.13")
    me.sees("Last time backend was left open (torch = 2.13, device = xpu)")  # it was spoken last
    me.says("no")
    me.sees("Last time init was left open")
    me.says("quit")
    me.ends()


def test_history_is_kept(folder: Path) -> None:
    me = Person(folder, "chat", "--torch", "2.13")
    me.sees("What is it about?")
    me.says("what does reshard_after_forward do?")
    me.sees("ask on.")
    me.says("quit")
    me.ends()
    me = Person(folder, "chat", "--torch", "2.13")
    me.sees("Go on with it?")
    me.says("no")
    me.sees("What is it about?")
    me.sees("help shows more.")
    me.child.send("what does\x1b[A")  # the arrow up finds what begins like that
    me.child.expect("reshard_after")
    me.child.sendintr()
    me.ends()
    assert not [path for path in folder.rglob("*") if "history" in path.name]


def test_completion(folder: Path) -> None:
    (folder / "training.log").write_text("x")
    me = Person(folder, "chat", "--torch", "2.13")
    me.sees("help shows more.")
    me.child.send("./train\t")
    me.child.expect(r"ing\.log")
    me.child.send("\x15")
    me.child.send("backe\t")
    me.child.expect("nd")
    me.child.send("\r")
    me.sees("On which kind of device")
    me.child.sendintr()
    me.ends()


def test_a_terminal_that_can_only_print(folder: Path) -> None:
    """TERM=dumb: no escape is written, and what is pasted is one answer."""
    me = Person(folder, "chat", "--torch", "2.13", TERM="dumb")
    me.sees("What is it about?")
    me.sees(">")
    log = "".join(f"[rank0] step {number}\n" for number in range(200))
    me.child.send(f"{log}RuntimeError: trying to initialize the default process group twice!\n")
    me.sees("I take this as: diagnose")
    me.sees("ask on.")
    me.says("yes")
    me.sees("Approved:")
    me.says("quit")
    text = me.text + (me.child.before or "")
    me.ends()
    assert "\x1b" not in text
    assert text.count("What is it about?") <= 2


@pytest.mark.parametrize("width", [20, 40, 200])
def test_widths(folder: Path, width: int) -> None:
    me = Person(folder, "chat", "--torch", "2.13", COLUMNS=str(width))
    me.child.setwinsize(50, width)
    me.sees("What is it about?")
    me.says("backend")
    me.sees("On which kind of device")
    me.says("cuda")
    me.sees("What links the nodes?")
    me.says("quit")
    me.ends()


def test_lines_of_the_screen_fit(folder: Path) -> None:
    me = Person(folder, "chat", "--torch", "2.13", TERM="dumb", COLUMNS="60")
    me.child.setwinsize(50, 60)
    for before, line in STEPS[:4]:
        me.sees(before)
        me.says(line)
    me.sees("ask on.")
    assert max(len(one) for one in me.text.splitlines()) <= 100
    me.says("quit")
    me.ends()


def piped(folder: Path, *lines: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shardguide", "chat", "--torch", "2.13"],
        cwd=folder, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", **env},
    )  # fmt: skip


BACKEND = ("backend", "cuda", "ethernet", "linux")


def test_piped_one_answer_a_line(folder: Path) -> None:
    ran = piped(folder, *BACKEND, "draft")
    assert (
        ran.returncode == 0
        and "Backend: nccl" in ran.stdout
        and "Left as a draft" in ran.stdout
        and "\x1b" not in ran.stdout
    )
    assert ran.stderr == ""


def test_a_notebook_that_cannot_be_written_is_said_once(folder: Path) -> None:
    ran = piped(folder, *BACKEND, "draft", HOME="/proc/nothing")
    assert ran.returncode == 0 and "Backend: nccl" in ran.stdout
    assert ran.stderr.count("Not kept in the notebook") == 1 and "offers to go on" not in ran.stdout


def test_a_notebook_of_a_newer_version_is_one_sentence(folder: Path) -> None:
    piped(folder, *BACKEND, "draft")
    path = next(folder.rglob("notebook.db"))
    data = bytearray(path.read_bytes())
    data[60:64] = (999).to_bytes(4, "big")  # user_version, in SQLite's header
    path.write_bytes(data)
    ran = piped(folder, *BACKEND)
    assert ran.returncode == 2 and "newer Shardguide" in ran.stderr and len(ran.stderr.splitlines()) == 1
    assert path.read_bytes() == bytes(data)


def test_a_full_disk_is_said(folder: Path) -> None:
    """No file may grow: what a full disk does to the notebook."""
    piped(folder, "quit")

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    ran = subprocess.run(
        [sys.executable, "-c", "import sys; from shardguide.frontends.cli.main import main; sys.exit(main(['chat', '--torch', '2.13']))"],
        cwd=folder, input="\n".join((*BACKEND, "draft")) + "\n", capture_output=True, text=True, timeout=60,
        check=False, preexec_fn=small,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert ran.returncode == 0 and "Backend: nccl" in ran.stdout, ran.stderr
    assert ran.stderr.count("Not kept in the notebook") == 1


def test_a_file_that_vanishes(folder: Path) -> None:
    log = folder / "a run.log"
    log.write_text("RuntimeError: trying to initialize the default process group twice!\n")
    me = Person(folder, "chat", "--torch", "2.13")
    me.sees("What is it about?")
    me.says(f"'{log}'")
    me.sees("ask on.")
    log.unlink()
    me.says("for 2.8")
    me.sees("a run.log")
    me.sees("What happens?")
    me.says("quit")
    me.ends()
    assert "Traceback" not in ESCAPES.sub("", me.text)
