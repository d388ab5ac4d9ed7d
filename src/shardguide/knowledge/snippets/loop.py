"""The parts that every training snippet has: the model, its batches, the optimizer, one step, the main function.

Each part is a function from the specification to lines of Python. Which parts a snippet has is said by ``features``: tests
execute every one of them, and every pair of them that can meet (tests/snippets/test_train.py).
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput

from .spec import TrainingSpec, pattern, version
from .text import Imports, dtype, names_match, repeats

# name -> (class in torch.optim, keywords, first release that has it); each was run under fully_shard with 2.13.0.
OPTIMIZERS: dict[str, tuple[str, str, tuple[int, int]]] = {
    "adamw": ("AdamW", "", (2, 0)),
    "adam": ("Adam", "", (2, 0)),
    "sgd": ("SGD", "", (2, 0)),
    "sgd_momentum": ("SGD", "momentum=0.9", (2, 0)),
    "rmsprop": ("RMSprop", "", (2, 0)),
    "adagrad": ("Adagrad", "", (2, 0)),
    "muon": ("Muon", "", (2, 9)),
}


def hugging_face(spec: TrainingSpec) -> bool:
    """Whether the model is a class of transformers (otherwise it is the user's own)."""
    return bool(spec.architecture)


def has_loss(spec: TrainingSpec) -> bool:
    """Whether the class computes a loss from labels: transformers' rule for heads, ``…For…`` and ``…LMHeadModel``."""
    return "For" in spec.architecture or "LMHead" in spec.architecture


def scales(spec: TrainingSpec) -> bool:
    """Whether gradients need scaling: fp16 underflows, bf16 has float32's range."""
    return spec.mp_param == "float16"


def build_model(spec: TrainingSpec, imports: Imports, *, meta: bool) -> list[str]:
    """``build_model()``: on the meta device, or with real weights that are the same on every rank."""
    lines = ["def build_model():"]
    if not hugging_face(spec):
        how = 'under torch.device("meta")' if meta else "with the same weights on every rank"
        return [*lines, f'    """Yours: return your torch.nn.Module, built {how}."""', _todo("build_model")]
    imports.name("transformers", "AutoConfig", spec.architecture)
    lines += [
        "    config = AutoConfig.from_pretrained(MODEL)",
        "    config.use_cache = False  # the key-value cache is for generation",
    ]
    if spec.weights == "pretrained" and not meta:
        keyword = "dtype" if spec.implementation != "transformers4" else "torch_dtype"
        create = f"{spec.architecture}.from_pretrained(MODEL, config=config, {keyword}={dtype(spec.param_dtype)})"
    else:
        create = f"{spec.architecture}(config)"
    body = ["torch.manual_seed(0)  # the same weights on every rank" if not meta else ""]
    if meta and spec.implementation == "transformers4":
        imports.name("accelerate", "init_empty_weights")
        body += [
            "# Buffers stay real: transformers 4 computes them in the constructor and nowhere else.",
            "with init_empty_weights(include_buffers=False):",
            f"    model = {create}",
            "model.tie_weights()  # which init_empty_weights undid",
        ]
    elif meta:
        body += ['with torch.device("meta"):  # shapes only', f"    model = {create}"]
    else:
        body.append(f"model = {create}")
    if spec.param_dtype != "float32":
        body = [
            f"torch.set_default_dtype({dtype(spec.param_dtype)})  # sharded parameters and optimizer state keep this dtype",
            *body,
            "torch.set_default_dtype(torch.float32)",
        ]
    lines += [f"    {line}" for line in body if line]
    return [*lines, "    return model"]


def freeze(spec: TrainingSpec, imports: Imports) -> list[str]:
    """Lines that freeze parameters: before sharding, which treats frozen and trained parameters differently."""
    if not spec.frozen:
        return []
    imports.name("fnmatch", "fnmatchcase")
    return [
        "for name, parameter in model.named_parameters():",
        f"    if {names_match(spec.frozen)}:",
        "        parameter.requires_grad_(False)",
    ]


def _todo(name: str) -> str:
    return f'    raise NotImplementedError("{name} is yours to write")'


def blocks_placeholder() -> list[str]:
    """``blocks(model)`` for a model whose modules are not known, and the blank lines after it."""
    return [
        "def blocks(model):",
        '    """Yours: the repeated layers of your model, such as ``model.layers``."""',
        _todo("blocks"),
        "",
        "",
    ]


def load_batches(spec: TrainingSpec) -> list[str]:
    """``load_batches()`` and ``compute_loss()``: the user's data, and what the model makes of a batch."""
    what = "Batches" if spec.accumulation == 1 else f"Lists of {spec.accumulation} micro-batches"
    keys = ', with "labels"' if has_loss(spec) else ""
    lines = [
        "def load_batches(index, count, device):",
        f'    """Yours: {what.lower()} for data-parallel rank ``index`` of ``count``.',
        "",
        f"    {what} are dictionaries of tensors on ``device``{keys}."
        if spec.accumulation == 1
        else f"    Each is a dictionary of tensors on ``device``{keys}.",
        "    Every rank needs the same number: one that stops early leaves the others waiting in a collective.",
        '    """',
        _todo("load_batches"),
        "",
        "",
        "def compute_loss(model, batch):",
    ]
    if has_loss(spec):
        return [*lines, "    return model(**batch).loss"]
    return [
        *lines,
        '    """Yours: the loss as a scalar tensor; call ``model(...)`` itself, not its submodules."""',
        _todo("compute_loss"),
    ]


def build_optimizer(spec: TrainingSpec, imports: Imports, *, per_mesh: bool = False) -> list[str]:
    """``build_optimizer(model)``; always called after sharding, so that it sees the sharded parameters."""
    if spec.optimizer not in OPTIMIZERS:
        raise UnusableInput(
            f"no code is offered for the optimizer {spec.optimizer[:40]!r}; one of {', '.join(OPTIMIZERS)}."
        )
    name, keywords, since = OPTIMIZERS[spec.optimizer]
    if version(spec.release) < since:
        raise UnusableInput(
            f"torch.optim.{name} came with PyTorch {since[0]}.{since[1]}; {spec.release} does not have it."
        )
    imports.module("torch")
    arguments = ", ".join(filter(None, ["lr=LEARNING_RATE", keywords]))
    lines = ["def build_optimizers(model):" if spec.optimizer == "muon" else "def build_optimizer(model):"]
    if spec.optimizer == "muon":
        containers = [pattern(repeat.container) for repeat in repeats(spec.units)[0]]
        quoted = ", ".join(f'"{container}."' for container in containers)
        prefixes = quoted if len(containers) == 1 else f"({quoted})"
        choose = [
            "    for name, parameter in model.named_parameters():",
            f"        hidden = name.startswith({prefixes})",
            "        (matrices if hidden and parameter.ndim == 2 else others).append(parameter)",
        ]
        if not containers:
            choose = [
                "    for parameter in model.parameters():",
                "        (matrices if parameter.ndim == 2 else others).append(parameter)",
            ]
        return [
            *lines,
            '    """Muon for the matrices of the layers, AdamW for the rest: embeddings, head, norms, whatever is no matrix."""',
            "    matrices, others = [], []",
            *choose,
            "    return [torch.optim.Muon(matrices, lr=LEARNING_RATE), torch.optim.AdamW(others, lr=LEARNING_RATE)]",
        ]
    if per_mesh:
        return [
            *lines,
            '    """One parameter group per mesh: a fused step over tensors of different meshes raises."""',
            '    groups = [{"params": group} for group in by_mesh(model)]',
            f"    return torch.optim.{name}(groups, {arguments})",
        ]
    return [*lines, f"    return torch.optim.{name}(model.parameters(), {arguments})"]


class Step:
    """How one kind of data parallelism does the parts of a step."""

    def __init__(
        self,
        *,
        no_sync: str = "",  # "method": set_requires_gradient_sync; "context": no_sync()
        clip: str = "torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)",
        full: str = "",  # ".full_tensor()" where the norm is a DTensor
        autocast: str = "",
    ) -> None:
        self.no_sync = no_sync
        self.clip = clip
        self.full = full
        self.autocast = autocast


def train_step(spec: TrainingSpec, step: Step, imports: Imports) -> list[str]:
    """``train_step(...)``: one optimizer step, returning the loss of this rank's data and the gradient norm."""
    several = spec.optimizer == "muon"
    scaler = scales(spec)
    optimizers = "optimizers" if several else "optimizer"
    arguments = ["model", optimizers, *(["scaler"] if scaler else [])]
    micro = spec.accumulation > 1
    lines = [f"def train_step({', '.join(arguments)}, {'micro_batches' if micro else 'batch'}):"]
    inner: list[str] = []
    if step.autocast:
        inner.append(f"with {step.autocast}:")
    indent = "    " if step.autocast else ""
    share = " / len(micro_batches)" if micro else ""
    inner.append(f"{indent}loss = compute_loss(model, batch){share}")
    inner.append("scaler.scale(loss).backward()" if scaler else "loss.backward()")
    if micro:
        counted = (
            "for i, batch in enumerate(micro_batches):" if spec.accumulation_no_sync else "for batch in micro_batches:"
        )
        body = ["total = 0.0", counted]
        last = "i + 1 == len(micro_batches)"
        if not spec.accumulation_no_sync:
            body += [f"    {line}" for line in inner]
        elif step.no_sync == "method":
            body.append(f"    model.set_requires_gradient_sync({last})  # unsharded gradients until then")
            body += [f"    {line}" for line in inner]
        else:
            imports.name("contextlib", "nullcontext")
            body.append(f"    with nullcontext() if {last} else model.no_sync():  # unsharded gradients until then")
            body += [f"        {line}" for line in inner]
        body.append("    total += loss.detach()")
    else:
        body = inner
    each = ["for optimizer in optimizers:"] if several else []
    pad = "    " if several else ""
    if scaler and spec.clip_norm is not None:
        body += [*each, f"{pad}scaler.unscale_(optimizer)  # clip the true gradients"]
    if spec.clip_norm is not None:
        body.append(f"norm = {step.clip}")
    if scaler:
        body += [*each, f"{pad}scaler.step(optimizer)  # skipped on every rank if one found inf", "scaler.update()"]
        body += [*each, f"{pad}optimizer.zero_grad()"]
    else:
        body += [*each, f"{pad}optimizer.step()", f"{pad}optimizer.zero_grad()"]
    loss = "total" if micro else "loss.detach()"
    body.append(f"return {loss}, norm{step.full}" if spec.clip_norm is not None else f"return {loss}, None")
    return lines + [f"    {line}" for line in body]


def main(spec: TrainingSpec, imports: Imports) -> list[str]:
    """``main()``: this process's device, the process group, the training, the end.

    ``train`` is a function of its own so that the model is gone when the process group goes: DDP over Gloo can deadlock
    when its reducer outlives the group (7 of 46 runs with 2.13.0).
    """
    imports.module("torch.distributed as dist")
    if spec.device_type == "cpu":
        body = ['device = torch.device("cpu")']
    else:
        imports.module("os")
        body = [
            f'device = torch.device("{spec.device_type}", int(os.environ["LOCAL_RANK"]))',
            f"torch.{spec.device_type}.set_device(device)  # before the process group: one device per process",
        ]
    body += [
        f'dist.init_process_group("{spec.backend}")',
        "train(device)",
        "dist.destroy_process_group()  # on every rank, when train() has let go of the model",
    ]
    return ["def main():", *(f"    {line}" for line in body)]


def train_lines(spec: TrainingSpec, imports: Imports, scaler: str, index: str, count: str) -> list[str]:
    """The end of ``train()``: optimizer and loop. ``index`` and ``count`` are this rank's place among data-parallel ranks."""
    several = spec.optimizer == "muon"
    optimizers = "optimizers" if several else "optimizer"
    arguments = ", ".join(["model", optimizers, *(["scaler"] if scales(spec) else []), "batch"])
    lines = [
        f"{optimizers} = build_{optimizers}(model)  # after sharding: it must hold the sharded parameters",
        f"scaler = {scaler}" if scales(spec) else "",
        "model.train()",
        f"for step, batch in enumerate(load_batches({index}, {count}, device)):",
        f"    loss, norm = train_step({arguments})",
        "    if dist.get_rank() == 0:  # the loss of rank 0's data, not the mean over ranks",
    ]
    shown = "step {step}: loss {loss.item():.4f}"
    lines.append(
        f'        print(f"{shown}, gradient norm {{norm.item():.3f}}")'
        if spec.clip_norm is not None
        else f'        print(f"{shown}")'
    )
    return [line for line in lines if line]


def constants(spec: TrainingSpec) -> list[str]:
    """The values at the top that are the user's to set."""
    lines = []
    if hugging_face(spec):
        lines.append('MODEL = "path/to/model"  # Yours: the folder or Hub id whose config.json the plan was made for')
    lines.append("LEARNING_RATE = 1e-4  # Yours: a placeholder, not advice")
    if spec.clip_norm is not None:
        lines.append(f"CLIP_NORM = {float(spec.clip_norm)!r}")
    return lines


def assemble(title: str, imports: Imports, top: list[str], *functions: list[str]) -> str:
    """The finished file."""
    lines = [f'"""{title}"""', "", *imports.lines(), "", *top]
    for function in functions:
        if function:
            lines += ["", "", *function]
    lines += ["", "", 'if __name__ == "__main__":', "    main()", ""]
    return "\n".join(lines)


def features(spec: TrainingSpec) -> list[str]:
    """Which form of each shared part the snippet has, as ``part=form``."""
    mixed = {"": "none", "bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}[spec.mp_param]
    accumulate = "1" if spec.accumulation == 1 else "no_sync" if spec.accumulation_no_sync else "sync"
    return [
        f"loss={'model' if has_loss(spec) else 'own'}",
        f"mixed_precision={mixed}",
        f"optimizer={spec.optimizer}",
        f"clip={'norm' if spec.clip_norm is not None else 'none'}",
        f"accumulate={accumulate}",
        f"dtype={spec.param_dtype}",
        f"frozen={'some' if spec.frozen else 'none'}",
    ]
