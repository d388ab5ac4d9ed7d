"""Without PyTorch (make check) only the tests that read and parse are collected here."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["test_record.py", "test_render.py", "test_train.py", "test_gloo.py"]
