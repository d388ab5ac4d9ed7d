"""API that the user's release lacks, calls otherwise or deprecates, by the index of every release (FSD9xx)."""

from __future__ import annotations

import ast
from bisect import bisect_left

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import api, module_store, releases

from ..project import File, Project, dotted_text
from ..records import Call, Edit, Finding
from .asking import GUARDS, choice, guards, only_named
from .common import drop_argument, is_true
from .fsdp2 import OLD

_CHECKED = ("torch.distributed.", "torch.nn.parallel.", "torch.accelerator.")
# Modules that only forward to another one: where to, and since when.
_MOVED = {
    "torch.distributed._composable.fsdp": ("torch.distributed.fsdp", "2.6"),
    "torch.distributed._composable.fsdp.fully_shard": ("torch.distributed.fsdp", "2.6"),
    "torch.distributed._tensor": ("torch.distributed.tensor", "2.5"),
    "torch.distributed._tensor.api": ("torch.distributed.tensor", "2.5"),
    "torch.distributed._tensor.placement_types": ("torch.distributed.tensor.placement_types", "2.5"),
    "torch.distributed._tensor.device_mesh": ("torch.distributed.device_mesh", "2.2"),
    "torch.distributed._shard.checkpoint": ("torch.distributed.checkpoint", "2.0"),
}


_ALIAS = "torch.distributed._shard.checkpoint"  # the same module under another name


# What takes the place of broadcast_buffers=False, which is not quite the same.
_FORWARD_SYNC = ": forward_sync_buffers=False takes its place, but still broadcasts the buffers at construction"


class _Known(NamedTuple):
    """What the index says of a name."""

    there: bool
    elsewhere: str  # the releases that have it, where this one has it not
    kind: str
    deprecated: str
    parameters: frozenset[str]  # empty: not known, or anything goes
    told: tuple[str, ...]  # parameters that are deprecated
    call: tuple[api.Parameter, ...] | None = None  # of what is written in Python


def api_findings(project: Project, release: str) -> list[Finding]:
    """Findings in all files of a project."""
    known: dict[str, _Known] = {}
    out: list[Finding] = []
    for file in project.files:
        if any(full.startswith("torch") for full in (*file.imports.values(), *file.stars)):
            _File(file, release, known, out).read()
    return out


def _lines_with(text: str, words: tuple[str, ...]) -> list[int]:
    """The lines, from 1, that have any of these words."""
    found: set[int] = set()
    for word in words:
        at, line, last = text.find(word), 1, 0
        while at >= 0:
            line += text.count("\n", last, at)
            found.add(line)
            last = at
            at = text.find(word, at + 1)
    return sorted(found)


def _full(node: ast.AST, roots: dict[str, str]) -> str:
    """The full name of a.b.c where ``a`` comes from PyTorch; "" for anything else."""
    inner = node
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    if not isinstance(inner, ast.Name) or inner.id not in roots:
        return ""
    head, _, rest = dotted_text(node).partition(".")
    return f"{roots[head]}.{rest}" if rest else roots[head]


def _covered(full: str) -> bool:
    """Whether the index can tell that a name is not there: private modules put others in their place when they are imported."""
    if not full.startswith(_CHECKED) or ".elastic." in full:
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
        self.asked: set[str] = set()  # names that the file asks for by hasattr
        self.flat: set[str] = set()  # names of flattened dimensions of a mesh

    def read(self) -> None:
        """Look at every name that comes from PyTorch."""
        survey = self.file.survey
        kept = survey.kept
        roots = {
            name: full.replace(_ALIAS, "torch.distributed.checkpoint") if _ALIAS in full else full
            for name, full in self.file.imports.items()
            if full.startswith("torch") and name not in survey.bound
        }
        self._guarded(kept)
        text = self.file.text
        if "hasattr" in text or "getattr" in text or "_flatten" in text:
            for node in kept[ast.Call]:
                self._asked(node)  # type: ignore[arg-type]
        for node in kept[ast.ImportFrom]:
            if not node.level and (node.module or "").startswith("torch"):  # type: ignore[attr-defined]
                self._module_of(node, str(node.module))  # type: ignore[arg-type, attr-defined]
                for alias in node.names:  # type: ignore[attr-defined]
                    self._imported(alias, f"{node.module}.{alias.name}")  # type: ignore[attr-defined]
        for node in kept[ast.Import]:
            for alias in node.names:  # type: ignore[attr-defined]
                self._module(alias)
        for name in survey.names:
            if name.id in roots:
                self._used(name, roots[name.id])
        for chain in survey.chains:
            full = _full(chain, roots)
            if full:
                self._used(chain, full)
        for node in kept[ast.Call]:
            full = _full(node.func, roots)  # type: ignore[attr-defined]
            if full:
                self._keywords(node, full)  # type: ignore[arg-type]
                self._counted(node, full)  # type: ignore[arg-type]
        if self.flat:
            for node in ast.walk(self.file.tree):
                if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                    part = node.slice.value
                    if isinstance(part, str) and part in self.flat:
                        self._report("FSD907", node, certain=False, name=part)

    def _guarded(self, kept: dict[type, list[ast.AST]]) -> None:
        """Where the file asks for the release, or for what is there."""
        exits: list[ast.If] = []
        for node in kept[ast.Try]:
            assert isinstance(node, ast.Try)
            whatever = any(
                handler.type is None or dotted_text(handler.type) == "Exception" for handler in node.handlers
            )
            if whatever and choice(node.body):
                self.guarded.append((node.lineno, node.end_lineno or node.lineno))
            elif any(handler.type is not None and "Error" in ast.dump(handler.type) for handler in node.handlers):
                names = ast.dump(ast.Tuple([h.type for h in node.handlers if h.type is not None], ast.Load()))
                if any(one in names for one in ("ImportError", "ModuleNotFoundError", "AttributeError", "TypeError")):
                    self.guarded.append((node.lineno, node.end_lineno or node.lineno))
        asking = _lines_with(self.file.text, (*GUARDS, "dir("))
        if asking:
            for node in (*kept[ast.If], *kept[ast.IfExp]):
                assert isinstance(node, (ast.If, ast.IfExp))
                test = node.test
                at = bisect_left(asking, test.lineno)
                if at < len(asking) and asking[at] <= (test.end_lineno or 0) and guards(test):
                    self.guarded.append((node.lineno, node.end_lineno or node.lineno))
                    if isinstance(node, ast.If) and isinstance(node.body[-1], (ast.Raise, ast.Return)):
                        exits.append(node)
        if exits:
            self._left_early(exits, [*kept[ast.FunctionDef], *kept[ast.AsyncFunctionDef]])

    def _asked(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Name) and function.id in ("hasattr", "getattr") and len(node.args) > 1:
            if isinstance(node.args[1], ast.Constant):
                self.asked.add(str(node.args[1].value))
        elif isinstance(function, ast.Attribute) and function.attr == "_flatten":
            given = node.args[0] if node.args else next((k.value for k in node.keywords), None)
            if isinstance(given, ast.Constant):
                self.flat.add(str(given.value))
            elif isinstance(function.value, ast.Subscript) and isinstance(function.value.slice, ast.Tuple):
                parts = [one.value for one in function.value.slice.elts if isinstance(one, ast.Constant)]
                if given is None and len(parts) == len(function.value.slice.elts):
                    self.flat.add("_".join(str(part) for part in parts))

    def _left_early(self, exits: list[ast.If], functions: list[ast.AST]) -> None:
        """``if version < …: raise`` guards what follows it in its function."""
        for node in exits:
            around = [
                one
                for one in functions
                if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
                and one.lineno < node.lineno <= (one.end_lineno or 0)
            ]
            if around:
                inner = max(around, key=lambda one: one.lineno)
                self.guarded.append((node.lineno, inner.end_lineno or node.lineno))

    def _look(self, full: str) -> _Known:
        if full not in self.known:
            entry = api.entry(full, self.release)
            if entry is None:
                self.known[full] = _Known(False, api.since(full), "", "", frozenset(), ())
            else:
                names = frozenset(name for name, _, _ in entry.call or ())
                open_ = any(name.startswith("**") for name in names) or entry.call is None
                told = tuple(words.split()[1] for words in entry.warns if words.startswith("argument "))
                said = " ".join(entry.deprecated.split())
                call = entry.call if entry.kind in ("function", "class", "static method") else None
                self.known[full] = _Known(True, "", entry.kind, said, frozenset() if open_ else names, told, call)
        return self.known[full]

    def _in_python(self, full: str) -> bool:
        """Whether a name, or the class that it belongs to, is written in Python, so that the index knows all of it."""
        for name in (full, full.rpartition(".")[0]):
            where = api.place(name, self.release)
            if where is not None:
                return where[0].endswith(".py")
        return True

    def _report(self, code: str, node: ast.AST, *edits: Edit, certain: bool = True, **words: str) -> None:
        line = getattr(node, "lineno", 1)
        if any(first <= line <= last for first, last in self.guarded):
            return
        column = getattr(node, "col_offset", 0)
        before = self.file.lines[line - 1][:column].decode("utf-8", "replace") if line <= len(self.file.lines) else ""
        words["release"] = self.release
        place = (code, self.file.path, line, len(before) + 1)
        self.out.append(Finding(*place, certain, tuple(sorted(words.items())), edits))

    def _imported(self, alias: ast.alias, full: str) -> None:
        known = self._look(full)
        if known.there or alias.name == "*" or alias.name in self.asked or not _covered(full):
            return
        if known.elsewhere:
            self._report("FSD901", alias, name=full, since=known.elsewhere)
        elif self._never(full):
            since = f"no release from {releases.OLDEST} to {releases.NEWEST}"
            self._report("FSD901", alias, certain=False, name=full, since=since)

    def _never(self, full: str) -> bool:
        """Whether no release has a name, whose package this one has; other modules hold names that they only use."""
        where = api.place(full.rpartition(".")[0], self.release)
        if where is None or not where[0].endswith("__init__.py") or where[1]:
            return False
        return module_store.missing(full, self.release) is not None

    def _module(self, alias: ast.alias) -> None:
        if not alias.name.startswith("torch."):
            return
        known = self._look(alias.name)
        if alias.name in _MOVED and _at_least(self.release, _MOVED[alias.name][1]):
            new = _MOVED[alias.name][0]
            line, column = alias.lineno, alias.col_offset
            edits = (Edit(line, column, line, column + len(alias.name), new),) if alias.asname else ()
            self._report("FSD906", alias, *edits, name=alias.name, new=new)
        # A function may have the name of the file that it is in; what has a class's name is no file.
        file = known.kind != "class" and module_store.missing(alias.name, self.release) is None
        if known.there and known.kind != "module" and not file:
            self._report("FSD904", alias, name=alias.name, kind=known.kind)
        elif not known.there and known.elsewhere and _covered(alias.name):
            self._report("FSD901", alias, name=alias.name, since=known.elsewhere)

    def _used(self, node: ast.Attribute | ast.Name, full: str) -> None:
        known = self._look(full)
        if known.there and known.deprecated:
            if not isinstance(node.ctx, ast.Load) or only_named(self.file.tree, node):
                return
            said = known.deprecated if len(known.deprecated) < 160 else f"{known.deprecated[:157]}…"
            self._report("FSD903", node, name=full, said=said)
            return
        if known.there or not known.elsewhere or not isinstance(node, ast.Attribute) or node.attr in self.asked:
            return
        if isinstance(node.ctx, ast.Load) and _covered(full) and self._in_python(full):
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
                if not self._asked_for(node, name):
                    self._report("FSD902", keyword.value, name=full, keyword=name)
            elif name in known.told and name != "group_name" and not _is_none(keyword.value):
                idle = name == "check_reduction" or (name == "broadcast_buffers" and is_true(keyword.value))
                edits = drop_argument(Call(node, "", full, (), "", (), {}), name) if idle else ()
                instead = "" if name != "broadcast_buffers" or is_true(keyword.value) else _FORWARD_SYNC
                self._report("FSD905", keyword.value, *edits, name=full, keyword=name, instead=instead)

    def _asked_for(self, node: ast.Call, keyword: str) -> bool:
        """Whether a test around a call names its keyword: "symmetric" in inspect.signature(…).parameters."""
        return any(
            isinstance(around, (ast.If, ast.IfExp))
            and around.lineno <= node.lineno <= (around.end_lineno or 0)
            and any(isinstance(one, ast.Constant) and one.value == keyword for one in ast.walk(around.test))
            for around in (*self.file.survey.kept[ast.If], *self.file.survey.kept[ast.IfExp])
        )

    def _counted(self, node: ast.Call, full: str) -> None:
        """Positional arguments beyond those there are, and required ones that are not given."""
        known = self._look(full)
        if not known.call or not full.startswith(_CHECKED) or any(isinstance(one, ast.Starred) for one in node.args):
            return
        names = [name for name, _, _ in known.call]
        places = []
        for name in names:
            if name == "*" or name.startswith("**"):
                break
            if name.startswith("*"):
                return
            if name != "/":
                places.append(name)
        if (
            len(node.args) == 2
            and full.startswith("torch.distributed.checkpoint.")
            and full.endswith((".save", ".load"))
        ):
            return  # taken with a warning
        if len(node.args) > len(places) and self._in_python(full):
            takes = f"takes {len(places)} positional arguments, and gets {len(node.args)}"
            self._report("FSD908", node, name=full, takes=takes)
            return
        given = {*places[: len(node.args)], *(keyword.arg for keyword in node.keywords)}
        lacks = [
            name for name, default, _ in known.call if default is None and name[0] not in "*/" and name not in given
        ]
        if lacks and None not in given and self._in_python(full):
            self._report("FSD908", node, name=full, takes=f"needs {', '.join(lacks)}")

    def _module_of(self, node: ast.ImportFrom, module: str) -> None:
        """A module that has moved, or that this release does not have."""
        if not module.startswith(("torch.distributed.", "torch.nn.parallel.")):
            return
        if module in _MOVED:
            new, since = _MOVED[module]
            names = [alias.name for alias in node.names]
            if _at_least(self.release, since) and all(api.exists(f"{new}.{name}", self.release) for name in names):
                self._report("FSD906", node, *self._renamed(node, module, new), name=module, new=new)
        elif not api.since(module) or not _covered(module):
            where = module_store.missing(module, self.release)
            if where is not None and not any(alias.name in self.asked for alias in node.names):
                since = where or f"in no release from {releases.OLDEST} to {releases.NEWEST}"
                self._report("FSD909", node, name=module, since=f"in {where}" if where else since)

    def _renamed(self, node: ast.ImportFrom, module: str, new: str) -> tuple[Edit, ...]:
        start = node.col_offset + len("from ")
        text = self.file.lines[node.lineno - 1]
        if text[start : start + len(module)] != module.encode():
            return ()
        return (Edit(node.lineno, start, node.lineno, start + len(module), new),)


def _at_least(release: str, since: str) -> bool:
    return tuple(map(int, release.split("."))) >= tuple(map(int, since.split(".")))


def _is_none(node: ast.expr) -> bool:
    """Whether None is given, the default of what is deprecated: it warns of nothing."""
    return isinstance(node, ast.Constant) and node.value is None
