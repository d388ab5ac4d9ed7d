"""What a class of the project makes its parts of, read from its constructor: ``self.layers = nn.ModuleList(…)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..methods import class_of, lineage
from ..project import Definition, File, Project, dotted_text
from ..records import Thing
from ..walk import Walker


def classes(walker: Walker, thing: Thing) -> list[tuple[File, ast.ClassDef]]:
    """The class of a thing and the project's classes that it derives from."""
    target = class_of(thing)
    found = lineage(walker.project, target) if target is not None else ()
    return [(one.file, one.node) for one in found if not isinstance(one, str) and isinstance(one.node, ast.ClassDef)]


def all_parts(whole: Thing, apart: str = "") -> Iterator[Thing]:
    """The parts of a thing and theirs, each once; those with the mark ``apart`` are passed over with all that is in them."""
    seen, waiting = {whole}, [whole]
    while waiting:
        one = waiting.pop()
        for name, things in one.attrs.items():
            for part in things if name not in ("class", "tied with") else ():
                if part not in seen and not (apart and any(mark.what == apart for mark in part.marks)):
                    seen.add(part)
                    waiting.append(part)
                    yield part


def assignments(node: ast.ClassDef) -> Iterator[tuple[str, ast.Assign]]:
    """``self.name = value`` in all methods of a class."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            for inner in ast.walk(item):
                if isinstance(inner, ast.Assign):
                    target = inner.targets[0]
                    if (
                        isinstance(target, ast.Attribute)
                        and isinstance(target.value, ast.Name)
                        and target.value.id == "self"
                    ):
                        yield target.attr, inner


def made_as(walker: Walker, thing: Thing) -> tuple[File, ast.expr] | None:
    """What the class of a whole assigns to the attribute that ``thing`` is."""
    if not thing.of or thing.kind not in ("unknown", "module", "modulelist"):
        return None
    name = thing.name.rpartition(".")[2]
    for file, node in classes(walker, thing.of[0]):
        for attribute, assign in assignments(node):
            if attribute == name:
                return file, assign.value
    return None


def class_name(walker: Walker, thing: Thing) -> str:
    """The name of the class that a part is an object of, as its whole writes it; "" if not known."""
    found = made_as(walker, thing)
    if found is None or not isinstance(found[1], ast.Call):
        return ""
    return dotted_text(found[1].func).rpartition(".")[2]


def in_root(walker: Walker, part: Thing, policy: ast.expr | None) -> bool:
    """Whether a part shares a unit with others: it is a part of an element of a list, or its class is in no policy."""
    if policy is None or isinstance(policy, ast.Constant):
        return True
    if separates(walker, policy):
        return False
    if "[]" in part.name.partition(".")[2].rpartition(".")[0]:
        return True
    whole = part if not part.name.endswith((".weight", ".bias")) or not part.of else part.of[0]
    name = class_name(walker, whole)
    given = walker.written(policy) if isinstance(policy, ast.Name) else policy
    if not isinstance(given, ast.Call):
        return False
    words = ast.dump(given)
    if name:
        return name not in words
    tokens = whole.name.rpartition(".")[2].lower().split("_")  # its class is not known: "connector" of MLPConnector
    return not any(len(token) > 3 and token in words.lower() for token in tokens)


class Programs:
    """Which files make one program: a repository is often many."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.uses: dict[File, set[File]] = {}
        self.users: dict[File, set[File]] = {}
        for file in project.files:
            names = {part for full in (*file.imports.values(), *file.stars) for part in (full, full.rpartition(".")[0])}
            found = {project.module(name, file) for name in names if name.strip(".")}
            self.uses[file] = {one for one in found if one is not None and one is not file}
            for one in self.uses[file]:
                self.users.setdefault(one, set()).add(file)

    def around(self, file: File) -> set[File]:
        """The files of the programs that a file belongs to; all where no script among them is known to start one."""
        above = _reached({file}, self.users)
        if not any("__main__" in one.text or one.path.endswith(".ipynb") for one in above):
            return set(self.project.files)
        return _reached(above, self.uses)


def _reached(files: set[File], graph: dict[File, set[File]]) -> set[File]:
    out, waiting = set(files), list(files)
    while waiting:
        for one in graph.get(waiting.pop(), ()):
            if one not in out:
                out.add(one)
                waiting.append(one)
    return out


_LARGE = ("Sequential", "ModuleList", "ModuleDict", "Transformer")


def leaf(thing: Thing) -> bool:
    """Whether a model is a single layer of PyTorch's, so that it has no parts to wrap or shard apart."""
    name = thing.name if thing.kind == "module" else ""
    return name.startswith("torch.nn.") and not any(word in name for word in _LARGE)


def in_tests(file: File) -> bool:
    """Whether a file is a test: it loads what it wrote itself, and its models are small."""
    folder, _, name = file.path.rpartition("/")
    if name.startswith("test_") or name.endswith("_test.py"):
        return True
    return folder.rpartition("/")[2] == "tests" and "def test_" in file.text


def separates(walker: Walker, policy: ast.expr | None, depth: int = 2) -> bool:
    """Whether a policy may give what is trainable units of its own: one with a function that is written here."""
    if isinstance(policy, ast.Name) and depth:
        return separates(walker, walker.written(policy), depth - 1)
    if not isinstance(policy, ast.Call):
        return False
    words = ast.dump(policy)
    target = walker.project.resolve(walker.frame.file, dotted_text(policy.func)) if dotted_text(policy.func) else ""
    if isinstance(target, Definition):
        words = ast.dump(target.node)
    return any(word in words for word in ("lambda", "Lambda", "requires_grad", "or_policy", "CustomPolicy"))
