"""What every test starts from: the same random numbers, whatever ran before it in its process, and no clock of Hypothesis."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure, and what fails once fails again; `--hypothesis-profile explore` draws new examples every time.
settings.register_profile(
    "suite", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", parent=settings.get_profile("suite"), derandomize=False)
settings.load_profile("suite")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Before any fixture: processes that a test forks start from the state of this one."""
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
