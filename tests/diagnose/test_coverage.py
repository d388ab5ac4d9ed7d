"""How much of what PyTorch 2.13.0 raises itself has a diagnosis: counted from the table, and the table from the sources."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardguide.knowledge import diagnosis_store
from shardguide.readers.logs.records import Event, Evidence
from shardguide.workflows.diagnose.match import Candidate, Shown
from shardguide.workflows.diagnose.numbers import decided

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import count_errors  # noqa: E402
import errors_rules  # noqa: E402

ROWS = [json.loads(line) for line in count_errors.TABLE.read_text(encoding="utf-8").splitlines()]
AT_LEAST = 0.85


def test_share_of_every_package():
    counts: dict[str, list[int]] = {}
    for row in ROWS:
        if row["user_facing"]:
            counts.setdefault(count_errors.package_of(row["file"]), []).append(bool(row["diagnosis"]))
    assert set(counts) == {name for name, _ in errors_rules.PACKAGES}
    low = {name: sum(has) / len(has) for name, has in counts.items() if sum(has) < AT_LEAST * len(has)}
    assert not low


def test_what_has_no_diagnosis_says_why():
    assert not [row for row in ROWS if row["user_facing"] and not row["diagnosis"] and not row["why_not"]]
    assert not [row for row in ROWS if not row["user_facing"] and not row["reason"]]


def test_a_sign_of_the_named_diagnosis_stands_in_the_message():
    wrong = []
    for row in ROWS:
        if row["diagnosis"]:
            signs = diagnosis_store.entry(row["diagnosis"])["signs"]
            if not any(sign["text"] in piece for sign in signs for piece in row["pieces"]):
                wrong.append((row["file"], row["line"], row["diagnosis"]))
    assert not wrong


def test_every_rule_of_the_script_is_used():
    """A rule that fits nothing hides a misspelling: every entry matches a place of the table."""
    asserted = [row for row in ROWS if row["kind"] == "AssertionError"]
    for prefix, words in errors_rules.REACHED:
        assert any(row["file"].startswith(prefix) and words in "\n".join(row["pieces"]) for row in asserted), words
    for prefix, words, _ in errors_rules.INTERNAL:
        assert any(
            row["file"].startswith(prefix)
            and (words in "\n".join(row["pieces"]) or (words.endswith("()") and row["function"].endswith(words[:-2])))
            for row in ROWS
        ), (prefix, words)
    for words in errors_rules.WARNS:
        assert any(row["kind"] == "warning" and words in "\n".join(row["pieces"]) for row in ROWS), words


SOURCE = '''
LIMIT = "the limit of the module "

class Base:
    def step(self):
        """Overridden by subclasses."""
        raise NotImplementedError("subclasses implement the step")

    def check(self, value):
        prefix = f"value {value} "
        if value:
            raise ValueError(prefix + "is not one of the allowed values")
        _p_assert(value, f"Expects storage to be allocated for {value!r}")
        self._log_and_throw(RuntimeError, "two pieces " "of one message")
        assert value, "an assertion with words"
        assert value
        raise RuntimeError(LIMIT + "is reached")
'''


def test_messages_are_read_from_the_source():
    found = {
        (kind, tuple(count_errors.pieces_of(text)), waits)
        for _, _, kind, text, waits in count_errors.sites(ast.parse(SOURCE))
    }
    assert found == {
        ("NotImplementedError", ("subclasses implement the step",), True),
        ("ValueError", ("is not one of the allowed values",), False),
        ("AssertionError", ("Expects storage to be allocated for",), False),
        ("RuntimeError", ("two pieces of one message",), False),
        ("AssertionError", ("an assertion with words",), False),
        ("RuntimeError", ("the limit of the module is reached",), False),
    }


def test_who_sees_a_message():
    fsdp = "torch/distributed/fsdp/_flat_param.py"
    judged = count_errors.judged
    assert judged(fsdp, "f", "ValueError", ["Cannot flatten integer dtype tensors"], False) == ""
    assert judged(fsdp, "f", "AssertionError", ["Expects storage to be allocated"], False) == ""
    assert "own state" in judged(fsdp, "f", "AssertionError", ["Expected _params to be not None"], False)
    assert "words" in judged(fsdp, "f", "ValueError", [], False)
    assert "subclass" in judged(fsdp, "f", "NotImplementedError", ["subclasses implement the step"], True)
    assert "warning" in judged(fsdp, "f", "warning", ["this argument is deprecated"], False)


@pytest.mark.slow
def test_the_table_is_what_the_sources_give():
    wheels = os.environ.get("SHARDGUIDE_WHEELS")
    if not wheels:
        pytest.skip("SHARDGUIDE_WHEELS names no folder filled by scripts/fetch_wheels.py")
    command = [sys.executable, str(ROOT / "scripts" / "count_errors.py"), wheels, "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _log(*texts: str) -> list[Evidence]:
    events = tuple(Event(0, "rank0.log", number, 0, None, text) for number, text in enumerate(texts, 1))
    return [Evidence("rank0.log", 0, 0, len(texts), events, (), (), (), "")]


def _candidates(*names: str) -> list[Candidate]:
    shown = (Shown("rank0.log", 1, ""),)
    return [
        Candidate(diagnosis_store.get(name), diagnosis_store.get(name).confidence, (0,), shown, 0.0) for name in names
    ]


BARRIER = "Timed out initializing process group in store based barrier on rank 0, for key: store_based_barrier_key:1 (world_size={}, {}={}, timeout=0:30:00)"  # fmt: skip


@pytest.mark.parametrize(
    ("size", "word", "joined", "expected"),
    [
        (2, "num_workers_joined", 4, "store_reuse"),
        (4, "num_workers_joined", 3, "store_barrier_rank_missing"),
        (16, "worker_count", 9, "store_barrier_rank_missing"),  # releases up to 2.1
        (9, "worker_count", 16, "store_reuse"),
    ],
)
def test_ranks_that_joined_against_the_world_size(size, word, joined, expected):
    both = _candidates("store_barrier_rank_missing", "store_reuse")
    assert [one.diagnosis.id for one in decided(both, _log(BARRIER.format(size, word, joined)))] == [expected]


RECOMPUTE = ("ac_context_manager_exited", "ac_nonreentrant_metadata_check", "fsdp2_fp32_buffers_in_ac")


def _pair(saved: str, again: str, first: str = "bfloat16", second: str = "bfloat16") -> tuple[str, str]:
    line = "{} metadata: {{'shape': torch.Size([{}]), 'dtype': torch.{}, 'device': device(type='cuda', index=0)}}"
    return line.format("saved", saved, first), line.format("recomputed", again, second)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (_pair("1, 8, 24920, 128", "1, 8, 12460, 128"), RECOMPUTE[:1]),  # the shapes of two public threads
        (_pair("1, 1024, 4096", "1, 4096, 4096"), RECOMPUTE[1:2]),
        (_pair("1, 75600, 128", "1, 75600, 128", second="float32"), RECOMPUTE[2:]),
        (_pair("4, 8", "4, 7"), RECOMPUTE),  # no whole factor: nothing is decided
        (_pair("4, 0", "0, 0"), RECOMPUTE),
        (_pair("4, 8", "2, 8") + _pair("4, 8", "8, 8"), RECOMPUTE),  # two tensors that contradict each other
        (_pair("4, 8", "4, 8"), RECOMPUTE),
    ],
)
def test_saved_against_recomputed(lines, expected):
    assert tuple(one.diagnosis.id for one in decided(_candidates(*RECOMPUTE), _log(*lines))) == expected


def test_other_candidates_stay():
    both = _candidates("store_reuse", "store_barrier_rank_missing", "fsdp2_mixed_dtype")
    kept = decided(both, _log(BARRIER.format(2, "num_workers_joined", 4)))
    assert [one.diagnosis.id for one in kept] == ["store_reuse", "fsdp2_mixed_dtype"]
