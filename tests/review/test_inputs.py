"""``review``, ``join`` and ``migrate`` on folders: the same files are read by all three, and what cannot be read is said by all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from shardguide.code.join import check as join_check
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.serialise import to_dict
from shardguide.readers.files import HANDED
from shardguide.workflows.join import JoinRequest, join
from shardguide.workflows.migrate import MigrateRequest
from shardguide.workflows.migrate import run as migrate
from shardguide.workflows.review import ReviewRequest
from shardguide.workflows.review import check as review

# Each of the three has something to say of it: a barrier of rank 0 alone, a Joinable without hook, FSDP1.
PROGRAM = """\
import torch.distributed as dist
from torch.distributed.algorithms.join import Joinable
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Half(Joinable):
    def __init__(self):
        pass


def train(model):
    model = FSDP(model)
    if dist.get_rank() == 0:
        dist.barrier()
    return model
"""
NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# Training"]},
            {
                "cell_type": "code",
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": PROGRAM.splitlines(keepends=True),
            },
        ],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    },
    indent=1,
)
COMMANDS = ("review", "join", "migrate")


def record(command: str, *paths: Path | str) -> dict[str, Any]:
    """What a command says of paths."""
    given = tuple(map(str, paths))
    if command == "review":
        return to_dict(review(ReviewRequest(given, torch="2.13")))
    if command == "join":
        return to_dict(join(JoinRequest({"torch": "2.13"}, {}, None, given)))
    return to_dict(migrate(MigrateRequest(given, torch="2.13")))


def spoken_of(command: str, record: dict[str, Any]) -> list[str]:
    """The files that it found something in, each once for each time that it was read, sorted."""
    if command == "review":
        return sorted(one["path"] for one in record["findings"] if one["rule"] == "FSD201")
    if command == "join":
        return sorted(one["path"] for one in record["join_check"])
    return sorted(one["path"] for one in record["uses"] if one["kind"] == "constructor")


def unread(command: str, paths: tuple[Path, ...]) -> dict[str, str]:
    """The files that it could not read, with why."""
    if command == "join":  # its record names them in a sentence; the check has them one by one
        return {one.path: one.why for one in join_check(tuple(map(str, paths))).problems}
    return {one["path"]: one["why"] for one in record(command, *paths)["problems"]}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with all that a folder may hold."""
    for name in (
        "a.py",
        "sub/b.py",
        "sub/deep/c.py",
        ".hidden/no.py",
        "build/no.py",
        "dist/no.py",
        "venv/no.py",
        "sub/.venv/no.py",
        "sub/node_modules/no.py",
        "lib/site-packages/no.py",
        "sub/__pycache__/no.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROGRAM)
    (tmp_path / "notes.txt").write_text(PROGRAM)
    (tmp_path / "outside").mkdir()
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_is_read_but_for_what_is_not_the_projects_own(command: str, tree: Path) -> None:
    found = spoken_of(command, record(command, tree))
    assert found == [str(tree / name) for name in ("a.py", "sub/b.py", "sub/deep/c.py")]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_passed_over_is_read_when_it_is_named(command: str, tree: Path) -> None:
    for named in (tree / ".hidden", tree / "build", tree / "notes.txt"):
        wanted = named if named.is_file() else named / "no.py"
        assert spoken_of(command, record(command, named)) == [str(wanted)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_named_twice_is_read_once(command: str, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert spoken_of(command, record(command, "a.py", tree / "a.py", ".", tree / "sub")) == [
        "./sub/b.py",
        "./sub/deep/c.py",
        "a.py",
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_links_to_files_are_followed_and_links_to_folders_are_not(command: str, tree: Path) -> None:
    (tree / "sub" / "linked.py").symlink_to(tree / "a.py")
    (tree / "sub" / "again").symlink_to(tree)  # round and round
    (tree / "outside" / "gone.py").symlink_to(tree / "nowhere.py")
    found = record(command, tree)
    names = [str(tree / name) for name in ("a.py", "sub/b.py", "sub/deep/c.py", "sub/linked.py")]
    assert spoken_of(command, found) == names
    assert unread(command, (tree,)) == {str(tree / "outside" / "gone.py"): "there is no such file."}
    link = tree.parent / f"{tree.name}.link"
    link.symlink_to(tree / "sub" / "deep")
    assert spoken_of(command, record(command, link)) == [str(link / "c.py")]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_cannot_be_read_is_said_and_the_rest_goes_on(
    command: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "old.py").write_text("import torch\nprint 'hello'\n")
    (tree / "binary.py").write_bytes(b"import torch\x00\n")
    os.mkfifo(tree / "pipe.py")  # opening it would wait for ever
    scan = os.scandir

    def guarded(path: Any) -> Any:  # who runs the tests may be allowed to read everything
        if str(path) == str(tree / "outside"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", guarded)
    assert spoken_of(command, record(command, tree)) == [
        str(tree / name) for name in ("a.py", "sub/b.py", "sub/deep/c.py")
    ]
    said = unread(command, (tree,))
    assert sorted(Path(path).name for path in said) == ["binary.py", "old.py", "outside", "pipe.py"]
    assert said[str(tree / "outside")] == "it may not be read with your permissions."
    assert "Python" in said[str(tree / "old.py")]


@pytest.mark.parametrize("command", COMMANDS)
def test_notebooks_are_met_in_folders(command: str, tree: Path) -> None:
    path = tree / "sub" / "train.ipynb"
    path.write_text(NOTEBOOK)
    found = record(command, tree)
    assert len(spoken_of(command, found)) == (3 if command == "migrate" else 4)
    if command == "migrate":  # it rewrites none, and says so of those with FSDP in them
        (problem,) = found["problems"]
        assert problem["path"] == str(path) and "notebook" in problem["why"]
        (tree / "plain.ipynb").write_text(
            NOTEBOOK.replace("FSDP", "DDP").replace("fsdp", "x").replace("FullySharded", "")
        )
        assert record(command, tree)["problems"] == [problem]
    else:
        assert str(path) in spoken_of(command, found)


def test_the_join_check_names_lines_of_the_notebook_itself(tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    path.write_text(NOTEBOOK)
    (one,) = record("join", path)["join_check"]
    lines = NOTEBOOK.split("\n")
    assert lines[one["line"] - 1].strip().startswith('"class Half(Joinable):')
    assert {
        "class Half" in lines[issue["line"] - 1] or "__init__" in lines[issue["line"] - 1] for issue in one["issues"]
    } == {True}


@pytest.mark.parametrize("command", COMMANDS)
def test_pasted_files_are_read(command: str) -> None:
    before = HANDED.set({"pasted.py": PROGRAM.encode()})
    try:
        assert spoken_of(command, record(command, "pasted.py")) == ["pasted.py"]
    finally:
        HANDED.reset(before)


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_to_read_is_one_sentence(command: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "none").mkdir()
    with pytest.raises(UnusableInput, match="there is no Python file"):
        record(command, tmp_path / "none")
    with pytest.raises(UnusableInput, match="there is no such file or folder"):
        record(command, tmp_path / "gone")


@pytest.mark.parametrize("command", ["join", "migrate"])
def test_launch_files_are_no_python(command: str, tree: Path, tmp_path: Path) -> None:
    (tree / "run.sh").write_text("torchrun train.py\n")
    assert not unread(command, (tree, tree / "run.sh"))
    with pytest.raises(UnusableInput, match="there is no Python file"):
        record(command, tree / "run.sh")
