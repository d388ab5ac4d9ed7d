"""Notebooks: cells as one module, magics and shell lines, places by cell, and fixes in the JSON itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardguide.code.review.engine import review
from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge import rule_store
from shardguide.workflows.review import ReviewRequest, check
from shardguide.workflows.review.fixes import unified

ALL = frozenset(rule_store.codes())
WRONG = "dist.init_process_group('gloo', timeout=60)"


def cell(source: str | list[str], kind: str = "code") -> dict[str, Any]:
    lines = source.splitlines(keepends=True) if isinstance(source, str) else source
    made: dict[str, Any] = {"cell_type": kind, "id": "a1", "metadata": {}}
    if kind == "code":
        made |= {"execution_count": None, "outputs": [{"output_type": "stream", "name": "stdout", "text": [WRONG]}]}
    return made | {"source": lines}


def notebook(*cells: dict[str, Any], language: str = "python") -> str:
    """As Jupyter writes it."""
    made = {
        "cells": list(cells),
        "metadata": {"kernelspec": {"language": language, "name": "k"}, "language_info": {"name": language}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def findings(path: Path) -> list[dict[str, Any]]:
    return check(ReviewRequest((str(path),), torch="2.13")).extra["findings"]


def test_places_are_those_of_the_cells(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    text = notebook(
        cell("# Title\n", "markdown"),
        cell("%matplotlib inline\n!pip install torch\nimport torch.distributed as dist\n"),
        cell("x = !ls\nwhile x:\n    %time x = 0\n"),
        cell(f"if x:\n    pass\né = 1; {WRONG}\n"),
    )
    path.write_text(text)
    (found,) = findings(path)
    assert (found["rule"], found["cell"], found["line"], found["column"]) == ("FSD111", 4, 3, 48)
    assert WRONG in text.split("\n")[found["file_line"] - 1]
    assert found["source"] == f"é = 1; {WRONG}"


@pytest.mark.parametrize(
    "source",
    [
        "%%time\nimport torch.distributed as dist\n" + WRONG,
        "import torch.distributed as dist\nprint?\n?print\n" + WRONG,
        "import torch.distributed as dist\ntext = '''\n%not a magic\n!nor this\n'''\n" + WRONG,
        "import torch.distributed as dist\nx = %sql select \\\n  more words here\n" + WRONG,
        "import torch.distributed as dist\n!long \\\n   command 'of two lines'\n" + WRONG,
        "import torch.distributed as dist\nawait something()\n" + WRONG,
    ],
)
def test_magics_are_no_obstacle(tmp_path: Path, source: str) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(notebook(cell(source)))
    result = review((str(path),), "2.13", ALL)
    assert not result.problems
    assert [(one.code, one.line) for one in result.findings] == [("FSD111", source.count("\n") + 1)]


def test_shell_lines_and_cells_are_launches(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(
        notebook(
            cell("import os\n!torchrun --nope train.py\n!torchrun --nproc-per-node={n} --standalone train.py\n"),
            cell("%%bash\ntorchrun --standalone \\\n  --nope2 train.py\n"),
            cell("%%html\ntorchrun --nope3\n"),
        )
    )
    assert [(one["rule"], one["cell"], one["line"]) for one in findings(path)] == [("FSD001", 1, 2), ("FSD001", 2, 3)]


def test_a_broken_cell_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(notebook(cell("import torch.distributed as dist\n"), cell("x =\nprint 'x'\n"), cell(WRONG)))
    result = review((str(path),), "2.13", ALL)
    assert [one.code for one in result.findings] == ["FSD111"]
    assert [one.why[:14] for one in result.problems] == ["cell 2, line 1"]


@pytest.mark.parametrize("ascii_", [False, True])
@pytest.mark.parametrize("indent", [1, None])
@pytest.mark.parametrize("whole", [False, True])
def test_a_fix_changes_only_the_line(tmp_path: Path, ascii_: bool, indent: int | None, whole: bool) -> None:
    path = tmp_path / "n.ipynb"
    before = f"import datetime, torch.distributed as dist\ns = 'é \\t'; {WRONG}\nprint('{WRONG[:4]}')"
    loaded = json.loads(notebook(cell("# é\n", "markdown"), cell([before] if not whole else before)))
    if whole:
        loaded["cells"][1]["source"] = before
    text = json.dumps(loaded, indent=indent, ensure_ascii=ascii_)
    path.write_text(text)
    diff = unified(findings(path))
    patch = tmp_path / "p.patch"
    patch.write_text(diff)
    subprocess.run(["patch", "-p1", str(path), str(patch)], check=True, capture_output=True)
    after = json.loads(path.read_text())
    changed = before.replace("timeout=60", "timeout=datetime.timedelta(seconds=60)")
    assert "".join(after["cells"][1]["source"]) == changed
    loaded["cells"][1]["source"] = after["cells"][1]["source"]
    assert after == loaded  # nothing else
    assert ("\\u00e9" in path.read_text()) == ascii_


def test_one_string_a_line_keeps_jupyters_form(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(notebook(cell(f"import datetime, torch.distributed as dist\n{WRONG}\nx = 1\n")))
    diff = unified(findings(path))
    assert [line for line in diff.split("\n") if line[:1] in ("+", "-") and line[:3] not in ("+++", "---")] == [
        f'-    "{WRONG}\\n",',
        '+    "' + WRONG.replace("60", "datetime.timedelta(seconds=60)") + '\\n",',
    ]


def test_where_it_cannot_be_exact_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    text = notebook(cell(f"import torch.distributed as dist\ns = '/'; {WRONG}\n"))
    path.write_text(text.replace("'/'", "'\\/'"))  # valid JSON that json.dumps would not write
    with pytest.raises(UnusableInput, match="cannot be made exactly"):
        unified(findings(path))


def test_text_and_other_formats(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(notebook(cell("# t\n", "markdown"), cell(f"import torch.distributed as dist\n{WRONG}\n")))
    out = {}
    for form in ("text", "json", "sarif", "github"):
        command = [sys.executable, "-m", "shardguide", "review", "n.ipynb", "--torch", "2.13", "--format", form]
        ran = subprocess.run(
            [*command, "--notebook", "n.db"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 1 and ran.stderr == ""
        out[form] = ran.stdout
    line = next(at for at, text in enumerate(path.read_text().split("\n"), 1) if text.startswith(f'    "{WRONG}'))
    assert "n.ipynb:cell 2:2:41: FSD111" in out["text"]
    place = json.loads(out["sarif"])["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": line}
    assert out["github"].startswith(f"::error file=n.ipynb,line={line},title=FSD111::cell 2, line 2: ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"cells": 3}',
        '{"cells": [{"source": 1}]}',
        '{"cells": [{"cell_type": "code", "source": [1]}]}',
        '{"cells": [{"cell_type": "code", "source": "unclosed',
        '{"worksheets": []}',
        '{"a": ' + "[" * 200_000,
        '{"cells": ' + "[" * 200_000,
        '{"cells": [' + '{"source": ["x", ' * 50_000,
    ],
)
def test_what_is_no_notebook_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "n.ipynb").write_text(text)
    (tmp_path / "t.sh").write_text("torchrun --nope t.py\n")
    result = review((str(tmp_path),), "2.13", ALL)
    assert [one.code for one in result.findings] == ["FSD001"]
    assert len(result.problems) <= 1 and all("notebook" in one.why for one in result.problems)


def test_other_languages_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_text(notebook(cell("x <- 1\n"), language="R"))
    result = review((str(tmp_path),), "2.13", ALL)
    assert not result.findings and not result.problems
