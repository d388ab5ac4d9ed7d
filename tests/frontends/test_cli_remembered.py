"""The notebook between calls: what is superseded is forgotten, and a refusal names the remembered answer behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from shardguide import library
from shardguide.notebook import Notebook, Place, project_key
from tests.mcp_server.test_results import JOINABLE

from .conftest import FULL, Shardguide

REST = [word for word in FULL if word not in ("--gpu", "H100 SXM 80GB", "--intra", "nvlink")]


def _torch(shardguide: Shardguide, version: str) -> Path:
    """A site-packages folder that holds nothing of a PyTorch but its version."""
    folder = shardguide.folder / f"torch-{version}"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")
    return folder


def names(shardguide: Shardguide) -> set[str]:
    return {one["name"] for one in shardguide("answers", "show", "--json").json["answers"]}


def test_a_stated_memory_drops_the_remembered_gpu_for_good(shardguide: Shardguide) -> None:
    assert shardguide(*REST, "--gpu", "T4", "--intra", "pcie", "--json").status == 0
    assert shardguide("plan", "--gpu-memory", "24GB", "--json").status == 3  # the link was the T4's
    assert "gpu" not in names(shardguide) and "gpu_memory" in names(shardguide)
    again = shardguide("plan", "--intra", "pcie", "--json")
    assert again.status == 0 and again.json["answers"]["gpu_memory"]["from"] == "notebook"


def test_another_gpu_takes_its_own_link(shardguide: Shardguide) -> None:
    assert shardguide(*REST, "--gpu", "H100 SXM", "--intra", "nvlink", "--json").status == 0
    other = shardguide("plan", "--gpu", "MI300X", "--json")
    assert other.status == 0 and other.json["answers"]["intra"]["value"] == "xgmi"
    assert "intra" not in names(shardguide)


def test_another_model_drops_the_remembered_tensor_parallelism(shardguide: Shardguide) -> None:
    assert shardguide(*FULL, "--tp", "4", "--json").status == 0
    assert shardguide("plan", "7b", "--json").json["answers"].get("tp") is None
    assert "tp" not in names(shardguide)


def test_a_refusal_names_the_remembered_answer_that_causes_it(shardguide: Shardguide) -> None:
    """PyTorch 2.1 has FSDP1 only, whose flat parameters with tensor parallelism are not worked out."""
    assert shardguide(*FULL, "--tp", "4", "--json").status == 0
    ran = shardguide("plan", "--torch", "2.1", "--json")
    assert ran.status == 2 and ran.out == ""
    assert "tp 4 was remembered" in ran.err and "answers forget tp" in ran.err
    assert "remembered" not in shardguide("plan", "--torch", "2.1", "--tp", "4", "--json").err


def test_a_remembered_model_that_is_gone_is_named_as_remembered(shardguide: Shardguide) -> None:
    config = shardguide.folder / "config.json"
    config.write_text('{"model_type": "gpt2"}')
    shardguide("plan", "config.json", "--torch", "2.13", "--json")
    config.unlink()
    ran = shardguide("plan", "--json")
    assert ran.status == 2 and "answers forget model" in ran.err


BACKEND = ("backend", "--device", "cuda", "--interconnect", "infiniband", "--os", "linux")
SAID = "Asked here before"


def test_the_same_request_is_known_again(shardguide: Shardguide) -> None:
    asked = (*BACKEND, "--torch", "2.13", "--site-packages", str(_torch(shardguide, "2.13.0")))
    first = shardguide(*asked)
    again = shardguide(*asked)
    assert SAID not in first.out and again.out.startswith(first.out)
    said = " ".join(again.out.removeprefix(first.out).split())
    assert said.startswith(SAID) and said.endswith("worked out and checked again: the same answer.")
    found, more = shardguide(*asked, "--json").json, shardguide(*asked, "--json").json
    earlier = found.pop("earlier")
    more.pop("earlier")
    assert found == more and (earlier["id"], earlier["same"], earlier["changed"]) == (found["id"], True, [])
    assert SAID not in shardguide(*asked, "--needs", "all_to_all").out  # another request


def test_another_installed_pytorch_is_another_answer_to_the_same_request(shardguide: Shardguide) -> None:
    """The capability table has three operations more in 2.8 than the page of 2.5, which knows no XCCL."""
    new, old = _torch(shardguide, "2.13.0"), _torch(shardguide, "2.5.1")
    identity = shardguide(*BACKEND, "--site-packages", str(new), "--json").json["id"]
    assert shardguide("approve", identity).status == 0
    other = shardguide(*BACKEND, "--site-packages", str(old), "--json").json
    earlier = other["earlier"]
    assert (earlier["id"], earlier["torch"], earlier["state"], earlier["same"]) == (
        identity,
        "2.13.0",
        "approved",
        False,
    )
    assert earlier["changed"][:2] == [
        "The approval was given to the earlier answer, not to this one.", "It was for PyTorch 2.13.0, this is for PyTorch 2.5.1.",
    ]  # fmt: skip
    assert any(one.startswith("capabilities: other than then") for one in earlier["changed"])
    assert other["approval"]["state"] == "draft"
    back = shardguide(*BACKEND, "--site-packages", str(new), "--json").json
    assert (back["id"], back["earlier"]["id"], back["approval"]["state"]) == (identity, identity, "approved")


def test_the_same_release_in_another_state_is_told(shardguide: Shardguide) -> None:
    """Its files no longer hold what the answer cites: the id is the same, the check is not, and the approval has lapsed."""
    where = _torch(shardguide, "2.13.0")
    asked = (
        "init",
        "--method",
        "env",
        "--backend",
        "nccl",
        "--launcher",
        "torchrun",
        "--site-packages",
        str(where),
        "--json",
    )
    source = where / "torch" / "distributed" / "distributed_c10d.py"
    source.parent.mkdir()
    source.write_bytes((Path(torch.__file__).parent / "distributed" / "distributed_c10d.py").read_bytes())
    first = shardguide(*asked).json
    assert any(one["reopened"] for one in first["sources"])
    shardguide("approve", first["id"])
    source.write_text("# nothing of it is left\n")
    again = shardguide(*asked).json
    earlier = again["earlier"]
    assert again["id"] == earlier["id"] == first["id"] and earlier["state"] == "approved"
    assert any("is not as it was" in one for one in earlier["changed"])
    assert again["approval"]["state"] == "draft"


@pytest.mark.parametrize("command", ["review", "migrate", "join", "diagnose"])
def test_a_file_counts_by_what_it_holds(shardguide: Shardguide, command: str) -> None:
    """Named in another way it is the same request; with other contents it is not."""
    text = {
        "diagnose": "RuntimeError: trying to initialize the default process group twice!\n",
        "migrate": "from torch.distributed.fsdp import FullyShardedDataParallel as F\n\n\ndef f(m):\n    return F(m)\n",
        "join": JOINABLE,
        "review": "import torch.distributed as dist\n\ndist.init_process_group('nccl', group_name='a')\n",
    }[command]
    path = shardguide.folder / ("run.log" if command == "diagnose" else "train.py")
    path.write_text(text)
    more = (
        ("--with", "own", "--uneven", "yes", "--on-exhausted", "stop", "--collectives", "no")
        if command == "join"
        else ()
    )
    asked = (command, path.name, *more, "--json", "--torch")
    first = shardguide(*asked, "2.13").json
    assert "earlier" not in first
    assert shardguide(*asked, "2.13").json["earlier"]["same"]
    assert shardguide(*asked, "2.14").json["earlier"]["torch"] == first["torch"]["version"]
    path.write_text(text.replace("all_reduce", "broadcast") if command == "join" else f"{text}{text.splitlines()[0]}\n")
    assert "earlier" not in shardguide(*asked, "2.13").json


def test_a_record_of_another_kind_is_no_earlier_answer(shardguide: Shardguide) -> None:
    """What was imported, or written by another version, may hold anything; the answer of now does not suffer."""
    request = library.backend(device="cuda", inter="infiniband", os="linux", torch="2.13").request
    state = Place(str(shardguide.folder / "odd.db"), True)
    for strange in (
        {},
        {"torch": None},
        {"decisions": 3, "torch": {"path": []}},
        {"decisions": [[]], "status": "complete", "sources": [1]},
    ):
        with Notebook(state) as notebook:
            notebook.save(
                {"id": "aaaa1111", "status": "complete", **strange}, request, project_key(str(shardguide.folder))
            )
        ran = shardguide(*BACKEND, "--torch", "2.13", "--json", "--notebook", state.path)
        assert ran.status == 0 and ran.json["decisions"]
        Path(state.path).unlink()
