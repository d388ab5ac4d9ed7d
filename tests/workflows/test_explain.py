"""Explaining: every subject has its page, every statement its source, every snippet its checks; for every release."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.serialise import to_dict
from shardguide.knowledge import api, claims_store, pattern_store, releases, topic_store
from shardguide.workflows.explain import ExplainRequest, explain, listing

ROOT = Path(__file__).resolve().parent.parent.parent
TOPICS = topic_store.ids()
# W4.2: what a real loop is made of. (topic, id of a pattern that must be on its page)
PATTERNS = (
    ("wrapping", "fsdp2-shard"), ("mixed-precision", "fsdp2-mixed-precision"), ("cpu-offload", "fsdp2-cpu-offload"),
    ("process-group-setup", "init-env-torchrun"), ("zero-redundancy-optimizer", "ddp-zero"), ("device-mesh", "device-mesh"),
    ("hybrid-sharding", "fsdp2-hybrid-mesh"), ("meta-device-init", "fsdp2-meta-init"), ("optimizer", "fsdp2-optimizer"),
    ("gradient-clipping", "fsdp2-clip"), ("gradient-accumulation", "fsdp2-accumulate"),
    ("activation-checkpointing", "fsdp2-activation-checkpointing"), ("prefetching", "fsdp2-prefetch"), ("compile", "fsdp2-compile"),
    ("distributed-checkpoint", "dcp-save-load"), ("load-full-checkpoint", "full-checkpoint-load"), ("evaluation", "fsdp2-evaluate"),
    ("tensor-parallel", "tp-fsdp"), ("ddp-static-graph", "ddp-static-graph"), ("ddp-rpc", "ddp-rpc"), ("init-tcp", "init-tcp-spawn"),
    ("init-file", "init-file-spawn"), ("init-env", "init-env-spawn"), ("sub-groups", "sub-groups"), ("join", "join-ddp-zero"),
    ("join-own-joinable", "join-own-joinable"), ("uneven-inputs-fsdp", "fsdp2-uneven-inputs-agree"),
)  # fmt: skip


def record(topic="", release="2.13", **more):
    return to_dict(explain(ExplainRequest(topic, torch=release, **more)))


def statements(page):
    return [*page["answer"], *(one for section in page["sections"] for one in section["statements"])]


def test_the_shipped_pages_are_what_the_files_say():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "build_topics.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("subject", range(1, 31))
def test_every_subject_has_a_page_with_a_claim_that_can_be_opened(subject):
    pages = [name for name in TOPICS if subject in topic_store.get(name).subjects]
    assert pages
    shown = {one["id"] for name in pages for one in statements(record(name)["topic"])}
    about = [name for name in claims_store.ids() if subject in claims_store.get(name).subjects]
    assert set(about) & shown, "its claims stand on its pages"
    assert any(claims_store.get(name).releases for name in about), (
        "one of them at least is found in PyTorch's own files"
    )


@pytest.mark.parametrize(("topic", "pattern"), PATTERNS, ids=lambda value: value)
def test_every_pattern_of_a_real_loop_is_there(topic, pattern):
    assert pattern in {one["id"] for one in record(topic)["snippets"]}


@pytest.mark.parametrize("topic", TOPICS)
def test_every_page_for_every_release(topic):
    """No statement without a source, none of another release, no code with a name that the release lacks."""
    for release in releases.known():
        shown = record(topic, release)
        if not shown["topic"]["answer"]:  # where it does hold is said in a section of its own, and by nothing else
            elsewhere = shown["topic"]["sections"].pop(0)
            assert elsewhere["title"] == f"Known of other releases, not of PyTorch {release}"
            assert {one["status"] for one in elsewhere["statements"]} == {"release unknown"}
        for one in statements(shown["topic"]):
            claim = claims_store.get(one["id"])
            assert one["sources"] and one["text"] == claim.text
            assert not claim.limits or releases.within(release, claim.limits)
            assert one["status"] in ("index", "found", "page")
        for snippet in shown["snippets"]:
            assert snippet["verified"]["parses"] and snippet["verified"]["api"]
            for node in ast.walk(ast.parse(snippet["code"])):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.distributed."):
                    for alias in node.names:
                        full = f"{node.module}.{alias.name}"
                        assert api.exists(full, release) or any(name.startswith(full + ".") for name in api.names()), (
                            full
                        )
        assert shown["status"] == "complete"
    assert record(topic)["topic"]["answer"], "it answers for the reference release"


def test_without_a_release_statements_are_shown_with_theirs_and_code_is_not():
    shown = to_dict(explain(ExplainRequest("join", site_packages=None, torch=None)))
    if shown["torch"]["version"]:
        pytest.skip("a PyTorch is installed beside these tests, so the release is known")
    assert shown["status"] == "needs_answers" and not shown["snippets"]
    assert {one["status"] for one in statements(shown["topic"])} == {"release unknown"}


def test_a_whole_script_comes_only_when_it_is_asked_for():
    for topic in TOPICS:
        assert not any(one["id"].endswith("full-script") for one in record(topic)["snippets"])
    for form in ("", "fsdp2", "fsdp1", "ddp"):
        shown = record(full_script=True, form=form)
        assert [one["id"] for one in shown["snippets"]] == [f"{form or 'fsdp2'}-full-script"]
        assert 'if __name__ == "__main__"' in shown["snippets"][0]["code"]


def test_a_release_without_fsdp2_gets_the_script_of_fsdp1():
    """fully_shard is public from 2.6 on, as the export of torch/distributed/fsdp/__init__.py shows."""
    for release, form in (("2.3", "fsdp1"), ("2.5", "fsdp1"), ("2.6", "fsdp2")):
        assert [one["id"] for one in record(full_script=True, release=release)["snippets"]] == [f"{form}-full-script"]
    with pytest.raises(UnusableInput, match="not with c10d"):
        record(full_script=True, form="c10d")


def test_a_form_narrows_the_listing_and_the_code():
    for group in listing("fsdp1")["groups"]:
        for topic in group["topics"]:
            assert topic["patterns"] and {pattern_store.get(one).form for one in topic["patterns"]} == {"fsdp1"}
    with pytest.raises(UnusableInput, match="--form is one of"):
        listing("fsdp3")
    shown = record("join", form="fsdp2")
    assert not shown["snippets"] and "none for --form fsdp2" in shown["notes"][0]


def test_the_table_of_backends():
    """A row and the columns of docs/source/distributed: in 2.6 without XCCL, which has columns since 2.7."""
    table = record("backend-capabilities")["topic"]["table"]
    assert table["columns"] == [
        "gloo CPU",
        "gloo GPU",
        "mpi CPU",
        "mpi GPU",
        "nccl CPU",
        "nccl GPU",
        "xccl CPU",
        "xccl GPU",
    ]
    rows = {one["operation"]: one["marks"] for one in table["rows"]}
    assert len(rows) == 11 and rows["send"] == ["yes", "no", "yes", "?", "no", "yes", "no", "yes"]
    assert len(record("backend-capabilities", "2.6")["topic"]["table"]["columns"]) == 6


def test_by_architecture():
    for architecture in ("transformer", "moe", "vision", "multi-tower", "tied"):
        shown = record(architecture=architecture)
        assert shown["snippets"] and {one["architecture"] for one in shown["patterns"]} == {architecture}
    names = {one["id"] for one in record("wrapping", architecture="moe")["snippets"]}
    assert "fsdp2-wrap-moe" in names and "fsdp2-wrap-vision" not in names and "fsdp2-shard" in names


def test_a_pattern_says_what_it_follows_and_why_it_departs():
    for topic in TOPICS:
        for one in record(topic)["patterns"]:
            assert one["follows"]
            assert bool(one["not_run"]) != bool(pattern_store.get(one["id"]).executed)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("", "needs a topic"),
        ("nothing like it", "no topic"),
        ("init", "several topics"),
        ("../../etc/passwd", "no topic"),
        ("\x1b[2J", "no topic"),
    ],
)
def test_unusable_topics(words, problem):
    with pytest.raises(UnusableInput, match=problem):
        record(words)


def test_the_listing_has_every_page_once():
    listed = [one["id"] for group in listing()["groups"] for one in group["topics"]]
    assert sorted(listed) == sorted(TOPICS) and len(listed) == len(set(listed))


def test_the_same_question_gives_the_same_bytes():
    one, two = (json.dumps(record("join")) for _ in range(2))
    assert one == two
