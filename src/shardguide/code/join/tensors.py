"""Functions and methods that make tensors: what shape, dtype and number they give."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from .values import CASTS, Value, constant, dtype_name, dtype_of, filled, like, made_from_data, shape_of, size, text

if TYPE_CHECKING:
    from .evaluate import Evaluator

_FILLS = {"zeros": "0.0", "ones": "1.0", "empty": "", "rand": "", "randn": "", "full": "", "randint": ""}
_LIKES = {"zeros_like": "0.0", "ones_like": "1.0", "empty_like": "", "rand_like": "", "full_like": "", "randn_like": ""}
_NEWS = {"new_zeros": "0.0", "new_ones": "1.0", "new_empty": "", "new_full": ""}
_SAME = frozenset(
    [
        "detach",
        "clone",
        "contiguous",
        "cpu",
        "cuda",
        "to",
        "requires_grad_",
        "zero_",
        "fill_",
        "mul_",
        "add_",
        "div_",
        "copy_",
        "abs",
        "neg",
        "exp",
        "log",
        "sqrt",
        "square",
        "clamp",
        "clamp_",
        "round",
        "floor",
        "ceil",
        "sub_",
        "data_ptr",
        "type_as",
        "float",
        "double",
        "half",
        "bfloat16",
        "int",
        "long",
        "bool",
        "short",
    ]
)
_SCALAR = frozenset(["sum", "mean", "max", "min", "norm", "prod", "std", "var", "all", "any", "argmax", "median"])


def torch_function(
    world: Evaluator, node: ast.Call, full: str, args: list[Value], named: dict[str, Value]
) -> Value | None:
    """What a function of ``torch`` gives; None where it makes no tensor that is known."""
    name = full.removeprefix("torch.")
    if name == "distributed.distributed_c10d._get_default_group":
        return Value("name", "WORLD")
    if name in ("nn.parallel.DistributedDataParallel", "nn.parallel.distributed.DistributedDataParallel"):
        return _made(world, node, "ddp", args, named)
    if name in (
        "distributed.optim.ZeroRedundancyOptimizer",
        "distributed.optim.zero_redundancy_optimizer.ZeroRedundancyOptimizer",
    ):
        return _made(world, node, "zero", args, named)
    if name.endswith("FullyShardedDataParallel"):
        return _made(world, node, "fsdp", args, named)
    if name == "distributed.new_group":
        return _made(world, node, "group", args, named)
    if name.startswith("optim.") and name[6:7].isupper():
        return _made(world, node, "optimizer", args, named)
    if name.endswith("convert_sync_batchnorm") and args:
        return Value("object", f"SyncBatchNorm@{node.lineno}", ref=_plain(world, node, "sync"))
    if name == "nn.Parameter" and args:
        return like(args[0]) if args[0].kind == "tensor" else args[0]
    if name.startswith("nn.") and name.rpartition(".")[2][:1].isupper() and "functional" not in name:
        return _made(world, node, "module", args, named)
    dtype = dtype_name(named.get("dtype"))
    if name in _LIKES and args:
        fill = filled(args[1]) if name == "full_like" and len(args) > 1 else _LIKES[name]
        return like(args[0], fill, dtype)
    if name in _FILLS:
        parts = args[:1] if name == "full" else args[-1:] if name == "randint" else args
        if "size" in named:
            parts = [named["size"]]
        shape = size(parts)
        words = list(parts)
        fill = filled(args[1]) if name == "full" and len(args) > 1 else _FILLS[name]
        dtype = dtype or ("int64" if name == "randint" else "float32")
        if name == "full" and len(args) > 1 and "dtype" not in named:
            dtype = made_from_data(args[1])[1]
        return Value("tensor", f"torch.{name}({', '.join(one.text for one in words)})", shape, dtype, fill)
    if name in ("tensor", "as_tensor", "FloatTensor", "LongTensor") and args:
        shape, found, fill = made_from_data(args[0])
        dtype = dtype or {"FloatTensor": "float32", "LongTensor": "int64"}.get(name, found)
        return Value("tensor", f"torch.{name}({args[0].text})", shape, dtype, fill, flags=args[0].flags)
    if name in ("device",):
        return text(f"torch.device({', '.join(one.text for one in args)})", *args)
    if name in ("stack", "cat") and args and args[0].kind == "sequence" and isinstance(args[0].ref, tuple):
        inner = args[0].ref
        shapes = {one.shape for one in inner}
        if name == "stack" and len(shapes) == 1 and inner[0].shape == "()":
            return Value("tensor", f"stack({args[0].text})", f"({len(inner)},)", inner[0].dtype)
    return None


def _plain(world: Evaluator, node: ast.Call, kind: str) -> object:
    from .values import Instance

    made = Instance(f"{kind}@{node.lineno}", kind, None, node)
    made.file = world.file
    return made


def _made(world: Evaluator, node: ast.Call, kind: str, args: list[Value], named: dict[str, Value]) -> Value:
    from .values import Instance

    made = Instance(f"{kind}@{node.lineno}.{node.col_offset}", kind, None, node)
    made.file = world.file
    made.given = {**{str(i): one for i, one in enumerate(args)}, **named}
    return Value("object", made.name, ref=made)


def method(base: Value, name: str, args: list[Value], named: dict[str, Value]) -> Value | None:
    """What a method of a tensor gives; None where that is not known."""
    if name in _NEWS:
        fill = filled(args[1]) if name == "new_full" and len(args) > 1 else _NEWS[name]
        return Value(
            "tensor",
            f"{base.text}.{name}()",
            size(args[:1] if name == "new_full" else args),
            dtype_name(named.get("dtype")) or dtype_of(base),
            fill,
        )
    if name == "item":
        if base.kind == "tensor" and base.flags & {"told"}:
            return Value("text", f"{base.text}.item()", flags=base.flags)
        return Value("text", f"{base.text}.item()", flags=base.flags | {"data"})
    if base.kind not in ("tensor", "text") or (
        base.kind == "text" and name not in CASTS and name not in ("detach", "clone", "contiguous", "sum", "mean")
    ):
        return None
    if name in CASTS and not args:
        if base.text.startswith(("J.", "the argument")) and base.kind == "text" and name in ("int", "bool"):
            return None
        return like(base, base.fill, CASTS[name])._replace(
            text=base.text if "told" in base.flags else f"like({base.text})"
        )
    if name == "fill_" and args:
        return like(base, filled(args[0]))
    if name == "zero_":
        return like(base, "0.0")
    if name == "to":
        dtype = next(
            (found for one in (*args, *named.values()) if (found := dtype_name(one)) and not found.startswith("like ")),
            "",
        )
        if any(one.text.startswith("dtype(") for one in args):
            dtype = dtype_name(next(one for one in args if one.text.startswith("dtype(")))
        return like(base, base.fill, dtype)._replace(text=base.text if "told" in base.flags else f"like({base.text})")
    if name in _SCALAR and not args and not named:
        return Value(
            "tensor",
            f"{base.text}.{name}()",
            "()",
            dtype_of(base),
            base.fill if name in ("mean", "max", "min") else "",
            flags=base.flags if "told" in base.flags else base.flags | {"data"},
        )
    if (name in _SAME and base.kind == "tensor") or name in ("detach", "clone", "contiguous"):
        kept = like(
            base, base.fill if name in ("detach", "clone", "contiguous", "cpu", "cuda", "requires_grad_") else ""
        )
        return kept._replace(text=base.text if "told" in base.flags else kept.text)
    if (name == "view" and len(args) == 1 and args[0].text == "1") or (
        name == "reshape" and len(args) == 1 and args[0].text == "1"
    ):
        return Value("tensor", f"{base.text}.view(1)", "(1,)", dtype_of(base), base.fill, flags=base.flags)
    if name == "unsqueeze" and shape_of(base) == "()":
        return Value("tensor", f"{base.text}.unsqueeze()", "(1,)", dtype_of(base), base.fill, flags=base.flags)
    if name == "numel" and base.kind == "tensor" and base.shape == "(1,)":
        return constant(1)
    return None
