"""``shardguide join PATH`` and ``shardguide review``: the Join check as its users see it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from shardguide.code.review.engine import review
from shardguide.guidance.serialise import to_dict
from shardguide.knowledge import rule_store
from shardguide.workflows.join import JoinRequest, join

from . import programs


def variant(name: str) -> str:
    return programs.text(next(one for one in programs.VARIANTS if one.name == name))


def record(path: Path, **given: str) -> dict:
    return to_dict(join(JoinRequest({"torch": "2.13", **given}, {}, None, (str(path),))))


def test_a_right_program_passes_the_check(tmp_path) -> None:
    path = tmp_path / "train.py"
    path.write_text(programs.PAIR)
    found = record(path)
    assert found["status"] == "complete" and found["answers"]["with"]["value"] == "ddp,own"
    assert found["answers"]["with"]["from"].startswith("file:")
    checks = {one["id"]: one["result"] for one in found["checks"]}
    assert checks["hooks"] == "passed" and checks["joinable"] == "passed"
    assert [one["verdict"] for one in found["join_check"]] == ["proven", "proven"]
    assert found["join_check"][0]["rows"][0]["result"] == "matched" and found["approval"]["asked"]


def test_a_broken_one_fails_it_and_is_not_put_to_the_user(tmp_path) -> None:
    path = tmp_path / "train.py"
    path.write_text(variant("second collective not shadowed"))
    found = record(path)
    assert {one["id"]: one["result"] for one in found["checks"]}["hooks"] == "failed"
    assert not found["approval"]["asked"]
    one = found["join_check"][0]
    assert one["verdict"] == "violated" and [row["result"] for row in one["rows"]] == ["matched", "missing"]
    line = (
        path.read_text().split("\n").index("        dist.all_reduce(pair, op=dist.ReduceOp.MAX, group=self.group)") + 1
    )
    assert one["rows"][1]["at"] == f"{path}:{line}"
    assert one["issues"][0]["rule"] == "FSD610" and "ReduceOp.MAX" in one["corrected"]
    assert any(snippet["id"] == "corrected-meter" for snippet in found["snippets"])


def test_without_code_nothing_is_read() -> None:
    found = to_dict(join(JoinRequest({"torch": "2.13", "with": "own", "uneven": "yes"})))
    assert found["join_check"] == []


def test_the_command_shows_the_table(tmp_path) -> None:
    path = tmp_path / "train.py"
    path.write_text(variant("second collective not shadowed"))
    command = [
        sys.executable,
        "-m",
        "shardguide",
        "join",
        str(path),
        "--torch",
        "2.13",
        "--no-input",
        "--notebook",
        str(tmp_path / "n.db"),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    words = " ".join(shown.stdout.split())
    for part in ("Meter", "violated", "one iteration", "main_hook", "missing", "FSD610", "class MeterHook"):
        assert part in words
    machine = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert json.loads(machine.stdout)["join_check"][0]["verdict"] == "violated"


def test_review_reports_what_is_violated(tmp_path) -> None:
    for one in programs.VARIANTS:
        path = tmp_path / "train.py"
        path.write_text(programs.text(one))
        result = review((str(path),), "2.13", frozenset(rule_store.codes()))
        found = {(finding.code, finding.certain) for finding in result.findings}
        assert one.code in {code for code, _ in found}, one.name


def test_review_is_silent_on_right_programs(tmp_path) -> None:
    for name, text in programs.RIGHT.items():
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        found = review((str(path),), "2.13", frozenset(rule_store.codes())).findings
        assert [one for one in found if one.code.startswith("FSD6")] == []


def test_nothing_is_run(tmp_path) -> None:
    """Code that would leave a trace if it were executed."""
    path = tmp_path / "train.py"
    path.write_text(programs.METER + f"\n\nopen({str(tmp_path / 'trace')!r}, 'w').write('run')\n")
    record(path)
    assert not (tmp_path / "trace").exists()


def test_review_and_join_go_together_in_one_process(tmp_path) -> None:
    """As in a conversation, where the review comes first and loads the check on its way."""
    path = tmp_path / "train.py"
    path.write_text(programs.PAIR)
    code = (
        "import sys\n"
        "from shardguide.code.review.engine import review\n"
        "review((sys.argv[1],), '2.13', frozenset())\n"
        "from shardguide.workflows.join import JoinRequest, join\n"
        "print([one['verdict'] for one in join(JoinRequest({'torch': '2.13'}, {}, None, (sys.argv[1],))).extra['join_check']])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout == "['proven', 'proven']\n", done.stderr
