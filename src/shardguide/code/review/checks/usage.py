"""What sharded models are used for: order of forward and optimizer, ways past the hooks (FSD421-423, 431, 433, 437, 444)."""

from __future__ import annotations

import ast

from ..records import Call, Mark, Path, Thing, Things, implied, marked
from ..walk import Walker
from .common import constant, is_true, kind_of, models

# Methods of nn.Module, of FSDP's classes and of common bases that compute nothing with the parameters.
_HARMLESS = frozenset(
    [
        "forward", "train", "eval", "to", "cuda", "cpu", "half", "float", "bfloat16", "double", "type", "apply", "to_empty",
        "parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers", "named_buffers",
        "state_dict", "load_state_dict", "zero_grad", "requires_grad_", "register_buffer", "register_parameter", "share_memory",
        "get_submodule", "get_parameter", "get_buffer", "extra_repr", "compile", "no_sync", "clip_grad_norm_", "items", "keys",
        "values", "reshard", "unshard", "init_weights", "reset_parameters", "post_init", "tie_weights", "save_pretrained",
        "print_trainable_parameters", "gradient_checkpointing_enable", "set_requires_gradient_sync", "initialize_weights",
    ]
)  # fmt: skip
# What other classes call the methods that run a part of the model.
_COMPUTES = frozenset(
    [
        "encode", "decode", "encode_image", "encode_text", "get_image_features", "get_text_features", "sample", "embed",
        "inference", "generate",
    ]
)  # fmt: skip


def optimizer(walker: Walker, call: Call) -> None:
    """An optimizer made after a forward without backward: the root's parameters are still whole."""
    for model in dict.fromkeys(models(call.things("params", 0))):
        if marked(model, "fully_shard", walker.path) != "yes" or _is_part(model):
            continue
        shard = _last(model, "fully_shard", walker.path)
        run = _last(model, "called", walker.path)
        if shard is None or run is None or run.at < shard.at or _kept_sharded(shard):
            continue
        resharded = any(mark.what == "method reshard" and mark.at > run.at for mark in model.marks)
        backward = any(note.what == "backward" and note.at > run.at for note in walker.marks)
        if not resharded and not backward:
            walker.report("FSD421", call.node, False)
            return


def _kept_sharded(mark: Mark) -> bool:
    node = mark.node
    return isinstance(node, ast.Call) and any(
        keyword.arg == "reshard_after_forward" and is_true(keyword.value) for keyword in node.keywords
    )


def _last(thing: Thing, what: str, path: Path) -> Mark | None:
    return next((mark for mark in reversed(thing.marks) if mark.what == what and implied(mark.path, path)), None)


def _is_part(thing: Thing) -> bool:
    return bool(thing.of) and thing.kind in ("unknown", "submodule")


def backward(walker: Walker, call: Call) -> None:
    """loss.backward(), of whatever loss."""
    walker.note("backward", call.node)


def called(walker: Walker, call: Call) -> None:
    """The root runs; a part that is a group of its own ran before it."""
    for whole in call.owner:
        if whole.kind not in ("unknown", "module") or _is_part(whole):
            continue
        shard = _last(whole, "fully_shard", walker.path)
        if shard is None or any(
            mark.what in ("called", "method unshard", "escaped", "root told") and mark.at > shard.at
            for mark in whole.marks
        ):
            continue
        for part, mark in _runs(whole, 3):
            if mark.at > shard.at and implied(mark.path, walker.path):
                walker.mark((whole,), "root told", call.node)
                walker.report_at("FSD423", walker.file_of(mark.node), mark.node, True, part=part)
                break


def _runs(whole: Thing, depth: int) -> list[tuple[str, Mark]]:
    """The parts that are groups of their own and were run, with when: ``model.layers[0](x)``, ``model.embed(x)``."""
    out: list[tuple[str, Mark]] = []
    methods = {mark.what[7:]: mark for mark in whole.marks if mark.what.startswith("method ")}
    for name, things in whole.attrs.items():
        for part in things:
            if part is whole:
                continue
            if any(mark.what == "fully_shard" for mark in part.marks):
                out += [(part.name, mark) for mark in part.marks if mark.what == "called"]
                if name in methods:
                    out.append((part.name, methods[name]))
            if depth:
                out += _runs(part, depth - 1)
    return out


def registered(walker: Walker, call: Call) -> None:
    """register_fsdp_forward_method(model, "encode")."""
    name = constant(call.argument("method_name", 1))
    walker.mark(call.things("module", 0), f"registered {name or '*'}", call.node)


def other(walker: Walker, call: Call) -> None:
    """A method other than forward that uses the parameters."""
    name = call.method
    if name in _HARMLESS or name[:1] == "_" or name.startswith(("set_", "get_num", "register_", "init")):
        return
    for owner in call.owner:
        if owner.kind == "fsdp1":
            form, inner = "FSDP1", owner.of[0] if owner.of else owner
        elif owner.kind in ("module", "unknown") and any(mark.what == "fully_shard" for mark in owner.marks):
            form, inner = "FSDP2", owner
            if _is_part(owner) or kind_of((owner,), "fsdp2", walker) != "yes":
                continue
        else:
            continue
        if any(mark.what in (f"registered {name}", "registered *", "method unshard") for mark in owner.marks):
            continue
        if "summon_full_params" in walker.frame.file.text and form == "FSDP1":
            continue
        if name in owner.attrs or any(not isinstance(node, ast.Call) for _, node, _ in walker.contexts):
            continue
        own = _method(inner, name)
        if own is None:
            uses = name in _COMPUTES and "class" not in inner.attrs and (form == "FSDP1" or name != "generate")
        else:
            uses = _uses_parts(own, inner)
        if uses:
            walker.report("FSD422", call.node, False, name=name, form=form)
            return


def _method(thing: Thing, name: str) -> ast.FunctionDef | None:
    for held in thing.attrs.get("class", ()):
        for item in getattr(held.node, "body", ()):
            if isinstance(item, ast.FunctionDef) and item.name == name:
                return item
    return None


def _uses_parts(node: ast.FunctionDef, thing: Thing) -> bool:
    """Whether a method calls a part of its object that is no method of its class, and not the object itself."""
    names = {
        getattr(item, "name", "") for held in thing.attrs.get("class", ()) for item in getattr(held.node, "body", ())
    }
    if not node.args.args:
        return False
    me, uses = node.args.args[0].arg, False
    for inner in ast.walk(node):
        if not isinstance(inner, ast.Call):
            continue
        if isinstance(inner.func, ast.Name) and inner.func.id == me:
            return False  # self(x): the hooks run
        of = inner.func.value if isinstance(inner.func, ast.Attribute) else None
        if isinstance(of, ast.Name) and of.id == me and isinstance(inner.func, ast.Attribute):
            uses = uses or (inner.func.attr not in names and inner.func.attr not in _HARMLESS)
    return uses


def checkpointed(walker: Walker, call: Call) -> None:
    """Activation checkpointing around what is sharded already."""
    things = call.things("model", 0) or call.things("module", 0)
    if things and kind_of(things, "fsdp2", walker) == "yes":
        walker.report("FSD431", call.node, False)


def compiled(walker: Walker, call: Call) -> None:
    """torch.compile(block) or block.compile() after fully_shard(block)."""
    things = call.owner if call.method else call.args[0] if call.args else ()
    parts = things and all(_is_part(thing) for thing in things)
    if parts and kind_of(things, "fsdp2", walker) == "yes":
        walker.report("FSD437", call.node, False)


def private(walker: Walker, owner: Thing, node: ast.Attribute, things: Things) -> None:
    """Attributes of FSDP1's wrapper on a model of FSDP2."""
    if node.attr.startswith("_") and kind_of((owner,), "fsdp2", walker) == "yes" and owner.kind != "fsdp1":
        walker.report("FSD433", node, True, name=node.attr)


def counted(walker: Walker, call: Call) -> None:
    """p.numel() of an FSDP1 parameter."""
    for owner in call.owner:
        if owner.kind == "param" and kind_of(owner.of, "fsdp1", walker) == "yes":
            if not walker.inside("FSDP1.summon_full_params") and not _whole(owner.of[0], walker):
                walker.report("FSD444", call.node, False)
            return


def _whole(thing: Thing, walker: Walker) -> bool:
    node = thing.node
    return not isinstance(node, ast.Call) or any(
        keyword.arg is None or (keyword.arg == "sharding_strategy" and "NO_SHARD" in ast.dump(keyword.value))
        for keyword in node.keywords
    )


CALLS = {
    "optimizer": [optimizer],
    "ZeroRedundancyOptimizer": [optimizer],
    "register_fsdp_forward_method": [registered],
    "apply_activation_checkpointing": [checkpointed],
    "checkpoint_wrapper": [checkpointed],
    "torch.compile": [compiled],
}
METHODS = {"backward": [backward], "()": [called], "*": [other], "compile": [compiled], "numel": [counted]}
ATTRIBUTES = [private]
