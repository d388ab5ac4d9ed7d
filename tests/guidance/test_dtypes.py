"""Element sizes against torch.dtype.itemsize."""

from __future__ import annotations

import pytest

from shardguide.guidance.dtypes import ALIASES, ITEMSIZE, dtype_name
from shardguide.guidance.errors import UnusableInput


@pytest.mark.torch
def test_sizes_are_torchs() -> None:
    import torch

    assert {name: getattr(torch, name).itemsize for name in ITEMSIZE} == ITEMSIZE
    assert {alias: getattr(torch, alias).itemsize for alias in ("double", "float", "half")} == {
        alias: ITEMSIZE[ALIASES[alias]] for alias in ("double", "float", "half")
    }


def test_spellings() -> None:
    assert {dtype_name(text) for text in ("bf16", "BF16", "torch.bfloat16", " bfloat16 ")} == {"bfloat16"}
    for text in ("float3", "", "x" * 100_000):
        with pytest.raises(UnusableInput) as caught:
            dtype_name(text)
        assert len(str(caught.value)) < 200
