"""What ``--from FILE`` accepts about the hardware: recognised by its content, read, and merged with what was said.

A paste may hold the output of several tools; each part is read by its own reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple

from . import accelerate_yaml, collect_env, gpu_csv, nvidia_smi, rocm_xpu_smi, topology
from .files import decode, read_bytes, shown
from .hw_evidence import LIMIT, HardwareEvidence, clean_lines

_KINDS = (
    "python -m torch.utils.collect_env, nvidia-smi, nvidia-smi -L, nvidia-smi topo -m, "
    "nvidia-smi --query-gpu=index,name,memory.total --format=csv, or an accelerate YAML"
)


class Found(NamedTuple):
    """A value with where it comes from."""

    value: Any
    source: str  # "file:NAME, line N", or the source that was stated with it ("user", "notebook")


class Contradiction(NamedTuple):
    """Two sources that disagree: shown, and asked about."""

    id: str  # key of the value, e.g. "gpus_per_node"
    sentence: str  # both values with both sources
    first: Found
    second: Found


class Merged(NamedTuple):
    """What all evidence says together.

    Keys of ``values``: ``gpus_per_node``, ``gpus`` (over all nodes), ``nodes``, ``gpu`` (name as printed),
    ``gpu_memory_mib`` (the smallest of a host with mixed memory), ``driver``, ``cuda``, ``torch``, ``torch_build``,
    ``built_with``, ``os``, ``intra``, ``mig`` (True where a GPU is partitioned: PyTorch then sees instances),
    ``mig_memory_mib`` and ``mig_profiles`` (tuples), ``mixed_precision``, and accelerate's other settings as they are.
    """

    values: dict[str, Found]
    contradictions: tuple[Contradiction, ...]
    models: tuple[tuple[str, int | None, int], ...]  # (name, MiB in total, how many): more than one: mixed GPUs
    notes: tuple[str, ...]  # each with its file

    @property
    def mixed(self) -> bool:
        """Whether the GPUs differ in name or memory."""
        return len(self.models) > 1


def read_file(path: str) -> tuple[HardwareEvidence, ...]:
    """The evidence in a file (``-``: standard input). Raises UnusableInput, in one sentence, for anything unusable."""
    return read_data(read_bytes(path, LIMIT), shown(path))


def read_data(data: bytes, where: str) -> tuple[HardwareEvidence, ...]:
    """The evidence in the content of a file; ``where`` is its name for people. Raises UnusableInput."""
    if len(data) > LIMIT:
        raise UnusableInput(f"{where}: more than {LIMIT >> 20} MiB; hand over only the output of the tool.")
    return read_text(decode(data, where, lossy=True), where)


def read_text(text: str, where: str) -> tuple[HardwareEvidence, ...]:
    """The evidence in a text, one per tool whose output is found in it. Raises UnusableInput when it is none."""
    if not text.strip():
        raise UnusableInput(f"{where}: the file is empty; hand over the output of {_KINDS}.")
    text = "\n".join(clean_lines(text.replace("\r\n", "\n"), where))
    found: list[HardwareEvidence] = []
    if accelerate_yaml.recognised(text):
        return (accelerate_yaml.read(text, where),)
    smi = nvidia_smi.recognised(text)
    if collect_env.recognised(text):
        found.append(collect_env.read(text, where))
    if smi == "nvidia-smi":
        found.append(nvidia_smi.read(text, where))
    if "GPU " in text and nvidia_smi.listed(text):
        found.append(nvidia_smi.read_list(text, where))
    if topology.recognised(text):
        found.append(topology.read(text, where))
    if rocm_xpu_smi.recognised(text):
        found.append(rocm_xpu_smi.read(text, where))
    if not found and gpu_csv.recognised(text):
        found.append(gpu_csv.read(text, where))
    if not found:
        raise UnusableInput(f"{where}: this is not an output that is read here; hand over that of {_KINDS}.")
    return tuple(found)


# ---------------------------------------------------------------------------------------------------------- merging

# What a person calls each value in a sentence.
_TITLES = {
    "gpus_per_node": "the number of GPUs on a node",
    "gpus": "the number of GPUs over all nodes",
    "nodes": "the number of nodes",
    "gpu": "the GPU",
    "gpu_memory_mib": "the memory of a GPU in MiB",
    "driver": "the driver",
    "cuda": "the driver's CUDA version",
    "torch": "the PyTorch release",
    "torch_build": "the kind of PyTorch build",
    "built_with": "what PyTorch was built with",
    "os": "the operating system",
    "intra": "the link between the GPUs of a node",
    "mig": "MIG mode",
}


def merge(evidence: Sequence[HardwareEvidence], stated: Mapping[str, tuple[Any, str]] | None = None) -> Merged:
    """One picture out of several files and what was stated (``{"gpus": (16, "user")}``, same keys as ``values``).

    What was stated wins; of several files the first. Whatever disagrees is a contradiction, not an error. A stated
    ``gpu_memory_mib`` may be a pair, the smaller and the larger reading of "80GB".
    """
    values: dict[str, Found] = {key: Found(value, source) for key, (value, source) in (stated or {}).items()}
    contradictions: list[Contradiction] = []

    def add(key: str, value: Any, source: str) -> None:
        mine = Found(value, source)
        known = values.setdefault(key, mine)
        if known is mine or _agree(key, known.value, value):
            # A whole name says more than one that nvidia-smi cut short.
            if key == "gpu" and str(known.value).endswith("...") and not str(value).endswith("..."):
                values[key] = mine
            return
        title = _TITLES.get(key, key)
        sentence = f"{_upper(title)} is {_said(known.value)} ({known.source}), but {_said(value)} ({source}): which one is right?"
        contradictions.append(Contradiction(key, sentence, known, mine))

    for item in evidence:
        _add_host(item, add)
        _add_settings(item, add)
    _derive(values, contradictions)
    notes = tuple(f"{item.file}: {note}" for item in evidence for note in item.notes)
    return Merged(values, tuple(contradictions), _models(evidence), notes)


def _said(value: Any) -> str:
    """A value as it stands in a sentence."""
    return " to ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _agree(key: str, first: Any, second: Any) -> bool:
    """Whether two values say the same: a cut name and its whole, a release and its build, totals of two drivers."""
    if first == second:
        return True
    if key == "gpu":
        one, two = str(first), str(second)
        if one.endswith("...") or two.endswith("..."):
            one, two = one.removesuffix("...").rstrip(), two.removesuffix("...").rstrip()
            return one.startswith(two) or two.startswith(one)
        return _loose(one) == _loose(two)
    if key == "gpu_memory_mib":
        low, high = first if isinstance(first, tuple) else (first, first)
        return bool(0.97 * low <= second <= 1.03 * high)
    if key == "torch":
        one, two = str(first).partition("+")[0], str(second).partition("+")[0]
        return one == two or one.startswith(f"{two}.") or two.startswith(f"{one}.")
    return False


def _loose(name: str) -> str:
    """A name without the brand, which older drivers leave out or write as Tesla."""
    return name.lower().replace("nvidia", "").replace("tesla", "").replace(" ", "")


def _add_host(item: HardwareEvidence, add: Any) -> None:
    if item.gpu_count:
        add("gpus_per_node", item.gpu_count.value, f"file:{item.place(item.gpu_count.line)}")
    if len(item.models) == 1:
        named = next(gpu for gpu in item.gpus if gpu.name)
        add("gpu", named.name, f"file:{item.place(named.line)}")
    if item.totals:
        smallest = min((gpu for gpu in item.gpus if gpu.total_mib), key=lambda gpu: gpu.total_mib or 0)
        add("gpu_memory_mib", smallest.total_mib, f"file:{item.place(smallest.line)}")
    for key in ("driver", "cuda", "torch", "torch_build", "built_with", "os", "intra"):
        seen = getattr(item, key)
        if seen:
            add(key, seen.value, f"file:{item.place(seen.line)}")
    partitioned = next((gpu for gpu in item.gpus if gpu.mig), None)
    if partitioned:
        add("mig", True, f"file:{item.place(partitioned.line)}")
    if item.mig:
        source = f"file:{item.place(item.mig[0].line)}"
        sizes = tuple(sorted({part.total_mib for part in item.mig if part.total_mib}))
        profiles = tuple(sorted({part.profile for part in item.mig if part.profile}))
        if sizes:
            add("mig_memory_mib", sizes, source)
        if profiles:
            add("mig_profiles", profiles, source)


def _add_settings(item: HardwareEvidence, add: Any) -> None:
    names = {"num_processes": "gpus", "num_machines": "nodes"}
    for name, seen in item.settings:
        if seen.value is None or (name == "num_processes" and seen.value == -1):
            continue
        add(names.get(name, name), seen.value, f"file:{item.place(seen.line)}")


def _derive(values: dict[str, Found], contradictions: list[Contradiction]) -> None:
    """Compares the total with nodes times GPUs per node, when all three are known from somewhere."""
    total, nodes, each = (values.get(key) for key in ("gpus", "nodes", "gpus_per_node"))
    if not (total and nodes and each) or not all(isinstance(v.value, int) for v in (total, nodes, each)):
        return
    if nodes.value * each.value != total.value:
        sentence = (
            f"The number of GPUs is {total.value} over all nodes ({total.source}) and {each.value} on a node "
            f"({each.source}), but the number of nodes is {nodes.value} ({nodes.source}): which one is right?"
        )
        contradictions.append(Contradiction("gpus_per_node", sentence, total, each))


def _models(evidence: Sequence[HardwareEvidence]) -> tuple[tuple[str, int | None, int], ...]:
    """The kinds of GPUs of a host, from the file that tells most about them."""
    best: dict[tuple[str, int | None], int] = {}
    for item in sorted(evidence, key=lambda item: (not item.totals, not item.models)):
        if not item.models and not item.totals:
            continue
        for gpu in item.gpus:
            kind = (gpu.name, gpu.total_mib)
            best[kind] = best.get(kind, 0) + 1
        break
    return tuple((name, total, count) for (name, total), count in best.items())
