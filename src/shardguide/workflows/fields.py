"""What a workflow can be told: each field with how it is read, what to ask for it and why it matters.

The command line makes its flags, the library its keywords and the questions their texts from this one table.
"""

from __future__ import annotations

from collections.abc import Callable

from shardguide.guidance.dtypes import dtype_name
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple

MAX_GPUS = 1 << 20  # far above any cluster; a larger number is a slip of the keyboard


class Field(NamedTuple):
    """One thing that the user can state."""

    name: str  # id of the answer and of the question; the flag is "--" + name with dashes
    parse: Callable[[str], Any]  # text to value; raises UnusableInput
    help: str  # one line, for --help
    ask: str = ""  # the question; "" for what is never asked
    why: str = ""  # why the answer matters
    choices: tuple[str, ...] = ()  # shown with the question; not a closed list unless ``parse`` closes it
    metavar: str = ""


def _count(name: str, most: int = MAX_GPUS) -> Callable[[str], int]:
    def parse(text: str) -> int:
        digits = text.strip().replace(",", "").replace("_", "")
        if not digits.isascii() or not digits.isdigit() or len(digits) > 9 or not 1 <= int(digits) <= most:
            raise UnusableInput(f"--{name} must be a whole number from 1 to {most:,}, not {text[:40]!r}.")
        return int(digits)

    return parse


def _choice(name: str, *allowed: str, **aliases: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        word = text.strip().lower().replace(" ", "_")
        word = aliases.get(word.replace("-", "_"), word)
        if word not in allowed:
            raise UnusableInput(f"--{name} must be one of {', '.join(allowed)}, not {text[:40]!r}.")
        return word

    return parse


def _text(text: str) -> str:
    if not text.strip() or len(text) > 4096 or "\x00" in text:
        raise UnusableInput("an empty or overlong text was given where a name or path belongs.")
    return text.strip()


def _memory(text: str) -> str:
    from shardguide.knowledge.hardware.memory import parse_memory

    parse_memory(text)  # refuses nonsense; the text itself is kept, since it is shown back as it was said
    return text.strip()


def _intra(text: str) -> str:
    from shardguide.knowledge.hardware.links import intra_link

    return intra_link(text).name


def _inter(text: str) -> str:
    from shardguide.knowledge.hardware.links import inter_link

    return inter_link(text).name


AS_STORED = "stored"  # --param-dtype: every parameter in the dtype that its file states


def _param_dtype(text: str) -> str:
    return AS_STORED if text.strip().lower() == AS_STORED else dtype_name(text)


def _optimizer(text: str) -> str:
    """``AdamW`` to ``adamw``, ``sgd_momentum`` to ``sgd+momentum``."""
    name = _text(text).lower().removeprefix("torch.optim.").replace("-", "").replace("_", "").replace(" ", "")
    return {"sgdmomentum": "sgd+momentum", "sgdm": "sgd+momentum"}.get(name, name)


STRATEGIES = ("auto", "full", "grad_op", "hybrid", "none")

GPUS = Field(
    "gpus", _count("gpus"), "GPUs in all, over all nodes", "How many GPUs are there in all, over all nodes?",
    "Every shard size follows from the number of ranks.", ("8", "16", "32", "64"), "N",
)  # fmt: skip
NODES = Field(
    "nodes", _count("nodes"), "nodes that the GPUs are divided over", "On how many nodes are these GPUs?",
    "GPUs of one node share the fast link; whether to shard within a node or over all of them depends on it.",
    ("1", "2", "4", "8"), "M",
)  # fmt: skip
GPU = Field(
    "gpu", _text, 'name of the GPU, e.g. "H100 80GB" or as nvidia-smi prints it',
    "Which GPU is it (or how much memory does each have)?",
    "Its memory bounds the shards, and whether it computes in bfloat16 decides the mixed precision.",
    ("H100-SXM-80GB", "A100-80GB", "MI300X", "L40S"), "NAME",
)  # fmt: skip
GPU_MEMORY = Field(
    "gpu_memory", _memory, "memory of one GPU, e.g. 80GB", "How much memory does one GPU have?",
    "The shards that arithmetic gives are held against it.", ("80GB", "40GB", "24GB"), "SIZE",
)  # fmt: skip
DEVICE = Field(
    "device", _choice("device", "cuda", "rocm", "xpu", "cpu", nvidia="cuda", amd="rocm", intel="xpu"),
    "kind of device when --gpu does not say it: cuda, rocm, xpu, cpu", metavar="KIND",
)  # fmt: skip
HOST_MEMORY = Field(
    "host_memory", _memory, "memory of one node's host, e.g. 2TB, for CPU offload", "How much memory does one node's host have?",
    "The shards of its ranks are held against it.", ("512GB", "1TB", "2TB"), "SIZE",
)  # fmt: skip
INTRA = Field(
    "intra", _intra, "link between the GPUs of a node: nvlink, pcie, nvswitch, xgmi, xelink",
    "What links the GPUs within a node?",
    "Sharding gathers every layer's parameters over this link, twice a step.", ("nvlink", "pcie", "xgmi", "xelink"),
    "LINK",
)  # fmt: skip
INTER = Field(
    "inter", _inter, "network between nodes: infiniband, roce, efa, ethernet", "What links the nodes?",
    "Hybrid sharding is for a network slower than the link within a node; the backend's settings depend on it too.",
    ("infiniband", "roce", "ethernet", "efa"), "NET",
)  # fmt: skip
OPTIMIZER = Field(
    "optimizer", _optimizer,
    "adamw, adam, sgd, muon, adafactor, adamw8bit, …", "Which optimizer is used?",
    "Its state is often the largest part of a rank's memory: AdamW keeps two tensors a parameter, SGD with momentum one.",
    ("adamw", "adam", "sgd", "muon"), "NAME",
)  # fmt: skip
PARAM_DTYPE = Field(
    "param_dtype", _param_dtype,
    "dtype in which the sharded parameters are kept (not the compute dtype); stored: each in its file's own",
    "In which dtype are the sharded parameters kept (the dtype that the optimizer steps on)?",
    "Gradient shards and optimizer state have the same dtype; float32 is usual, with bfloat16 only for the computation.",
    ("float32", "bfloat16"), "DTYPE",
)  # fmt: skip
STRATEGY = Field(
    "strategy", _choice("strategy", *STRATEGIES, full_shard="full", shard_grad_op="grad_op", hybrid_shard="hybrid",
                        no_shard="none", ddp="none", fsdp="full", hsdp="hybrid", zero3="full", zero2="grad_op"),
    "auto (default), full, grad_op, hybrid, none", metavar="NAME",
)  # fmt: skip
TP = Field("tp", _count("tp", 1024), "tensor-parallel degree (default 1)", metavar="N")
TP_PLAN = Field(
    "tp_plan", _text, "JSON file, module pattern to style (default: the family's base_model_tp_plan in transformers)",
    "Which modules are split, and how (a JSON file: module pattern to style, such as colwise)?",
    "This family has no tensor-parallel plan in transformers, so it is not known which parameters are split.", (), "FILE",
)  # fmt: skip
OFFLOAD = Field(
    "offload", _choice("offload", "auto", "yes", "no", on="yes", off="no", true="yes", false="no"),
    "auto (default), yes or no: CPU offload of parameters, gradients and optimizer state", metavar="WORD",
)  # fmt: skip
WEIGHTS = Field(
    "weights", _choice("weights", "random", "pretrained", "dcp"),
    "what the code starts from: random (default), pretrained (rank 0 reads, the others receive), dcp (a distributed checkpoint)",
    metavar="WORD",
)  # fmt: skip
IMPLEMENTATION = Field(
    "implementation", _choice("implementation", "transformers5", "transformers4", "checkpoint"),
    "whose parameters a config.json stands for: transformers5 (default), transformers4, checkpoint", metavar="NAME",
)  # fmt: skip
SHARD_SIZE = Field(
    "shard_size", _count("shard-size"), "ranks of one shard group under --strategy hybrid (default: one node)",
    "How many ranks share one copy of the model's shards?",
    "Hybrid sharding on one node needs the size of its groups; it must divide the number of ranks.", ("2", "4"), "N",
)  # fmt: skip
MODEL = Field(
    "model", _text, "", "Which model is it?",
    "Shapes decide every number: a config.json or its folder, safetensors, a shape manifest, or a size such as 7b.",
)  # fmt: skip
TORCH = Field(
    "torch", _text, "", "Which PyTorch release do you use?",
    "Import paths, defaults and errors differ from release to release.", ("2.13", "2.12", "2.8"),
)  # fmt: skip

# In the order in which they are asked.
PLAN = (MODEL, TORCH, GPUS, NODES, GPU, GPU_MEMORY, DEVICE, HOST_MEMORY, INTRA, INTER, OPTIMIZER, PARAM_DTYPE, STRATEGY,
        SHARD_SIZE, TP, TP_PLAN, OFFLOAD, WEIGHTS, IMPLEMENTATION)  # fmt: skip
