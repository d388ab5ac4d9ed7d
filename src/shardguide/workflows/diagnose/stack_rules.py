"""What the frames of a stack mean: functions of PyTorch and of common packages in which a rank waits, loads, saves or compiles."""

from __future__ import annotations

import re
import sys

from shardguide.readers.pyspy import StackFrame, Thread

# Where a thread stands, by the innermost frame that says so: (file, function, what). Functions are matched by their last part.
_C10D = r"torch/distributed/distributed_c10d\.py$"
RULES: tuple[tuple[re.Pattern[str], re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?:^|/){file}"), re.compile(rf"(?:{function})$"), what)
    for file, function, what in (
        (
            _C10D,
            "init_process_group|_new_process_group_helper|new_group|_new_group_with_tag|split_group|new_subgroups\\w*",
            "setup",
        ),
        (r"torch/distributed/rendezvous\.py$", ".*", "setup"),
        (_C10D, "destroy_process_group|_shutdown_backend|_abort_process_group", "ended"),
        (
            _C10D,
            r"_?(?:all_|reduce|broadcast|gather|scatter|barrier|monitored_barrier|send|recv|isend|irecv|batch_isend)\w*",
            "collective",
        ),
        (
            r"torch/distributed/_functional_collectives\w*\.py$",
            r"wait_tensor|(?:all_|reduce_|broadcast|permute)\w*",
            "collective",
        ),
        (r"torch/distributed/fsdp/_fully_shard/_fsdp_collectives\.py$", "foreach_\\w+|__call__", "collective"),
        (
            r"torch/distributed/fsdp/_fully_shard/_fsdp_param_group\.py$",
            "wait_for_unshard|_wait_for_post_backward|_wait_all_gather\\w*",
            "collective",
        ),
        (r"torch/distributed/fsdp/_(?:flat_param|runtime_utils)\.py$", r"_all_gather\w*|_reduce_grad\w*", "collective"),
        (r"torch/utils/data/_utils/worker\.py$", "_worker_loop", "worker"),
        (r"torch/utils/data/(?:dataloader|_utils/fetch|_utils/pin_memory)\.py$", ".*", "loader"),
        (r"torch/distributed/(?:elastic|launcher|run)\b.*\.py$", ".*", "launcher"),
        (r"torch/multiprocessing/spawn\.py$", "join|start_processes|spawn", "launcher"),
        (r"torch/_inductor/compile_worker/.*", ".*", "worker"),
        (r"multiprocessing/(?:resource_tracker|forkserver)\.py$", "main", "worker"),
        (r"torch/serialization\.py$", r"_?save|_legacy_save|_open_zipfile_writer\w*", "saving"),
        (r"torch/distributed/checkpoint/.*\.py$", r"\w*(?:save|write)\w*", "saving"),
        (r"safetensors/(?:torch|numpy)\.py$", "save\\w*", "saving"),
        (r".*", r"save_pretrained|save_checkpoint|_save_checkpoint|save_model|save_state", "saving"),
        (
            r"torch/serialization\.py$",
            r"_?load|_legacy_load|_open_zipfile_reader\w*|persistent_load|load_tensor",
            "loading",
        ),
        (r"torch/distributed/checkpoint/.*\.py$", r"\w*(?:load|read)\w*", "loading"),
        (r"safetensors/(?:torch|numpy)\.py$", "load\\w*", "loading"),
        (r".*", r"from_pretrained|load_checkpoint|_load_pretrained_model", "loading"),
        (
            r"(?:urllib3|requests|httpx|httpcore|botocore|aiohttp|huggingface_hub|s3fs|gcsfs|http|ssl)(?:/.*)?\.py$",
            ".*",
            "downloading",
        ),
        (r"(?:datasets|tokenizers|sentencepiece|tiktoken)/.*\.py$", ".*", "preparing"),
        (r"transformers/(?:.*/)?tokenization\w*\.py$", ".*", "preparing"),
        (r"torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph)\.py$", ".*", "compiling"),
        (
            r"torch/_inductor/(?:compile_fx|graph|scheduler|async_compile)\.py$",
            r"(?!run$|call$|__call__$)\w+",
            "compiling",
        ),
        (
            r"triton/(?:compiler/.*|runtime/(?:jit|autotuner|build))\.py$",
            r"compile\w*|_do_compile|_bench|_build|build",
            "compiling",
        ),
        (
            r"(?:pdb|bdb|code|IPython/.*|ipdb/.*|debugpy/.*)\.py$",
            r"interaction|cmdloop|_cmdloop|interact|raw_input|wait_for_client",
            "debugger",
        ),
        (r"(?:logging/__init__|logging/handlers)\.py$", r"emit|flush|handle|callHandlers|acquire", "logging"),
        (r"(?:wandb|tensorboard|torch/utils/tensorboard|mlflow|comet_ml|neptune|clearml)/.*\.py$", ".*", "logging"),
        (r"threading\.py$", "_shutdown", "ended"),
        (r"multiprocessing/util\.py$", "_exit_function", "ended"),
        (r"torch/cuda/.*\.py$", "synchronize", "device"),
        (r"torch/autograd/graph\.py$", "_engine_run_backward", "backward"),
        (r"torch/autograd/__init__\.py$", "backward|grad", "backward"),
    )
)
# Packages whose folder py-spy's short names do not show; the standard library's modules are known to Python itself.
_INSTALLED = frozenset(
    ["torch", "torchvision", "torchaudio", "torchtitan", "transformers", "accelerate", "lightning", "pytorch_lightning",
     "lightning_fabric", "deepspeed", "peft", "trl", "datasets", "tokenizers", "numpy", "pandas", "triton", "safetensors", "megatron",
     "huggingface_hub", "wandb", "tqdm", "ray", "fsspec", "flash_attn", "xformers", "bitsandbytes", "diffusers", "timm", "composer",
     "ignite", "torchrun", "site-packages", "dist-packages"]
)  # fmt: skip
MOST = 50_000  # frames that are remembered
_known: dict[tuple[str, str], str] = {}  # all ranks stand in the same few functions


def named(file: str, function: str) -> str:
    """What it means to stand in a function of a file; "" where no rule says it."""
    found = _known.get((file, function))
    if found is None:
        found = next((what for of_file, of, what in RULES if of_file.search(file) and of.match(function)), "")
        if len(_known) < MOST:
            _known[file, function] = found
    return found


def is_own(frame: StackFrame) -> bool:
    """Whether a frame is the user's code. py-spy shortens names, so that installed packages are known by their first folder."""
    file = frame.file.replace("\\", "/")
    if not file.endswith((".py", ".ipynb")) or "<" in file:
        return False
    if re.search(r"/(?:site|dist)-packages/|/lib/python\d|/bin/|/torch/", file):
        return False
    first = file.partition("/")[0].removesuffix(".py")
    return first not in _INSTALLED and (file.startswith("/") or first not in sys.stdlib_module_names)


def own_frame(thread: Thread) -> StackFrame | None:
    """The innermost frame of the user's code."""
    return next((frame for frame in thread.frames if is_own(frame)), None)
