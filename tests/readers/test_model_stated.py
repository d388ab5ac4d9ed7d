"""Stated sizes: exact arithmetic on what was typed, and nothing guessed."""

from __future__ import annotations

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.readers.model import read_model
from shardguide.readers.stated import StatedSize


@pytest.mark.parametrize(
    ("text", "parameters", "rounded"),
    [
        ("7b", 7_000_000_000, True),
        ("7B", 7_000_000_000, True),
        ("1.5b", 1_500_000_000, True),
        ("0.5B", 500_000_000, True),
        ("70 billion", 70_000_000_000, True),
        ("405e9", 405_000_000_000, True),
        ("7241732096", 7_241_732_096, False),
        ("7,241,732,096", 7_241_732_096, False),
        ("7_241_732_096 parameters", 7_241_732_096, False),
        ("350m", 350_000_000, True),
        ("8.03B params", 8_030_000_000, True),
        ("1t", 1_000_000_000_000, True),
        ("124M parameters", 124_000_000, True),
    ],
)
def test_sizes(text: str, parameters: int, rounded: bool) -> None:
    assert read_model(text) == StatedSize(text, parameters, rounded)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "0b",
            "-3b",
            "inf",
            "nan",
            "7q",
            "7",
            "7,5b",
            "8x7b",
            "1e99",
            "９b",
            "7b7b",
            "0x10b",
            "1.0000000001b",
            "e9",
            "",
        ),
        *("9" * 5000, "7" * 5000 + "b", "1" * 100 + "e" * 100, "7\x00b", "\ud800", "meta-llama/Llama-3.1-8B"),
        *("no/such/path", "llama", "/", "nowhere.safetensors", "7b.json", "\x1b[31m7b"),
    ],
)
def test_nonsense_is_one_sentence(text: str) -> None:
    with pytest.raises(UnusableInput) as caught:
        read_model(text)
    sentence = str(caught.value)
    assert sentence.endswith(".") and sentence.isprintable() and len(sentence) < 600


def test_a_path_wins_over_a_size(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "7b").write_text('{"model_type": "llama"}')
    assert read_model("7b").model_type == "llama"


def test_a_hub_name_is_recognised() -> None:
    with pytest.raises(UnusableInput, match="nothing is fetched"):
        read_model("meta-llama/Llama-3-8B")
