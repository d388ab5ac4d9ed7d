"""The corrected class, as a draft: members, announcement and hooks put right, everything else as it was."""

from __future__ import annotations

import ast
import copy

from shardguide.guidance.hints import TYPE_CHECKING

from ..review.project import dotted_text
from .results import Issue
from .shadow import Writer
from .steps import Op, Path, flat
from .structure import MEMBERS
from .values import Value

if TYPE_CHECKING:
    from .classes import Class
    from .subject import Subject

_HOOK = frozenset(
    {
        "FSD610",
        "FSD611",
        "FSD612",
        "FSD613",
        "FSD614",
        "FSD615",
        "FSD616",
        "FSD617",
        "FSD618",
        "FSD625",
        "FSD634",
        "FSD636",
        "FSD637",
    }
)
_SIZES = ("device", "_device")
_GROUPS = ("process_group", "group", "pg", "_process_group", "_group")


def corrected_class(subject: Subject, issues: list[Issue], iterations: list[Path]) -> str:
    """The Joinable and its hook as they should be; "" where nothing of it can be put right."""
    try:
        return _written(subject, issues, iterations)
    except SyntaxError:
        return ""


def _written(subject: Subject, issues: list[Issue], iterations: list[Path]) -> str:
    codes = {issue.code for issue in issues}
    mine = copy.deepcopy(subject.cls.node)
    hook = copy.deepcopy(subject.hook.node) if subject.hook is not None and subject.hook is not subject.cls else None
    if subject.hook is None:
        hook = _meant(subject)
    name = hook.name if hook is not None else f"{subject.cls.name}Hook"
    holder = subject.hook_holder or "joinable"
    _constructor(mine, codes)
    _members(mine, subject, codes, name, hook)
    if codes & {"FSD608", "FSD609", "FSD638", "FSD639"}:
        _announce(mine, subject)
    _iteration(mine, issues)
    notes: list[str] = []
    if hook is None and (subject.hook is None or subject.hook is not subject.cls):
        hook = _new_hook(name, holder)
        codes |= {"FSD610"}
    target = hook if hook is not None else mine
    _regroup(subject, issues, iterations)
    if codes & _HOOK or codes & {"FSD624"}:
        reach = "self" if hook is None else f"self.{holder}"
        writer = Writer(_named(iterations, subject), reach, _counts(subject, iterations), _kept(subject, iterations))
        lines = writer.body(iterations) if iterations else ["pass"]
        notes = writer.open
        _put(target, "main_hook", "def main_hook(self):", lines)
    if codes & {"FSD619", "FSD620", "FSD624"}:
        _post(target, holder, codes)
    out = [f"# Not written: {note}" for note in dict.fromkeys(notes)]
    out.append(ast.unparse(ast.fix_missing_locations(mine)))
    if hook is not None:
        out.append(ast.unparse(ast.fix_missing_locations(hook)))
    text = "\n\n\n".join(out) + "\n"
    try:
        ast.parse(text)
    except SyntaxError:
        return ""
    return text


def _meant(subject: Subject) -> ast.ClassDef | None:
    """The hook that join_hook should have returned: one of the file that is named after the class, or the only one."""
    found = [one for one in subject.world.derived("JoinHook") if one.file is subject.cls.file]
    named = [one for one in found if one.name in (f"{subject.cls.name}Hook", f"{subject.cls.name}JoinHook")]
    chosen = named or (found if len(found) == 1 else [])
    if not chosen:
        return None
    _, init = chosen[0].find("__init__") or (None, None)
    if init is not None and len(init.args.args) > 1:
        for inner in ast.walk(init):
            if (
                isinstance(inner, ast.Assign)
                and isinstance(inner.value, ast.Name)
                and inner.value.id == init.args.args[1].arg
            ):
                target = inner.targets[0]
                subject.hook_holder = target.attr if isinstance(target, ast.Attribute) else subject.hook_holder
    return copy.deepcopy(chosen[0].node)


def _regroup(subject: Subject, issues: list[Issue], iterations: list[Path]) -> None:
    """Collectives that were put on the joinable's own group."""
    moved = {id(issue.node) for issue in issues if issue.code == "FSD625"}
    for path in iterations:
        for step in flat(path.steps):
            if isinstance(step, Op) and id(step.node) in moved and step.owner is not None:
                step.group = Value("text", "own group", make=f"{step.owner.name}.join_process_group")


def _named(iterations: list[Path], subject: Subject) -> str:
    for path in iterations:
        for step in path.steps:
            if step.owner is not None and step.owner.cls is subject.cls:
                return step.owner.name
    return subject.cls.name


def _statements(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name), None)


def _put(node: ast.ClassDef, name: str, head: str, lines: list[str]) -> None:
    made = _statements(head + "\n" + "\n".join(f"    {line}" for line in lines))[0]
    for i, item in enumerate(node.body):
        if isinstance(item, ast.FunctionDef) and item.name.replace("_", "") == name.replace("_", ""):
            node.body[i] = made
            return
    node.body = [item for item in node.body if not isinstance(item, ast.Pass)]
    node.body.append(made)


def _constructor(node: ast.ClassDef, codes: set[str]) -> None:
    if "FSD607" not in codes:
        return
    call = _statements("Joinable.__init__(self)")
    init = _method(node, "__init__")
    if init is None:
        node.body[:0] = _statements(
            "def __init__(self, *args, **kwargs):\n    super().__init__(*args, **kwargs)\n    Joinable.__init__(self)"
        )
        return
    at = 0
    for i, item in enumerate(init.body):
        if (
            isinstance(item, ast.Expr)
            and isinstance(item.value, ast.Call)
            and "__init__" in ast.unparse(item.value.func)
        ):
            at = i + 1
            break
    init.body[at:at] = call


def _members(node: ast.ClassDef, subject: Subject, codes: set[str], hook: str, had: ast.ClassDef | None) -> None:
    held = _held(node)
    for name in MEMBERS[1:]:
        found = _method(node, name)
        if found is not None and not any(dotted_text(one).endswith("property") for one in found.decorator_list):
            found.decorator_list.append(ast.Name("property", ast.Load()))
        elif found is None and subject.cls.find(name) is None:
            if name == "join_device":
                value = next((f"self.{one}" for one in _SIZES if one in held), 'torch.device("cpu")')
            else:
                value = next((f"self.{one}" for one in _GROUPS if one in held), "dist.group.WORLD")
            _drop_attribute(node, name)
            _misspelt(node, name)
            node.body.extend(_statements(f"@property\ndef {name}(self):\n    return {value}"))
    found = _method(node, "join_hook")
    if found is None and subject.cls.find("join_hook") is None:
        node.body.extend(_statements(f"def join_hook(self, **kwargs):\n    return {hook}({_arguments(had, subject)})"))
    elif found is not None and codes & {"FSD622", "FSD623"}:
        found.decorator_list = []
        if found.args.kwarg is None:
            found.args.kwarg = ast.arg("kwargs")
        if ("FSD622" in codes and subject.hook is not None) or codes & {"FSD622"}:
            made = hook if subject.hook is not None else _hook_named(found) or hook
            found.body = _statements(f"return {made}({_arguments(had, subject, made)})")


def _hook_named(node: ast.FunctionDef) -> str:
    """The hook class that join_hook mentions."""
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Name)
            and inner.id.endswith("Hook")
            and isinstance(inner.ctx, ast.Load)
            and inner.id != "JoinHook"
        ):
            return inner.id
    return ""


def _arguments(hook: ast.ClassDef | None, subject: Subject, name: str = "") -> str:
    """The arguments for the hook's constructor: the joinable first, others from Join's keywords."""
    if hook is None and name:
        found = subject.world.project.resolve(subject.cls.file, name)
        hook = found.node if not isinstance(found, str) and isinstance(found.node, ast.ClassDef) else None
    init = _method(hook, "__init__") if hook is not None else None
    if init is None:
        return "self"
    names = [one.arg for one in init.args.args][2:]
    return ", ".join(["self", *(f'{one}=kwargs.get("{one}", False)' for one in names)])


def _held(node: ast.ClassDef) -> set[str]:
    return {
        inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)
    }


def _drop_attribute(node: ast.ClassDef, name: str) -> None:
    """``self.join_device = …`` cannot stand beside the property."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef):
            method.body = [
                item
                for item in method.body
                if not (
                    isinstance(item, ast.Assign)
                    and any(isinstance(t, ast.Attribute) and t.attr == name for t in item.targets)
                )
            ] or [ast.Pass()]


def _misspelt(node: ast.ClassDef, name: str) -> None:
    """A property whose name comes near is the one that was meant."""
    node.body = [
        item
        for item in node.body
        if not (isinstance(item, ast.FunctionDef) and item.name.startswith("join_") and item.name not in (*MEMBERS, "join")
                and item.decorator_list)
    ]  # fmt: skip


def _announce(node: ast.ClassDef, subject: Subject) -> None:
    """Once, before anything else of the first method of an iteration."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef):
            _Silence().visit(method)
            method.body = method.body or [ast.Pass()]
    entries = [name for name in (*subject.entries, "forward", "__call__") if _method(node, name) is not None]
    first = _method(node, entries[0]) if entries else None
    if first is not None:
        head = first.body[0] if first.body else None
        at = int(isinstance(head, ast.Expr) and isinstance(head.value, ast.Constant))  # after the docstring
        first.body[at:at] = _statements("Join.notify_join_context(self)")


class _Silence(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Announcements go."""
        if isinstance(node.value, ast.Call) and dotted_text(node.value.func).endswith("notify_join_context"):
            return None
        return node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        """So do tests around nothing else."""
        self.generic_visit(node)
        return node if node.body else None


def _iteration(node: ast.ClassDef, issues: list[Issue]) -> None:
    """Collectives of the iteration itself: never waited for, or on another group."""
    for issue in issues:
        for inner in ast.walk(node):
            if not isinstance(inner, ast.Call) or (inner.lineno, inner.col_offset) != (
                issue.line,
                getattr(issue.node, "col_offset", -1),
            ):
                continue
            if issue.code == "FSD625":
                inner.keywords = [one for one in inner.keywords if one.arg != "group"]
                inner.keywords.append(ast.keyword("group", ast.parse("self.join_process_group", mode="eval").body))
    if any(issue.code == "FSD616" and "iteration" in issue.what for issue in issues):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                inner.keywords = [one for one in inner.keywords if one.arg != "async_op"]
        for method in node.body:
            if isinstance(method, ast.FunctionDef):
                _Kept().visit(method)


class _Kept(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """``works.append(collective)`` becomes the collective."""
        value = node.value
        if (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr == "append"
            and len(value.args) == 1
        ):
            inner = value.args[0]
            if isinstance(inner, ast.Call) and dotted_text(inner.func).startswith("dist."):
                return ast.Expr(inner)
        return node


def _kept(subject: Subject, iterations: list[Path]) -> dict[str, str]:
    """What the constructor was given, by the attribute that keeps it."""
    subject.tracer.begin([])
    made = subject.joinable().ref
    name = _named(iterations, subject)
    return {
        value.text: f"{name}.{key}"
        for key, value in made.attrs.items()
        if value.kind == "text" and value.text.startswith("what ")
    }


def _counts(subject: Subject, iterations: list[Path]) -> dict[str, str]:
    """Attributes that the iteration counts up, with the statement that does it."""
    out: dict[str, str] = {}
    names = {write.rpartition(".")[2] for path in iterations for write in path.writes if write.startswith("+")}
    tested = " ".join(choice.key for path in iterations for choice in path.choices)
    for inner in ast.walk(subject.cls.node):
        if not isinstance(inner, ast.AugAssign) or not isinstance(inner.target, ast.Attribute):
            continue
        attribute = f".{inner.target.attr}"
        if inner.target.attr in names and attribute in tested and isinstance(inner.target.value, ast.Name):
            out[attribute] = ast.unparse(inner).replace("self.", f"{_named(iterations, subject)}.", 1)
    return out


def _new_hook(name: str, holder: str) -> ast.ClassDef:
    made = _statements(
        f"class {name}(JoinHook):\n"
        f"    def __init__(self, {holder}):\n        self.{holder} = {holder}\n\n"
        "    def main_hook(self):\n        pass"
    )[0]
    assert isinstance(made, ast.ClassDef)
    return made


def _post(node: ast.ClassDef, holder: str, codes: set[str]) -> None:
    """post_hook with a source that all ranks agree on, for what it broadcast."""
    found = _method(node, "post_hook")
    if found is None:
        return
    if not codes & {"FSD619", "FSD620"}:
        found.args.args = [ast.arg("self"), ast.arg("is_last_joiner")]
        return
    sent = next(
        (
            one
            for one in ast.walk(found)
            if isinstance(one, ast.Call) and dotted_text(one.func).endswith("broadcast") and one.args
        ),
        None,
    )
    if sent is None:
        return
    guards = [item for item in found.body if isinstance(item, ast.If) and isinstance(item.body[-1], ast.Return)]
    lines = [line for guard in guards for line in ast.unparse(guard).split("\n")]
    target = ast.unparse(sent.args[0])
    reach = f"self.{holder}" if holder != "self" else "self"
    lines += [
        f"group = {reach}.join_process_group",
        f"last = torch.tensor([dist.get_rank(group) if is_last_joiner else -1], device={reach}.join_device)",
        "dist.all_reduce(last, op=dist.ReduceOp.MAX, group=group)",
        f"dist.broadcast({target}, src=dist.get_global_rank(group, int(last.item())), group=group)",
    ]
    _put(node, "post_hook", "def post_hook(self, is_last_joiner):", lines)


def hook_class(subject: Subject) -> Class | None:
    """The hook's class."""
    return subject.hook
