"""The public surface: what ``import shardguide`` offers, typed, documented by examples that run, and no more than that."""

from __future__ import annotations

import doctest
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import shardguide
from shardguide import library
from shardguide.guidance.record import Guidance
from shardguide.workflows import catalogue

WORKFLOWS = {"ask", "backend", "diagnose", "explain", "fsdp2", "init", "join", "migrate", "plan", "review", "tune"}


def test_what_is_offered() -> None:
    assert set(shardguide.__all__) == WORKFLOWS | {"Guidance", "UnusableInput", "to_dict"}
    assert dir(shardguide) == sorted(shardguide.__all__)
    for name in shardguide.__all__:
        assert getattr(shardguide, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = shardguide.nothing


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_each_workflow_is_typed_and_returns_a_guidance(name: str) -> None:
    signature = inspect.signature(getattr(shardguide, name))
    assert signature.return_annotation == "Guidance"
    assert all(one.annotation is not inspect.Parameter.empty for one in signature.parameters.values())
    assert all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())


# Names that say it better in Python: --with is no identifier that Python allows, --from neither.
RENAMED = {"with": "parts", "from": "files"}


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_each_argument_of_a_workflow_can_be_given(name: str) -> None:
    known = {RENAMED.get(one, one) for one in catalogue.arguments_of(catalogue.TASKS[name])}
    assert set(inspect.signature(getattr(library, name)).parameters) - {"site_packages"} == known


@pytest.mark.parametrize("module", [shardguide, library], ids=lambda module: module.__name__)
def test_the_examples_run(module: object) -> None:
    found = doctest.testmod(module, extraglobs=dict(vars(library)))  # type: ignore[arg-type]
    assert found.attempted >= 2 and found.failed == 0


def test_a_result_is_the_object_of_the_command_line(tmp_path: Path) -> None:
    answer = shardguide.backend(device="cuda", inter="infiniband", os="linux", torch="2.13")
    assert isinstance(answer, Guidance)
    ran = subprocess.run(
        [sys.executable, "-m", "shardguide", "backend", "--device", "cuda", "--inter", "infiniband", "--os", "linux",
         "--torch", "2.13", "--json", "--notebook", str(tmp_path / "n.db")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shardguide.to_dict(answer) == json.loads(ran.stdout)


def test_bad_input_is_one_sentence() -> None:
    with pytest.raises(shardguide.UnusableInput, match="17"):
        shardguide.plan("7b", gpus=17, nodes=2, torch="2.13")
    with pytest.raises(shardguide.UnusableInput):
        shardguide.review("no-such-file.py")


def test_importing_it_loads_nothing_of_what_it_offers() -> None:
    code = "import sys, shardguide; print([name for name in sys.modules if name.startswith('shardguide.')])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
