"""Putting the text of a Python snippet together: imports, modules by name, dtypes.

Plain strings: a template engine would cost more to import than a whole plan may take.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardguide.guidance.model import Unit

from .spec import identifier, path, pattern


class Imports:
    """The imports of one snippet, collected while its parts are written, sorted as isort sorts them."""

    def __init__(self) -> None:
        self._modules: set[str] = set()
        self._names: dict[str, set[str]] = {}

    def module(self, statement: str) -> None:
        """``torch`` or ``torch.distributed as dist``."""
        self._modules.add(statement)

    def name(self, module: str, *names: str) -> None:
        """``from module import names``."""
        self._names.setdefault(module, set()).update(names)

    def lines(self) -> list[str]:
        """The statements: the standard library first, then the rest."""
        blocks: list[list[str]] = []
        for standard in (True, False):
            block = [f"import {module}" for module in sorted(self._modules) if _standard(module) is standard]
            for module in sorted(self._names):
                if _standard(module) is standard:
                    block.append(_from(module, sorted(self._names[module], key=_order)))
            if block:
                blocks.append(block)
        return [line for block in blocks for line in (*block, "")][:-1]


def _standard(module: str) -> bool:
    return module.split(".")[0].split()[0] in (
        "contextlib",
        "fnmatch",
        "functools",
        "json",
        "os",
        "resource",
        "sys",
        "time",
    )


def _order(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def _from(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= 120:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


def dtype(name: str) -> str:
    """``torch.bfloat16`` of ``bfloat16``."""
    return f"torch.{name}"


def call(function: str, *arguments: str) -> str:
    """``function(a, b)``, without the arguments that are empty."""
    return f"{function}({', '.join(argument for argument in arguments if argument)})"


def names_match(patterns: Iterable[str], name: str = "name") -> str:
    """An expression that is true for a parameter name that one of the patterns matches."""
    return " or ".join(f'fnmatchcase({name}, "{pattern(text)}")' for text in patterns)


class Repeat:
    """Units that lie in one numbered list of modules: ``model.layers.0``, ``model.layers.1`` and so on.

    ``parts`` holds, bottom-up, what of each element is a unit, with its role: "" is the element itself, "mlp.experts" a
    module in it.
    """

    def __init__(
        self, container: str, parts: tuple[tuple[str, str], ...], indices: list[int], classes: tuple[str, ...]
    ):
        self.container = container
        self.parts = parts
        self.indices = indices
        self.classes = classes

    @property
    def whole(self) -> bool:
        """Whether the indices are 0, 1, 2, …: then the loop goes over the list itself."""
        return self.indices == list(range(len(self.indices)))

    def head(self, variable: str) -> str:
        """The head of the loop over the elements."""
        where = path(self.container)
        if self.whole:
            return f"for {variable} in {where}:"
        first, step = self.indices[0], self.indices[1] - self.indices[0] if len(self.indices) > 1 else 1
        if step > 0 and self.indices == list(range(first, self.indices[-1] + 1, step)):
            picks = f"range({first}, {self.indices[-1] + 1}{f', {step}' if step > 1 else ''})"
        else:
            picks = f"({', '.join(map(str, self.indices))},)"
        return f"for {variable} in [{where}[i] for i in {picks}]:"


def repeats(units: Iterable[Unit]) -> tuple[list[Repeat], list[Unit]]:
    """Units that form numbered lists, and the others; the order inside each stays bottom-up."""
    lists: dict[str, dict[int, list[tuple[str, str, str]]]] = {}
    others: list[Unit] = []
    for unit in units:
        found = _numbered(unit.modules[0]) if len(unit.modules) == 1 else None
        if found is None:
            others.append(unit)
            continue
        container, index, inner = found
        lists.setdefault(container, {}).setdefault(index, []).append((inner, unit.module_class, unit.role))
    result: list[Repeat] = []
    for container, elements in lists.items():
        forms: dict[tuple[tuple[str, str], ...], tuple[list[int], list[str]]] = {}
        for index, parts in elements.items():  # layers of different classes but the same form share a loop
            indices, classes = forms.setdefault(tuple((inner, role) for inner, _, role in parts), ([], []))
            indices.append(index)
            classes.extend(name for _, name, _ in parts if name not in classes)
        for form, (indices, classes) in forms.items():
            result.append(Repeat(container, form, sorted(indices), tuple(classes)))
    return result, others


def _numbered(name: str) -> tuple[str, int, str] | None:
    """``("model.layers", 3, "mlp")`` of ``model.layers.3.mlp``; None without a number."""
    parts = name.split(".")
    for i, part in enumerate(parts):
        if i and part.isascii() and part.isdigit():
            for other in parts[:i] + parts[i + 1 :]:
                if not other.isdigit():
                    identifier(other, "the module name")
            return ".".join(parts[:i]), int(part), ".".join(parts[i + 1 :])
    return None
