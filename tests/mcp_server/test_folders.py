"""Only what lies under the given folders is read: by name, through links, patterns, folders, a model's own files, and words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from shardguide.frontends.mcp import calls
from shardguide.frontends.mcp.calls import Desk
from shardguide.frontends.mcp.folders import Folders
from shardguide.frontends.mcp.tools import tools
from shardguide.guidance.errors import UnusableInput

ROOT = Path(__file__).parents[2]
SITUATION = {
    "gpus": 8, "nodes": 1, "gpu": "H100 SXM 80GB", "intra": "nvlink", "optimizer": "adamw", "param_dtype": "float32", "torch": "2.13",
}  # fmt: skip
SECRET = 'import torch.distributed as dist\n\ndist.init_process_group("nccl", group_name="SECRET")\n'
ERROR = "RuntimeError: trying to initialize the default process group twice! SECRET\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``in`` may be read, ``out`` may not; links lead from the one to the other."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside / "sub", inside / "logs", inside / "linked", outside):
        folder.mkdir(parents=True)
    (outside / "secret.py").write_text(SECRET)
    (outside / "run.log").write_text(ERROR)
    shutil.copytree(ROOT / "examples" / "llama-3.1-8b", outside / "model")
    shutil.copytree(ROOT / "examples" / "llama-3.1-8b", inside / "real")
    (inside / "link.py").symlink_to(outside / "secret.py")
    (inside / "sub" / "helper.py").symlink_to("../../out/secret.py")
    (inside / "sub" / "train.py").write_text("from helper import x\n")
    (inside / "linkdir").symlink_to(outside)
    (inside / "logs" / "a.log").symlink_to(outside / "run.log")
    (inside / "linked" / "config.json").symlink_to(outside / "model" / "config.json")
    monkeypatch.chdir(inside)
    monkeypatch.setenv("HOME", str(outside))
    return tmp_path


def _said(world: Path, name: str, arguments: dict[str, Any]) -> str:
    """Everything that a client gets."""
    desk = Desk(Folders((str(world / "in"),)), str(world / "n.db"))
    try:
        record = calls.call(desk, tools()[name], arguments)
    except UnusableInput as error:
        return f"refused: {error}"
    return json.dumps([calls.shown(record, number) for number in (1, 2, 3)])


OUT: list[tuple[str, dict[str, Any]]] = [
    ("review", {"paths": ["."]}),
    ("review", {"paths": ["sub"]}),
    ("review", {"paths": ["sub/train.py"]}),
    ("review", {"paths": ["linkdir"]}),
    ("review", {"paths": ["linkdir/secret.py"]}),
    ("review", {"paths": ["./sub/../../out/secret.py"]}),
    ("review", {"paths": ["../out/secret.py"]}),
    ("review", {"paths": ["~/secret.py"]}),
    ("review", {"paths": ["."], "migrate": True}),
    ("join", {"paths": ["link.py"]}),
    ("diagnose", {"paths": ["logs"]}),
    ("diagnose", {"paths": ["logs/*"]}),
    ("diagnose", {"paths": ["logs/**/*.log"]}),
    ("diagnose", {"paths": ["l*r/run.log"]}),
    ("diagnose", {"paths": ["*/../../out/run.log"]}),
    ("diagnose", {"text": ERROR.replace("SECRET", ""), "code": ["sub/helper.py"]}),
    ("start", {"words": "what is wrong?", "files": ["logs"]}),
    ("start", {"words": "what is wrong?", "files": ["link.py"]}),
    ("plan", {"model": "linked", **SITUATION}),
    ("plan", {"model": "linkdir/model", **SITUATION}),
    ("plan", {"model": "~", **SITUATION}),
    ("plan", {"model": "~/model", **SITUATION}),
    ("plan", {"model": "..", **SITUATION}),
    ("plan", {"model": ["../out/model"], **SITUATION}),
    ("start", {"words": "plan ../out/model/config.json on 8 H100 80GB with nvlink, adamw, float32", "torch": "2.13"}),
    ("plan", {"model": "real", "tp": 2, "tp_plan": "../out/run.log", **SITUATION}),
    ("plan", {"model": "real", "from": "~/run.log", **SITUATION}),
    ("plan", {"model": "real", "measured": ["linkdir/run.log"], **SITUATION}),
    ("tune", {"model": "real", "current": "link.py", **SITUATION}),
]


@pytest.mark.parametrize("number", range(len(OUT)))
def test_what_lies_outside_is_not_read(world: Path, number: int) -> None:
    name, arguments = OUT[number]
    said = _said(world, name, arguments)
    assert "SECRET" not in said and "LlamaDecoderLayer" not in said, said[:600]


def test_the_same_inside_is_read(world: Path) -> None:
    """So the refusals above come from where the files lie."""
    (world / "in" / "own.py").write_text(SECRET)
    (world / "in" / "own.log").write_text(ERROR)
    (world / "in" / "alias.log").symlink_to(world / "in" / "own.log")
    assert "SECRET" in _said(world, "review", {"paths": ["own.py"], "torch": "2.13"})
    assert "SECRET" in _said(world, "diagnose", {"paths": ["own.log"], "torch": "2.13"})
    assert "SECRET" in _said(world, "diagnose", {"paths": ["al*.log"], "torch": "2.13"})
    assert "LlamaDecoderLayer" in _said(world, "plan", {"model": "real", **SITUATION})


def test_a_model_in_the_working_folder_is_not_read_where_another_is_given(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world / "out")
    assert "refused" in _said(world, "plan", {"model": "model", **SITUATION})
    assert "LlamaDecoderLayer" in _said(world, "plan", {"model": "real", **SITUATION})


def test_a_project_that_was_read_says_what_was_not(world: Path) -> None:
    (world / "in" / "own.py").write_text(SECRET)
    said = _said(world, "review", {"paths": ["."], "torch": "2.13"})
    assert "Not read: " in said and "link.py" in said


def test_packages_that_are_links_into_a_cache_are_read(world: Path) -> None:
    """uv makes an environment of links; its PyTorch lies in the project's folder by name only."""
    cache, site = world / "cache", world / "in" / ".venv" / "lib" / "python3.11" / "site-packages"
    (cache / "torch").mkdir(parents=True)
    (cache / "torch" / "version.py").write_text("__version__ = '2.13.0'\n")
    site.mkdir(parents=True)
    (site / "torch").symlink_to(cache / "torch")
    with Folders((str(world / "in"),)).fence():
        assert (site / "torch" / "version.py").read_text()
        with pytest.raises(PermissionError, match="leads out"):
            (world / "in" / "link.py").read_text()
    assert (world / "in" / "link.py").read_text() == SECRET


def test_without_a_folder_nothing_is_read_and_the_rest_answers(world: Path) -> None:
    """As where a host has started the server in the root folder."""
    desk = Desk(Folders(()), str(world / "n.db"))
    for name, arguments in (
        ("review", {"paths": ["link.py"]}),
        ("plan", {"model": "real"}),
        ("start", {"words": "x", "files": ["."]}),
    ):
        with pytest.raises(UnusableInput, match="--allow"):
            calls.call(desk, tools()[name], arguments)
    assert calls.call(desk, tools()["plan"], {"model": "7b", "gpus": 8, "torch": "2.13"})["decisions"]


def test_relative_paths_are_of_the_first_folder_and_absolute_ones_of_any(world: Path) -> None:
    (world / "more").mkdir()
    (world / "more" / "own.py").write_text(SECRET)
    desk = Desk(Folders((str(world / "in"), str(world / "more"))), str(world / "n.db"))
    with pytest.raises(UnusableInput, match="no such file"):
        calls.call(desk, tools()["review"], {"paths": ["own.py"]})
    assert calls.call(desk, tools()["review"], {"paths": [str(world / "more" / "own.py")], "torch": "2.13"})["findings"]
