"""Manners that every command has: help, refusals, pipes, colour, pure JSON, the same bytes for the same inputs."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardguide.frontends.cli.main import COMMANDS, EPILOG

from .conftest import FULL, ROOT, Ran, Shardguide

COMMAND = [sys.executable, "-m", "shardguide"]
MODEL = FULL[1]
TUNE = ["tune", *FULL[1:], "--now", "param=fp16", "--now", "api=fsdp2"]
# Select Graphic Rendition: what switches colours and weights on a terminal.
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
COLOUR = re.compile(r"\x1b\[[0-9;]*?\b(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


def _refused(ran: Ran) -> None:
    """Status 2: one line on standard error, nothing on standard output, no traceback."""
    assert ran.status == 2
    assert ran.out == ""
    assert ran.err.startswith("shardguide: ") and ran.err.endswith("\n") and ran.err.count("\n") == 1
    assert len(ran.err) > len("shardguide: .\n")
    assert "internal error" not in ran.err


# --- help and refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"], []], ids=str)
def test_help_names_every_command_and_exit_status(shardguide: Shardguide, arguments: list[str]) -> None:
    ran = shardguide(*arguments)
    assert ran.status == 0 and ran.err == ""
    for command, (_, words) in COMMANDS.items():
        assert f"  {command}" in ran.out and words in ran.out
    assert EPILOG in ran.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command(shardguide: Shardguide, command: str) -> None:
    ran = shardguide(command, "--help")
    assert ran.status == 0 and ran.err == ""
    assert ran.out.startswith(f"usage: shardguide {command} ")
    assert "--json" in ran.out and "--notebook" in ran.out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("wrong", [["--no-such-option"], ["--gpusx", "8"], ["--format", "xml"], ["--torch"]], ids=str)
def test_a_wrong_option_of_every_command(shardguide: Shardguide, command: str, wrong: list[str]) -> None:
    ran = shardguide(command, *wrong)
    _refused(ran)
    assert f"shardguide {command} --help" in ran.err


@pytest.mark.parametrize(
    "word", ["plna", "", "-x", "--frobnicate", "PLAN", "../plan", "main", "a\nb", "\x1b[31m", "x" * 5000]
)
def test_an_unknown_command(shardguide: Shardguide, word: str) -> None:
    ran = shardguide(word)
    _refused(ran)
    assert "\x1b" not in ran.err and len(ran.err) < 1000


def test_option_names_are_never_guessed(shardguide: Shardguide) -> None:
    """``--gpu`` and ``--gpus`` both exist: a shortened name must not become one of them."""
    _refused(shardguide("plan", "7b", "--gp", "8"))
    _refused(shardguide("plan", "7b", "--nod", "2"))


@pytest.mark.parametrize("command", ["plan", "tune"])
@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\x01\xff\xfe" * 100, b'{"model_type": "llama"', b"[" * 100_000, b"[]", b'{"model_type": "no_such_family"}'],
    ids=["empty", "binary", "truncated", "nested", "a list", "unknown family"],
)  # fmt: skip
def test_a_model_file_that_cannot_be_used(shardguide: Shardguide, command: str, content: bytes) -> None:
    (shardguide.folder / "config.json").write_bytes(content)
    _refused(shardguide(command, "config.json", "--gpus", "8", "--json"))


def test_a_notebook_that_is_none(shardguide: Shardguide) -> None:
    (shardguide.folder / "notes.txt").write_text("milk, bread\n" * 200)
    for command in (["plan", "7b", "--gpus", "8"], ["answers"], ["history"]):
        _refused(shardguide(*command, "--notebook", "notes.txt"))
    assert (shardguide.folder / "notes.txt").read_text() == "milk, bread\n" * 200


# --- JSON ---------------------------------------------------------------------------------------------------------


def test_json_is_nothing_but_json(shardguide: Shardguide) -> None:
    """On every command that answers, at status 0 and 3, on standard output alone."""
    identity = shardguide(*FULL, "--json").json["id"]
    calls = {
        0: [FULL, TUNE, ["answers"], ["answers", "set", "tp", "1"], ["answers", "forget", "tp"], ["history"],
            ["history", identity], ["approve", identity], ["reject", identity], [*FULL, "--show", "fsdp2"]],
        3: [["plan", "--gpus", "6", "--torch", "2.13"], ["tune", "7b", "--torch", "2.13"]],
    }  # fmt: skip
    for status, several in calls.items():
        for arguments in several:
            folder = shardguide.folder if status == 0 else shardguide.folder.parent  # where nothing is remembered
            where = Shardguide(folder)
            where.env["SHARDGUIDE_HOME"] = shardguide.env["SHARDGUIDE_HOME"]
            ran = where(*arguments, "--json")
            assert (ran.status, ran.err) == (status, ""), arguments
            assert isinstance(json.loads(ran.out), dict) and ran.out.endswith("}\n"), arguments
    long, short = (shardguide(*FULL, *option).out.splitlines() for option in (("--format", "json"), ("--json",)))
    assert long[:-2] == short[:-2] and long[-2].startswith('"earlier"')  # which has a time in it


def test_standard_input_as_the_model(shardguide: Shardguide) -> None:
    text = (Path(MODEL) / "config.json").read_text()
    ran = shardguide("plan", "-", *FULL[2:], "--json", stdin=text)
    assert ran.status == 0
    assert ran.json["accounting"] == shardguide(*FULL, "--json").json["accounting"]


@pytest.mark.parametrize("form", [["--json"], [], ["--format", "md"], ["--verbose"]], ids=str)
@pytest.mark.parametrize("workflow", [FULL, TUNE], ids=["plan", "tune"])
def test_the_same_inputs_give_the_same_bytes(shardguide: Shardguide, workflow: list[str], form: list[str]) -> None:
    """Whatever the hash seed, the process and the clock; each time with an empty notebook."""
    outputs = set()
    for number, seed in enumerate(("0", "1", "4294967295")):
        env = shardguide.env | {"PYTHONHASHSEED": seed, "SHARDGUIDE_HOME": str(shardguide.folder / f"state{number}")}
        done = subprocess.run([*COMMAND, *workflow, *form], cwd=shardguide.folder, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=True)  # fmt: skip
        outputs.add(done.stdout)
    assert len(outputs) == 1 and len(outputs.pop()) > 1000


# --- pipes, files, terminals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [FULL, [*FULL, "--json"], [*FULL, "--show", "fsdp2"], ["--help"], ["plan", "--help"], ["history"]],
                         ids=["plan", "json", "show", "help", "plan help", "history"])  # fmt: skip
def test_a_reader_that_has_left_is_no_error(shardguide: Shardguide, arguments: list[str]) -> None:
    """``shardguide … | head -1``: whatever is written then meets a closed pipe."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*COMMAND, *arguments], cwd=shardguide.folder, env=shardguide.env, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)  # fmt: skip
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode in (0, 141)


@pytest.mark.parametrize("arguments", [FULL, ["plan", "--help"], [*FULL, "--json"]], ids=["plan", "help", "json"])
def test_output_that_is_closed_from_the_start(shardguide: Shardguide, arguments: list[str]) -> None:
    """``shardguide … >&-``: there is nowhere to write to, and nothing is printed about it."""
    line = " ".join(f"'{word}'" for word in [*COMMAND, *arguments])
    done = subprocess.run(["sh", "-c", f"exec {line} >&-"], cwd=shardguide.folder, env=shardguide.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


def test_head_takes_the_first_line(shardguide: Shardguide) -> None:
    """The same with a shell's own pipe, as it is typed."""
    line = " ".join(f"'{word}'" for word in [*COMMAND, *FULL, "--json"])
    done = subprocess.run(["sh", "-c", f"{line} | head -1"], cwd=shardguide.folder, env=shardguide.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
    assert done.stdout == "{\n" and done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("arguments", [FULL, ["--help"]], ids=["plan", "help"])
def test_a_full_disk_is_one_sentence(shardguide: Shardguide, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, *arguments], cwd=shardguide.folder, env=shardguide.env, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("shardguide: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "variable", [{}, {"FORCE_COLOR": "1"}, {"CLICOLOR_FORCE": "1"}, {"TERM": "xterm-256color"}], ids=str
)
def test_a_pipe_gets_no_escapes(shardguide: Shardguide, variable: dict[str, str]) -> None:
    shardguide.env |= variable
    for form in ([], ["--format", "md"], ["--verbose"]):
        ran = shardguide(*FULL, *form)
        assert ran.status == 0 and "\x1b" not in ran.out


def _on_terminal(shardguide: Shardguide, arguments: list[str], **variables: str) -> tuple[int, str]:
    """Status and screen of a call whose output is a terminal of 100 columns."""
    master, slave = pty.openpty()
    env = shardguide.env | {"TERM": "xterm-256color", "COLUMNS": "100"} | variables
    process = subprocess.Popen([*COMMAND, *arguments], cwd=shardguide.folder, env=env, stdin=slave, stdout=slave, stderr=slave)  # fmt: skip
    os.close(slave)
    screen = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # Linux's way of saying that the other side is closed
            break
        if not data:
            break
        screen += data
    os.close(master)
    return process.wait(timeout=60), screen.decode()


def test_colour_on_a_terminal_and_only_when_it_is_wanted(shardguide: Shardguide) -> None:
    _on_terminal(shardguide, [*FULL, "--no-input"])  # from now on the answer is known, and all three say so
    status, coloured = _on_terminal(shardguide, [*FULL, "--no-input"])
    assert status == 0 and COLOUR.search(coloured)
    status, plain = _on_terminal(shardguide, [*FULL, "--no-input"], NO_COLOR="1")
    assert status == 0 and not COLOUR.search(plain)
    status, dumb = _on_terminal(shardguide, [*FULL, "--no-input"], TERM="dumb")
    assert status == 0 and "\x1b" not in dumb
    # Colour carries nothing that the words do not say.
    assert ESCAPE.sub("", coloured) == ESCAPE.sub("", plain)


def test_a_refusal_on_a_terminal_is_plain(shardguide: Shardguide) -> None:
    status, screen = _on_terminal(shardguide, ["plan", "7b", "--gpus", "17", "--nodes", "2"])
    assert status == 2 and screen.startswith("shardguide: ") and "\x1b" not in screen
    assert screen.replace("\r", "").count("\n") == 1


def test_no_input_never_asks(shardguide: Shardguide) -> None:
    status, screen = _on_terminal(shardguide, ["plan", MODEL, "--torch", "2.13", "--no-input"])
    assert status == 3 and "How many GPUs" in screen and " > " not in screen


def test_json_on_a_terminal_is_json(shardguide: Shardguide) -> None:
    status, screen = _on_terminal(shardguide, ["plan", MODEL, "--torch", "2.13", "--json"])
    assert status == 3 and json.loads(screen)["status"] == "needs_answers"


@pytest.mark.parametrize("width", ["40", "72", "200", "0", "-5", "many"])
def test_any_window_width(shardguide: Shardguide, width: str) -> None:
    """Lines keep to the window where it is sane; nonsense in COLUMNS is no error."""
    shardguide.env["COLUMNS"] = width
    ran = shardguide(*FULL)
    assert ran.status == 0
    status, screen = _on_terminal(shardguide, [*FULL, "--no-input"], COLUMNS=width)
    assert status == 0 and "Sharding" in ESCAPE.sub("", screen)


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}], ids=str)  # fmt: skip
def test_a_terminal_without_unicode_still_gets_an_answer(shardguide: Shardguide, locale: dict[str, str]) -> None:
    shardguide.env |= locale
    for form in ([], ["--json"], ["--format", "md"]):
        done = subprocess.run([*COMMAND, *FULL, *form], cwd=shardguide.folder, env=shardguide.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b""), form


def test_nothing_is_left_behind(shardguide: Shardguide) -> None:
    """The project folder stays as it was; the notebook is the one thing that is written."""
    for arguments in (FULL, TUNE, ["history"], ["answers"]):
        assert shardguide(*arguments).status == 0
    assert sorted(path.name for path in shardguide.folder.iterdir()) == ["state"]
    assert {path.name.partition("-")[0] for path in (shardguide.folder / "state").iterdir()} == {"notebook.db"}


def test_the_repository_is_untouched_by_what_it_reads(shardguide: Shardguide) -> None:
    before = sorted((ROOT / "examples").rglob("*"))
    assert shardguide(*FULL).status == 0
    assert sorted((ROOT / "examples").rglob("*")) == before


# --- the bare command ---------------------------------------------------------------------------------------------


def test_lines_from_a_pipe_or_a_file_open_the_conversation(shardguide: Shardguide) -> None:
    """One question a line, as the help says; the last prompt meets the end, and what is open is kept."""
    ran = shardguide(stdin="my 70B run hangs after the first epoch on 4 nodes\n")
    assert ran.status == 0 and ran.err == ""
    assert "I take this as: diagnose" in ran.out and "Kept. The next" in ran.out
    again = shardguide(stdin="my 70B run hangs after the first epoch on 4 nodes\n")
    assert "diagnose stays open for another time." in again.out and "I take this as: diagnose" in again.out
    lines = shardguide.folder / "lines.txt"
    lines.write_text("no\nno\nbackend\ncuda\ninfiniband\nlinux\nyes\n")
    with lines.open() as file:
        done = subprocess.run(
            [sys.executable, "-m", "shardguide"], cwd=shardguide.folder, env=shardguide.env, stdin=file, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0 and "Backend: nccl" in done.stdout and "Approved: " in done.stdout


@pytest.mark.parametrize(
    "kind", ["/dev/null", "closed", "empty pipe", "empty file", "read file", "socket", "silent pipe"]
)
def test_without_anybody_to_talk_to_it_prints_its_help(shardguide: Shardguide, kind: str) -> None:
    help_ = shardguide("--help")
    file = shardguide.folder / "input"
    file.write_text("backend\n" if kind == "read file" else "")
    command = [sys.executable, "-m", "shardguide"]
    if kind == "closed":
        command = ["sh", "-c", f"exec {sys.executable} -m shardguide <&-"]
    ends = socket.socketpair()
    reading, writing = os.pipe()
    if kind == "empty pipe":
        os.close(writing)
    with file.open("rb") as opened:
        opened.read()
        given: Any = {
            "closed": None, "socket": ends[0], "empty pipe": reading, "silent pipe": reading, "empty file": opened, "read file": opened,
        }.get(kind, subprocess.DEVNULL)  # fmt: skip
        ran = subprocess.run(
            command,
            cwd=shardguide.folder,
            env=shardguide.env,
            stdin=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, help_.out, "")
    for one in ends:
        one.close()
