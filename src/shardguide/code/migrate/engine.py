"""One migration: files in, new texts out, with every use and what became of it."""

from __future__ import annotations

import ast

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.sha import sha256
from shardguide.readers.files import read_text

from ..review.inputs import gather
from ..review.project import LIMIT, Project
from ..review.records import Problem
from . import imports, whole
from .flow import components, follow
from .names import Target
from .records import Change, Result, Todo, Use
from .unit import Unit

_YAML = (".yaml", ".yml")
_NOTEBOOK = ".ipynb"
_MARKS = ("fsdp", "FSDP", "FullyShardedDataParallel", "fully_shard", "no_sync", "clip_grad_norm_")


def migrate(paths: tuple[str, ...], release: str) -> Result:
    """Work out the changes to files and folders, read as one project. Nothing is written."""
    found = gather(paths)
    configurations = [path for path in found.launch if path.endswith(_YAML)]
    names = [path for path in found.python if not path.endswith(_NOTEBOOK)]
    problems = [*found.problems, *_notebooks([path for path in found.python if path.endswith(_NOTEBOOK)])]
    if not names and not configurations and not problems:
        raise UnusableInput("there is no Python file and no YAML configuration in what was handed over.")
    done = [_configuration(path, release) for path in configurations]
    project = Project()
    for name in names:
        project.add(name)
    units = _units(project, release)
    whole.rewrite(units)
    changes = [
        change for change in (*(one[0] for one in done), *(_change(unit) for unit in units)) if change is not None
    ]
    uses = sorted([*(use for unit in units for use in unit.uses), *(use for one in done for use in one[1])])
    todos = sorted({*(todo for unit in units for todo in unit.todos), *(todo for one in done for todo in one[2])})
    read = [(problem.path, problem.line, problem.why) for problem in (*problems, *project.problems)]
    read += [problem for unit in units for problem in unit.problems]
    read += [problem for one in done for problem in one[3]]
    contents = _digest([*((file.path, file.text) for file in project.files), *((one[4], one[5]) for one in done)])
    return Result(
        tuple(changes), tuple(uses), tuple(todos), tuple(read), len(names) + len(configurations), project.read, contents
    )


def _digest(texts: list[tuple[str, str]]) -> str:
    """What identifies all that was read, so that an answer to other contents is another answer."""
    out = sha256()
    for path, text in texts:
        for part in (path, text):
            data = part.encode("utf-8", "surrogatepass")
            out.update(b"%d " % len(data))
            out.update(data)
    return out.hexdigest()


def _units(project: Project, release: str) -> list[Unit]:
    """The files that have to do with FSDP, each with what is known of all."""
    project.release = release
    project.helpers()
    reading = follow(project)
    target = Target(release)
    groups = components(project)
    marked = [file for file in project.files if any(mark in file.text for mark in _MARKS) or _reduces(file.text)]
    units = [Unit(file, project, reading, target) for file in marked]
    together: dict[int, list[str]] = {}
    for file in project.files:
        together.setdefault(groups[id(file)], []).append(file.text)
    texts = {group: "".join(parts) for group, parts in together.items()}
    wanted = _asked_for(project)
    for unit in units:
        unit.units = units
        unit.group = groups[id(unit.file)]
        unit.near = texts[unit.group]
        unit.asked_for = wanted.get(unit.file.base, set())
    return units


def _reduces(text: str) -> bool:
    """Whether a file may do arithmetic of its own over the parameters of all ranks."""
    return "all_reduce" in text and "parameters()" in text


def _change(unit: Unit) -> Change | None:
    if unit.refused or not unit.source.changed:
        return None
    try:
        unit.settle()
        imports.finish(unit)
        unit.settle()
        after = unit.source.result(unit.file.path)
    except (UnusableInput, SyntaxError):
        # Ours to repair, not the user's: the file stays as it is, and says so.
        unit.problems.append(
            (unit.file.path, 0, "the changes together would be no valid Python, so it is left as it is.")
        )
        unit.uses = [use._replace(status="left", reason="not-written") for use in unit.uses]
        return None
    return Change(unit.file.path, unit.file.text, after) if after != unit.file.text else None


def _notebooks(paths: list[str]) -> list[Problem]:
    """Notebooks with FSDP in them: their cells are not rewritten, and that is said."""
    from ..review.inputs import read

    project = Project()
    read(project, paths)
    why = "a notebook is not rewritten; save its cells as Python (jupyter nbconvert --to script) and migrate that."
    using = [file for file in project.files if any(mark in file.text for mark in _MARKS)]
    return [*project.problems, *(Problem(file.path, 0, why) for file in using)]


def _configuration(
    path: str, release: str
) -> tuple[Change | None, tuple[Use, ...], tuple[Todo, ...], tuple[tuple[str, int, str], ...], str, str]:
    """One YAML file: accelerate's are changed, others are none of ours."""
    try:
        text = read_text(path, LIMIT).replace("\r\n", "\n")
        if "fsdp" not in text.lower():
            return None, (), (), (), path, ""
        from .accelerate_yaml import convert

        made = convert(text, path, release)
    except UnusableInput as error:
        return None, (), (), ((path, 0, str(error)),), path, ""
    if made is None:
        return None, (), (), (), path, text
    change = Change(path, text, made.text) if made.text != text else None
    return change, made.uses, made.todos, (), path, text


def _asked_for(project: Project) -> dict[str, set[str]]:
    """Names that other files import from a file: file without .py -> names."""
    out: dict[str, set[str]] = {}
    for file in project.files:
        for full in file.imports.values():
            module, _, name = full.rpartition(".")
            other = project.module(module, file) if module else None
            if other is not None:
                out.setdefault(other.base, set()).add(name)
        for module in file.stars:
            other = project.module(module, file)
            if other is not None:
                names = {one.id for one in ast.walk(file.tree) if isinstance(one, ast.Name)}
                out.setdefault(other.base, set()).update(names)
    return out
