"""What scripts/build_api.py reads beside signatures: annotations, deprecations, torchrun's options, environment variables.

Everything works on syntax trees; nothing of PyTorch is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef

LONGEST = 240  # characters kept of a message
# typing's names for what the language has its own names for since 3.9
_BUILTIN = {"List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set", "FrozenSet": "frozenset", "Type": "type"}


class _Plain(ast.NodeTransformer):
    """One spelling for each type, so that releases differ only where the types do."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """A forward reference is what it refers to."""
        if not isinstance(node.value, str):
            return node
        try:
            return self.visit(ast.parse(node.value, mode="eval").body)  # type: ignore[no-any-return]
        except SyntaxError:
            return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """typing.List is list."""
        return ast.Name(_BUILTIN.get(node.id, node.id))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """A class goes by its own name; torch.device and torch.dtype stay whole."""
        return self.visit_Name(ast.Name(node.attr)) if node.attr[:1].isupper() else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Optional and Union are written with a bar."""
        head = self.visit(node.value)
        name = head.id if isinstance(head, ast.Name) else ""
        if name in ("Literal", "Annotated"):
            return ast.Subscript(head, node.slice)
        inner = self.visit(node.slice)
        if name == "Optional":
            return _union([inner, ast.Constant(None)])
        if name == "Union":
            return _union(inner.elts if isinstance(inner, ast.Tuple) else [inner])
        return ast.Subscript(head, inner)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """A union of unions is one union."""
        return _union([self.visit(node.left), self.visit(node.right)])


def _union(parts: list[ast.expr]) -> ast.expr:
    flat: dict[str, ast.expr] = {}
    for part in parts:
        for item in _alternatives(part):
            flat.setdefault(ast.unparse(item), item)
    none = flat.pop("None", None)
    items = [*flat.values(), *([none] if none is not None else [])]
    result = items[0]
    for item in items[1:]:
        result = ast.BinOp(result, ast.BitOr(), item)
    return result


def _alternatives(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_alternatives(node.left), *_alternatives(node.right)]
    return [node]


def annotation(text: str, default: str | None = "") -> str:
    """An annotation in one spelling: ``Optional["dist.ProcessGroup"]`` -> ``ProcessGroup | None``.

    A parameter whose default is None takes None, whether its annotation says so or not.
    """
    if not text:
        return ""
    tree = ast.parse(text, mode="eval").body
    node: ast.expr = _Plain().visit(tree)
    if default == "None" and ast.unparse(node) not in ("Any", "object"):
        node = _union([node, ast.Constant(None)])
    return " ".join(ast.unparse(node).split())


Helpers = dict[str, Function]


def helpers(body: list[ast.stmt]) -> Helpers:
    """Private functions of a module, and of its classes, that may warn for others: ``_deprecated("broadcast", ...)``."""
    found: Helpers = {}
    for node in body:
        if isinstance(node, Function) and re.match("_[a-z]", node.name) and "warn" in ast.unparse(node):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            found |= helpers(node.body)
    return found


def deprecations(nodes: tuple[ast.stmt, ...], around: Helpers) -> tuple[str, list[str]]:
    """How a definition calls itself deprecated, "" if not at all, and what it warns of under some condition."""
    whole = ""
    partly: dict[str, None] = {}
    for node in nodes:
        whole = whole or _decorated(node)
        if not isinstance(node, Function | ast.ClassDef):
            continue
        body = node.body
        whole = whole or _marked(ast.get_docstring(node) or "", partly)
        if isinstance(node, ast.ClassDef):
            makers = [item for item in body if isinstance(item, Function) and item.name == "__init__"]
            whole = whole or next((_decorated(item) for item in makers if _decorated(item)), "")
            body = [line for item in makers for line in item.body]
        for message, always in _warned(body, around):
            whole = whole or (message if always else "")
            partly[message] = None
    return whole, [message for message in partly if message != whole]


def _warned(body: list[ast.stmt], around: Helpers, filled: dict[str, str] | None = None) -> Iterator[tuple[str, bool]]:
    """Messages about deprecations in a body, each with whether it comes in any case; those of helpers are filled in."""
    for line in body:
        if isinstance(line, ast.With):
            yield from _warned(line.body, around, filled)
        elif not isinstance(line, Function | ast.ClassDef):
            for call in ast.walk(line):
                always = isinstance(line, ast.Expr) and call is line.value
                message = _warning(call, filled or {})
                if message:  # a FutureWarning may be of any change
                    yield (
                        message,
                        always and ("deprecat" in message.lower() or "DeprecationWarning" in ast.unparse(call)),
                    )
                helper = _helper(call, around)
                if helper is not None:
                    name, inside = helper
                    for message, inner in _warned(around[name].body, {}, _bound(around[name], inside)):
                        yield message, isinstance(line, ast.Expr) and inner


def _helper(node: ast.AST, around: Helpers) -> tuple[str, ast.Call] | None:
    """The helper that a statement calls: by its bare name, or as a method of self or of a class."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return None
    owner, _, name = ast.unparse(call.func).rpartition(".")
    ours = owner in ("", "self", "cls") or (owner.isidentifier() and owner[:1].isupper())
    return (name, call) if ours and name in around else None


def _bound(helper: Function, call: ast.Call) -> dict[str, str]:
    """Texts that a call hands to a helper, by the helper's names for them."""
    names = [item.arg for item in helper.args.args if item.arg not in ("self", "cls")]
    given = [*zip(names, call.args, strict=False), *((item.arg or "", item.value) for item in call.keywords)]
    return {name: str(value.value) for name, value in given if isinstance(value, ast.Constant)}


def _decorated(node: ast.stmt) -> str:
    """The message of ``@deprecated(...)``, also where it is called: ``old = deprecated(...)(new)``."""
    marks = list(getattr(node, "decorator_list", ()))
    marks += [node.value.func] if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else []
    for item in marks:
        name = ast.unparse(item.func).rpartition(".")[2] if isinstance(item, ast.Call) else ""
        if isinstance(item, ast.Call) and name.lstrip("_") == "deprecated":
            return (_words(item.args[0]) if item.args else "") or "deprecated"
    return ""


def wraps(node: ast.stmt) -> str:
    """The function behind ``old = deprecated(...)(new)``, "" for any other statement."""
    value = node.value if isinstance(node, ast.Assign) else None
    call = value.func if isinstance(value, ast.Call) and len(value.args) == 1 else None
    if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2].lstrip("_") == "deprecated":
        return ast.unparse(value.args[0]) if isinstance(value, ast.Call) else ""
    return ""


# How docstrings say that an argument is deprecated:
# "fn (deprecated):" and "- ``fn`` (deprecated):", "fn: (deprecated, ...)", "fn (bool): Deprecated"
_ARGUMENTS = (
    r"^\s*(?:- )?`*(\w+)`*\s*\([^()\n]*\bdeprecated\b[^()\n]*\)\s*:",
    r"^\s+(\w+):\s*\(deprecated\b",
    r"^\s+(\w+)\s*\([^()\n]*\)\s*:\s*Deprecated\b",
)


def _marked(docstring: str, partly: dict[str, None]) -> str:
    """``.. deprecated:: 2.2`` of the whole; arguments that are described as deprecated go to ``partly``."""
    for pattern in _ARGUMENTS:
        for name in re.findall(pattern, docstring, re.M):
            partly[f"argument {name} is described as deprecated"] = None
    lines = docstring.split("\n")
    for number, line in enumerate(lines):
        mark = re.match(r"( +)\.\. deprecated::[ \t]*([\w.]*)", line)
        above = (re.match(r"( *)(\w+)\b[^:\n]*:", before) for before in reversed(lines[:number]))
        owner = next((found for found in above if found and mark and len(found[1]) < len(mark[1])), None)
        if mark and owner and owner[2] not in ("Args", "Note"):
            partly[f"argument {owner[2]} is described as deprecated{' since ' + mark[2] if mark[2] else ''}"] = None
    mark = re.search(r"^\.\. deprecated::[ \t]*([\w.]*)[ \t]*(.*(?:\n[ \t]+\S.*)*)", docstring, re.M)
    if mark:
        text = _short(mark[2])
        return f"deprecated since {mark[1]}{': ' + text if text else ''}" if mark[1] else text or "deprecated"
    said = re.search(
        r"^\s*(This (?:function|method|class|decorator|API) is deprecated\b.*(?:\n\s*\S.*)*)", docstring, re.M
    )
    said = said or re.match(r"(Deprecated\b.*(?:\n\s*\S.*)*)", docstring)
    return _short(said[1]) if said else ""


def _warning(node: ast.AST, filled: dict[str, str]) -> str:
    """The message of a ``warn(...)`` call about a deprecation, else ""."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] not in (
        "warn",
        "warn_once",
        "warning",
    ):
        return ""
    words = _words(node.args[0], filled) if node.args else ""
    given = [ast.unparse(item) for item in (*node.args[1:], *(keyword.value for keyword in node.keywords))]
    about = "deprecat" in words.lower() or bool({"DeprecationWarning", "FutureWarning"} & set(given))
    return words if about else ""


def _words(node: ast.expr, filled: dict[str, str] | None = None) -> str:
    """Text written as one literal or several; what is filled in at run time and not known becomes "..."."""
    if isinstance(node, ast.Constant):
        return _short(str(node.value))
    if isinstance(node, ast.JoinedStr):
        parts = (
            str(part.value) if isinstance(part, ast.Constant) else (filled or {}).get(ast.unparse(part.value), "...")
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        )
        return _short("".join(parts))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _short(f"{_words(node.left, filled)} {_words(node.right, filled)}")
    return ""


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[:LONGEST].rpartition(" ")[0] + " …"


def options(tree: ast.Module) -> dict[str, list[Any]]:
    """Torchrun's options by their longest spelling with dashes: ``[spellings, {default, type, choices, action, env}]``.

    The action ``env`` takes the default from PET_<NAME>, ``check_env`` makes a flag of it (torch/distributed/argparse_util.py).
    """
    found: dict[str, list[Any]] = {}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or function.name != "get_args_parser":
            continue
        for call in ast.walk(function):
            if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("add_argument"):
                continue
            spellings = [str(item.value) for item in call.args if isinstance(item, ast.Constant)]
            if not spellings or not spellings[0].startswith("-"):
                continue
            told = {item.arg: ast.unparse(item.value) for item in call.keywords if item.arg}
            dashed = [name for name in spellings if name.startswith("--") and "_" not in name] or spellings
            details: dict[str, str] = {key: told[key] for key in ("default", "type", "choices") if key in told}
            action = told.get("action", "").strip("'")
            if action in ("env", "check_env"):
                longest = next(name for name in spellings if name.startswith("--"))
                details["env"] = "PET_" + longest[2:].replace("-", "_").upper()
            if action in ("check_env", "store_true"):
                details["flag"] = "True"
            found[max(dashed, key=len)] = [spellings, details]
    return found


class Variables:
    """Environment variables that a release's Python files read, and those that their texts name."""

    # What a text names as a variable; most of these are read by compiled code, which is not looked into.
    NAMED = re.compile(r"(?<![.\w])(?:TORCH|NCCL|TORCHELASTIC)_(?!DOCTEST)[A-Z0-9_]{3,}\b(?!_)")
    ABOUT = re.compile(r"environment|env var|\bset\b", re.I)
    NAME = re.compile(r"[A-Z][A-Z0-9_]{2,}|_?[A-Z][A-Z0-9]*_[A-Z0-9_]+")

    def __init__(self, files: dict[str, ast.Module]) -> None:
        self.read: dict[str, set[tuple[str, str]]] = {}  # name -> (file, default as source text)
        self.named: dict[str, set[str]] = {}
        constants: dict[str, str] = {}
        for tree in files.values():
            constants |= _constants(tree)
        readers = {"getenv", *(name for tree in files.values() for name in _readers(tree))}
        for file, tree in files.items():
            local = constants | _constants(tree)
            for node in ast.walk(tree):
                for name, default in self._reads(node, readers, local):
                    if self.NAME.fullmatch(name):
                        self.read.setdefault(name, set()).add((file, default))
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and self.ABOUT.search(node.value):
                    for name in self.NAMED.findall(node.value):
                        self.named.setdefault(name.rstrip("_"), set()).add(file)
        self.named = {name: where for name, where in self.named.items() if name not in self.read}

    @staticmethod
    def _reads(node: ast.AST, readers: set[str], constants: dict[str, str]) -> Iterator[tuple[str, str]]:
        key: ast.expr | None = None
        default = ""
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _environ(node.value):
            key = node.slice
        elif (
            isinstance(node, ast.Compare)
            and isinstance(node.ops[0], ast.In | ast.NotIn)
            and _environ(node.comparators[0])
        ):
            key = node.left
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = name.rpartition(".")[2]
            reads = last in readers or (
                isinstance(node.func, ast.Attribute) and last in ("get", "setdefault") and _environ(node.func.value)
            )
            if reads and node.args:
                key = node.args[0]
                default = ast.unparse(node.args[1]) if len(node.args) > 1 else ""
            for keyword in node.keywords:
                if keyword.arg in ("env_name_force", "env_name_default"):
                    key = keyword.value
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, default
        elif isinstance(key, ast.Name | ast.Attribute):
            value = constants.get(ast.unparse(key).rpartition(".")[2])
            if value is not None:
                yield value, default


def _environ(node: ast.expr) -> bool:
    return ast.unparse(node).rpartition(".")[2] == "environ"


def _constants(tree: ast.Module) -> dict[str, str]:
    """Names that are given a text, at module level or inside functions, and names that stand for those."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                found[node.targets[0].id] = node.value.value
            elif isinstance(node.value, ast.Name) and node.value.id in found:
                found[node.targets[0].id] = found[node.value.id]
    return found


def _readers(tree: ast.Module) -> list[str]:
    """Functions that look their first parameter up in the environment."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.args.args:
            first = node.args.args[0].arg
            body = ast.unparse(node)
            if re.search(rf"(?:environ\.get\(|environ\[|getenv\(){first}\b", body):
                found.append(node.name)
    return found
