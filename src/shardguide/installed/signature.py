"""Signatures of PyTorch's objects, read from the syntax tree: what the API index is built from."""

from __future__ import annotations

import ast

from shardguide.installed.resolve import Found, Module, Resolver, members, parents

Parameter = tuple[str, str | None]  # name (with its stars; "/" and "*" stand alone), default as source text
Typed = tuple[str, str | None, str]  # the same with its annotation as source text, "" for none

DEPTH = 8  # base classes followed
_DATACLASS_KEYWORDS = ("init", "kw_only")


def signature(resolver: Resolver, found: Found) -> tuple[Parameter, ...] | None:
    """How an object is called, without ``self``: a function, or a class through its constructor.

    None for what is not called (a module, a constant) and for classes whose constructor is not written in Python.
    """
    call = typed(resolver, found)
    return None if call is None else tuple((name, default) for name, default, _ in call)


def typed(resolver: Resolver, found: Found) -> tuple[Typed, ...] | None:
    """``signature`` with the annotation of each parameter."""
    if not found.nodes:
        return None
    functions = [node for node in found.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if functions:
        # of overloads and guarded variants the last one that is not a mere overload is what runs
        real = [node for node in functions if "overload" not in decorators(node)] or functions
        node = real[-1]
        bound = "." in found.name and "staticmethod" not in decorators(node)
        if "property" in decorators(node) or "cached_property" in decorators(node):
            return None
        return _arguments(node.args, drop_first=bound)
    classes = [node for node in found.nodes if isinstance(node, ast.ClassDef)]
    module = resolver.module(found.module)
    if not classes or module is None:
        return None
    return _constructor(resolver, module, classes[-1], DEPTH)


def decorators(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    """The bare names of decorators: ``functools.wraps(f)`` -> ``"wraps"``."""
    result = []
    for item in node.decorator_list:
        call = item.func if isinstance(item, ast.Call) else item
        result.append(ast.unparse(call).rpartition(".")[2])
    return result


def deprecated(found: Found) -> str:
    """The message of a ``@deprecated`` decorator, "" where there is none."""
    for node in found.nodes:
        for item in getattr(node, "decorator_list", []):
            if isinstance(item, ast.Call) and ast.unparse(item.func).rpartition(".")[2] == "deprecated":
                if item.args and isinstance(item.args[0], ast.Constant):
                    return str(item.args[0].value)
                return "deprecated"
    return ""


def methods(resolver: Resolver, found: Found, depth: int = DEPTH) -> list[str]:
    """Public names that a class body and its bases inside ``torch.distributed`` and ``torch.optim`` define."""
    module = resolver.module(found.module)
    names: dict[str, None] = {}
    for node in found.nodes:
        if not isinstance(node, ast.ClassDef) or module is None:
            continue
        names |= dict.fromkeys(name for name in members(node) if not name.startswith("_"))
        for base in parents(node):
            parent = resolver.find(f"{module.name}.{base}") if depth else None
            if parent is not None and parent.module.startswith(
                ("torch.distributed", "torch._C._distributed", "torch.optim", "torch.amp", "torch.cuda")
            ):
                names |= dict.fromkeys(methods(resolver, parent, depth - 1))
    return list(names)


def _constructor(resolver: Resolver, module: Module, node: ast.ClassDef, depth: int) -> tuple[Typed, ...] | None:
    inside = members(node)
    bases = [ast.unparse(base) for base in node.bases]
    if any(base.rpartition(".")[2] in ("Enum", "IntEnum", "StrEnum", "Flag", "Protocol", "ABC") for base in bases):
        return None if "__init__" not in inside else _init(inside["__init__"])
    if "__init__" in inside:
        made = _init(inside["__init__"])
        takes_all = [item[0][:1] for item in made or ()] == ["*", "*"]  # and __new__ says what it really takes
        return _init(inside["__new__"]) if takes_all and "__new__" in inside else made
    if "dataclass" in decorators(node) or any(base.rpartition(".")[2] == "NamedTuple" for base in bases):
        return _fields(resolver, module, node, depth)
    if "__new__" in inside:
        return _init(inside["__new__"])
    for base in bases:
        parent = resolver.find(f"{module.name}.{base}") if depth and base.replace(".", "").isidentifier() else None
        if parent is None or not parent.nodes:
            continue
        home = resolver.module(parent.module)
        classes = [item for item in parent.nodes if isinstance(item, ast.ClassDef)]
        if classes and home is not None:
            return _constructor(resolver, home, classes[-1], depth - 1)
    return ()


def _init(
    nodes: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign],
) -> tuple[Typed, ...] | None:
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    real = [node for node in functions if "overload" not in decorators(node)] or functions
    return _arguments(real[-1].args, drop_first=True) if real else None


def _fields(resolver: Resolver, module: Module, node: ast.ClassDef, depth: int) -> tuple[Typed, ...]:
    """Fields of a dataclass or named tuple in the order of its constructor, inherited ones first."""
    fields: dict[str, Typed] = {}
    keyword_only: dict[str, Typed] = {}
    for base in node.bases:
        parent = resolver.find(f"{module.name}.{ast.unparse(base)}") if depth else None
        for item in parent.nodes if parent is not None else ():
            home = resolver.module(parent.module) if parent is not None else None
            if isinstance(item, ast.ClassDef) and "dataclass" in decorators(item) and home is not None:
                fields |= {field[0]: field for field in _fields(resolver, home, item, depth - 1)}
    for line in node.body:
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        if ast.unparse(line.annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        name, default, keywords = line.target.id, None, {}
        if isinstance(line.value, ast.Call) and ast.unparse(line.value.func).rpartition(".")[2] == "field":
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in line.value.keywords}
            default = keywords.get("default") or (
                f"{keywords['default_factory']}()" if "default_factory" in keywords else None
            )
        elif line.value is not None:
            default = ast.unparse(line.value)
        if keywords.get("init") == "False":
            continue
        (keyword_only if keywords.get("kw_only") == "True" else fields)[name] = (name, default, _text(line.annotation))
    star: list[Typed] = [("*", None, "")] if keyword_only else []
    return (*fields.values(), *star, *keyword_only.values())


def _arguments(arguments: ast.arguments, drop_first: bool) -> tuple[Typed, ...]:
    result: list[Typed] = []
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [ast.unparse(item) for item in arguments.defaults]
    for index, (argument, default) in enumerate(zip(positional, defaults, strict=True)):
        if index == len(arguments.posonlyargs) and index:
            result.append(("/", None, ""))
        result.append((argument.arg, default, _text(argument.annotation)))
    if arguments.posonlyargs and not arguments.args:
        result.append(("/", None, ""))
    if drop_first and result:
        del result[0]
        if result and result[0][0] == "/":
            del result[0]
    if arguments.vararg:
        result.append((f"*{arguments.vararg.arg}", None, _text(arguments.vararg.annotation)))
    elif arguments.kwonlyargs:
        result.append(("*", None, ""))
    for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        result.append((argument.arg, None if value is None else ast.unparse(value), _text(argument.annotation)))
    if arguments.kwarg:
        result.append((f"**{arguments.kwarg.arg}", None, _text(arguments.kwarg.annotation)))
    return tuple(result)


def _text(annotation: ast.expr | None) -> str:
    return "" if annotation is None else ast.unparse(annotation)
