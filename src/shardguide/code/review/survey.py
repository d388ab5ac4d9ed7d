"""One pass over the tree of a file: what it imports, who calls what, and the nodes that are looked at one by one."""

from __future__ import annotations

import ast

from ..imports import bind_imports

# Methods that run though nobody names them: whoever names the class may run them.
_BY_CLASS = frozenset({"__init__", "__enter__", "__exit__", "__aenter__", "__aexit__", "__call__"})
_REFERENCES = (ast.Name, ast.Attribute)
Function = ast.FunctionDef | ast.AsyncFunctionDef
_KEPT = (ast.Call, ast.Try, ast.If, ast.IfExp, ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom)


class Survey:
    """What the pass has met; no order is kept but that of the imports."""

    __slots__ = (
        "aliases",
        "bound",
        "called",
        "calls",
        "chains",
        "constructors",
        "imports",
        "kept",
        "names",
        "plainly",
        "stars",
        "used",
    )

    def __init__(self, tree: ast.Module) -> None:
        self.imports: dict[str, str] = {}
        self.stars: list[str] = []
        self.calls: dict[Function, set[str]] = {}  # names that each function calls, those of functions in it included
        self.used: dict[Function, set[str]] = {}  # attributes that it names, and plain names that it calls
        self.called: set[str] = set()  # names that anything in the file calls
        self.plainly: set[str] = set()  # names that are called without an object: f(x)
        self.constructors: list[tuple[str, Function]] = []  # by class
        self.aliases: list[tuple[str, str]] = []  # self.step = self.train_step: both names
        self.bound: set[str] = set()  # parameters, and names that are assigned to
        self.names: list[ast.Name] = []  # that are read
        self.chains: list[ast.Attribute] = []  # a.b.c as a whole
        self.kept: dict[type, list[ast.AST]] = {kind: [] for kind in _KEPT}
        self._read(tree)

    def _read(self, tree: ast.Module) -> None:
        names, chains, bound, kept = self.names, self.chains, self.bound, self.kept
        waiting: list[tuple[ast.AST, tuple[set[str], ...], tuple[set[str], ...]]] = [(tree, (self.called,), ())]
        add, pop = waiting.append, waiting.pop
        called: list[tuple[str, tuple[set[str], ...]]] = []
        handed: list[tuple[ast.expr, tuple[set[str], ...]]] = []
        while waiting:
            node, users, within = pop()
            kind = node.__class__
            if kind in kept:
                kept[kind].append(node)
                if kind is ast.Call:
                    if len(users) > 1:  # what is handed over may be called there
                        handed += [(given, users) for given in node.args if given.__class__ in _REFERENCES]  # type: ignore[attr-defined]
                    function = node.func  # type: ignore[attr-defined]
                    if function.__class__ is ast.Attribute:
                        for all_names in users:
                            all_names.add(function.attr)
                    elif function.__class__ is ast.Name:
                        for all_names in users:
                            all_names.add(function.id)
                        for all_names in within:
                            all_names.add(function.id)
                        called.append((function.id, users))
                elif kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
                    mine: set[str] = set()
                    also: set[str] = set()
                    self.calls[node] = mine  # type: ignore[index]
                    self.used[node] = also  # type: ignore[index]
                    users, within = (*users, mine), (*within, also)
            elif kind is ast.Attribute:
                chains.append(node)  # type: ignore[arg-type]
                while kind is ast.Attribute:
                    attribute: str = node.attr  # type: ignore[attr-defined]
                    for all_names in within:
                        all_names.add(attribute)
                    if attribute == "environ":
                        for all_names in users:
                            all_names.add(attribute)
                    node = node.value  # type: ignore[attr-defined]
                    kind = node.__class__
                if kind is not ast.Name and kind is not ast.Constant:
                    add((node, users, within))
                continue
            elif kind is ast.Return:
                if _is_rank(node.value):  # type: ignore[attr-defined]
                    for all_names in users:
                        all_names.add("environ")
            elif kind is ast.Assign:
                target, value = node.targets[0], node.value  # type: ignore[attr-defined]
                if value.__class__ in _REFERENCES:
                    handed.append((value, users))
                    if target.__class__ in _REFERENCES:
                        self.aliases.append((_last(target), _last(value)))
            elif kind is ast.arg:
                bound.add(node.arg)  # type: ignore[attr-defined]
            elif kind is ast.ClassDef:
                for item in node.body:  # type: ignore[attr-defined]
                    if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name in _BY_CLASS:
                        self.constructors.append((node.name, item))  # type: ignore[attr-defined]
            for name in _FIELDS.get(kind) or _fields(kind):
                value = getattr(node, name)
                inner = value.__class__
                if inner is list:
                    for one in value:
                        inner = one.__class__
                        if inner is ast.Name:
                            if one.ctx.__class__ is ast.Load:
                                names.append(one)
                            else:
                                bound.add(one.id)
                        elif inner is not ast.Constant and one is not None:
                            add((one, users, within))
                elif inner is ast.Name:
                    if value.ctx.__class__ is ast.Load:
                        names.append(value)
                    else:
                        bound.add(value.id)
                elif inner is not ast.Constant and value is not None:
                    add((value, users, within))
        for given, users in handed:
            name = _last(given)
            if given.__class__ is ast.Attribute or name not in bound:  # what is bound is a value, hardly a function
                for all_names in users[1:]:
                    all_names.add(name)
        imports = [*kept[ast.Import], *kept[ast.ImportFrom]]
        for one in sorted(imports, key=lambda item: (item.lineno, item.col_offset)):  # type: ignore[attr-defined]
            bind_imports(one, self.imports, self.stars)  # type: ignore[arg-type]
        self.plainly = {name for name, _ in called}
        for name, users in called:  # under its own name too where it was imported under another
            full = self.imports.get(name)
            if full is not None:
                for all_names in users:
                    all_names.add(full.rpartition(".")[2])


_FIELDS: dict[type, tuple[str, ...]] = {}
# Fields that hold no nodes, or none of interest: texts, numbers, operators.
_NO_NODES = frozenset(
    [
        *(
            "arg",
            "asname",
            "attr",
            "conversion",
            "ctx",
            "id",
            "is_async",
            "kind",
            "kwd_attrs",
            "level",
            "lineno",
            "module",
        ),
        *("name", "names", "op", "ops", "rest", "simple", "str", "tag", "type_comment", "type_ignores"),
    ]
)


def _fields(kind: type) -> tuple[str, ...]:
    """The fields of a kind of node that hold nodes."""
    names: tuple[str, ...] = () if kind is ast.MatchSingleton else kind._fields  # type: ignore[attr-defined]
    found = _FIELDS[kind] = tuple(name for name in names if name not in _NO_NODES)
    return found


def _last(node: ast.expr) -> str:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_rank(node: ast.expr | None) -> bool:
    """``args.rank == 0``, as helpers return it."""
    if not isinstance(node, ast.Compare) or not isinstance(node.left, (ast.Attribute, ast.Name)):
        return False
    name = node.left.attr if isinstance(node.left, ast.Attribute) else node.left.id
    return name in ("rank", "local_rank", "global_rank")


def statements(tree: ast.AST) -> list[ast.AST]:
    """All statements below a node, and itself, with handlers and cases, in the order of ``ast.walk``; expressions hold none."""
    out: list[ast.AST] = [tree]
    for node in out:  # it grows on the way
        out += inner_statements(node)
    return out


def inner_statements(node: ast.AST) -> list[ast.AST]:
    """The statements, handlers and cases right below a node, in order."""
    kind = node.__class__
    names = _BLOCKS.get(kind)
    if names is None:
        fields = () if kind in (ast.Lambda, ast.IfExp) else kind._fields
        names = _BLOCKS[kind] = tuple(
            name for name in fields if name in ("body", "handlers", "orelse", "finalbody", "cases")
        )
    if len(names) == 1:
        return getattr(node, names[0])  # type: ignore[no-any-return]
    return [one for name in names for one in getattr(node, name)]


_BLOCKS: dict[type[ast.AST], tuple[str, ...]] = {}
