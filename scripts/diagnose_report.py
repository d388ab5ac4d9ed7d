"""How well ``diagnose`` does on public cases, and what it confuses.

    python scripts/diagnose_report.py [CASES.jsonl] [--json]

Each case is a log and a sentence from a public thread, with the right diagnosis. "Left out" repeats every case without what came
from it: signs whose origin is the case's thread, and symptoms marked with it or sharing half of their words with the case's own.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import tomllib  # type: ignore[import-not-found]

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "src"))

from shardguide.knowledge import diagnosis_store, symptom_index  # noqa: E402
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose  # noqa: E402

CASES = ROOT / "tests" / "diagnose" / "public.jsonl"
ALIKE = 0.5  # of a symptom's words in the case's own: written from it


def cases(path: Path = CASES) -> list[dict[str, Any]]:
    """The cases, with the id of the right diagnosis as ``want``."""
    out = []
    for line in path.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        out.append({**case, "want": case["diagnosis"].split(":")[0]})
    return out


def ids(case: dict[str, Any]) -> list[str]:
    """The diagnoses that are given for a case, best first."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "case.log"
        log.write_text(case["log"] + "\n", encoding="utf-8")
        record = diagnose(DiagnoseRequest((str(log),), case["symptom"], torch="2.13"))
    return [one["id"] for one in record.extra["diagnoses"]]


def rank(case: dict[str, Any], found: list[str]) -> int:
    """The place of the right diagnosis, 0 where it is not among those given."""
    return found.index(case["want"]) + 1 if case["want"] in found else 0


def origins() -> dict[tuple[str, str], str]:
    """Where a symptom came from, as the sources of the diagnoses mark it."""
    out = {}
    for path in (ROOT / "src" / "shardguide" / "knowledge" / "diagnoses").glob("*.toml"):
        for source in tomllib.loads(path.read_text(encoding="utf-8")).get("diagnosis", ()):
            for one in source.get("symptoms", ()):
                if isinstance(one, dict):
                    out[source["id"], one["text"]] = one.get("origin", "")
    return out


def _of_case(case: dict[str, Any], symptom: str, origin: str) -> bool:
    words = set(symptom_index.tokens(symptom))
    own = set(symptom_index.tokens(case["symptom"]))
    return case["url"] in origin or len(words & own) >= ALIKE * max(1, len(words))


@contextmanager
def left_out(case: dict[str, Any], entries: dict[str, Any], marked: dict[tuple[str, str], str]) -> Iterator[int]:
    """The knowledge without what came from a case; gives how many signs and symptoms that is."""
    without = copy.copy(entries)
    away = 0
    for name, entry in entries.items():
        symptoms = [one for one in entry["symptoms"] if not _of_case(case, one, marked.get((name, one), ""))]
        signs = [one for one in entry["signs"] if case["url"] not in one["origin"]]
        if len(symptoms) < len(entry["symptoms"]) or len(signs) < len(entry["signs"]):
            away += len(entry["symptoms"]) - len(symptoms) + len(entry["signs"]) - len(signs)
            without[name] = {**entry, "symptoms": symptoms, "signs": signs}
    terms = symptom_index.build(without)
    with (
        mock.patch.object(diagnosis_store, "terms", lambda: terms),
        mock.patch.object(diagnosis_store, "entry", lambda name: dict(without[name])),
    ):
        yield away


def report(path: Path = CASES) -> dict[str, Any]:
    """Every case with its place, with and without what came from it."""
    entries = {name: diagnosis_store.entry(name) for name in diagnosis_store.ids()}
    marked = origins()
    rows = []
    for case in cases(path):
        found = ids(case)
        with left_out(case, entries, marked) as away:
            alone = ids(case)
        rows.append(
            {
                "case": case["id"],
                "url": case["url"],
                "want": case["want"],
                "place": rank(case, found),
                "given": found,
                "left_out": away,
                "place_left_out": rank(case, alone),
                "given_left_out": alone,
            }
        )
    return {"rows": rows, **{name: _summary(rows, name) for name in ("place", "place_left_out")}}


def _summary(rows: list[dict[str, Any]], name: str) -> dict[str, int]:
    return {
        "cases": len(rows),
        "first": sum(row[name] == 1 for row in rows),
        "in_first_three": sum(1 <= row[name] <= 3 for row in rows),
    }


def main(arguments: list[str]) -> int:
    """Print the report."""
    paths = [Path(one) for one in arguments if not one.startswith("-")]
    found = report(*paths[:1])
    if "--json" in arguments:
        print(json.dumps(found, indent=1))
        return 0
    for row in found["rows"]:
        print(f"{row['case']}  {row['place']}  {row['place_left_out']}  {row['want']}")
    for name, title in (("place", "all knowledge"), ("place_left_out", "left out")):
        total = found[name]
        print(f"{title}: first {total['first']}/{total['cases']}, in the first three {total['in_first_three']}")
        given = "given" if name == "place" else "given_left_out"
        for row in found["rows"]:
            if row[name] != 1:
                print(f"  {row['case']} wants {row['want']}: {', '.join(row[given]) or 'nothing'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
