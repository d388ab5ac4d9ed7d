"""Build data/modules.json: the modules of torch.distributed in each release, public or not, as files of the wheels.

    python scripts/build_modules.py WHEELS [--check]

WHEELS holds a folder for each release, as scripts/fetch_wheels.py unpacks them. A package whose ``__init__`` puts other
modules into sys.modules may hold more than its files show: its entry is empty, and nothing below it is there.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

KNOWLEDGE = Path(__file__).parent.parent / "src" / "shardguide" / "knowledge"
sys.path.insert(0, str(KNOWLEDGE.parent.parent))

from shardguide.knowledge import releases  # noqa: E402
from shardguide.knowledge.lines import render  # noqa: E402

# sys.modules[...] = other, not sys.modules[...].Name = other
PUTS = re.compile(r"^ *sys\.modules\[\s*[^\]]+\] = ", re.MULTILINE)
ROOTS = ("torch/distributed", "torch/nn/parallel")


def modules(wheel: Path) -> tuple[set[str], set[str]]:
    """The modules of one release, and the packages that may hold more."""
    found, open_ = set(), set()
    for root in ROOTS:
        for path in sorted((wheel / root).rglob("*.py")):
            parts = list(path.relative_to(wheel).with_suffix("").parts)
            package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if package else parts)
            found.add(name)
            if package:
                found.update(f"{name}.{other}" for other in _other_names(path.read_text(encoding="utf-8")))
            if package and PUTS.search(path.read_text(encoding="utf-8")):
                open_.add(name)
    return found, open_


def _other_names(text: str) -> list[str]:
    """The names that a package gives its own modules: from . import default_hooks as default."""
    return [
        alias.asname
        for node in ast.parse(text).body
        if isinstance(node, ast.ImportFrom) and node.level == 1 and not node.module
        for alias in node.names
        if alias.asname
    ]


def build(wheels: Path) -> str:
    """The text of data/modules.json."""
    have: dict[str, list[str]] = {}
    left_out: set[str] = set()
    for folder in sorted(wheels.iterdir()):
        release = releases.minor(folder.name)
        if release in releases.known() and (folder / "torch").is_dir():
            found, open_ = modules(folder)
            left_out |= open_
            for name in found:
                have.setdefault(name, []).append(release)
    entries = {
        name: releases.ranges(sorted(set(names), key=releases.known().index))
        for name, names in sorted(have.items())
        if not any(name == one or name.startswith(f"{one}.") for one in left_out)
    }
    return render({**entries, **dict.fromkeys(sorted(left_out), "")})


def main() -> int:
    """Build or compare."""
    text = build(Path(sys.argv[1]))
    target = KNOWLEDGE / "data" / "modules.json"
    if "--check" in sys.argv:
        same = target.exists() and target.read_text(encoding="ascii") == text
        if not same:
            print("data/modules.json is not what the wheels give; run scripts/build_modules.py", file=sys.stderr)
        return 0 if same else 1
    target.write_text(text, encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
