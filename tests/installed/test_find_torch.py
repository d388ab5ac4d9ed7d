"""Installed PyTorch is found as text, whatever the layout, and nothing found is run."""

import os
import sys
from pathlib import Path

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.installed.find import installed

# As PyTorch's own builds write it (2.13.0+cpu, a CUDA build, a ROCm build, an XPU build), and 2.0's older form.
CPU = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.13.0+cpu'
debug = False
cuda: Optional[str] = None
git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'
hip: Optional[str] = None
rocm: Optional[str] = None
xpu: Optional[str] = None
"""
CUDA = CPU.replace("2.13.0+cpu", "2.12.1+cu126").replace("cuda: Optional[str] = None", "cuda: Optional[str] = '12.6'")
ROCM = CPU.replace("2.13.0+cpu", "2.13.0+rocm6.4").replace(
    "hip: Optional[str] = None", "hip: Optional[str] = '6.4.43482'"
)
XPU = CPU.replace("2.13.0+cpu", "2.13.0+xpu").replace("xpu: Optional[str] = None", "xpu: Optional[str] = '20250200'")
OLD = "__version__ = '2.0.1'\ndebug = False\ncuda = None\ngit_version = 'e9ebda29'\nhip = None\n"


def torch_at(folder, version=CPU):
    (folder / "torch").mkdir(parents=True, exist_ok=True)
    (folder / "torch" / "version.py").write_text(version)
    return folder


@pytest.mark.parametrize(
    "layout",
    [
        "lib/python3.10/site-packages",
        "lib64/python3.12/site-packages",
        "lib/python3.13t/site-packages",
        "Lib/site-packages",
    ],
)
def test_any_python_of_an_environment(tmp_path, layout):
    torch_at(tmp_path / "env" / layout)
    (found,) = installed(environ={"VIRTUAL_ENV": str(tmp_path / "env")}, folder=str(tmp_path))
    assert found.version == "2.13.0+cpu" and found.build == "cpu" and found.git.startswith("cf30153c")
    assert found.found_by == "$VIRTUAL_ENV" and Path(found.path).samefile(tmp_path / "env" / layout)


def test_conda_and_dot_venv(tmp_path):
    torch_at(tmp_path / "conda" / "lib" / "python3.11" / "site-packages")
    (found,) = installed(environ={"CONDA_PREFIX": str(tmp_path / "conda")}, folder=str(tmp_path))
    assert found.found_by == "$CONDA_PREFIX"
    torch_at(tmp_path / ".venv" / "lib" / "python3.11" / "site-packages", CUDA)
    (found,) = installed(environ={}, folder=str(tmp_path))
    assert found.found_by == "./.venv" and found.version == "2.12.1+cu126"


def test_different_releases_all_come_back(tmp_path):
    torch_at(tmp_path / "env" / "lib" / "python3.11" / "site-packages")
    torch_at(tmp_path / ".venv" / "lib" / "python3.11" / "site-packages", CUDA)
    found = installed(environ={"VIRTUAL_ENV": str(tmp_path / "env")}, folder=str(tmp_path))
    assert [item.version for item in found] == ["2.13.0+cpu", "2.12.1+cu126"]


def test_one_folder_counts_once(tmp_path):
    torch_at(tmp_path / "env" / "lib" / "python3.11" / "site-packages")
    (tmp_path / "env" / "lib64").symlink_to("lib")
    (tmp_path / ".venv").symlink_to(tmp_path / "env")
    assert len(installed(environ={"VIRTUAL_ENV": str(tmp_path / "env")}, folder=str(tmp_path))) == 1


def test_named_folder_is_the_only_one(tmp_path):
    torch_at(tmp_path / "env" / "lib" / "python3.11" / "site-packages")
    torch_at(tmp_path / "other", CUDA)
    environ = {"VIRTUAL_ENV": str(tmp_path / "env")}
    (found,) = installed(str(tmp_path / "other"), environ, str(tmp_path))
    assert found.version == "2.12.1+cu126" and found.found_by == "--site-packages"
    (found,) = installed(str(tmp_path / "env"), environ, str(tmp_path))  # an environment's folder is understood as well
    assert found.version == "2.13.0+cpu"


@pytest.mark.parametrize("missing", ["nothing", "nul\0byte", ""])
def test_named_folder_without_pytorch(tmp_path, monkeypatch, missing):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnusableInput, match=r"no PyTorch.*\.$"):
        installed(missing and str(tmp_path / missing), {}, str(tmp_path))


def test_own_environment_comes_last(tmp_path, monkeypatch):
    torch_at(tmp_path / "mine")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "empty"), str(tmp_path / "mine")])
    (found,) = installed(environ={"VIRTUAL_ENV": str(tmp_path / "without")}, folder=str(tmp_path))
    assert found.found_by == "own environment"
    monkeypatch.setattr(sys, "path", [])
    assert installed(environ={}, folder=str(tmp_path)) == []


@pytest.mark.parametrize(
    ("text", "version", "build"),
    [
        (CPU, "2.13.0+cpu", "cpu"),
        (CUDA, "2.12.1+cu126", "cuda 12.6"),
        (ROCM, "2.13.0+rocm6.4", "rocm 6.4.43482"),
        (XPU, "2.13.0+xpu", "xpu 20250200"),
        (OLD, "2.0.1", "cpu"),
        ("__version__ = '2.14.0a0+git1f2e3d4'\n", "2.14.0a0+git1f2e3d4", "cpu"),
        ("__version__ = '2.9.0+cu130'\n", "2.9.0+cu130", "cuda 13.0"),
    ],
)
def test_version_and_build(tmp_path, text, version, build):
    (found,) = installed(str(torch_at(tmp_path, text)))
    assert (found.version, found.build) == (version, build)


def test_editable_installs(tmp_path):
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    torch_at(tmp_path / "source", OLD)
    environ = {"VIRTUAL_ENV": str(tmp_path / "env")}
    ways = {
        "easy.pth": f"import os; os._exit(3)\n# note\n{tmp_path / 'source'}\n",
        "torch.egg-link": f"{tmp_path / 'source'}\n.\n",
        "__editable___torch_2_0_1_finder.py": f"MAPPING: dict = {{'torch': '{tmp_path / 'source' / 'torch'}'}}\nraise SystemExit(3)\n",
    }
    for name, text in ways.items():
        (site / name).write_text(text)
        (found,) = installed(environ=environ, folder=str(tmp_path))
        assert found.version == "2.0.1" and Path(found.path).samefile(tmp_path / "source"), name
        (site / name).unlink()
    torch_at(site)  # a real installation wins over the .pth files beside it
    (site / "easy.pth").write_text(str(tmp_path / "source"))
    assert [item.version for item in installed(environ=environ, folder=str(tmp_path))] == ["2.13.0+cpu"]


def test_source_tree_before_its_first_build(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "version.txt").write_text("2.14.0a0\n")
    (found,) = installed(str(tmp_path))
    assert (found.version, found.build) == ("2.14.0a0", "unknown")


HOSTILE = {
    "code": "import os\nos._exit(3)\n__version__ = os.environ['HOME']\n",
    "no version": "cuda = '12.6'\n",
    "not a version": "__version__ = 'rm -rf /'\n",
    "binary": "\x00\xff" * 100,
    "empty": "",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_version_files_are_no_pytorch(tmp_path, name):
    torch_at(tmp_path, HOSTILE[name])
    with pytest.raises(UnusableInput):
        installed(str(tmp_path))


def test_code_before_a_version_is_not_run(tmp_path):
    torch_at(tmp_path, "import os\nos._exit(3)\n" + CPU)
    assert installed(str(tmp_path))[0].version == "2.13.0+cpu"


def test_huge_pipe_folder_and_loop(tmp_path):
    torch_at(tmp_path / "huge", CPU + "#" * (5 << 20))
    (tmp_path / "folder" / "torch" / "version.py").mkdir(parents=True)
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "torch").symlink_to("torch")
    (tmp_path / "pipe" / "torch").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe" / "torch" / "version.py")
    for name in ("huge", "folder", "loop", "pipe"):
        with pytest.raises(UnusableInput):
            installed(str(tmp_path / name))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_folder_without_permission(tmp_path):
    site = torch_at(tmp_path / "env" / "lib" / "python3.11" / "site-packages")
    site.chmod(0)
    try:
        assert installed(environ={"VIRTUAL_ENV": str(tmp_path / "env")}, folder=str(tmp_path)) != [None]
    finally:
        site.chmod(0o755)


def test_thousands_of_path_files_are_bounded(tmp_path):
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    for number in range(2500):
        (site / f"{number:05}.pth").write_text(f"{tmp_path}\n" * 3)
    environ = {"VIRTUAL_ENV": str(tmp_path / "env")}
    found = installed(environ=environ, folder=str(tmp_path))
    assert all(item.found_by == "own environment" for item in found)
