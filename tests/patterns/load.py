"""A pattern as the tests run it: the file itself, with the device words that its header names replaced."""

from __future__ import annotations

import importlib.util
import linecache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "src" / "shardguide" / "knowledge" / "patterns"


def _builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_patterns", ROOT / "scripts" / "build_patterns.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


builder = _builder()


def text(pattern: str) -> str:
    """The code of a pattern with the replacements of its ``[run]`` table made."""
    header, code = builder.read(FOLDER / f"{pattern.replace('-', '_')}.py")
    for shown, run in header.get("run", {}).items():
        assert shown in code, f"{pattern}: {shown!r} does not stand in the code"
        code = code.replace(shown, run)
    return code


def load(pattern: str, **globals_: Any) -> dict[str, Any]:
    """The names that the pattern defines, after running its file; ``globals_`` are there before it runs."""
    name = f"<pattern {pattern}>"
    code = text(pattern)
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)  # for inspect and tracebacks
    names: dict[str, Any] = {"__name__": f"pattern_{pattern.replace('-', '_')}", **globals_}
    exec(compile(code, name, "exec"), names)  # noqa: S102 - our own file, and the test is there to run it
    return names
