"""Every pattern: offered only where the API has what it uses, run by the test that its header names, short enough to paste."""

import ast
import subprocess
import sys

import pytest

from shardguide.knowledge import pattern_store, releases, topic_store

from .load import FOLDER, ROOT, builder

FILES = sorted(FOLDER.glob("*.py"))


def test_the_shipped_data_is_what_the_files_say():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "build_patterns.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_is_shipped():
    assert [path.stem.replace("_", "-") for path in FILES] == pattern_store.ids()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_pattern_is_run_by_the_test_it_names(path):
    """The test exists, is not skipped, and loads this very pattern: so ``executed`` is no promise but what the suite did."""
    header, _ = builder.read(path)
    if header.get("not_run"):
        assert len(header["not_run"]) > 20, "says why it could not be executed"
        return
    file, _, name = header["test"].partition("::")
    tree = ast.parse((ROOT / "tests" / "patterns" / file).read_text(encoding="utf-8"))
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert name in functions, f"{file} has no {name}"
    assert "skip" not in " ".join(ast.unparse(one) for one in functions[name].decorator_list)
    # By its own name, or by one that a parameter or a loop gives.
    loaded = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert header["id"] in loaded, f"{file} never loads {header['id']}"


@pytest.mark.parametrize("pattern", pattern_store.ids())
def test_the_spelling_of_every_release_parses(pattern):
    found = pattern_store.get(pattern)
    assert pattern_store.offered(found, "2.13"), "every pattern works on the release that it was run on"
    for release in releases.known():
        ast.parse(pattern_store.code_for(found, release))


def test_patterns_of_before_2_6_import_from_where_fully_shard_was():
    """In 2.4 and 2.5 ``fully_shard`` is importable from ``_composable.fsdp`` only: seen in the releases' own sources."""
    for pattern in pattern_store.ids():
        found = pattern_store.get(pattern)
        if "fully_shard(" not in found.code or not pattern_store.offered(found, "2.5"):
            continue
        old = pattern_store.code_for(found, "2.5")
        assert "from torch.distributed.fsdp import fully_shard" not in old, pattern
        assert "_composable.fsdp" in old, pattern


def test_topics_and_patterns_know_each_other():
    topics = set(topic_store.ids())
    for pattern in pattern_store.ids():
        assert set(pattern_store.get(pattern).topics) <= topics, pattern
