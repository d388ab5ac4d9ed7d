"""Words where a command belongs: a sentence is led to the commands that take words, a slip of the keyboard to the command it meant."""

from __future__ import annotations

import pytest

from .conftest import Shardguide


@pytest.mark.parametrize(
    "words",
    [
        ("my run hangs after the first epoch",),
        ("my", "run", "hangs"),
        ("how do I clip gradients?",),
        ("RuntimeError: NCCL error in: ProcessGroupNCCL.cpp",),
        ("what's wrong with it",),
    ],
)
def test_a_sentence_is_led_to_the_commands_that_take_words(shardguide: Shardguide, words: tuple[str, ...]) -> None:
    ran = shardguide(*words)
    assert ran.status == 2 and ran.err.count("\n") == 1
    assert all(one in ran.err for one in ("shardguide chat '", "shardguide ask", "shardguide diagnose FILE"))
    assert "completion" not in ran.err and len(ran.err) < 400


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("explian", "explain"), ("diagnos", "diagnose"), ("Plan", "plan"), ("reveiw", "review"), ("migrat", "migrate"), ("aply", "apply"),
     ("histroy", "history"), ("fsdp", "fsdp2"), ("backends", "backend")],
)  # fmt: skip
def test_a_slip_is_led_to_what_was_meant(shardguide: Shardguide, typed: str, meant: str) -> None:
    ran = shardguide(typed, "join")
    assert ran.status == 2 and f"did you mean shardguide {meant}?" in ran.err


def test_a_word_that_is_near_nothing_gets_the_list(shardguide: Shardguide) -> None:
    ran = shardguide("xyzzy")
    assert ran.status == 2 and "the commands are plan, tune" in ran.err
