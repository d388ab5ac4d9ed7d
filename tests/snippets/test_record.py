"""The record of checks says what is true: nothing more, nothing less."""

from __future__ import annotations

import ast

import pytest

from shardguide.knowledge import releases
from shardguide.knowledge.snippets import LaunchSpec, TrainingSpec, measure, record, render_fsdp2, render_launch, verify
from shardguide.knowledge.snippets.verify import problems

from .record import FILE, expected, lacking, rendered, runs, text


def test_record_is_what_the_snippets_and_the_index_give() -> None:
    assert FILE.read_text(encoding="utf-8") == text(expected()), "run: python -m snippets.record write"


@pytest.mark.parametrize("release", releases.known())
def test_every_combination_uses_only_what_its_release_has(release: str) -> None:
    wrong = {f"{kind} {forms}: {p}" for kind, forms, code in rendered(release) for p in lacking(code, release)}
    assert not wrong


@pytest.mark.parametrize(
    ("code", "release", "says"),
    [
        ("from torch.distributed.fsdp import fully_shard", "2.5", "torch.distributed.fsdp.fully_shard is not in"),
        (
            "from torch.distributed.fsdp import fully_shard\nfully_shard(m, ignored_params=x)",
            "2.6",
            "takes no ignored_params",
        ),
        ("import torch\nm.set_requires_gradient_sync(True)", "2.2", "has the method set_requires_gradient_sync"),
        ("import torch\ntorch.nn.utils.clip_grads_with_norm_(p, 1.0, n)", "2.5", "clip_grads_with_norm_ is not in"),
        (
            "import torch.distributed as dist\ndist.init_process_group(backend='nccl', ranks=2)",
            "2.13",
            "takes no ranks",
        ),
        ("import torch.distributed as dist\ndist.no_such_thing()", "2.13", "no_such_thing is not in"),
        (
            "options = {'offload': 1}\nfrom torch.distributed.fsdp import fully_shard\nfully_shard(m, **options)",
            "2.13",
            "takes no offload",
        ),
    ],
)
def test_verify_finds_what_a_release_lacks(code: str, release: str, says: str) -> None:
    assert any(says in problem for problem in problems(ast.parse(code), release))
    assert not verify.verify(code, release).api


def test_verify_of_text_that_is_no_python() -> None:
    assert not verify.verify("def f(:", "2.13").parses
    assert not verify.verify("a\0b", "2.13").parses


def test_lookup_agrees_with_the_work_itself() -> None:
    for release in releases.known()[3:]:
        snippet = render_fsdp2(TrainingSpec(release=release))
        assert snippet.verified._replace(executed="") == verify.verify(snippet.code, release)


def test_exact_run_is_named_and_a_form_that_never_ran_is_not() -> None:
    scenario = runs()[0]
    found = record.verified(scenario.kind, scenario.forms, "2.13")
    assert found.executed == f"2.13.0, {scenario.world} processes, Gloo, CPU"
    assert record.verified("fsdp2", ["import=composable", *scenario.forms[1:]], "2.5").executed == ""
    assert not record.verified("fsdp2", ["import=nothing"], "2.13").api


def test_parts_that_ran_only_in_pairs_are_said_to_be_so() -> None:
    forms = runs()[0].forms
    other = [form if not form.startswith("optimizer=") else "optimizer=sgd_momentum" for form in forms]
    other = [form if not form.startswith("clip=") else "clip=none" for form in other]
    assert not any(set(scenario.forms) == set(other) for scenario in runs())
    assert "each of its parts" in record.verified("fsdp2", other, "2.13").executed


def test_what_never_ran_is_not_said_to_have_run() -> None:
    assert render_launch("kubernetes", LaunchSpec()).verified.executed == ""
    assert measure(TrainingSpec(device_type="cuda")).verified.executed == ""
    assert render_launch("torchrun", LaunchSpec()).verified.executed == "2.13.0, 2 processes, Gloo, CPU"
