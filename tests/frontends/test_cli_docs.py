"""``shardguide docs api`` and ``docs changes`` as a user runs them."""

from __future__ import annotations

import json

import pytest

from .conftest import Shardguide

LONGEST = 100  # columns of plain text


def test_a_name(shardguide: Shardguide) -> None:
    ran = shardguide("docs", "api", "fully_shard", "--torch", "2.13")
    assert ran.status == 0 and ran.err == ""
    first, *rest = ran.out.splitlines()
    assert first == "torch.distributed.fsdp.fully_shard (function) in PyTorch 2.13"
    assert "        reshard_after_forward: bool | int | None = None," in rest
    assert "  - 2.8: reshard_after_forward: default True → None" in rest


def test_a_name_that_the_release_has_elsewhere(shardguide: Shardguide) -> None:
    ran = shardguide("docs", "api", "fully_shard", "--torch", "2.4")
    words = " ".join(ran.out.split())
    assert ran.status == 0
    assert "not in PyTorch 2.4; there it is torch.distributed._composable.fsdp.fully_shard" in words


@pytest.mark.parametrize("asked", ["--nproc-per-node", "--nproc_per_node", "PET_NPROC_PER_NODE", "-- --nproc-per-node"])
def test_an_option_of_torchrun(shardguide: Shardguide, asked: str) -> None:
    ran = shardguide("docs", "api", "--torch", "2.13", "--json", *asked.split())
    assert ran.status == 0
    assert ran.json["name"] == "--nproc-per-node" and ran.json["option"]["env"] == "PET_NPROC_PER_NODE"


def test_a_variable(shardguide: Shardguide) -> None:
    ran = shardguide("docs", "api", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "--torch", "2.13")
    assert ran.status == 0 and "local_elastic_agent.py" in ran.out
    assert (
        shardguide("docs", "api", "TORCH_NCCL_BLOCKING_WAIT", "--torch", "2.13").out.count("no Python file reads it")
        >= 1
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["api", "fuly_shard"], "torch.distributed.fsdp.fully_shard"),
        (["api", "state_dict"], "torch.nn.Module.state_dict"),
        (["api"], "docs api needs one name"),
        (["api", "a", "b"], "docs api needs one name"),
        (["api", "fully_shard", "--torch", "2.99"], "2.99"),
        (["changes", "2.11"], "two releases"),
        (["changes", "2.11", "2.11"], "two releases"),
        (["changes", "2.11", "3.0"], "3.0"),
        (["changes", "2.11", "2.15", "--nnodes"], "two releases"),
        (["verify", "fully_shard"], "no names"),
        (["read"], "invalid choice"),
    ],
)
def test_refusals(shardguide: Shardguide, arguments: list[str], words: str) -> None:
    ran = shardguide("docs", *arguments)
    assert ran.status == 2 and ran.out == ""
    assert ran.err.count("\n") == 1 and words in ran.err and "internal error" not in ran.err


def test_changes(shardguide: Shardguide) -> None:
    ran = shardguide("docs", "changes", "2.11", "2.15")
    assert ran.status == 0 and ran.err == ""
    lines = ran.out.splitlines()
    assert lines[0].startswith("PyTorch 2.11 → 2.15 for FSDP, DDP, DTensor and DCP: ")
    headings = [line for line in lines if line and not line.startswith((" ", "PyTorch"))]
    with_releases = [f"Behaviour, with 2.{minor}" for minor in (12, 13, 14, 15)]
    assert headings[1:6] == [*with_releases, "Deprecations"] and "FSDP" in headings
    assert len(lines) < 300 and max(len(line) for line in lines) <= LONGEST
    words = " ".join(ran.out.split())
    at_2_12, rest = words.split("Behaviour, with 2.12")[1].split("Behaviour, with 2.13")
    assert "in one FSDP2 group" in at_2_12 and "fully_shard([a, b])" in at_2_12  # tied parameters raise since 2.12
    at_2_15 = rest.split("Behaviour, with 2.15")[1]
    assert "reduce_dtype=None follows the parameter's grad_dtype" in at_2_15
    assert "reduce_dtype=None with param_dtype set reduces gradients in param_dtype" in at_2_15
    whole = shardguide("docs", "changes", "2.11", "2.15", "--verbose").out
    assert whole.count("\n") > len(lines) and "Pipelining" in whole and "(--verbose)" not in whole


def test_changes_over_all_releases_stay_readable(shardguide: Shardguide) -> None:
    assert shardguide("docs", "changes", "2.0", "2.15").out.count("\n") < 500


def test_json_and_markdown(shardguide: Shardguide) -> None:
    for arguments in (["api", "fully_shard", "--torch", "2.13"], ["changes", "2.11", "2.15"]):
        ran = shardguide("docs", *arguments, "--json")
        assert ran.status == 0 and json.loads(ran.out) == shardguide("docs", *arguments, "--format", "json").json
        assert ran.out == shardguide("docs", *arguments, "--json").out
        page = shardguide("docs", *arguments, "--format", "md")
        assert page.status == 0 and page.out.startswith("# ")


def test_no_terminal_codes_from_a_name(shardguide: Shardguide) -> None:
    ran = shardguide("docs", "api", "\x1b[31mfully_shard\n")
    assert ran.status == 2 and "\x1b" not in ran.err and ran.err.count("\n") == 1
