"""Checkpoints: what is saved, by whom, under which name (FSD712-721)."""

from __future__ import annotations

import ast

from shardguide.knowledge import releases

from ..project import File, dotted_text
from ..records import Call
from ..torch_names import COLLECTIVES
from ..walk import Walker
from .common import kind_of, last, models, one_rank, whole_of


def _on_rank(walker: Walker) -> bool:
    return any(condition.kind == "rank" for condition in walker.path)


def _guarded(walker: Walker) -> bool:
    """Whether a test around is of the rank, or may be without being known as such: ``if should_save``."""
    for condition in walker.path:
        text = condition.key.rpartition(":")[2]
        named = not text.isdigit() and not condition.key.startswith("method ")
        if condition.kind in ("rank", "guard", "except") or named:
            return True
    return False


def _names_rank(walker: Walker, node: ast.expr | None, depth: int = 2) -> bool:
    """Whether a file's name has the rank in it, as far as can be seen."""
    for inner in ast.walk(node) if node is not None else ():
        if isinstance(inner, ast.Name):
            if "rank" in inner.id.lower() or any(t.kind in ("rank", "local_rank") for t in walker.peek(inner)):
                return True
            written = walker.written(inner)
            if depth and written is not None and _names_rank(walker, written, depth - 1):
                return True
        elif isinstance(inner, (ast.Attribute, ast.Call, ast.Subscript)) and (
            any(t.kind in ("rank", "local_rank") for t in walker.peek(inner)) or "rank" in ast.dump(inner)
        ):
            return True
    return False


def saved(walker: Walker, call: Call) -> None:
    """torch.save(what, where)."""
    where = call.argument("f", 1)
    states = [thing for thing in call.things("obj", 0) if thing.kind == "state_dict"]
    of = tuple(dict.fromkeys(model for state in states for model in state.of))
    _into_folder(walker, call, where)
    named = _names_rank(walker, where)
    if kind_of(of, "fsdp2", walker) == "yes" and not all(one.kind == "ddp" for one in of):
        if named:
            walker.report("FSD721", call.node, False)
        elif not any(_told(walker, state.node) for state in states):
            walker.report("FSD713", call.node, True)
        return
    for one in of if one_rank(walker) else ():
        held = models(one.of) if one.kind == "optimizer" else ()
        sharded = kind_of(held, "fsdp2", walker) == "yes" or kind_of(held, "fsdp1", walker) == "yes"
        if sharded and not any(_told(walker, state.node) for state in states):
            walker.report("FSD710", call.node, all(one.sure for one in walker.path if one.kind == "rank"))
            return
    local = any(name == "FSDP1.state_dict_type" and "LOCAL" in ast.dump(node) for name, node, _ in walker.contexts)
    if named and kind_of(of, "fsdp1", walker) == "yes" and local:
        walker.report("FSD721", call.node, False)
    inner = {id(part) for one in walker.made if one.kind == "ddp" for part in one.of}  # model.module
    wrapped = of and all(one.kind in ("ddp", "fsdp1") or id(one) in inner for one in of)
    if wrapped and not _guarded(walker) and not named and where is not None and _known(walker, where):
        walker.report("FSD719", call.node, False)
    if of and all(one.kind == "ddp" for one in of):
        walker.fact("ddp state saved", call.node)


def _told(walker: Walker, node: ast.AST | None) -> bool:
    """Whether something was said of the state dict where it was made."""
    line = getattr(node, "lineno", 0)
    return any(one.code in ("FSD703", "FSD710") and one.line == line for one in walker.findings)


def _known(walker: Walker, where: ast.expr) -> bool:
    """Whether a file's name is written here, and not handed over by a caller who may choose it by rank."""
    for inner in ast.walk(where):
        if isinstance(inner, ast.Name):
            things = walker.peek(inner)
            if any(thing.kind == "unknown" and isinstance(thing.node, ast.FunctionDef) for thing in things):
                return False
    return True


def loaded(walker: Walker, call: Call) -> None:
    """model.load_state_dict(torch.load(…)) of a model that is not wrapped."""
    given = whole_of(walker, call.node.args[0] if call.node.args else None)
    if not isinstance(given, ast.Call) or walker.full(given.func) != "torch.load":
        return
    if call.owner and all(
        one.kind in ("module", "unknown") and not any(mark.what == "fully_shard" for mark in one.marks)
        for one in call.owner
    ):
        walker.fact("bare load", given)


def made(walker: Walker, call: Call) -> None:
    """A folder made by one rank."""
    of = call.node.func.value if call.method and isinstance(call.node.func, ast.Attribute) else None
    of = of or (call.node.args[0] if call.node.args else None)
    if of is not None and _on_rank(walker):
        walker.note("folder of one rank", of)


def together(walker: Walker, call: Call) -> None:
    """The ranks meet."""
    walker.note("together", call.node)


def _into_folder(walker: Walker, call: Call, where: ast.expr | None) -> None:
    """Every rank writes into what one rank has made."""
    if where is None or _guarded(walker):
        return
    names = _names(walker, where)
    for note in walker.marks:
        if note.what != "folder of one rank" or note.file is not walker.frame.file:
            continue
        met = any(one.what == "together" and one.at > note.at for one in walker.marks)
        if not met and names & _names(walker, note.node):
            walker.report("FSD720", call.node, False)
            return


def _names(walker: Walker, node: ast.AST) -> set[str]:
    """The names that a path is made of, and those that these are made of."""
    out = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    for inner in ast.walk(node):
        written = walker.written(inner) if isinstance(inner, ast.Name) else None
        out |= {one.id for one in ast.walk(written) if isinstance(one, ast.Name)} if written is not None else set()
    return {name for name in out if name not in walker.frame.file.imports and "rank" not in name}


def local_type(walker: Walker, call: Call) -> None:
    """StateDictType.LOCAL_STATE_DICT."""
    if last(walker, call.argument("state_dict_type", 1)) == "LOCAL_STATE_DICT":
        walker.report("FSD715", call.node, False, guarded=True)  # isinstance(model, FSDP) confirms it


def _put_back(walker: Walker, node: ast.Call) -> bool:
    """Whether a configuration is set by hand in a private attribute, as the wrapper itself does for a while."""
    before = walker.frame.file.lines[node.lineno - 1][: node.col_offset].rstrip()
    return before.endswith(b"=") and b"._" in before


def full_config(walker: Walker, call: Call) -> None:
    """FullStateDictConfig() with neither of its two savings."""
    if not call.node.args and not call.node.keywords and not _put_back(walker, call.node):
        walker.report("FSD716", call.node, False)


def unpickled(walker: Walker, call: Call) -> None:
    """torch.load without weights_only, in releases that unpickle anything then."""
    release = walker.project.release
    if release and releases.within(release, "2.0-2.5") and call.argument("weights_only") is None and not call.spread():
        walker.report("FSD717", call.node, False)


def collective(walker: Walker, call: Call) -> None:
    """accelerator.save_state() and its like."""
    for owner in call.owner:
        if "accelerator" in owner.name.lower():
            walker.event("FSD712", f"accelerator.{call.method}()", call.node, False)
            return


def project(walker: Walker) -> None:
    """What DDP saved is loaded into a bare model."""
    facts = walker.facts
    bare = facts.get("bare load", ())
    if any(word in file.text for file, _ in bare for word in ('"module.', "'module.", "consume_prefix")):
        return
    names = {_file_name(file, node, 0) for file, node in bare}
    for file, node in facts.get("ddp state saved", ()) if bare else ():
        if _file_name(file, node, 1) in names - {""}:
            walker.report_at("FSD718", file, node, False)


def _file_name(file: File, node: ast.AST, place: int) -> str:
    """The file that torch.save or torch.load is given, as it is written; what follows the last dot of a name."""
    if not isinstance(node, ast.Call):
        return ""
    given = next((k.value for k in node.keywords if k.arg == "f"), node.args[place] if len(node.args) > place else None)
    if isinstance(given, (ast.Name, ast.Attribute)):
        return dotted_text(given).rpartition(".")[2]
    return file.source(given) if given is not None else ""


CALLS = {
    "torch.save": [saved],
    "torch.load": [unpickled],
    "makedirs": [made],
    "FSDP1.state_dict_type": [local_type],
    "FSDP1.set_state_dict_type": [local_type],
    "FullStateDictConfig": [full_config],
    **{name: [together] for name in sorted(COLLECTIVES)},
}
METHODS = {
    "load_state_dict": [loaded],
    "mkdir": [made],
    "save_state": [collective],
    "load_state": [collective],
    "wait_for_everyone": [together],
}
PROJECT = [project]
