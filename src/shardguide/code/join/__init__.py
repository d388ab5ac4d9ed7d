"""The Join check: do the hooks of the user's Joinables shadow the collectives of an iteration, one by one and in order.

``check`` reads files and folders, ``check_project`` what a review has read already. Each Joinable gets a table, iteration
against main_hook, and a verdict: proven, violated, or unknown with why. It is proven only where everything was followed.
"""

from __future__ import annotations

import ast

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple

from ..review.inputs import gather, read
from ..review.project import Project
from ..review.records import Problem
from .results import Issue, Row, Unknowns, Verdict, verdict_of


class Result(NamedTuple):
    """What the check found in a project."""

    verdicts: tuple[Verdict, ...]
    problems: tuple[Problem, ...]
    files: int


def check(paths: tuple[str, ...]) -> Result:
    """Check files and folders as one project. Raises UnusableInput for a path that does not exist, or without any Python."""
    found = gather(paths)
    if not found.python and not found.problems:
        raise UnusableInput("there is no Python file and no notebook in what was handed over.")
    project = Project()
    read(project, found.python)
    return Result(tuple(check_project(project)), (*found.problems, *project.problems), len(found.python))


def concerns(project: Project) -> bool:
    """Whether anything of Join is in a project."""
    return any(
        ("Join" in file.text and "torch" in file.text)
        or (".join(" in file.text and "DistributedDataParallel" in file.text)
        for file in project.files
    )


def check_project(project: Project) -> list[Verdict]:
    """Every Joinable and every Join of a project, in order."""
    if not concerns(project):
        return []
    from .whole import verdicts

    return verdicts(project)


__all__ = ["Issue", "Result", "Row", "Unknowns", "Verdict", "ast", "check", "check_project", "verdict_of"]
