"""Collectives and other calls of PyTorch, as data: what they take, and which native ones stand for collectives.

Signatures are those of torch/distributed/distributed_c10d.py, releases 2.0 to 2.15. Native ones were read in
torch/csrc/distributed/c10d/reducer.cpp and are named with the function there.
"""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple


class Signature(NamedTuple):
    """The parameters of a collective, in order, and which of them is the tensor that every rank must bring alike."""

    order: tuple[str, ...]
    tensor: str


def _of(tensor: str, *order: str) -> Signature:
    return Signature(order, tensor)


COLLECTIVES = {
    "all_reduce": _of("tensor", "tensor", "op", "group", "async_op"),
    "reduce": _of("tensor", "tensor", "dst", "op", "group", "async_op", "group_dst"),
    "broadcast": _of("tensor", "tensor", "src", "group", "async_op", "group_src"),
    "all_gather": _of("tensor", "tensor_list", "tensor", "group", "async_op"),
    "all_gather_into_tensor": _of("input_tensor", "output_tensor", "input_tensor", "group", "async_op"),
    "all_gather_single": _of("input", "output", "input", "group", "async_op"),
    "_all_gather_base": _of("input_tensor", "output_tensor", "input_tensor", "group", "async_op"),
    "gather": _of("tensor", "tensor", "gather_list", "dst", "group", "async_op", "group_dst"),
    "scatter": _of("tensor", "tensor", "scatter_list", "src", "group", "async_op", "group_src"),
    "reduce_scatter": _of("output", "output", "input_list", "op", "group", "async_op"),
    "reduce_scatter_tensor": _of("output", "output", "input", "op", "group", "async_op"),
    "reduce_scatter_single": _of("output", "output", "input", "op", "group", "async_op"),
    "all_to_all": _of("", "output_tensor_list", "input_tensor_list", "group", "async_op"),
    "all_to_all_single": _of(
        "input", "output", "input", "output_split_sizes", "input_split_sizes", "group", "async_op"
    ),
    "barrier": _of("", "group", "async_op", "device_ids"),
    "monitored_barrier": _of("", "group", "timeout", "wait_all_ranks"),
    "broadcast_object_list": _of("", "object_list", "src", "group", "device"),
    "all_gather_object": _of("", "object_list", "obj", "group"),
    "gather_object": _of("", "obj", "object_gather_list", "dst", "group"),
    "scatter_object_list": _of("", "scatter_object_output_list", "scatter_object_input_list", "src", "group"),
    "send": _of("tensor", "tensor", "dst", "group", "tag"),
    "recv": _of("tensor", "tensor", "src", "group", "tag"),
    "isend": _of("tensor", "tensor", "dst", "group", "tag"),
    "irecv": _of("tensor", "tensor", "src", "group", "tag"),
    "new_group": _of("", "ranks"),
    "_broadcast_coalesced": _of("tensors", "group", "tensors", "buffer_size", "src"),
}
FUNCTIONAL = {
    "all_reduce": _of("self", "self", "op", "group"),
    "broadcast": _of("self", "self", "src", "group"),
    "all_gather_tensor": _of("self", "self", "gather_dim", "group"),
    "reduce_scatter_tensor": _of("self", "self", "op", "scatter_dim", "group"),
    "all_to_all_single": _of("self", "self", "output_split_sizes", "input_split_sizes", "group"),
}
_HOMES = ("torch.distributed.", "torch.distributed.distributed_c10d.")
_FUNCTIONAL = (
    "torch.distributed._functional_collectives.",
    "torch.distributed.nn.functional.",
    "torch.distributed.nn.",
)
OPERATION = {"reduceOp": "op", "redop": "op"}


def collective(full: str) -> tuple[str, Signature] | None:
    """The name and signature behind a full name; None for what is no collective."""
    for home in _HOMES:
        if full.startswith(home):
            name = full[len(home) :]
            if name in COLLECTIVES:
                return name, COLLECTIVES[name]
    for home in _FUNCTIONAL:
        if full.startswith(home) and full[len(home) :] in FUNCTIONAL:
            name = full[len(home) :]
            return name, FUNCTIONAL[name]
    return None


# Methods of a process group (torch/_C/_distributed_c10d.pyi, class ProcessGroup) by the collective that each starts.
GROUP_METHODS = {
    "allreduce": "all_reduce",
    "broadcast": "broadcast",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "barrier": "barrier",
}


class Native(NamedTuple):
    """A native call of a class of PyTorch that makes collectives."""

    op: str
    where: str  # in reducer.cpp
    rounds: str = ""  # the sequence that it makes one collective for, each


BUCKETS = "the reducer's buckets"
# Of DistributedDataParallel's reducer.
REDUCER = {
    "_rebuild_buckets": Native("broadcast of the order of the buckets, once", "Reducer::sync_bucket_indices"),
    "_run_comm_hook": Native("reduction of a bucket", "Reducer::run_comm_hook"),
}
BACKWARD = "prepare_for_backward"  # after it autograd reduces every bucket, then the map of used parameters
USED_MAP = "_get_local_used_map"
USED_SOURCE = "Reducer::all_reduce_local_used_map"
# What is taken as given of PyTorch's own classes, with why.
ASSUMED = {
    "DistributedDataParallel": {
        "_use_python_reducer": False,  # only while torch.compile traces with optimize_ddp="python_reducer"
        "_delay_all_reduce_all_params": False,  # a private argument of the constructor
        "static_graph": False,
        "_lazy_init_ran": True,  # set by the first forward
    },
    "ZeroRedundancyOptimizer": {"_overlap_with_ddp": False},  # its step() does nothing then
}
LACKS = {"DistributedDataParallel": frozenset({"buffer_hook"})}  # _register_buffer_comm_hook is private
WRAPPED = {"DistributedDataParallel": frozenset({"module"}), "ZeroRedundancyOptimizer": frozenset({"optim"})}
ASSUMPTIONS = {
    "DistributedDataParallel": (
        "its module makes no collective of its own (SyncBatchNorm does)",
        "no static_graph, no buffer hook, no python reducer",
    ),
    "ZeroRedundancyOptimizer": (
        "it stands behind another joinable in the list: its hook calls step(), which notifies",
        "no overlap_with_ddp",
    ),
}
BEHIND = frozenset({"ZeroRedundancyOptimizer"})  # documented to stand behind another one

SAFE_DIST = frozenset(
    [
        "get_rank",
        "get_world_size",
        "is_initialized",
        "is_available",
        "get_global_rank",
        "get_group_rank",
        "get_backend",
        "get_process_group_ranks",
        "is_nccl_available",
        "is_gloo_available",
        "is_torchelastic_launched",
        "get_node_local_rank",
        "ReduceOp",
        "Backend",
        "default_pg_timeout",
        "is_mpi_available",
        "Work",
        "GradBucket",
        "Logger",
        "_rank_not_in_group",
        "_get_default_group",
        "get_default_backend_for_device",
    ]
)
BUILTINS = frozenset(
    [
        "abs",
        "all",
        "any",
        "bool",
        "bytes",
        "callable",
        "dict",
        "divmod",
        "enumerate",
        "filter",
        "float",
        "format",
        "frozenset",
        "getattr",
        "hasattr",
        "hash",
        "id",
        "int",
        "isinstance",
        "issubclass",
        "iter",
        "len",
        "list",
        "map",
        "max",
        "min",
        "next",
        "object",
        "print",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "setattr",
        "sorted",
        "str",
        "sum",
        "tuple",
        "type",
        "vars",
        "zip",
        "super",
        "property",
        "ValueError",
        "RuntimeError",
        "TypeError",
        "AssertionError",
        "NotImplementedError",
        "Exception",
        "StopIteration",
    ]
)
# Methods of tensors, containers, strings, loggers, futures and modules: none of them communicates.
HARMLESS = frozenset(
    [
        "abs",
        "add",
        "add_",
        "all",
        "any",
        "append",
        "argmax",
        "argmin",
        "backward",
        "bfloat16",
        "bool",
        "buffers",
        "byte",
        "cat",
        "ceil",
        "children",
        "clamp",
        "clamp_",
        "clear",
        "clone",
        "contiguous",
        "copy",
        "copy_",
        "count",
        "cpu",
        "critical",
        "cuda",
        "cumsum",
        "data_ptr",
        "debug",
        "detach",
        "detach_",
        "dim",
        "discard",
        "div",
        "div_",
        "double",
        "dtype",
        "element_size",
        "endswith",
        "eq",
        "error",
        "eval",
        "exception",
        "exp",
        "expand",
        "extend",
        "fill_",
        "flatten",
        "float",
        "format",
        "gather_",
        "get",
        "get_rank",
        "ge",
        "gt",
        "half",
        "index",
        "info",
        "insert",
        "int",
        "isfinite",
        "isinf",
        "isnan",
        "item",
        "items",
        "join_",
        "keys",
        "le",
        "lerp_",
        "lists",
        "log",
        "long",
        "lower",
        "lt",
        "max",
        "mean",
        "min",
        "modules",
        "mul",
        "mul_",
        "named_buffers",
        "named_children",
        "named_modules",
        "named_parameters",
        "ndimension",
        "ne",
        "neg",
        "new_empty",
        "new_full",
        "new_ones",
        "new_tensor",
        "new_zeros",
        "norm",
        "numel",
        "numpy",
        "parameters",
        "permute",
        "pop",
        "popleft",
        "pow",
        "prod",
        "put",
        "rank",
        "register_buffer",
        "register_parameter",
        "release",
        "remove",
        "repeat",
        "replace",
        "requires_grad",
        "requires_grad_",
        "reshape",
        "result",
        "reverse",
        "round",
        "setdefault",
        "shape",
        "size",
        "softmax",
        "sort",
        "split",
        "sqrt",
        "square",
        "squeeze",
        "startswith",
        "std",
        "stack",
        "step_",
        "strip",
        "sub",
        "sub_",
        "sum",
        "t",
        "to",
        "tolist",
        "train",
        "transpose",
        "type",
        "type_as",
        "unbind",
        "unsqueeze",
        "update",
        "value",
        "values",
        "view",
        "view_as",
        "warn",
        "warning",
        "write",
        "zero_",
        "zero_grad",
        "named_tensors",
        "is_owner",
        "local_value",
        "wait",
        "synchronize",
        "is_completed",
    ]
)
