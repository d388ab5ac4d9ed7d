"""The classes of a project as Python sees them: bases over files, the order of methods, and which constructors run."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from ..review.project import Definition, File, Project, dotted_text
from ..review.survey import statements

if TYPE_CHECKING:
    from .values import Value

JOINABLE, HOOK = "Joinable", "JoinHook"
_JOIN = ("torch.distributed.algorithms.join.", "torch.distributed.algorithms.")
# PyTorch's own bases whose constructors end the chain: they do not call super().__init__().
_ENDS = ("torch.nn.", "torch.optim.", "torch.utils.data.")
_KNOWN = ("torch.nn.", "torch.optim.", "torch.utils.data.", "abc.", "typing.", "collections.abc.")


class Class:
    """A class of the project."""

    __slots__ = ("around", "bases", "file", "methods", "name", "node", "order", "values")

    def __init__(self, file: File, node: ast.ClassDef) -> None:
        self.file = file
        self.node = node
        self.name = node.name
        self.around: dict[str, Value] = {}  # names of the function that it is defined in
        self.bases: list[Class | str] = []
        self.order: list[Class | str] = []  # the method resolution order
        self.methods: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.values: dict[str, ast.expr] = {}
        for item in node.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.methods[item.name] = item
            elif isinstance(item, ast.Assign):
                for target in item.targets:
                    if isinstance(target, ast.Name):
                        self.values[target.id] = item.value
            elif isinstance(item, ast.AnnAssign) and item.value is not None and isinstance(item.target, ast.Name):
                self.values[item.target.id] = item.value

    def find(
        self, name: str, after: Class | None = None
    ) -> tuple[Class, ast.FunctionDef | ast.AsyncFunctionDef] | None:
        """A method and the class that defines it, as ``self.name`` or, with ``after``, as ``super().name`` there."""
        for one in self._after(after):
            if isinstance(one, Class) and name in one.methods:
                return one, one.methods[name]
        return None

    def value(self, name: str) -> tuple[Class, ast.expr] | None:
        """An attribute of the class."""
        for one in self.order:
            if isinstance(one, Class) and name in one.values:
                return one, one.values[name]
        return None

    def _after(self, after: Class | None) -> list[Class | str]:
        if after is None or after not in self.order:
            return self.order
        return self.order[self.order.index(after) + 1 :]

    def rest(self, after: Class) -> list[Class | str]:
        """What ``super()`` means in ``after``."""
        return self._after(after)

    def is_a(self, name: str) -> bool:
        """Whether ``Joinable`` or ``JoinHook`` is among the bases."""
        return any(isinstance(one, str) and join_name(one) == name for one in self.order)

    def foreign(self) -> list[str]:
        """Bases of which nothing is known."""
        return [
            one
            for one in self.order
            if isinstance(one, str) and one != "object" and not one.startswith(_KNOWN) and not join_name(one)
        ]


def join_name(full: str) -> str:
    """``Join``, ``Joinable`` or ``JoinHook``, for the full name of one of them; also of the names before release 1.11."""
    for start in _JOIN:
        if full.startswith(start):
            last = full[len(start) :].lstrip("_")
            return last if last in ("Join", JOINABLE, HOOK) else ""
    return ""


class Classes:
    """All classes of a project, made when asked for."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._made: dict[ast.ClassDef, Class] = {}
        self._local: dict[File, dict[str, ast.ClassDef]] = {}

    def of(self, file: File, node: ast.ClassDef, depth: int = 12) -> Class:
        """The class of a definition."""
        known = self._made.get(node)
        if known is not None:
            return known
        made = self._made[node] = Class(file, node)
        for base in node.bases:
            name = dotted_text(base.value if isinstance(base, ast.Subscript) else base)
            found = self.project.resolve(file, name) if name else ""
            if isinstance(found, Definition) and isinstance(found.node, ast.ClassDef) and depth:
                made.bases.append(self.of(found.file, found.node, depth - 1))
            elif name == "object":
                continue
            else:
                local = self.local(file, name)
                made.bases.append(
                    self.of(file, local, depth - 1)
                    if local is not None and local is not node and depth
                    else str(found)
                    if isinstance(found, str) and found
                    else f"? {name}"
                )
        made.order = _linear(made)
        return made

    def local(self, file: File, name: str) -> ast.ClassDef | None:
        """A class that is defined inside a function."""
        if file not in self._local:
            self._local[file] = {node.name: node for node in statements(file.tree) if isinstance(node, ast.ClassDef)}
        return self._local[file].get(name)

    def derived(self, name: str) -> list[Class]:
        """Every class that derives from ``Joinable`` or ``JoinHook``, in order."""
        heads = {name}
        out: list[Class] = []
        seen: set[ast.ClassDef] = set()
        if not any(name in file.text for file in self.project.files):
            return out
        again = True
        while again:
            again = False
            for file in self.project.files:
                if not any(head in file.text for head in heads):
                    continue
                for node in statements(file.tree):
                    if not isinstance(node, ast.ClassDef) or node in seen or not node.bases:
                        continue
                    one = self.of(file, node)
                    if one.is_a(name):
                        seen.add(node)
                        out.append(one)
                        if one.name not in heads:
                            heads.add(one.name)
                            again = True
        return sorted(out, key=lambda one: (one.file.path, one.node.lineno))


def _linear(cls: Class) -> list[Class | str]:
    """The method resolution order; where Python would refuse the bases, the order of a search in depth."""
    lists = [list(base.order) if isinstance(base, Class) else [base] for base in cls.bases]
    lists.append(list(cls.bases))
    out: list[Class | str] = [cls]
    lists = [one for one in lists if one]
    while lists:
        for one in lists:
            head = one[0]
            if not any(head in other[1:] for other in lists):
                break
        else:
            head = lists[0][0]
        out.append(head)
        lists = [[item for item in one if item != head] for one in lists]
        lists = [one for one in lists if one]
    return out


def initialised(cls: Class, classes: Classes) -> tuple[str, str]:
    """Whether ``Joinable.__init__`` runs when the class is made: ("yes" | "no" | "unknown" | "abstract", why)."""
    found = cls.find("__init__")
    own_end = next((one for one in cls.order[1:] if isinstance(one, str) and one != "object"), "")
    if found is None:
        if own_end.startswith(_ENDS):
            return "no", f"{own_end}.__init__ runs, which does not call the next one"
        if join_name(own_end) == JOINABLE:
            return "abstract", "Joinable.__init__ is abstract: a constructor of its own is missing"
        return "unknown", f"what {own_end.lstrip('? ')}.__init__ calls is not known"
    return _runs(cls, found[0], found[1], classes, 12)


def _runs(
    cls: Class, owner: Class, node: ast.FunctionDef | ast.AsyncFunctionDef, classes: Classes, depth: int
) -> tuple[str, str]:
    """Whether one constructor leads to ``Joinable.__init__``."""
    why = f"{owner.name}.__init__ does not call it"
    doubt = ""
    for call, sure in _init_calls(node):
        function = call.func
        assert isinstance(function, ast.Attribute)
        base = function.value
        if isinstance(base, ast.Call) and dotted_text(base.func) == "super":
            rest = cls.rest(owner)
            if base.args:
                named = dotted_text(base.args[0])
                start = next((one for one in cls.order if isinstance(one, Class) and one.name == named), owner)
                rest = cls.rest(start)
            answer, said = _next(cls, rest, classes, depth)
        else:
            name = dotted_text(base)
            full = classes.project.resolve(owner.file, name) if name else ""
            if isinstance(full, str) and join_name(full) == JOINABLE:
                answer, said = "yes", ""
            elif isinstance(full, Definition) and isinstance(full.node, ast.ClassDef) and depth:
                one = classes.of(full.file, full.node)
                inner = one.find("__init__")
                answer, said = _runs(cls, inner[0], inner[1], classes, depth - 1) if inner else ("unknown", "")
            else:
                continue
        if answer == "yes" and sure:
            return "yes", ""
        if answer in ("yes", "unknown"):
            doubt = said or "the call stands under a condition"
        elif said:
            why = said
    return ("unknown", doubt) if doubt else ("no", why)


def _next(cls: Class, rest: list[Class | str], classes: Classes, depth: int) -> tuple[str, str]:
    for one in rest:
        if isinstance(one, Class):
            if "__init__" in one.methods:
                return _runs(cls, one, one.methods["__init__"], classes, depth - 1) if depth else ("unknown", "")
            continue
        if join_name(one) == JOINABLE:
            return "yes", ""
        if one.startswith(_ENDS):
            return "no", f"super().__init__() ends in {one}, whose constructor does not call the next one"
        if one.startswith(("abc.", "typing.", "collections.abc.")):
            continue
        return "unknown", f"what {one.lstrip('? ')}.__init__ calls is not known"
    return "no", "super().__init__() does not come to Joinable"


def _init_calls(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[ast.Call, bool]]:
    """Calls of ``….__init__`` in a constructor, and whether each is surely reached."""
    out: list[tuple[ast.Call, bool]] = []

    def visit(body: list[ast.stmt], sure: bool) -> None:
        for item in body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            if isinstance(item, (ast.If, ast.For, ast.While, ast.Try)):
                inner = isinstance(item, ast.Try) and sure
                visit(item.body, inner)
                visit(getattr(item, "orelse", []), False)
                continue
            if isinstance(item, ast.With):
                visit(item.body, sure)
                continue
            out.extend(
                (call, sure)
                for call in ast.walk(item)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"
            )

    visit(node.body, True)
    return out
