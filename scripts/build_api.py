"""Build data/api.json and data/releases.json from the unpacked wheels of every release.

    python scripts/build_api.py WHEELS [--check]

WHEELS is the folder that scripts/fetch_wheels.py filled. The same wheels give the same bytes. `--check` compares with
what is in the tree and writes nothing.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

KNOWLEDGE = Path(__file__).parent.parent / "src" / "shardguide" / "knowledge"
sys.path[:0] = [str(KNOWLEDGE.parent.parent), str(Path(__file__).parent)]

from api_reading import Helpers, Variables, annotation, deprecations, helpers, options, wraps  # noqa: E402
from api_scope import (  # noqa: E402
    FORGOTTEN,
    HOMES,
    IMPORTS_TOO,
    INNER,
    MODULES,
    NAMES,
    PATCHES,
    PRIVATE_MEMBERS,
    READERS,
    RUN,
)
from shardguide.installed.lookup import Tree  # noqa: E402
from shardguide.installed.resolve import Found, Module, Resolver, members, parents  # noqa: E402
from shardguide.installed.signature import decorators, methods, typed  # noqa: E402
from shardguide.knowledge import api, releases  # noqa: E402
from shardguide.knowledge.lines import render  # noqa: E402

Variant = list[Any]  # kind, then what api.py says


class Index:
    """Every covered name of one release, each object under one name and the other names referring to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.resolver = Resolver(Tree(str(folder)))
        self.variants: dict[str, Variant] = {}
        self.places: dict[str, tuple[str, str]] = {}  # name -> file, definition in it
        self.names: dict[tuple[str, str], list[str]] = {}  # module and definition -> its public names
        objects: dict[str, Found] = {}
        for name in self.modules():
            module = self.resolver.module(name)
            if module is not None:
                self.collect(objects, name)  # which a function may hide: torch.distributed.rendezvous
                for item in self.public(module):
                    self.collect(objects, f"{name}.{item}")
        for name in NAMES:
            self.collect(objects, name)
        for name, found in sorted(objects.items()):
            self.names.setdefault((found.module, found.name), []).append(name)
        for names in self.names.values():
            names.sort(key=rank)
        for name, found in sorted(objects.items()):
            self.add(name, found)

    def modules(self) -> list[str]:
        """Modules of torch.distributed without an underscore in their path, and the others listed above."""
        found = []
        for file in sorted((self.folder / "torch" / "distributed").rglob("*.py")):
            parts = file.relative_to(self.folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if not any(part.startswith("_") for part in parts):
                found.append(".".join(parts))
        return sorted({*found, *MODULES, *INNER})

    def public(self, module: Module) -> list[str]:
        """Public names of a module; a package without ``__all__`` offers what it imports as well."""
        names = [name for name in module.public() if not (bookkeeping(module, name) and not module.exported)]
        if module.name in INNER:
            defined = [name for name, nodes in module.names.items() if called(nodes) and not name.startswith("_")]
            return list(dict.fromkeys((*module.exported, *defined)))
        if not module.exported and (module.file.endswith("__init__.py") or module.name in MODULES):
            names += [name for name in module.imports if not name.startswith("_")]
        if module.name in IMPORTS_TOO:
            defined = [name for name, nodes in module.names.items() if called(nodes)]
            names += [name for name in (*module.imports, *defined) if not name.startswith("_")]
        for source in module.stars:
            star = self.resolver.module(source)
            names += star.public() if star is not None else []
        return list(dict.fromkeys(names))

    def collect(self, objects: dict[str, Found], name: str) -> None:
        """Resolve a name, unless it leads out of PyTorch or to one of the many classes of CUDA storages."""
        found = self.resolver.find(name)
        if found is None or not found.module.startswith("torch") or name in objects:
            return
        if not (name.startswith("torch.cuda.") and name.endswith("Storage")):
            objects[name] = found

    def add(self, name: str, found: Found) -> None:
        """One name: the object itself under its best name, else a reference to that."""
        best = self.names[found.module, found.name][0]
        if name != best:
            self.variants[name] = ["a", best]
            return
        self.places[name] = (found.file, found.name)
        if not found.nodes:
            self.variants[name] = ["M"]
            return
        variant = describe(self.resolver, found)
        self.variants[name] = variant
        if variant[0] in CLASSES:
            self.add_members(name, found, variant)

    def add_members(self, name: str, found: Found, variant: Variant) -> None:
        """Methods, each under a name of its own; attributes and bases as parts of the class."""
        attributes = list(FORGOTTEN.get((self.folder.name, name), ()))
        covered = self.covered(found)
        inherited = {item for base in covered for item in methods(self.resolver, base)}
        own = {item for node in found.nodes if isinstance(node, ast.ClassDef) for item in members(node)}
        for item in (*methods(self.resolver, found), *PRIVATE_MEMBERS.get(name, ())):
            member = self.resolver.find(f"{found.module}.{found.name}.{item}")
            if member is None or (item in inherited and item not in own):
                continue
            described = describe(self.resolver, member)
            if described[0] == "v":
                attributes.append(item)
                continue
            described[0] = {"f": "m"}.get(described[0], described[0])
            self.variants[f"{name}.{item}"] = described
            if (member.module, member.name) != (found.module, f"{found.name}.{item}"):
                self.places[f"{name}.{item}"] = (member.file, member.name)
            if described[0] in CLASSES:
                self.add_members(f"{name}.{item}", member, described)
        bases = [self.names[base.module, base.name][0] for base in covered]
        details = {"bases": bases, "attributes": sorted(attributes)}
        details = {key: value for key, value in details.items() if value}
        if details:
            extend(variant, details)

    def covered(self, found: Found, depth: int = 8) -> list[Found]:
        """The nearest base classes that have public names; of those that have none, theirs."""
        result: list[Found] = []
        for base in self.bases(found) if depth else ():
            known = (base.module, base.name) in self.names
            for item in [base] if known else self.covered(base, depth - 1):
                if item not in result:
                    result.append(item)
        return result

    def bases(self, found: Found) -> list[Found]:
        """Base classes that are written in Python, as far as they can be found."""
        result = []
        for node in found.nodes:
            for base in parents(node) if isinstance(node, ast.ClassDef) else ():
                parent = self.resolver.find(f"{found.module}.{base}")
                if parent is not None and parent.nodes:
                    result.append(parent)
        return result


CLASSES = ("c", "e", "x")
_ENUMS = ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag")
_BOOKKEEPING = ("getLogger", "TypeVar", "ParamSpec", "get_logger", "getArtifactLogger")


def rank(name: str) -> tuple[int, int, int, str]:
    """Order of the public names of one object: without underscores, as documented, short."""
    module = name.rpartition(".")[0]
    private = sum(part.startswith("_") for part in name.split("."))
    return private, 0 if module in HOMES else 1, name.count("."), name


def called(nodes: Iterable[ast.AST]) -> bool:
    """Whether it is a function or class, no constant."""
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for node in nodes)


def bookkeeping(module: Module, name: str) -> bool:
    """Loggers and type variables: public by their name only."""
    for node in module.names.get(name, ()):
        value = getattr(node, "value", None)
        if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in _BOOKKEEPING:
            return True
    return False


def describe(resolver: Resolver, found: Found) -> Variant:
    """``[kind, parameters, details]`` of a definition, shortened at the end where there is nothing to say."""
    behind = resolver.find(f"{found.module}.{wraps(found.nodes[-1])}") if wraps(found.nodes[-1]) else None
    call = typed(resolver, behind or found)
    text = None if call is None or kind(found) == "e" else [parameter(*item) for item in call]
    details: dict[str, Any] = {}
    returns = [node.returns for node in found.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if returns and returns[-1] is not None:
        details["returns"] = annotation(ast.unparse(returns[-1]))
    whole, partly = deprecations(found.nodes, around(resolver, found.module))
    whole = whole or instance(resolver, found)
    if whole:
        details["deprecated"] = whole
    if partly:
        details["warns"] = partly
    variant: Variant = [kind(behind or found)]
    if text is not None:
        variant.append(text)
    if details:
        extend(variant, details)
    return variant


def instance(resolver: Resolver, found: Found) -> str:
    """What the class says of itself whose only instance this is: ``reduce_op = _reduce_op()``."""
    node = found.nodes[-1]
    value = node.value if isinstance(node, ast.Assign) else None
    if not isinstance(value, ast.Call) or value.args or not ast.unparse(value.func).startswith("_"):
        return ""
    made = resolver.find(f"{found.module}.{ast.unparse(value.func)}")
    inside = [item for one in made.nodes if isinstance(one, ast.ClassDef) for item in one.body] if made else []
    asked = [item for item in inside if isinstance(item, ast.FunctionDef) and item.name == "__getattribute__"]
    return deprecations((*asked, *(made.nodes if made else ())), {})[0]


_around: dict[tuple[str, str], Helpers] = {}


def around(resolver: Resolver, name: str) -> Helpers:
    """The helpers of a module that warn for its functions."""
    key = (resolver.tree.root, name)
    if key not in _around:
        module = resolver.module(name)
        _around[key] = helpers([node for nodes in module.names.values() for node in nodes]) if module else {}
    return _around[key]


def extend(variant: Variant, details: dict[str, Any]) -> None:
    """Add details to a variant."""
    if isinstance(variant[-1], dict):
        variant[-1] |= details
        return
    if len(variant) == 1:
        variant.append(None)
    variant.append(details)


def kind(found: Found) -> str:
    """One of the letters that api.KINDS explains."""
    node = found.nodes[-1]
    if isinstance(node, ast.ClassDef):
        bases = [base.rpartition(".")[2] for base in parents(node)]
        if any(base in _ENUMS for base in bases):
            return "e"
        return "x" if any(base.endswith(("Error", "Exception", "Warning")) for base in bases) else "c"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        marks = decorators(node)
        if {"property", "cached_property"} & set(marks) or any(
            ast.unparse(d).endswith(".setter") for d in node.decorator_list
        ):
            return "v"
        return "s" if "staticmethod" in marks else "k" if "classmethod" in marks else "f"
    return "v"


def parameter(name: str, default: str | None, written: str) -> str:
    """``name: annotation = default``; what api.parameter reads again."""
    text = name
    shown = annotation(written, default)
    if shown:
        text += f": {shown}"
    if default is not None:
        text += f" = {default}"
    if api.parameter(text) != (name, default, shown):
        raise SystemExit(f"cannot be read again: {text!r}")
    return text


def launch(folder: Path) -> tuple[dict[str, list[Any]], Variables]:
    """Torchrun's options and the environment variables of a release."""
    files = {}
    for file in sorted((folder / "torch").rglob("*.py")):
        name = file.relative_to(folder).as_posix()
        if name.startswith(READERS):
            files[name] = ast.parse(file.read_text(encoding="utf-8"))
    return options(files[RUN]), Variables(files)


def build(wheels: Path) -> tuple[str, str]:
    """The texts of data/api.json and data/releases.json."""
    merged = Merged()
    table: dict[str, Any] = {}
    for minor, patches in PATCHES.items():
        folder = wheels / patches[-1]
        if not (folder / "torch" / "version.py").is_file():
            raise SystemExit(f"WHEELS lacks {patches[-1]}: run scripts/fetch_wheels.py")
        index = Index(folder)
        for name, variant in index.variants.items():
            merged.note(name, "v", tuple_of(variant), minor)
        for name, place in index.places.items():
            merged.note(name, "at", place, minor)
        found, variables = launch(folder)
        for name, option in found.items():
            merged.note(name, "v", tuple_of(["o", *option]), minor)
        for name, reads in variables.read.items():
            for read in sorted(reads):
                merged.note(f"${name}", "read", read, minor)
        for name, where in variables.named.items():
            for file in sorted(where):
                merged.note(f"${name}", "named", (file,), minor)
        table[minor] = {"patches": list(patches), "fsdp2": fsdp2(index)}
    return render(merged.entries()), render(table)


def tuple_of(variant: Variant) -> str:
    """A variant as a key: two that are written alike are alike."""
    return json.dumps(variant, ensure_ascii=False)


class Merged:
    """What the releases say, each thing once with the releases that say it."""

    def __init__(self) -> None:
        self.said: dict[str, dict[str, dict[Any, list[str]]]] = {}

    def note(self, name: str, part: str, value: Any, minor: str) -> None:
        """One statement of one release about a name."""
        self.said.setdefault(name, {}).setdefault(part, {}).setdefault(value, []).append(minor)

    def entries(self) -> dict[str, Any]:
        """The lines of the file: the table of files first."""
        order = tuple(PATCHES)
        files: dict[str, int] = {}
        result: dict[str, Any] = {}
        for name in sorted(self.said):
            entry: dict[str, Any] = {}
            for part, values in sorted(self.said[name].items()):
                rows = []
                for value, minors in values.items():
                    row = (
                        json.loads(value)
                        if isinstance(value, str)
                        else [files.setdefault(value[0], len(files)), *value[1:]]
                    )
                    if part == "at" and row[1] == name.rpartition(".")[2]:
                        row.pop()  # the definition has the name that it goes by
                    while row and row[-1] == "":
                        row.pop()
                    rows.append([releases.ranges(minors, order), *row])
                entry[part] = rows
            result[name] = entry
        return {"@files": list(files), **result}


def fsdp2(index: Index) -> str:
    """The module from which a release exports FSDP2's fully_shard: the one whose fully_shard takes a mesh."""
    for module in ("torch.distributed.fsdp", "torch.distributed._composable.fsdp"):
        variant = index.variants.get(f"{module}.fully_shard", [])
        if variant[:1] == ["f"] and any(item.partition(":")[0] == "mesh" for item in variant[1]):
            return module
    return ""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    texts = dict(zip(("api.json", "releases.json"), build(Path(arguments[0])), strict=True))
    if "--check" in arguments:
        stale = [
            name for name, text in texts.items() if (KNOWLEDGE / "data" / name).read_text(encoding="utf-8") != text
        ]
        print(
            f"differ: {stale}; run scripts/build_api.py"
            if stale
            else "data/api.json and data/releases.json are up to date"
        )
        return 1 if stale else 0
    for name, text in texts.items():
        (KNOWLEDGE / "data" / name).write_text(text, encoding="utf-8")
        print(f"{name}: {text.count(chr(10)) - 2} entries, {len(text)} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
