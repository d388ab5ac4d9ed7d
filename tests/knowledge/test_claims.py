"""The claims are whole, and each one is found again in PyTorch 2.13.0's own files."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shardguide.guidance.record import Release
from shardguide.installed import verify
from shardguide.knowledge import claims_store, releases
from shardguide.knowledge.claims_store import Page, Words

ROOT = Path(__file__).parent.parent.parent
KNOWLEDGE = ROOT / "src" / "shardguide" / "knowledge"
IDS = claims_store.ids()


def statements():
    return [claims_store.get(name) for name in IDS]


@pytest.fixture(scope="module")
def site_packages():
    """The folder that holds PyTorch 2.13.0; found, not imported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("PyTorch is not installed here; make test installs it")
    folder = Path(spec.origin).parent.parent
    if "'2.13.0" not in (folder / "torch" / "version.py").read_text():
        pytest.skip("another PyTorch than 2.13.0 is installed here")
    return folder


def in_213(statement):
    return not statement.limits or releases.within("2.13", statement.limits)


def test_enough_claims_and_few_on_pages_alone():
    paged = [item for item in statements() if all(isinstance(source, Page) for source in item.sources)]
    assert len(IDS) >= 150
    assert len(paged) <= len(IDS) / 4


def test_ids_and_texts():
    assert sorted(IDS) == IDS and len(set(IDS)) == len(IDS)
    for item in statements():
        assert re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)+", item.id)
        assert item.text.endswith(".") and "\n" not in item.text
        assert item.sources
        for source in item.sources:
            assert source.url.startswith("https://")
            if isinstance(source, Page):
                assert re.fullmatch("[0-9a-f]{64}", source.digest) and source.version


def test_no_two_claims_rest_on_the_same_words():
    seen: dict[tuple[str, str], str] = {}
    for item in statements():
        for source in item.sources:
            for anchor in source.anchors if isinstance(source, Words) else ():
                assert seen.setdefault((source.places[0][0], anchor), item.id) == item.id


def test_subjects_are_numbers_of_the_thirty():
    for item in statements():
        assert all(isinstance(number, int) and 1 <= number <= 30 for number in item.subjects), item.id


def witnesses():
    """Every test of the files of witnesses, with the file that holds it."""
    for file in sorted(Path(__file__).parent.glob("test_witnesses*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield file.name, node


def test_each_witness_is_a_test_and_each_test_a_witness():
    names = [node.name for _, node in witnesses()]
    assert sorted(names) == sorted(set(names))  # a claim names the test alone, not its file
    assert set(names) == {item.witness for item in statements() if item.witness}


def test_witnesses_can_fail():
    """None is skipped or expected to fail, and each compares with something."""
    for file, node in witnesses():
        where = f"{file}::{node.name}"
        decorators = {
            part.attr for item in node.decorator_list for part in ast.walk(item) if isinstance(part, ast.Attribute)
        }
        assert not decorators & {"skip", "skipif", "xfail"}, where
        called = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
        assert not called & {"skip", "xfail", "importorskip"}, where
        asserts = any(isinstance(part, ast.Assert) for part in ast.walk(node))
        assert asserts or called & {"raises", "warns"}, where


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib, in which the sources are read, came with Python 3.11")
def test_shipped_claims_are_those_of_the_sources():
    import tomllib

    written = {}
    for file in sorted((KNOWLEDGE / "claims").glob("*.toml")):
        for claim in tomllib.loads(file.read_text(encoding="utf-8")).get("claim", []):
            assert claim["id"] not in written
            written[claim["id"]] = claim
    assert sorted(written) == IDS
    for item in statements():
        claim = written[item.id]
        assert item.text == " ".join(claim["text"].split())
        assert item.witness == claim.get("witness", "")
        anchors = [[" ".join(a.split()) for a in source["anchors"]] for source in claim["sources"] if "place" in source]
        assert anchors == [list(source.anchors) for source in item.sources if isinstance(source, Words)]


@pytest.mark.torch
def test_every_claim_is_found_in_2_13_0(site_packages):
    result = verify.claims(IDS, Release("2.13.0", "test", str(site_packages)))
    for item in statements():
        coded = any(isinstance(source, Words) for source in item.sources)
        expected = "not confirmed" if not in_213(item) else "found" if coded else "page"
        assert result[item.id].status == expected, item.id
        assert result[item.id].text == item.text


@pytest.mark.torch
def test_lines_lie_in_the_definition_and_hold_the_words(site_packages):
    """Checked against the real syntax tree, which the product does not use."""
    trees: dict[str, ast.Module] = {}
    known: dict[tuple[str, str], list[tuple[int, int]]] = {}
    checked = 0
    for name, claim in verify.claims(IDS, Release("2.13.0", "test", str(site_packages))).items():
        if claim.status != "found":
            continue
        for source, words in zip(claim.sources, claims_store.get(name).sources, strict=True):
            if not isinstance(words, Words):
                continue
            where = source.reopened.where
            text = (site_packages / where).read_text(encoding="utf-8")
            line = text.splitlines()[source.reopened.line - 1]
            assert any(line.find(anchor.split()[0]) >= 0 for anchor in words.anchors), (name, line)
            definition = next(place[2] for place in words.places if place[1] == where and place[0] == source.object)
            if definition:
                if where not in trees:
                    trees[where] = ast.parse(text)
                if (where, definition) not in known:
                    known[where, definition] = spans(trees[where], definition)
                assert any(a <= source.reopened.line <= b for a, b in known[where, definition]), name
            checked += 1
    assert checked > 200


def spans(tree, definition):
    """First and last lines of every definition of that qualified name."""
    found = [tree]
    for name in definition.split("."):
        found = [
            node
            for parent in found
            for node in ast.walk(parent)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name
        ]
    return [(node.lineno, node.end_lineno) for node in found]


@pytest.mark.torch
def test_a_changed_word_is_noticed(site_packages, tmp_path):
    name = "fsdp2.reshard.default"
    (source,) = claims_store.get(name).sources
    file = source.places[0][1]
    copy = tmp_path / file
    copy.parent.mkdir(parents=True)
    text = (site_packages / file).read_text(encoding="utf-8")
    release = Release("2.13.0", "test", str(tmp_path))
    copy.write_text(text, encoding="utf-8")
    assert verify.claims([name], release)[name].status == "found"
    assert text.count("for non-root modules") == 1
    copy.write_text(text.replace("for non-root modules", "for all modules"), encoding="utf-8")
    changed = verify.claims([name], release)[name]
    assert changed.status == "not confirmed"
    assert changed.sources[0].reopened is None
    assert verify.claims(["fsdp2.reshard.true"], release)["fsdp2.reshard.true"].status == "found"


@pytest.mark.torch
def test_words_elsewhere_in_the_file_do_not_count(site_packages, tmp_path):
    name = "fsdp2.reshard_method"
    (source,) = claims_store.get(name).sources
    file = source.places[0][1]
    copy = tmp_path / file
    copy.parent.mkdir(parents=True)
    text = (site_packages / file).read_text(encoding="utf-8")
    copy.write_text(text.replace("\nclass FSDPModule:", "\nclass Another:"), encoding="utf-8")
    release = Release("2.13.0", "test", str(tmp_path))
    assert verify.claims([name], release)[name].status == "not confirmed"


def test_index_answers_without_pytorch():
    def status(name, version):
        return verify.claims([name], Release(version, "user"))[name].status

    assert status("fsdp2.reshard.default", "2.13") == "index"
    assert status("fsdp2.reshard.default", "2.8.0+cu126") == "index"
    assert status("fsdp2.reshard.default", "2.7.1") == "not confirmed"
    assert status("fsdp2.reshard.default_before_2_8", "2.7.1") == "index"
    assert status("fsdp2.reshard.default_before_2_8", "2.8.0") == "not confirmed"
    assert status("fsdp2.tied", "2.11.0") == "not confirmed"
    assert status("fsdp2.tied", "2.12.1") == "index"
    assert status("mp2.reduce_dtype.none", "2.14") == "index"
    assert status("mp2.reduce_dtype.none", "2.15") == "not confirmed"
    assert status("mp2.reduce_dtype.none_2_15", "2.15.0") == "index"
    assert status("fsdp2.what", "") == "not confirmed"  # an unknown release confirms nothing
    assert status("practice.fsdp_when", "2.13") == "page"


def test_unknown_claims():
    for name in ("fsdp2.nothing", "@places", "", 'a"b', "a\nb"):
        with pytest.raises(KeyError):
            claims_store.get(name)


@pytest.mark.slow
def test_wheels_rebuild_the_same_bytes():
    """Looks every claim up in every release's own files, and builds the API index anew."""
    wheels = os.environ.get("SHARDGUIDE_WHEELS")
    if not wheels:
        pytest.skip("SHARDGUIDE_WHEELS names no folder filled by scripts/fetch_wheels.py")
    for script in ("build_claims.py", "build_api.py"):
        command = [sys.executable, str(ROOT / "scripts" / script), wheels, "--check"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
