"""Checks the table of GPUs and writes it as the JSON that is read at run time.

python scripts/build_hardware.py          # writes src/shardguide/knowledge/data/hardware.json
python scripts/build_hardware.py --check  # fails when that file is not current
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tomllib  # type: ignore[import-not-found]  # Python 3.11; the product runs on 3.10 and never needs it

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "shardguide" / "knowledge"
FIELDS = {
    "id", "name", "model", "aliases", "words", "qualified", "device", "memory", "unit", "devices", "reported_mib",
    "ecc", "capability", "bf16", "fp16", "fp8", "link", "mig", "note", "sources",
}  # fmt: skip
# A fact needs a source that covers it; the rest are names and remarks.
FACTS = {"memory", "reported_mib", "capability", "bf16", "fp8", "link", "mig", "devices"}


def build() -> dict[str, Any]:
    """The table with what ``find`` needs worked out. Raises ValueError, naming the row, for a row that is not sound."""
    sys.path.insert(0, str(PACKAGE.parent.parent))
    from shardguide.knowledge.hardware.table import plain, words

    data: dict[str, Any] = tomllib.loads((PACKAGE / "hardware" / "gpus.toml").read_text(encoding="utf-8"))
    seen: set[str] = set()
    for row in data["gpu"]:
        _check(row, data["source"])
        if row["id"] in seen:
            raise ValueError(f"{row['id']}: two rows have this id")
        seen.add(row["id"])
        model = words(row["model"])
        row["match"] = {
            "names": sorted({plain(name) for name in (row["name"], row["model"], *row.get("aliases", ()))}),
            "words": sorted(words(row["name"]) | model | set(row.get("words", "").split())),
            "model": sorted(word for word in model if any(map(str.isdigit, word)) and not _is_size_or_socket(word)),
        }
        row.pop("words", None)
    return data


def _is_size_or_socket(word: str) -> bool:
    return word.endswith("gb") or word.startswith(("sxm", "hbm"))


def _check(row: dict[str, Any], sources: dict[str, Any]) -> None:
    name = row.get("id", "?")
    unknown = set(row) - FIELDS
    if unknown:
        raise ValueError(f"{name}: unknown fields {sorted(unknown)}")
    if row["device"] not in {"cuda", "rocm", "xpu"} or row.get("unit", "GB") not in {"GB", "GiB"}:
        raise ValueError(f"{name}: device or unit is not one of those allowed")
    if row.get("link", "") not in {"", "nvlink", "pcie", "xgmi", "xelink"}:
        raise ValueError(f"{name}: link {row['link']!r} is not one of nvlink, pcie, xgmi, xelink")
    covered: set[str] = set()
    for covers, source, says in row["sources"]:
        if source not in sources or not says:
            raise ValueError(f"{name}: source {source!r} is not listed, or says nothing")
        covered |= {part.strip() for part in covers.split(",")}
    # The memory may also stand in the printed name ("Tesla V100-SXM2-16GB"), next to a total that confirms it.
    if "reported_mib" in covered:
        covered.add("memory")
    missing = {field for field in FACTS if row.get(field) not in (None, [])} - covered
    if missing:
        raise ValueError(f"{name}: no source for {sorted(missing)}")


def text() -> str:
    """The file's content: one row a line, so that a change reads well in a diff."""
    data = build()
    rows = ",\n".join(json.dumps(row, ensure_ascii=False, sort_keys=True) for row in data["gpu"])
    sources = ",\n".join(
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}"
        for key, value in sorted(data["source"].items())
    )
    return f'{{"gpu": [\n{rows}\n],\n"source": {{\n{sources}\n}}}}\n'


def main() -> int:
    target = PACKAGE / "data" / "hardware.json"
    content = text()
    if "--check" in sys.argv[1:]:
        current = target.exists() and target.read_text(encoding="utf-8") == content
        print("hardware.json is current" if current else "hardware.json is not current: run scripts/build_hardware.py")
        return 0 if current else 1
    target.parent.mkdir(exist_ok=True)
    target.write_text(content, encoding="utf-8")
    print(f"{target.name}: {len(json.loads(content)['gpu'])} rows")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
