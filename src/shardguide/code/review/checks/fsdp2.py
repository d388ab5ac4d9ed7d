"""fully_shard, FSDP2 (FSD4xx): order, arguments, and what its modules can't do."""

from __future__ import annotations

import ast

from ..project import dotted_text
from ..records import Call, Edit, Thing, marked
from ..walk import Walker
from .common import constant, is_false, kind_of, last, models, replace, whole_of, within
from .parts import class_name, in_tests, leaf

OLD = {
    "sharding_strategy": "mesh and reshard_after_forward",
    "cpu_offload": "offload_policy",
    "auto_wrap_policy": "one call of fully_shard for each layer",
    "backward_prefetch": "set_modules_to_backward_prefetch",
    "mixed_precision": "mp_policy",
    "ignored_modules": "ignored_params",
    "ignored_states": "ignored_params",
    "param_init_fn": "to_empty and your own initialisation",
    "device_id": "torch.cuda.set_device",
    "sync_module_states": "set_model_state_dict with broadcast_from_rank0",
    "forward_prefetch": "set_modules_to_forward_prefetch",
    "limit_all_gathers": "nothing: it is always so",
    "use_orig_params": "nothing: it is always so",
    "device_mesh": "mesh",
    "process_group": "mesh",
}


def sharded(walker: Walker, call: Call) -> None:
    """fully_shard(module, …), told before the module is marked."""
    node, things = call.node, call.things("module", 0)
    if "_composable.fully_shard" in call.full:
        return
    walker.fact("fsdp2", node)
    walker.note("shard", node, things)
    for keyword in node.keywords:
        if keyword.arg in OLD:
            walker.report("FSD411", keyword.value, True, guarded=True, name=keyword.arg, now=OLD[keyword.arg])
    if walker.inside("FSDP1") or not things:
        return
    for thing in things:
        if len(things) == 1 and (
            thing.kind == "modulelist" or class_name(walker, thing) in ("ModuleList", "ModuleDict")
        ):
            walker.report("FSD404", node, True)
        again = marked(thing, "fully_shard", walker.path) == "yes" and thing.kind != "submodule"
        if len(things) == 1 and thing.name.endswith("[]") and _element_again(walker, call, thing):
            walker.report("FSD406", node, False)
        elif again and len(things) == 1 and not thing.name.endswith("[]"):
            walker.report("FSD406", node, thing.sure or not walker.loop_depth)
        _after_whole(walker, call, thing)
        _optimizers(walker, thing)
    _mesh(walker, call)
    given = (
        *call.named.get("offload_policy", ()),
        *(part for one in call.named.get("**", ()) for part in one.attrs.get("[]", ())),
    )
    if any(thing.kind == "offload" for thing in given):
        walker.fact("cpu offload", node)
        walker.note("cpu offload", node)
        walker.mark(things, "cpu offload", node)


def _element_again(walker: Walker, call: Call, thing: Thing) -> bool:
    """Whether one element of a list was sharded by its number and all are in a loop."""
    if not call.node.args:
        return False
    numbered = isinstance(call.node.args[0], ast.Subscript)
    before = [mark.node for mark in thing.marks if mark.what == "fully_shard" and mark.path == walker.path]
    return any(
        isinstance(node, ast.Call) and bool(node.args) and isinstance(node.args[0], ast.Subscript) is not numbered
        for node in before
    )


def _after_whole(walker: Walker, call: Call, thing: Thing) -> None:
    """A part that is sharded after the whole."""
    whole = thing
    for _ in range(12):
        if not whole.of or whole.kind not in ("unknown", "submodule"):
            return
        whole = whole.of[0]
        if marked(whole, "fully_shard", walker.path) == "yes":
            walker.report(
                "FSD402",
                call.node,
                True,
                guarded=True,
                part=walker.source(call.node.args[0]) if call.node.args else "a part",
            )
            return


def _optimizers(walker: Walker, thing: Thing) -> None:
    """An optimizer made of the parameters before they are sharded."""
    for optimizer in walker.made:
        if optimizer.kind != "optimizer" or optimizer.node is None:
            continue
        for model in models(optimizer.of):
            if (model is thing or within(thing, model)) and not _takes_care(walker, optimizer):
                sure = walker.made_before(optimizer)
                if sure is not None and marked(model, "optimizer told", walker.path) == "no":
                    walker.mark((model,), "optimizer told", optimizer.node)
                    sure = sure and len(optimizer.of) == 1 and not _may_follow(walker, optimizer)
                    walker.report_at("FSD401", optimizer.home(walker.frame.file), optimizer.node, sure)


_FOLLOWS = ('["params"] =', "['params'] =")


def _may_follow(walker: Walker, optimizer: Thing) -> bool:
    """Whether the optimizer gets its new parameters only if a flag of this function says so."""
    file, here = optimizer.home(walker.frame.file), walker.stack[-1] if walker.stack else None
    if not isinstance(here, ast.FunctionDef) or not file.holds(here):
        return False
    writers = {
        name
        for name, node in file.functions.items()
        if node is not here
        and any(words.encode() in b"\n".join(file.lines[node.lineno - 1 : node.end_lineno]) for words in _FOLLOWS)
    }
    flags = {one.arg for one in (*here.args.posonlyargs, *here.args.args, *here.args.kwonlyargs)}
    under = [one for one in ast.walk(here) if isinstance(one, ast.If) and _asks(one.test, flags)]
    calls = [one for one in ast.walk(here) if isinstance(one, ast.Call) and getattr(one.func, "id", "") in writers]
    return bool(calls) and all(any(a.lineno <= one.lineno <= (a.end_lineno or 0) for a in under) for one in calls)


def _asks(test: ast.expr, flags: set[str]) -> bool:
    """Whether a test is one of flags alone."""
    names = {one.id for one in ast.walk(test) if isinstance(one, ast.Name)}
    return bool(names) and names <= flags and not any(isinstance(one, ast.Call) for one in ast.walk(test))


def _takes_care(walker: Walker, optimizer: Thing) -> bool:
    """Whether somebody puts new parameters into the optimizer afterwards, as libraries do that shard, as far as can be seen."""
    file, home = walker.frame.file, optimizer.home(walker.frame.file)
    # group["params"] = …: somebody puts the new parameters in.
    if any(words in one.text for one in (file, home) for words in _FOLLOWS):
        return not _may_follow(walker, optimizer)
    if file is home:
        return False
    return any(
        "param_groups" in other.text and ("fully_shard" in other.text or "fsdp" in other.text.lower())
        for other in walker.project.files
        if other is not home
    )


def _mesh(walker: Walker, call: Call) -> None:
    for mesh in call.named.get("mesh", ()):
        node = mesh.node
        if mesh.kind != "mesh" or not isinstance(node, ast.Call) or len(call.named["mesh"]) > 1:
            continue
        shape = node.args[1] if len(node.args) > 1 else _keyword(node, "mesh_shape")
        plane = isinstance(shape, ast.Tuple) and len(shape.elts) == 2
        named = len(node.args) > 2 or any(keyword.arg in ("mesh_dim_names", None) for keyword in node.keywords)
        if plane and not named:
            walker.report("FSD418", call.node, True)


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in node.keywords if keyword.arg == name), None)


def loop(walker: Walker, node: ast.For | ast.AsyncFor) -> None:
    """Modules in the order of modules(): a parent comes before its children."""
    call = node.iter
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Attribute)
        or call.func.attr not in ("modules", "named_modules")
    ):
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.If) and isinstance(inner.test, ast.Call) and len(inner.test.args) == 2:
            classes = inner.test.args[1]
            several = isinstance(classes, ast.Tuple) and not _siblings(classes)
            shards = any(
                isinstance(found, ast.Call) and last(walker, found.func) == "fully_shard"
                for statement in inner.body
                for found in ast.walk(statement)
            )
            if several and shards and not any(isinstance(item, ast.Break) for item in ast.walk(inner)):
                walker.report("FSD407", node.iter, False, *replace(call, f"reversed(list({walker.source(call)}))"))


def _siblings(classes: ast.Tuple) -> bool:
    """Whether classes are of one kind by their names, EncoderLayer and DecoderLayer, so that none is a part of another."""
    names = [dotted_text(one).rpartition(".")[2] for one in classes.elts]
    return len(names) < 2 or any(all(name.endswith(kind) for name in names) for kind in ("Layer", "Block"))


def forward(walker: Walker, call: Call) -> None:
    """model.forward(x): the hooks that gather hang on the call of the module."""
    if kind_of(call.owner, "fsdp2", walker) == "yes" and isinstance(call.node.func, ast.Attribute):
        edits = replace(call.node.func, walker.source(call.node.func.value))
        walker.report("FSD405", call.node, True, *edits)


def no_sync(walker: Walker, call: Call) -> None:
    """no_sync is FSDP1's and DDP's."""
    kinds = {thing.kind for thing in call.owner}
    plain = isinstance(call.node.func, ast.Attribute) and call.node.func.attr == "no_sync"  # not getattr: FSD442
    if plain and kind_of(call.owner, "fsdp2", walker) == "yes" and not kinds & {"ddp", "fsdp1"}:
        walker.report("FSD408", call.node, True)


def clip(walker: Walker, call: Call) -> None:
    """clip_grad_norm_ as a method is FSDP1's."""
    models_ = all(thing.kind in ("unknown", "module") for thing in call.owner)
    if models_ and kind_of(call.owner, "fsdp2", walker) == "yes":
        walker.report("FSD409", call.node, True)


def sync(walker: Walker, call: Call) -> None:
    """set_requires_gradient_sync: off and never on again."""
    given = call.argument("requires_gradient_sync", 0)
    walker.fact("sync off" if is_false(given) else "sync on", call.node)


def root_only(walker: Walker) -> None:
    """One call of fully_shard in a whole program, on the whole model."""
    shards = [mark for mark in walker.marks if mark.what == "shard"]
    if len(shards) != 1 or shards[0].looped or len(shards[0].things) != 1:
        return
    mark, thing = shards[0], shards[0].things[0]
    if leaf(thing) or in_tests(mark.file):
        return
    if thing.of or thing.kind not in ("unknown", "module") or not isinstance(mark.node, ast.Call):
        return
    handed = any(one.what == "escaped" and one.at < mark.at for one in thing.marks)
    if not handed and mark.node.args and not isinstance(mark.node.args[0], (ast.List, ast.Tuple)):
        walker.facts.setdefault("root only", []).append((mark.file, mark.node))


def offloaded(walker: Walker) -> None:
    """A group is made and a model offloaded on one way through the program."""
    if any(mark.what == "cpu offload" for mark in walker.marks):
        for mark in walker.marks:
            if mark.what == "init":
                walker.facts.setdefault("init of offload", []).append((mark.file, mark.node))


def project(walker: Walker) -> None:
    """What the whole program does, or never does."""
    facts = walker.facts
    if facts.get("sync off") and not facts.get("sync on"):
        for file, node in facts["sync off"]:
            walker.report_at("FSD420", file, node, False)
    for file, node in facts.get("root only", ()):
        if len({id(other) for home, other in facts.get("fsdp2", ()) if home is file}) == 1:
            walker.report_at("FSD403", file, node, False)
    if facts.get("cpu offload") and facts.get("backend nccl") and not facts.get("other backend"):
        together = {id(node) for _, node in facts.get("init of offload", ())}
        homes = {file for file, _ in facts["cpu offload"]}
        for file, node in facts["backend nccl"]:
            if id(node) not in together and file not in homes and len(facts["backend nccl"]) > 1:
                continue  # another program of the project
            walker.report_at("FSD414", file, node, False, *_backend(node))


def _backend(node: ast.AST) -> tuple[Edit, ...]:
    if isinstance(node, ast.Call):
        for given in (*node.args[:1], *(k.value for k in node.keywords if k.arg == "backend")):
            if constant(given) == "nccl":
                return replace(given, '"cpu:gloo,cuda:nccl"')
    return ()


def loaded(walker: Walker, call: Call) -> None:
    """load_state_dict of plain tensors into sharded parameters."""
    if kind_of(call.owner, "fsdp2", walker) != "yes" or not call.node.args:
        return
    given = whole_of(walker, call.node.args[0])  # torch.load(path)["model"]
    if isinstance(given, ast.Call) and walker.full(given.func) == "torch.load":
        walker.report("FSD417", call.node, False)


CALLS = {"fully_shard": [sharded]}
METHODS = {
    "forward": [forward],
    "no_sync": [no_sync],
    "clip_grad_norm_": [clip],
    "set_requires_gradient_sync": [sync],
    "load_state_dict": [loaded],
}
LOOPS = [loop]
ENDS = [root_only, offloaded]
PROJECT = [project]
