"""``apply``: only what the diff showed, only inside the project, whole or not at all, after a yes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shardguide.frontends import patch
from shardguide.guidance.errors import UnusableInput

from ..frontends.conftest import FULL, Shardguide, shardguide

__all__ = ["shardguide"]

SCRIPT = """\
import torch.distributed as dist


def main():
    dist.init_process_group("nccl", group_name="train")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
RIGHT = SCRIPT.replace(', group_name="train"', "")
REVIEW = ("--select", "FSD109", "--torch", "2.13", "--json")


def _reviewed(shardguide: Shardguide, name: str = "train.py", text: str = SCRIPT) -> str:
    path = shardguide.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    ran = shardguide("review", name, *REVIEW)
    assert ran.status == 1, ran.err
    return str(ran.json["id"])


def test_the_fixes_of_a_review(shardguide: Shardguide) -> None:
    answer = _reviewed(shardguide)
    path = shardguide.folder / "train.py"
    path.chmod(0o750)
    shown = shardguide("apply", answer, "--diff")
    assert (
        shown.status == 0
        and '-    dist.init_process_group("nccl", group_name="train")' in shown.out
        and path.read_text() == SCRIPT
    )
    refused = shardguide("apply", answer)
    assert refused.status == 2 and "nobody is here to say yes" in refused.err and path.read_text() == SCRIPT
    ran = shardguide("apply", answer[:6], "--yes")
    assert ran.status == 0 and ran.out == "Wrote train.py.\n"
    assert path.read_text() == RIGHT and (shardguide.folder / "train.py.bak").read_text() == SCRIPT
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert not list(shardguide.folder.glob("*.shardguide-tmp"))
    assert shardguide("history", answer, "--json").json["approval"]["state"] == "approved"


def test_the_files_of_a_plan_and_the_code_of_an_answer(shardguide: Shardguide) -> None:
    plan = shardguide(*FULL, "--json").json
    ran = shardguide("apply", plan["id"], "--yes", "--json")
    assert ran.status == 0, ran.err
    written = ran.json["written"]
    assert "shardguide/train_fsdp2.py" in written and "shardguide/shardguide-plan.json" in written
    code = {one["id"]: one["code"] for one in plan["snippets"]}
    assert (shardguide.folder / "shardguide" / "train_fsdp2.py").read_text() == code["fsdp2"]
    again = shardguide("apply", plan["id"], "--yes")
    assert again.status == 2 and "written already" in again.err
    page = shardguide("explain", "gradient-clipping", "--torch", "2.13", "--json").json
    assert shardguide("apply", page["id"], "--yes").status == 0
    for one in page["snippets"]:
        assert (shardguide.folder / "shardguide" / f"{one['id'].replace('-', '_')}.py").read_text() == one["code"]


def test_a_file_that_has_changed_since(shardguide: Shardguide) -> None:
    answer = _reviewed(shardguide)
    path = shardguide.folder / "train.py"
    changed = SCRIPT.replace("main()\n", "main()  # changed elsewhere\n")
    path.write_text(changed)
    ran = shardguide("apply", answer, "--yes")
    assert ran.status == 2 and "has changed since" in ran.err and path.read_text() == changed
    path.unlink()
    assert shardguide("apply", answer, "--yes").status == 2


def test_outside_of_the_project(shardguide: Shardguide) -> None:
    outside = shardguide.folder.parent / "outside.py"
    outside.write_text(SCRIPT)
    (shardguide.folder / "link.py").symlink_to(outside)
    for name in ("../outside.py", "link.py", str(outside)):
        answer = shardguide("review", name, *REVIEW).json["id"]
        ran = shardguide("apply", answer, "--yes")
        assert ran.status == 2 and "outside of the project folder" in ran.err, (name, ran.err)
    assert outside.read_text() == SCRIPT


def test_from_another_folder(shardguide: Shardguide) -> None:
    answer = _reviewed(shardguide)
    other = shardguide.folder.parent / "other"
    other.mkdir()
    (other / "train.py").write_text(SCRIPT)
    shardguide.folder = other
    ran = shardguide("apply", answer, "--yes")
    assert ran.status == 2 and "another folder" in ran.err and (other / "train.py").read_text() == SCRIPT


def test_what_is_not_written(shardguide: Shardguide) -> None:
    answer = _reviewed(shardguide)
    assert shardguide("reject", answer).status == 0
    assert "turned down" in shardguide("apply", answer, "--yes").err
    waiting = shardguide("backend", "--device", "cuda", "--torch", "2.13", "--json").json["id"]
    assert "waits for answers" in shardguide("apply", waiting, "--yes").err
    (shardguide.folder / "clean.py").write_text("x = 1\n")
    nothing = shardguide("review", "clean.py", "--torch", "2.13", "--json").json["id"]
    assert "proposes no file" in shardguide("apply", nothing, "--yes").err
    assert shardguide("apply", "0123456789", "--yes").status == 2
    assert shardguide("apply", "--yes").status == 2


def test_a_read_only_folder(shardguide: Shardguide) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    answer = _reviewed(shardguide)
    shardguide.folder.chmod(0o500)
    try:
        ran = shardguide("apply", answer, "--yes")
    finally:
        shardguide.folder.chmod(0o700)
    assert ran.status == 2 and (shardguide.folder / "train.py").read_text() == SCRIPT


def test_killed_at_any_moment_the_file_is_old_or_new(shardguide: Shardguide) -> None:
    """SIGKILL at twenty moments of a run: the file is always one or the other, and a later run goes through."""
    answer = _reviewed(shardguide)
    path = shardguide.folder / "train.py"
    seen = set()
    for number in range(20):
        path.write_text(SCRIPT)
        process = subprocess.Popen(
            [sys.executable, "-m", "shardguide", "apply", answer, "--yes"],
            cwd=shardguide.folder, env=shardguide.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(0.02 + 0.006 * number)
        process.send_signal(signal.SIGKILL)
        process.wait()
        text = path.read_text()
        assert text in (SCRIPT, RIGHT)
        seen.add(text)
    path.write_text(SCRIPT)
    assert shardguide("apply", answer, "--yes").status == 0 and path.read_text() == RIGHT


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb\nc", "a\nb\nC"),
        ("a\n", "a\n--- x\n+++ y\n@@ -1 +1 @@\n"),
        ("--- a\n+++ b\nx\n", "--- a\nx\n"),
        ("", "new\n"),
        ("gone\n", ""),
        ("é\n" * 30, "é\n" * 10 + "ü\n" + "é\n" * 19 + "end"),
        ("a\r\nb\r\n", "a\r\nc\r\n"),
        ("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n"),
    ],
)  # fmt: skip
def test_a_diff_is_applied_as_patch_does(tmp_path: Path, before: str, after: str) -> None:
    """The right value is that of ``diff -u`` and of the text it came from."""
    (tmp_path / "one").write_bytes(before.encode())
    (tmp_path / "two").write_bytes(after.encode())
    made = subprocess.run(
        ["diff", "-u", "--label", "a/f", "--label", "b/f", "one", "two"], cwd=tmp_path, capture_output=True, check=False
    )
    ((name, hunks),) = patch.files(made.stdout.decode()).items()
    assert name == "f" and patch.applied(before, hunks, "f") == after
    if before:
        with pytest.raises(UnusableInput, match="changed since"):
            patch.applied("something else\n" * 3, hunks, "f")


@pytest.mark.parametrize(
    "text", ["nothing", "--- a/f\n", "--- a/f\n+++ b/f\nno hunk\n", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n?x\n"]
)
def test_what_is_no_diff_is_refused(text: str) -> None:
    with pytest.raises(UnusableInput, match="cannot be read"):
        patch.files(text)


def test_an_earlier_backup_is_kept(shardguide: Shardguide) -> None:
    answer = _reviewed(shardguide)
    (shardguide.folder / "train.py.bak").write_text("mine\n")
    assert shardguide("apply", answer, "--yes").status == 0
    assert (shardguide.folder / "train.py.bak").read_text() == "mine\n"
    assert (shardguide.folder / "train.py.bak.1").read_text() == SCRIPT


@pytest.mark.parametrize(
    "change",
    [lambda text: text.replace("\n", "\r\n"), lambda text: text.replace("\n\ndef", "\n\x0c\ndef"), lambda text: "\ufeff" + text,
     lambda text: text.rstrip("\n"),
     lambda text: text.replace("    dist.destroy", "    # form feed: \x0c, separators: \u2028 \x1c\n    dist.destroy")],
    ids=["crlf", "form feed", "bom", "no end", "comment"],
)  # fmt: skip
def test_any_kind_of_line(shardguide: Shardguide, change: Callable[[str], str]) -> None:
    """Only a line feed ends a line: what is written differs from what was there by the fix, to the byte."""
    text = change(SCRIPT)
    path = shardguide.folder / "train.py"
    path.write_bytes(text.encode())
    ran = shardguide("review", "train.py", *REVIEW)
    assert shardguide("apply", ran.json["id"], "--yes").status == 0
    assert path.read_bytes() == text.replace(', group_name="train"', "").encode()


def test_applied_twice_is_said(shardguide: Shardguide) -> None:
    answer = _reviewed(shardguide)
    shardguide("apply", answer, "--yes")
    assert "was written on 20" in shardguide("apply", answer, "--yes").err


def test_no_space_left(shardguide: Shardguide) -> None:
    """No file may grow beyond what a small backup needs: nothing is changed, one sentence says so, nothing is left behind."""
    answer = _reviewed(shardguide, text=SCRIPT + "# " + "x" * 50_000 + "\n")
    before = (shardguide.folder / "train.py").read_bytes()
    program = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from shardguide.frontends import applying\n"
        "real = applying._flushed\n"
        "def small(path, data):\n"
        "    if path.endswith('.shardguide-tmp'):\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "    real(path, data)\n"
        "applying._flushed = small\n"
        "from shardguide.frontends.cli.main import main\n"
        f"sys.exit(main(['apply', '{answer}', '--yes']))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=shardguide.folder, env=shardguide.env, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert ran.returncode == 2 and ran.stderr.count("\n") == 1 and "nothing was written" in ran.stderr, ran.stderr
    assert (shardguide.folder / "train.py").read_bytes() == before
    assert not list(shardguide.folder.glob("*shardguide-tmp"))
