"""Works out in which releases the forms of FSDP1 and FSDP2 exist, and writes the table that is read at run time.

python scripts/build_mapping.py          # writes src/shardguide/knowledge/data/fsdp2_mapping.json
python scripts/build_mapping.py --check  # fails when that file is not current

It reads src/shardguide/knowledge/fsdp2_mapping/*.toml, the API of every release (data/api.json) and the claims (data/claims.json).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tomllib  # type: ignore[import-not-found]  # Python 3.11; the product runs on 3.10 and never needs it

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "shardguide" / "knowledge"
TARGET = PACKAGE / "data" / "fsdp2_mapping.json"
ROW = {"id", "kind", "fsdp1", "fsdp2", "counterpart", "note", "names1", "names2", "claims"}
FEATURE = {"id", "title", "fsdp1", "fsdp2", "names1", "names2", "claims"}
KINDS = {"argument", "value", "method", "context", "class", "policy", "state dict", "habit"}


def build() -> str:
    """The text of the table. Raises ValueError, naming the row, for one that is not sound."""
    sys.path.insert(0, str(PACKAGE.parent.parent))
    from shardguide.knowledge import api
    from shardguide.knowledge.fsdp2_mapping import COUNTERPARTS, NAMED
    from shardguide.knowledge.lines import render

    entries: dict[str, Any] = {"@since": {name: api.since(name) for name in NAMED}}
    for row in _read("mapping.toml")["row"]:
        _check(row, ROW, {"before", "since"})
        if row["kind"] not in KINDS or row["counterpart"] not in COUNTERPARTS:
            raise ValueError(f"{row['id']}: kind or counterpart is not one of those allowed")
        found = _worked_out(row)
        if not found["releases1"] or not found["releases2"]:
            raise ValueError(f"{row['id']}: no release has {row['names1']} or none has {row['names2']}")
        _put(entries, f"row.{row['id']}", {**found, "before": row.get("before", {})})
    for row in _read("comparison.toml")["feature"]:
        _check(row, FEATURE, {"since"})
        found = _worked_out(row)
        for side in "12":
            if bool(row[f"fsdp{side}"]) != bool(found[f"releases{side}"]):
                raise ValueError(f"{row['id']}: FSDP{side} has words without releases, or releases without words")
        _put(entries, f"feature.{row['id']}", found)
    return render(entries)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((PACKAGE / "fsdp2_mapping" / name).read_text(encoding="utf-8"))
    return found


def _check(row: dict[str, Any], needed: set[str], optional: set[str]) -> None:
    name = row.get("id", "?")
    if needed - set(row) or set(row) - needed - optional:
        raise ValueError(
            f"{name}: lacks {sorted(needed - set(row))}, has unknown {sorted(set(row) - needed - optional)}"
        )
    if not row["claims"]:
        raise ValueError(f"{name}: names no claim")


def _worked_out(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the releases of both sides; ``since`` is a claim without which the names alone would say too much."""
    from shardguide.knowledge import claims_store, releases
    from shardguide.knowledge.fsdp2_mapping import has

    for claim in row["claims"]:
        claims_store.get(claim)  # KeyError for one that does not exist
    out = {key: value for key, value in row.items() if key not in ("id", "since", "before")}
    for side, second in (("1", False), ("2", True)):
        names = row[f"names{side}"]
        held = [one for one in releases.known() if names and all(has(name, one, second) for name in names)]
        if second and "since" in row:
            held = [one for one in held if releases.within(one, claims_store.get(row["since"]).releases)]
        out[f"releases{side}"] = releases.ranges(held)
    return out


def _put(entries: dict[str, Any], key: str, value: dict[str, Any]) -> None:
    if key in entries:
        raise ValueError(f"{key}: two rows have this id")
    entries[key] = value


def main() -> int:
    text = build()
    if "--check" in sys.argv[1:]:
        current = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text
        print("current" if current else f"{TARGET} is not current: run scripts/build_mapping.py")
        return 0 if current else 1
    TARGET.write_text(text, encoding="utf-8")
    print(f"{text.count(chr(10)) - 3} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
