"""API that the user's release lacks, calls otherwise or deprecates, by the index of every release (FSD9xx)."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import api

from ..project import File, Project, dotted_text
from ..records import Finding
from .fsdp2 import OLD

_GUARDS = ("hasattr", "getattr", "version", "Version", "is_available")


class _Known(NamedTuple):
    """What the index says of a name."""

    there: bool
    elsewhere: str  # the releases that have it, where this one has it not
    kind: str
    deprecated: str
    parameters: frozenset[str]  # empty: not known, or anything goes
    told: tuple[str, ...]  # parameters that are deprecated


def api_findings(project: Project, release: str) -> list[Finding]:
    """Findings in all files of a project."""
    known: dict[str, _Known] = {}
    out: list[Finding] = []
    for file in project.files:
        if any(full.startswith("torch") for full in (*file.imports.values(), *file.stars)):
            _File(file, release, known, out).read()
    return out


def _covered(full: str) -> bool:
    """Whether the index can tell that a name is not there: private modules put others in their place when they are imported."""
    if not full.startswith(("torch.distributed.", "torch.nn.parallel.", "torch.accelerator.")) or ".elastic." in full:
        return False
    return not any(part.startswith("_") and part != "_composable" for part in full.split("."))


class _File:
    """One file against one release."""

    def __init__(self, file: File, release: str, known: dict[str, _Known], out: list[Finding]) -> None:
        self.file = file
        self.release = release
        self.known = known
        self.out = out
        self.guarded: list[tuple[int, int]] = []
        self.bound: set[str] = set()

    def read(self) -> None:
        """Look at every name that comes from PyTorch."""
        nodes = list(ast.walk(self.file.tree))
        for node in nodes:
            self._bindings(node)
        roots = {
            name: full
            for name, full in self.file.imports.items()
            if full.startswith("torch") and name not in self.bound
        }
        inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("torch"):
                for alias in node.names:
                    self._imported(alias, f"{node.module}.{alias.name}")
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self._module(alias)
            elif isinstance(node, (ast.Attribute, ast.Name)) and id(node) not in inner:
                full = self._full(node, roots)
                if full:
                    self._used(node, full)
            elif isinstance(node, ast.Call) and node.keywords:
                full = self._full(node.func, roots)
                if full:
                    self._keywords(node, full)

    def _bindings(self, node: ast.AST) -> None:
        if isinstance(node, ast.arg):
            self.bound.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self.bound.add(node.id)
        elif isinstance(node, ast.Try):
            if any(handler.type is None or "Error" in ast.dump(handler.type) for handler in node.handlers):
                names = ast.dump(ast.Tuple([h.type for h in node.handlers if h.type is not None], ast.Load()))
                if any(one in names for one in ("ImportError", "ModuleNotFoundError", "AttributeError", "TypeError")):
                    self.guarded.append((node.lineno, node.end_lineno or node.lineno))
        elif isinstance(node, (ast.If, ast.IfExp)):
            test = ast.dump(node.test)
            if any(word in test for word in _GUARDS) or "VERSION" in test:
                self.guarded.append((node.lineno, node.end_lineno or node.lineno))

    def _full(self, node: ast.AST, roots: dict[str, str]) -> str:
        text = dotted_text(node)
        head, _, rest = text.partition(".")
        if head not in roots:
            return ""
        return f"{roots[head]}.{rest}" if rest else roots[head]

    def _look(self, full: str) -> _Known:
        if full not in self.known:
            entry = api.entry(full, self.release)
            if entry is None:
                self.known[full] = _Known(False, api.since(full), "", "", frozenset(), ())
            else:
                names = frozenset(name for name, _, _ in entry.call or ())
                open_ = any(name.startswith("**") for name in names) or entry.call is None
                told = tuple(words.split()[1] for words in entry.warns if words.startswith("argument "))
                self.known[full] = _Known(
                    True, "", entry.kind, " ".join(entry.deprecated.split()), frozenset() if open_ else names, told
                )
        return self.known[full]

    def _report(self, code: str, node: ast.AST, **words: str) -> None:
        line = getattr(node, "lineno", 1)
        if any(first <= line <= last for first, last in self.guarded):
            return
        column = getattr(node, "col_offset", 0)
        before = self.file.lines[line - 1][:column].decode("utf-8", "replace") if line <= len(self.file.lines) else ""
        words["release"] = self.release
        self.out.append(Finding(code, self.file.path, line, len(before) + 1, True, tuple(sorted(words.items()))))

    def _imported(self, alias: ast.alias, full: str) -> None:
        known = self._look(full)
        if not known.there and known.elsewhere and _covered(full):
            self._report("FSD901", alias, name=full, since=known.elsewhere)

    def _module(self, alias: ast.alias) -> None:
        if not alias.name.startswith("torch."):
            return
        known = self._look(alias.name)
        if known.there and known.kind != "module":
            self._report("FSD904", alias, name=alias.name, kind=known.kind)
        elif not known.there and known.elsewhere and _covered(alias.name):
            self._report("FSD901", alias, name=alias.name, since=known.elsewhere)

    def _used(self, node: ast.Attribute | ast.Name, full: str) -> None:
        known = self._look(full)
        if known.there and known.deprecated:
            said = known.deprecated if len(known.deprecated) < 160 else f"{known.deprecated[:157]}…"
            self._report("FSD903", node, name=full, said=said)
        elif not known.there and known.elsewhere and isinstance(node, ast.Attribute) and _covered(full):
            self._report("FSD901", node, name=full, since=known.elsewhere)

    def _keywords(self, node: ast.Call, full: str) -> None:
        known = self._look(full)
        for keyword in node.keywords:
            name = keyword.arg
            if name is None or not known.there:
                continue
            if known.parameters and name not in known.parameters:
                if full.endswith(".fully_shard") and name in OLD:
                    continue  # FSD411 says what became of it
                self._report("FSD902", keyword.value, name=full, keyword=name)
            elif name in known.told and name != "group_name":
                self._report("FSD905", keyword.value, name=full, keyword=name)
