"""What imports bind: one reading for every part that follows names."""

from __future__ import annotations

import ast


def bind_imports(node: ast.Import | ast.ImportFrom, imports: dict[str, str], stars: list[str]) -> None:
    """Add the names that an import statement binds, each with its full name; a relative one keeps its leading dots.

    The first import of a name counts: in "try: from A import x / except ImportError: from B import x" either will do.
    """
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                imports.setdefault(alias.asname, alias.name)
            else:
                head = alias.name.partition(".")[0]
                imports.setdefault(head, head)
        return
    module = "." * node.level + (node.module or "")
    dot = "" if module.endswith(".") else "."
    for alias in node.names:
        if alias.name == "*":
            stars.append(module)
        else:
            imports.setdefault(alias.asname or alias.name, f"{module}{dot}{alias.name}")
