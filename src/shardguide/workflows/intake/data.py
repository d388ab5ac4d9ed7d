"""The built data of first contact (``knowledge/data/intake.json``), read once."""

from __future__ import annotations

import json
import os
from functools import cache

from shardguide.guidance.hints import Any


@cache
def data() -> dict[str, Any]:
    """Cues and states, words for hardware, machines and families of models, as ``scripts/build_intake.py`` writes them."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120 - as in the rest of the product
    with open(os.path.join(here, "knowledge", "data", "intake.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
        found: dict[str, Any] = json.load(file)
    return found
