"""How well questions are led to what answers them: aggregate figures, and nothing of the questions.

python -m tests.ask.score [dev|held|outside ...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from shardguide.knowledge import topic_store
from shardguide.workflows.ask import AskRequest, ask

HERE = Path(__file__).parent


class Score(NamedTuple):
    """Shares of a set, in percent."""

    questions: int
    first: float  # a right hit comes first
    third: float  # one is among the first three
    not_known: float


def questions(name: str) -> list[dict[str, Any]]:
    """The questions of a set."""
    return [
        {"right": []} | json.loads(line)
        for line in (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        if line
    ]


def right(hit: dict[str, Any], wanted: list[str]) -> bool:
    """Whether a hit is one of the right ones, or a claim on the page of one."""
    return hit["id"] in wanted or (hit["kind"] == "claim" and bool(set(topic_store.of_claim(hit["id"])) & set(wanted)))


def score(rows: list[dict[str, Any]]) -> Score:
    """Ask every question, for release 2.13."""
    first = third = unknown = 0
    for row in rows:
        record = ask(AskRequest(row["question"], torch="2.13"))
        hits = [right(hit, row["right"]) for hit in record.extra["hits"][:3]]
        first += hits[:1] == [True]
        third += any(hits)
        unknown += record.extra["outcome"] == "not_known"
    share = 100 / max(len(rows), 1)
    return Score(len(rows), round(first * share, 1), round(third * share, 1), round(unknown * share, 1))


def main(names: list[str]) -> None:
    for name in names or ["dev"]:
        rows = questions(name)
        for kind, of in (
            ("in the field", [row for row in rows if row["right"]]),
            ("outside", [row for row in rows if not row["right"]]),
        ):
            if of:
                print(name, kind, score(of))


if __name__ == "__main__":
    main(sys.argv[1:])
