"""Resolve a public name of PyTorch to the file and definition behind it, by reading imports; nothing is imported.

Slower than a look-up, since files are parsed: for building the index, and for a definition that is no longer where it was.
"""

from __future__ import annotations

import ast

from shardguide.guidance.hints import NamedTuple
from shardguide.installed.lookup import Place, Tree

DEPTH = 20  # re-exports followed before giving up; PyTorch needs four

Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


class Found(NamedTuple):
    """A definition."""

    module: str
    file: str
    name: str  # qualified name in the file, "" for the module itself
    nodes: tuple[Node, ...]  # more than one for overloads and guarded variants; none for the module itself


class Module:
    """One parsed file."""

    def __init__(self, name: str, file: str, tree: ast.Module) -> None:
        self.name = name
        self.file = file
        self.package = name if file.endswith(("/__init__.py", "/__init__.pyi")) else name.rpartition(".")[0]
        self.names: dict[str, list[Node]] = {}
        self.imports: dict[str, tuple[str, str]] = {}  # name -> module, name in it ("" for the module itself)
        self.stars: list[str] = []
        self.exported: list[str] = []
        self._walk(tree.body)

    def public(self) -> list[str]:
        """``__all__`` where it is written out, else every name without a leading underscore that is defined here."""
        return self.exported or [name for name in self.names if not name.startswith("_")]

    def _walk(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.names.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                self._assign(node)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node)
            elif isinstance(node, ast.Import):
                for item in node.names:
                    self.imports[item.asname or item.name.split(".")[0]] = (
                        item.name if item.asname else item.name.split(".")[0],
                        "",
                    )
            for part in ("body", "orelse", "finalbody"):
                if isinstance(node, ast.If | ast.Try | ast.With):
                    self._walk(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                self._walk(handler.body)

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if not isinstance(target, ast.Name):
                continue
            if target.id == "__all__":
                if isinstance(node.value, ast.List | ast.Tuple):
                    values = [item.value for item in node.value.elts if isinstance(item, ast.Constant)]
                    self.exported += [value for value in values if isinstance(value, str)]
            elif not isinstance(node, ast.AugAssign):
                self.names.setdefault(target.id, []).append(node)

    def _import_from(self, node: ast.ImportFrom) -> None:
        source = node.module or ""
        if node.level:
            base = self.package.split(".")
            base = base[: len(base) - node.level + 1]
            source = ".".join([*base, source] if source else base)
        for item in node.names:
            if item.name == "*":
                self.stars.append(source)
            else:
                self.imports[item.asname or item.name] = (source, item.name)


class Resolver:
    """Resolves names in one tree; every file is parsed at most once."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """The module of that dotted name, or None where it has no readable Python file."""
        if name not in self._modules:
            self._modules[name] = None
            base = name.replace(".", "/")
            for file in (f"{base}/__init__.py", f"{base}.py", f"{base}.pyi", f"{base}/__init__.pyi"):
                text = self.tree.text(file)
                if text is not None:
                    try:
                        self._modules[name] = Module(name, file, ast.parse(text))
                    except (SyntaxError, ValueError, RecursionError, MemoryError):
                        continue
                    break
        return self._modules[name]

    def find(self, dotted: str, depth: int = DEPTH) -> Found | None:
        """The definition behind a public dotted name such as ``torch.distributed.fsdp.FSDPModule.reshard``."""
        parts = dotted.split(".")
        for cut in range(len(parts), 0, -1):
            module = self.module(".".join(parts[:cut]))
            if module is not None:
                parent = self.module(".".join(parts[: cut - 1])) if cut == len(parts) > 1 else None
                source, name = parent.imports.get(parts[-1], ("", "")) if parent is not None else ("", "")
                if parent is not None and name and f"{source}.{name}" != dotted:
                    return self._inside(parent, parts[-1:], depth)  # a name that hides a submodule: fsdp.fully_shard
                return self._inside(module, parts[cut:], depth)
        return None

    def _inside(self, module: Module, names: list[str], depth: int) -> Found | None:
        if not names:
            return Found(module.name, module.file, "", ())
        if depth <= 0:
            return None
        first = names[0]
        if first in module.names:
            return self._member(module, module.names[first], names, depth)
        if first in module.imports:
            source, name = module.imports[first]
            if source.split(".")[0] not in ("torch", module.name.split(".")[0]):
                return None
            return self.find(".".join([source, *([name] if name else []), *names[1:]]), depth - 1)
        for source in module.stars:
            star = self.module(source)
            if star is not None and star is not module and not first.startswith("_"):
                found = self._inside(star, names, depth - 1)
                if found is not None:
                    return found
        return None

    def _member(self, module: Module, nodes: list[Node], names: list[str], depth: int) -> Found | None:
        if len(names) > 1:
            bases: list[str] = []
            inner: list[Node] = []
            for node in nodes:
                if isinstance(node, ast.ClassDef):
                    inner += members(node).get(names[1], [])
                    bases += parents(node)
            if inner:
                found = self._member(module, inner, names[1:], depth)
                return found._replace(name=f"{names[0]}.{found.name}") if found else None
            for base in bases:
                inherited = self._inside(module, [*base.split("."), *names[1:]], depth - 1)
                if inherited is not None:
                    return inherited
            return None
        node = nodes[-1]
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Name | ast.Attribute):
            alias = self._inside(module, ast.unparse(node.value).split("."), depth - 1)
            if alias is not None and alias.nodes:
                return alias
        return Found(module.name, module.file, names[0], tuple(nodes))


def parents(node: ast.ClassDef) -> list[str]:
    """Base classes and metaclass as written: where attributes of the class may come from."""
    return [ast.unparse(base) for base in node.bases] + [
        ast.unparse(item.value) for item in node.keywords if item.arg == "metaclass"
    ]


def members(node: ast.ClassDef) -> dict[str, list[Node]]:
    """What a class body defines, guarded parts included."""
    holder = Module("", "", ast.Module(body=node.body, type_ignores=[]))
    return holder.names


def moved(tree: Tree, places: tuple[Place, ...]) -> list[Place]:
    """Where the objects are defined now, for those that are found under their public name."""
    resolver = Resolver(tree)
    result = []
    for place in places:
        found = resolver.find(place.object)
        if found is not None:
            result.append(Place(place.object, found.file, found.name if place.definition else ""))
    return result
