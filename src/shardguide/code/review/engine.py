"""One review: files in, findings out."""

from __future__ import annotations

from shardguide.guidance.hints import TYPE_CHECKING, NamedTuple
from shardguide.knowledge import rule_store

from .checks.api import api_findings
from .follow import followed
from .inputs import gather, read
from .project import File, Project
from .records import Finding, Problem, Verdict
from .suppress import CODE, suppressor, unused

if TYPE_CHECKING:
    from .launch.words import Text
    from .notebook import Notebook


class Result(NamedTuple):
    """What a review found."""

    findings: tuple[Finding, ...]  # by path, line, column and code
    problems: tuple[Problem, ...]
    files: int
    lines: int
    suppressed: int
    texts: dict[str, File | Text]  # what the findings point into
    notebooks: dict[str, Notebook]
    collectives: tuple[Verdict, ...] = ()  # around each test of the rank, in order


def review(
    paths: tuple[str, ...], release: str, applies: frozenset[str], exclude: tuple[str, ...] = (), root: str = ""
) -> Result:
    """Read files and folders as one project. ``applies``: codes of the rules that are wanted; ``release``: "" if unknown.

    ``exclude``: patterns of paths below ``root`` to pass over.
    """
    import gc

    collecting = gc.isenabled()
    gc.disable()  # trees are large and have no cycles: looking for some takes a third of the time
    try:
        return _review(paths, release, applies, exclude, root)
    finally:
        if collecting:
            gc.enable()


def _review(
    paths: tuple[str, ...], release: str, applies: frozenset[str], exclude: tuple[str, ...], root: str
) -> Result:
    inputs = gather(paths, exclude, root)
    project = Project()
    project.release = release
    project.problems += inputs.problems
    books = read(project, inputs.python, paths)
    found, verdicts = followed(project)
    if release:
        found.extend(api_findings(project, release))
    texts: dict[str, File | Text] = {file.path: file for file in project.files}
    lines = project.read
    shell = [(path, commands) for path, (_, commands) in books.items() if commands]
    if inputs.launch or shell:
        from .launch import look, words

        looked = look.look(inputs.launch, project, release)
        found.extend(looked.findings)
        project.problems.extend(looked.problems)
        texts.update((text.path, text) for text in looked.texts)
        lines += looked.lines
        for path, commands in shell:
            found.extend(look.inside(words.Text(path, commands), project, release))
    kept, suppressed = _kept(texts, found, applies, release)
    files = len(inputs.python) + len(inputs.launch)
    notebooks = {path: book for path, (book, _) in books.items()}
    return Result(tuple(kept), tuple(project.problems), files, lines, suppressed, texts, notebooks, tuple(verdicts))


def _kept(
    texts: dict[str, File | Text], found: list[Finding], applies: frozenset[str], release: str
) -> tuple[list[Finding], int]:
    """Each finding once, the certain one before the suspicion, without those that the source says to ignore."""
    best: dict[tuple[str, int, int, str], Finding] = {}
    for finding in found:
        key = (finding.path, finding.line, finding.column, finding.code)
        if finding.code in applies and (key not in best or finding.certain > best[key].certain):
            best[key] = finding
    kept = []
    used: set[tuple[str, int, str]] = set()
    for key in sorted(best):
        text = texts[key[0]]
        by = suppressor(text, key[1], key[3], not isinstance(text, File))
        if by:
            used.add((key[0], by, key[3]))
        else:
            kept.append(best[key])
    suppressed = len(best) - len(kept)
    if CODE in applies:
        idle = unused(texts.values(), used, applies, frozenset(rule_store.codes()), release)
        kept = sorted([*kept, *idle], key=lambda one: (one.path, one.line, one.column, one.code)) if idle else kept
    return kept, suppressed
