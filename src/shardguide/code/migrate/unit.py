"""One file under migration: its names, its flow of values, its edits, and what is said about it."""

from __future__ import annotations

import ast

from ..review.project import Definition, File, Project, dotted_text
from ..syntax import Names
from .bindings import latest, top
from .edits import Source
from .flow import Reading
from .names import FSDP1, Target, canonical
from .options import Kind
from .records import Todo, Use
from .todos import TODOS, Refusal

# Reached from ``import torch`` alone.
_WITH_TORCH = (
    "torch.nn.utils.",
    "torch.amp.",
    "torch.cuda.",
    "torch.cpu.",
    "torch.xpu.",
    "torch.no_grad",
    "torch.nn.Module",
    "torch.device",
    "torch.float32",
    "torch.nn.BatchNorm",
    "torch.nn.SyncBatchNorm",
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Unit:
    """One file."""

    def __init__(self, file: File, project: Project, reading: Reading, target: Target) -> None:
        self.file = file
        self.project = project
        self.reading = reading
        self.target = target
        self.source = Source(file.text)
        self.names = Names(file.tree, file.text)
        self.uses: list[Use] = []
        self.todos: list[Todo] = []
        self.problems: list[tuple[str, int, str]] = []
        self.helpers, self.helper_names = dict[str, str](), dict[str, str]()  # name -> its code, and the name it has
        self.top = top(file.tree)  # what the module's own import statements bind
        self.imports: dict[str, str] = {}  # name in the file -> "module" or "module:name"
        self.handled: set[int] = set()  # nodes whose use was told already
        self.units: list[Unit] = [self]  # all files
        self.constructors: dict[int, list[str]] = {}  # of all files: group -> why each was left, "" if it was not
        self.group = 0  # files of the same number belong together over imports
        self.asked_for: set[str] = set()  # names that other files import from here
        self.near = file.text  # this file and those that belong to it over imports, as one text
        self.made: dict[int, bool] = {}  # of all files: constructor call -> whether it was converted
        self.dropped: list[ast.stmt] = []  # statements that are taken away
        self.settled: set[int] = set()  # blocks that have their ``pass``
        self.unwrapped: list[ast.stmt] = []  # with statements whose body stays
        self.spent: list[ast.AST] = []  # expressions whose meaning went into new code
        self.settings: list[tuple[ast.AST, int, Kind]] = []  # set_state_dict_type: function, line, kind
        self.set_models: list[tuple[list[ast.stmt], int, str, Kind]] = []  # and the block and the model
        self.contexts: list[tuple[ast.With, str, Kind]] = []  # state_dict_type: statement, model, kind
        self.grouped: set[int] = set()  # of all files: groups of files with a model over a process group of its own
        self.early: set[int] = set()  # of all files: functions that apply checkpointing, called before sharding now
        self.inherited: dict[int, Kind] = {}  # of all files: function -> kind, where it is called in contexts alone
        self.stays: list[ast.With] = []  # those that stay
        self.given_names: set[tuple[int, str]] = set()  # of new variables, with their functions
        self.refused = ""  # why nothing in this file may change
        self.beside = False  # the project has FSDP1 and FSDP2 side by side: see beside.py
        self.has_both: bool | None = None  # this file has, once that was asked
        self.blocked: set[int] = set()  # constructor calls that stay because of what their models get to

    # What names mean

    def full(self, node: ast.AST) -> str:
        """The full name of something from outside the project, "" for anything else."""
        text = dotted_text(node)
        if not text:
            return ""
        head = text.partition(".")[0]
        if head not in self.names.imports and self.names.lookup(node, head):
            return self.reading.aliases.full(self.file, node)
        found = self.project.resolve(self.file, text)
        return found if isinstance(found, str) else ""

    def canon(self, node: ast.AST) -> str:
        """FSDP1's short name of what an expression names."""
        return canonical(self.full(node))

    def definition(self, node: ast.AST) -> Definition | None:
        """The function or class of the project that an expression names."""
        text = dotted_text(node)
        found = self.project.resolve(self.file, text) if text else ""
        return found if isinstance(found, Definition) else None

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node around a node."""
        return self.names.parents.get(node)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that an expression is part of."""
        here: ast.AST | None = node
        while here is not None and not isinstance(here, ast.stmt):
            here = self.names.parents.get(here)
        assert isinstance(here, ast.stmt)
        return here

    def function(self, node: ast.AST) -> ast.AST:
        """The function or lambda around a node; the module if there is none."""
        here = self.names.parents.get(node)
        while here is not None and not isinstance(here, (*_FUNCTIONS, ast.Module)):
            here = self.names.parents.get(here)
        return here if here is not None else self.file.tree

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that one stands in."""
        parent = self.names.parents.get(statement)
        for name in ("body", "orelse", "finalbody", "handlers"):
            held = getattr(parent, name, None)
            if isinstance(held, list) and statement in held:
                return held
        return [statement]

    def bound(self, node: ast.AST) -> ast.expr | None:
        """What a name is bound to, where it is bound once, or right above; the expression itself if it is no name."""
        for _ in range(4):
            if not isinstance(node, ast.Name):
                return node if isinstance(node, ast.expr) else None
            values = self.names.lookup(node, node.id)
            value = values[0] if len(values) == 1 else latest(self, node)
            if value is None:
                return None
            node = value
        return None

    def fresh(self, name: str, at: ast.AST) -> str:
        """A name for a new variable: ``name``, or with a number behind it where that is taken."""
        wanted, number = name, 1
        scope = id(self.function(at))
        while self.visible(wanted, at) or (scope, wanted) in self.given_names:
            number += 1
            wanted = f"{name}_{number}"
        self.given_names.add((scope, wanted))
        return wanted

    def visible(self, name: str, at: ast.AST) -> bool:
        """Whether a name means something already in the function around a node."""
        scope: ast.AST | None = self.function(at)
        if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(scope)):  # type: ignore[arg-type]
            return True
        return bool(self.names.lookup(at, name)) or name in self.names.imports or name in self.names.own

    def local_function(self, node: ast.AST) -> ast.FunctionDef | None:
        """The one function of this file that a name stands for, inner ones too."""
        if not isinstance(node, ast.Name):
            return None
        found = [
            one for one in ast.walk(self.file.tree)
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and one.name == node.id
        ]  # fmt: skip
        return found[0] if len(found) == 1 and isinstance(found[0], ast.FunctionDef) else None

    def spread(self, call: ast.Call, order: tuple[str, ...]) -> dict[str, ast.expr] | None:
        """The arguments of a call with ``**options``, where options is a dictionary written out for this call alone."""
        out: dict[str, ast.expr] = {}
        for position, value in enumerate(call.args):
            if isinstance(value, ast.Starred) or position >= len(order):
                return None
            out[order[position]] = value
        for keyword in call.keywords:
            if keyword.arg is not None:
                out[keyword.arg] = keyword.value
                continue
            bound = self.bound(keyword.value)
            if not isinstance(keyword.value, ast.Name) or self.names.items_of(call, keyword.value.id):
                return None
            if isinstance(bound, ast.Dict):
                for key, value in zip(bound.keys, bound.values, strict=True):
                    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                        return None
                    out[key.value] = value
            elif isinstance(bound, ast.Call) and isinstance(bound.func, ast.Name) and bound.func.id == "dict":
                if bound.args or any(one.arg is None for one in bound.keywords):
                    return None
                out.update((one.arg or "", one.value) for one in bound.keywords)
            else:
                return None
            loads = [
                node for node in ast.walk(self.function(call))
                if isinstance(node, ast.Name) and node.id == keyword.value.id and isinstance(node.ctx, ast.Load)
            ]  # fmt: skip
            if len(loads) > 1 and any(not self.is_spread(one) for one in loads):
                return None
        return out

    def is_spread(self, node: ast.AST) -> bool:
        """Whether a name stands as ``**name`` in a call."""
        parent = self.parent(node)
        return isinstance(parent, ast.keyword) and parent.arg is None

    def owner(self, node: ast.AST) -> Unit | None:
        """The file under migration that a node stands in."""
        return next((unit for unit in self.units if unit.file.holds(node)), None)

    def drop(self, statement: ast.stmt) -> None:
        """Take a statement away; a block that would be left empty gets a ``pass`` when the file is written."""
        self.dropped.append(statement)
        self.source.delete(statement)

    def settle(self) -> None:
        """Put ``pass`` where a block has lost all its statements."""
        for node in ast.walk(self.file.tree):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if not isinstance(block, list) or not block or isinstance(node, ast.Module) or node in self.unwrapped:
                    continue
                if all(self._gone(one) for one in block) and id(block) not in self.settled:
                    self.settled.add(id(block))
                    place = self.source.starts[block[0].lineno - 1]
                    self.source.inserted.setdefault(place, []).append(f"{self.source.indent(block[0])}pass")

    def _gone(self, statement: ast.stmt) -> bool:
        if statement in self.unwrapped and isinstance(statement, ast.With):
            return all(self._gone(one) for one in statement.body)
        return statement in self.dropped

    # FSDP1 or not

    def is_fsdp1(self, node: ast.AST) -> bool:
        """Whether an expression is known to be a model that is FSDP1's no more: its constructor was converted."""
        made = [thing.node for thing in self.reading.things(node) if thing.kind == "fsdp1"]
        return any(self.made.get(id(call), False) for call in made) and all(
            self.made.get(id(call), False) for call in made
        )

    def certain(self, node: ast.AST, but: tuple[str, ...] = ()) -> None:
        """Raise Refusal unless an expression is, or must be, a model whose constructor was converted.

        ``but``: reasons for leaving a constructor that do no harm here.
        """
        made = [thing.node for thing in self.reading.things(node) if thing.kind == "fsdp1"] or self.same_name(node)
        if any(not self.made.get(id(call), False) for call in made):
            raise Refusal("left-constructor")
        if made:
            return
        reasons = self.constructors.get(self.group, [])
        if not reasons:
            raise Refusal("unknown-model")
        if any(reason not in ("", *but) for reason in reasons):
            raise Refusal(
                "left-constructor", "It could not be told whether it belongs to an FSDP(...) call that was left."
            )

    def same_name(self, node: ast.AST) -> list[ast.AST]:
        """The constructor calls of this class whose value gets the name that an expression is: ``self.model``."""
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"):
            return []
        owner, name = self.owner_class(node), node.attr
        return [
            one.value for one in (ast.walk(owner) if owner is not None else ())
            if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call) and self.canon(one.value.func) == FSDP1
            and any(isinstance(to, ast.Attribute) and to.attr == name for to in one.targets)
        ]  # fmt: skip

    def owner_class(self, node: ast.AST) -> ast.ClassDef | None:
        """The class around a node."""
        here = self.names.parents.get(node)
        while here is not None and not isinstance(here, ast.ClassDef):
            here = self.names.parents.get(here)
        return here

    def is_method(self, node: ast.AST, name: str) -> bool:
        """Whether a call is ``model.name(…)`` of an FSDP1 model."""
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == name
            and self.is_fsdp1(node.func.value)
        )

    def leave(self, node: ast.AST, kind: str, what: str, refusal: Refusal) -> None:
        """Tell of a use that stays."""
        self.todo(node, refusal.code, why=refusal.why)
        self.use(node, kind, what, "left", refusal.code)

    def contexts_of(self, statement: ast.stmt) -> list[ast.With]:
        """The contexts that are taken away from around a statement, outermost first."""
        return [context for context, _, _ in self.contexts if statement in context.body]

    def remove_item(self, node: ast.With, item: ast.withitem) -> None:
        """Take one item out of a with statement; the last one takes the statement with it. Raises Refusal."""
        source = self.source
        if len(node.items) > 1:
            position = node.items.index(item)
            if position + 1 < len(node.items):
                source.cut(source.span(item.context_expr)[0], source.span(node.items[position + 1].context_expr)[0])
            else:
                before = node.items[position - 1]
                end = source.span(before.optional_vars or before.context_expr)[1]
                source.cut(end, source.span(item.context_expr)[1])
            return
        first = node.body[0]
        self.unwrapped.append(node)
        start = source.offset(node.lineno, node.col_offset)
        if first.lineno == (item.context_expr.end_lineno or 0):  # with …: statement
            source.cut(start, source.span(first)[0])
            return
        if source.lines[node.lineno - 1][: node.col_offset].strip():
            raise Refusal("expression")
        colon = source.data.index(b":", source.span(item.context_expr)[1])
        line = source.line_of(colon)
        source.before(node, source.comments(start, source.starts[line]))
        source.cut(source.starts[node.lineno - 1], source.starts[line])
        source.dedent(node.body, source.indent(node), line + 1)

    def only_load(self, node: ast.Name) -> bool:
        """Whether a name is read here and nowhere else, in this file or another."""
        loads = [
            one for one in ast.walk(self.file.tree)
            if isinstance(one, ast.Name) and one.id == node.id and isinstance(one.ctx, ast.Load)
        ]  # fmt: skip
        return len(loads) == 1 and node.id not in self.asked_for

    # Words

    def column(self, node: ast.AST) -> int:
        """The column of a node in characters, from 1."""
        line = self.source.lines[node.lineno - 1]  # type: ignore[attr-defined]
        return len(line[: node.col_offset].decode("utf-8", "replace")) + 1  # type: ignore[attr-defined]

    def use(self, node: ast.AST, kind: str, what: str, status: str, reason: str = "") -> None:
        """Tell of a use; each node once."""
        if id(node) in self.handled:
            return
        self.handled.add(id(node))
        self.uses.append(Use(self.file.path, node.lineno, self.column(node), kind, what, status, reason))  # type: ignore[attr-defined]

    def todo(self, node: ast.AST, code: str, what: str = "", why: str = "") -> None:
        """Ask for a decision; ``what`` and ``why`` as in todos.py where they are left empty."""
        words, reason, claims = TODOS[code]
        one = Todo(self.file.path, node.lineno, self.column(node), code, what or words, why or reason, claims)  # type: ignore[attr-defined]
        if one not in self.todos:
            self.todos.append(one)

    # What the new code needs

    def need(self, full: str) -> str:
        """The name under which something can be written in this file; its import is added where it is missing.

        Raises Refusal where the release has no such thing.
        """
        full = self.target.name(full)
        module, _, name = full.rpartition(".")
        for have, what in self.top.items():
            if what == full and self._free(have):
                return have
        for have, what in self.top.items():
            if what == module and what != "torch" and self._free(have):
                return f"{have}.{name}"
        if full.startswith(_WITH_TORCH):
            if self.top.get("torch") != "torch" or not self._free("torch"):
                self.imports["torch"] = "torch"
            return full
        if self._taken(name, full):
            return self._whole(full)
        self.imports[name] = full
        return name

    def _free(self, name: str) -> bool:
        """Whether a name means what the import says wherever this is written: nothing else in the file binds it."""
        return not any(key == name for _, key in self.names.bound)

    def _taken(self, name: str, full: str) -> bool:
        if name in self.imports or name in self.names.own:
            return self.imports.get(name) != full
        return self.names.imports.get(name, full) != full or any(key == name for _, key in self.names.bound)

    def _whole(self, full: str) -> str:
        module = full.rpartition(".")[0]
        if self.top.get(module) != module:  # import torch stands there already
            self.imports.setdefault("." + module, module)
        return full

    def helper(self, name: str) -> str:
        """The name of a helper function; its code and imports are added to the file."""
        from .helpers import add

        return add(self, name)
