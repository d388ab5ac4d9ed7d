"""Imports of a migrated file: what is needed comes in, what nothing uses any more goes, where helper functions stand."""

from __future__ import annotations

import ast
import sys

from .names import canonical
from .unit import Unit

_OURS = ("torch.distributed.fsdp", "torch.distributed.checkpoint.optimizer", "torch.distributed._composable")


def finish(unit: Unit) -> None:
    """Write imports and helpers into the file's edits; only for a file in which something was changed."""
    if not unit.source.changed:
        return
    lines: dict[str, list[str]] = {}
    plain: list[str] = []
    for name, full in unit.imports.items():
        module, _, last = full.rpartition(".")
        if name.startswith(".") or "." not in full:
            plain.append(f"import {full}")
        else:
            lines.setdefault(module, []).append(last)
    code = _rest(unit)
    text = [
        *sorted(plain),
        *(f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(lines.items())),
    ]
    place = _drop_unused(unit, code)
    own = [line for line in text if not line.split()[1].startswith("torch")]
    if own:
        first = _before_imports(unit)
        words = unit.source.lines[first - 1].split() if first <= len(unit.source.lines) else []
        apart = len(words) > 1 and words[1].decode().partition(".")[0] not in sys.stdlib_module_names
        unit.source.at_line(first, [*own, ""] if apart else own)
    if len(text) > len(own):
        unit.source.at_line(place, [line for line in text if line not in own])
    if unit.helpers:
        helpers: list[str] = []
        for one in unit.helpers.values():
            helpers.extend(["", "", *one.split("\n")])
        _insert_helpers(unit, helpers)


def _insert_helpers(unit: Unit, lines: list[str]) -> None:
    """After the imports at the top, before the first thing that is no import."""
    last = 0
    for node in unit.file.tree.body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, (ast.Import, ast.ImportFrom)) or (text and not last):
            last = node.end_lineno or node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            break
    following = [bool(line.strip()) for line in unit.source.lines[last : last + 2]]
    blank = following.index(True) if True in following else len(following)
    unit.source.at_line(last + 1, [*lines, *[""] * (2 - blank)])


def _rest(unit: Unit) -> ast.Module:
    """The file as it will be without its import changes."""
    source = unit.source
    after = source.between(0, len(source.data))
    return ast.parse(after + "\n" + "\n".join(unit.helpers.values()))


def _drop_unused(unit: Unit, code: ast.Module) -> int:
    """Drop the imports that the changes left without a use; returns the line at which new imports go."""
    before = {node.id for node in ast.walk(unit.file.tree) if isinstance(node, ast.Name)}
    used = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)} | set(_exported(code)) | unit.asked_for
    place = 0
    for node in ast.walk(unit.file.tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        ours = isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith(_OURS)
        if ours and node in unit.file.tree.body:
            place = max(place, (node.end_lineno or node.lineno) + 1)
        gone = []
        for alias in node.names:
            name = (alias.asname or alias.name).partition(".")[0]
            if name == "*" or name in used or unit.source.changes_in(*unit.source.span(alias)):
                continue
            module = node.module if isinstance(node, ast.ImportFrom) else ""
            if name in before or (ours and canonical(f"{module}.{alias.name}")):
                gone.append(alias)
        if gone and len(gone) == len(node.names):
            _drop_statement(unit, node)
        elif gone and isinstance(node, ast.ImportFrom):
            _drop_names(unit, node, gone)
    return place or _first(unit)


def _first(unit: Unit) -> int:
    """The line after the last import at the top of the file, or after docstring and __future__."""
    last = 0
    for position, node in enumerate(unit.file.tree.body):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and not position
        if text or isinstance(node, (ast.Import, ast.ImportFrom)):
            last = node.end_lineno or node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            break
    return last + 1


def _before_imports(unit: Unit) -> int:
    """The line of the first import but ``__future__``."""
    for node in unit.file.tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", "") != "__future__":
            return node.lineno
    return _first(unit)


def _exported(code: ast.Module) -> list[str]:
    for node in code.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(one, ast.Name) and one.id == "__all__" for one in node.targets
        ):
            return [
                one.value
                for one in ast.walk(node.value)
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
    return []


def _drop_statement(unit: Unit, node: ast.stmt) -> None:
    if unit.source.alone(node):
        unit.drop(node)


def _drop_names(unit: Unit, node: ast.ImportFrom, gone: list[ast.alias]) -> None:
    source = unit.source
    kept_end = -1
    for position, alias in enumerate(node.names):
        if alias not in gone:
            kept_end = source.span(alias)[1]
            continue
        start, end = source.span(alias)
        line = source.lines[alias.lineno - 1]
        before = line[: start - source.starts[alias.lineno - 1]].strip()
        after = line[end - source.starts[alias.lineno - 1] :].strip()
        following = node.names[position + 1] if position + 1 < len(node.names) else None
        rest = after[1:].strip()
        apart = after.startswith(b",") and (not rest or rest.startswith(b"#"))
        if not before and (apart or (not after and following is None)):
            source.cut(source.starts[alias.lineno - 1], source.starts[alias.lineno])
        elif following is not None and following.lineno == alias.lineno:
            source.cut(start, source.span(following)[0])
        elif kept_end >= 0:
            source.cut(kept_end, end)
        elif following is not None:
            source.cut(start, source.span(following)[0])
