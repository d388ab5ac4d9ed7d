"""Safe fixes as one unified diff, worked out on the text itself, so that comments and formatting stay."""

from __future__ import annotations

import ast

from shardguide.code.review.project import LIMIT
from shardguide.code.review.splice import spliced
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.readers.files import lines_of, read_text


def unified(findings: list[dict[str, Any]]) -> str:
    """The diff of every fix that goes with a finding, file by file; "" where there is none."""
    import difflib

    out: list[str] = []
    for path in dict.fromkeys(one["path"] for one in findings if one["edits"]):
        mine = [one for one in findings if one["path"] == path]
        if path.endswith(".ipynb"):
            before, after = _notebook(path, mine)
        else:
            before = read_text(path, LIMIT)
            after = applied(before, [edit for one in mine for edit in one["edits"]], path)
        lines = difflib.unified_diff(lines_of(before), lines_of(after), f"a/{path}", f"b/{path}")
        out.extend(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join(out)


def applied(text: str, edits: list[dict[str, Any]], where: str) -> str:
    """``text`` with edits made; of two that overlap the first in the file is. Raises UnusableInput if the result is no Python."""
    result = spliced(text, edits)
    if where.endswith((".sh", ".bash", ".sbatch", ".slurm", ".zsh", ".yaml", ".yml", ".toml")):
        return result
    try:
        ast.parse(result)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnusableInput(f"{where}: the fixes together would not give valid Python; take them one by one.") from None
    return result


def _notebook(path: str, findings: list[dict[str, Any]]) -> tuple[str, str]:
    """A notebook's JSON before and after; only the strings of the cells that are fixed change."""
    from shardguide.code.review.notebook import edited, reread

    read = reread(path)
    after = edited(read, [(one["cell"], edit) for one in findings for edit in one["edits"]])
    if after is None:
        raise UnusableInput(
            f"{path}: a fix cannot be made exactly in this notebook's JSON; save it with Jupyter, or change the cell by hand."
        )
    return read.json, after
