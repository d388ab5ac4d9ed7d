"""Output formats, settings and baselines of ``shardguide review``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

jsonschema = pytest.importorskip("jsonschema")

HERE = Path(__file__).parent
WRONG = "import datetime, torch.distributed as dist\n\ndist.init_process_group('gloo', timeout=60)\n"
RANK = "import torch.distributed as dist\n\ndef save():\n    if dist.get_rank() == 0:\n        dist.barrier()\n"


def run(folder: Path, *arguments: str, torch: str = "2.13") -> subprocess.CompletedProcess[str]:
    release = ["--torch", torch] if torch else []
    command = [sys.executable, "-m", "shardguide", "review", *arguments, *release, "--notebook", str(folder / "n.db")]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False, errors="surrogateescape"
    )


def rules(folder: Path, *arguments: str, **options: Any) -> list[str]:
    ran = run(folder, *arguments, "--json", **options)
    assert ran.returncode in (0, 1), ran.stderr
    return [one["rule"] for one in json.loads(ran.stdout)["findings"]]


# SARIF


def sarif(folder: Path, *arguments: str) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(run(folder, *arguments, "--format", "sarif").stdout)
    schema = json.loads((HERE / "sarif-schema-2.1.0.json").read_text())
    jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker()).validate(log)
    return log


def test_sarif_fits_the_official_schema(tmp_path: Path) -> None:
    (tmp_path / "sub dir").mkdir()
    (tmp_path / "sub dir" / "a%b.py").write_text(WRONG)
    (tmp_path / "rank.py").write_text(RANK)
    (tmp_path / "old.py").write_text("import torch\nprint 'x'\n")
    (tmp_path / "run.sh").write_text("torchrun --nope t.py\n")
    (run_,) = sarif(tmp_path, ".")["runs"]
    by_rule = {one["ruleId"]: one for one in run_["results"]}
    assert set(by_rule) == {"FSD111", "FSD201", "FSD001"}
    one = by_rule["FSD111"]
    place = one["locations"][0]["physicalLocation"]
    assert urllib.parse.unquote(place["artifactLocation"]["uri"]) == "./sub dir/a%b.py".removeprefix("./")
    assert place["region"] == {"startLine": 3, "startColumn": 41, "snippet": {"text": WRONG.split("\n")[2]}}
    described = run_["tool"]["driver"]["rules"][one["ruleIndex"]]
    assert described["id"] == "FSD111" and described["helpUri"].startswith("https://docs.pytorch.org/")
    (replacement,) = one["fixes"][0]["artifactChanges"][0]["replacements"]
    assert replacement["deletedRegion"] == {"startLine": 3, "startColumn": 41, "endLine": 3, "endColumn": 43}
    assert by_rule["FSD201"]["level"] == "error" and one["partialFingerprints"]
    (said,) = run_["invocations"][0]["toolExecutionNotifications"]
    assert "not valid Python 3" in said["message"]["text"]


def test_sarif_without_findings(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n")
    (run_,) = sarif(tmp_path, "a.py")["runs"]
    assert run_["results"] == [] and run_["tool"]["driver"]["rules"] == []


def test_sarif_columns_are_in_characters(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import datetime, torch.distributed as dist\nö = 'é'; dist.init_process_group('gloo', timeout=60)\n"
    )
    (one,) = sarif(tmp_path, "a.py")["runs"][0]["results"]
    assert one["locations"][0]["physicalLocation"]["region"]["startColumn"] == 50
    assert one["fixes"][0]["artifactChanges"][0]["replacements"][0]["deletedRegion"]["startColumn"] == 50


# GitHub


def unescape(text: str) -> str:
    """What GitHub's runner makes of a property."""
    for mark, plain in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(mark, plain)
    return text


def test_github_annotations(tmp_path: Path) -> None:
    name = "a,b:c%25\n::error file=x::y.py"
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / name.replace("/", "")).write_text(WRONG)
    (line,) = run(tmp_path, "d", "--format", "github").stdout.splitlines()
    assert line.startswith("::error file=") and line.count("::") == 2
    fields = dict(part.split("=", 1) for part in line.split("::")[1].removeprefix("error ").split(","))
    assert unescape(fields["file"]) == f"d/{name}"
    assert (fields["line"], fields["col"], fields["title"]) == ("3", "41", "FSD111")


@pytest.mark.parametrize("form", ["text", "md", "json", "sarif", "github"])
@pytest.mark.parametrize("name", ["\x1b[2J\x07.py", "\u202eevil.py", "a\u2028b\x9b.py", b"\xff\xfe.py"])
def test_names_steer_no_terminal(tmp_path: Path, form: str, name: str | bytes) -> None:
    text = "import torch.distributed as dist\ns = '\x1b]0;x\x07\u202e'; dist.init_process_group('gloo', timeout=60)\nprint 'x'\n"
    folder = os.fsencode(tmp_path / "d")
    Path(os.fsdecode(folder)).mkdir()
    Path(os.fsdecode(folder + b"/" + os.fsencode(name))).write_text(text.removesuffix("print 'x'\n"), encoding="utf-8")
    Path(os.fsdecode(folder + b"/x" + os.fsencode(name))).write_text(text, encoding="utf-8")
    ran = run(tmp_path, "d", "--format", form)
    assert ran.returncode == 1 and ran.stderr == ""
    assert not [c for c in ran.stdout if c != "\n" and (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2028")]
    ran.stdout.encode("utf-8")


# Settings


def configure(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(f"[project]\nname = 'x'\n[tool.shardguide.review]\n{text}\n")


def test_settings_are_found_upward_and_the_command_line_goes_first(tmp_path: Path) -> None:
    (tmp_path / "pkg" / "gen").mkdir(parents=True)
    (tmp_path / "pkg" / "pyproject.toml").write_text("[tool.other]\nx = 1\n")  # not ours
    (tmp_path / "pkg" / "a.py").write_text(WRONG)
    (tmp_path / "pkg" / "b.py").write_text(RANK)
    (tmp_path / "pkg" / "gen" / "c.py").write_text(RANK)
    assert rules(tmp_path, "pkg") == ["FSD111", "FSD201", "FSD201"]
    configure(tmp_path, "exclude = ['gen']\nignore = ['FSD2']")
    assert rules(tmp_path, "pkg") == ["FSD111"]
    assert rules(tmp_path, "pkg", "--ignore", "FSD111") == ["FSD201"]
    configure(tmp_path, "select = ['FSD2']")
    assert rules(tmp_path, "pkg/a.py", "pkg/b.py") == ["FSD201"]
    configure(tmp_path, "[tool.shardguide.review.per-file-ignores]\n'pkg/gen/*' = ['FSD2']\n'a.py' = ['FSD111']")
    assert rules(tmp_path, "pkg") == ["FSD201"]
    configure(tmp_path, "format = 'github'")
    assert run(tmp_path, "pkg/a.py").stdout.startswith("::error")
    assert run(tmp_path, "pkg/a.py", "--format", "text").stdout.startswith("Review")
    configure(tmp_path, "torch = '2.5'")
    (tmp_path / "pkg" / "a.py").write_text("from torch.distributed.fsdp import fully_shard\n")
    assert rules(tmp_path, "pkg/a.py", torch="") == ["FSD901"]
    assert rules(tmp_path, "pkg/a.py") == []


@pytest.mark.parametrize(
    "text, words",
    [
        ("selct = []", "has no 'selct'"),
        ("select = 'FSD1'", "select is a list"),
        ("format = 'xml'", "format is text"),
        ("torch = 2.5", "torch is one text"),
        ("per-file-ignores = []", "per-file-ignores is a table"),
        ("select = ['XYZ']", "no rule begins with"),
        ("select = [", "not valid TOML"),
        ("baseline = 'none.json'", "no such file"),
    ],
)
def test_settings_that_cannot_be_meant(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.py").write_text(WRONG)
    configure(tmp_path, text)
    ran = run(tmp_path, "a.py")
    assert ran.returncode == 2 and words in ran.stderr and ran.stderr.count("\n") == 1 and not ran.stdout


# Baseline


def test_a_baseline_hides_what_is_known_while_lines_move(tmp_path: Path) -> None:
    function = "\ndef {}():\n    dist.init_process_group('gloo', timeout=60)\n"
    path, text = tmp_path / "a.py", "import torch.distributed as dist\n" + function.format("f") + function.format("g")
    path.write_text(text)
    ran = run(tmp_path, "a.py", "--baseline-out")
    assert ran.returncode == 0 and sorted(one.name for one in tmp_path.iterdir()) == [
        "a.py",
        "n.db",
    ]  # nothing written but the notebook
    (tmp_path / "known.json").write_text(ran.stdout)
    assert run(tmp_path, "a.py", "--baseline", "known.json").returncode == 0
    path.write_text("# new\n\n\nx = 1\n" + text.replace("    dist", "      dist"))
    assert rules(tmp_path, "a.py", "--baseline", "known.json") == []  # moved, and indented anew
    assert rules(tmp_path, str(path), "--baseline", "known.json") == []  # by another name
    path.write_text(text.replace("timeout=60", "timeout=61"))
    assert rules(tmp_path, "a.py", "--baseline", "known.json") == ["FSD111", "FSD111"]  # the line itself has changed
    path.write_text(text + function.format("h"))
    record = json.loads(run(tmp_path, "a.py", "--baseline", "known.json", "--json").stdout)
    assert [one["line"] for one in record["findings"]] == [10]  # one more of the same
    configure(tmp_path, "baseline = 'known.json'")
    assert rules(tmp_path, "a.py") == ["FSD111"]
    (tmp_path / "a.py").write_text("import torch\n")
    assert "not found any more" in run(tmp_path, "a.py").stdout


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "shardguide-baseline/1", "findings": []}'])
def test_what_is_no_baseline(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.py").write_text(WRONG)
    (tmp_path / "known.json").write_text(text)
    ran = run(tmp_path, "a.py", "--baseline", "known.json")
    assert ran.returncode == 2 and "known.json" in ran.stderr and ran.stderr.count("\n") == 1


# Comments that switch findings off


@pytest.mark.parametrize(
    "comment, expected",
    [
        ("# shardguide: ignore", []),
        ("# shardguide: ignore[FSD201] all ranks but 0 are gone here", []),
        ("# noqa: FSD201", []),
        ("# noqa: E501, FSD201 why", []),
        ("# NOQA:FSD201", []),
        ("# noqa", ["FSD201"]),
        ("# noqa: E501", ["FSD201"]),
        ("# noqa: FSD202", ["FSD201", "FSD049"]),
        ("# shardguide: ignore[FSD201, FSD202]", ["FSD049"]),
        ("# shardguide: ignore[FSD999]", ["FSD201", "FSD049"]),
    ],
)
def test_suppressions(tmp_path: Path, comment: str, expected: list[str]) -> None:
    (tmp_path / "a.py").write_text(RANK.rstrip() + f"  {comment}\nx = '# shardguide: ignore[FSD201]'\n")
    assert rules(tmp_path, "a.py") == expected


def test_a_suppression_of_a_rule_that_is_not_asked_for_is_not_idle(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch  # shardguide: ignore[FSD201]\nimport torch.nn  # noqa: FSD901\n")
    assert rules(tmp_path, "a.py", "--select", "FSD0,FSD1") == []
    assert rules(tmp_path, "a.py") == ["FSD049", "FSD049"]


# The rules themselves


def test_every_rule_is_explained(tmp_path: Path) -> None:
    from shardguide.frontends.render.plain import render
    from shardguide.frontends.render.rules_view import listing as page
    from shardguide.frontends.render.rules_view import rule as view
    from shardguide.knowledge import rule_store
    from shardguide.workflows.review.rules import listing, one

    everything = render(page(listing()))
    for code in rule_store.codes():
        assert f"  {code}  " in everything
        text = render(view(one(code)))
        assert rule_store.get(code).title in " ".join(text.split())
        assert ("Pages\n  - https://" in text) == bool(rule_store.get(code).claims or rule_store.get(code).see)


def test_explain_and_list_as_commands(tmp_path: Path) -> None:
    base = [sys.executable, "-m", "shardguide"]
    shown = subprocess.run([*base, "explain", "fsd201"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert shown.startswith("FSD201: A collective that only some ranks reach") and "Wrong (train.py)" in shown
    record = json.loads(
        subprocess.run([*base, "explain", "FSD201", "--json"], capture_output=True, check=True, timeout=60).stdout
    )
    assert record["rule"] == "FSD201" and record["claims"]
    ran = subprocess.run([*base, "explain", "FSD299"], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 2 and "there is no rule FSD299" in ran.stderr
    listed = run(tmp_path, "--list").stdout
    assert "  FSD201  " in listed
    assert (
        subprocess.run([*base, "explain", "rules"], capture_output=True, text=True, check=True, timeout=60).stdout
        == listed
    )


def test_the_page_of_the_rules_is_current() -> None:
    script = HERE.parent.parent / "scripts" / "build_rules.py"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False, timeout=60).returncode == 0


def test_the_pre_commit_hook_names_a_command_that_works(tmp_path: Path) -> None:
    import yaml

    (hook,) = yaml.safe_load((HERE.parent.parent / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"].split()[0] == "shardguide" and hook["language"] == "python"
    (tmp_path / "a.py").write_text(WRONG)
    (tmp_path / "ci.yaml").write_text("on: push\n")
    command = [sys.executable, "-m", *hook["entry"].split(), "a.py", "ci.yaml"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1 and "FSD111" in ran.stdout
    (tmp_path / "a.py").write_text("import torch\n")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60).returncode == 0
