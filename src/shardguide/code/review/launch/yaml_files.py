"""YAML: accelerate's configuration, Kubernetes jobs of PyTorch, and commands wherever they stand in a file."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any

from . import shell
from .accelerate import Config, Entry
from .words import UNKNOWN, Command, Job, Script, Setting, Text, Word

LIMIT = 96 << 10  # bytes; the reader is written in Python, and real ones are far smaller
_NODES = 30_000
_STARTERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate launch")


class Found:
    """What a YAML file has for us."""

    def __init__(self) -> None:
        self.config: Config | None = None
        self.scripts: list[tuple[Script, Job]] = []
        self.settings: list[Setting] = []


def read(text: Text, where: str) -> Found:
    """Raises UnusableInput for what is no YAML or too large."""
    import yaml

    if len(text.text) > LIMIT:
        raise UnusableInput(f"{where}: larger than {LIMIT >> 10} KiB, which is more than a configuration has.")
    found = Found()
    try:
        documents = list(yaml.compose_all(text.text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise UnusableInput(f"{where}{place}: this is not valid YAML.") from None
    except (RecursionError, ValueError, OverflowError):
        raise UnusableInput(f"{where}: nested too deeply to be read.") from None
    seen: set[int] = set()
    for document in documents:
        if isinstance(document, yaml.MappingNode):
            top = pairs(document)
            if "distributed_type" in top and (
                "num_processes" in top or "fsdp_config" in top or "compute_environment" in top
            ):
                found.config = _config(text, top)
            _walk(document, Job(), text, found, seen)
    return found


def pairs(node: Any) -> dict[str, tuple[Any, Any]]:
    """The keys of a mapping with the nodes of key and value."""
    return {
        str(key.value): (key, value)
        for key, value in node.value
        if hasattr(key, "value") and isinstance(key.value, str)
    }


def _scalar(node: Any) -> Any:
    """The value of a scalar as SafeLoader would have it; None for anything else."""
    import yaml

    if not isinstance(node, yaml.ScalarNode):
        return None
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError, OverflowError):
        return str(node.value)


def _word(node: Any) -> Word:
    return Word(
        str(node.value) if isinstance(node.value, str) else "",
        node.start_mark.line + 1,
        node.start_mark.column + 1,
        True,
    )


def _config(text: Text, top: dict[str, tuple[Any, Any]]) -> Config:
    flat = {name: Entry(_scalar(value), _word(key)) for name, (key, value) in top.items()}
    fsdp: dict[str, Entry] = {}
    for section, prefix in (("fsdp_config", "fsdp_"), ("dynamo_config", "dynamo_")):
        value = top[section][1] if section in top else None
        if value is None or not isinstance(value.value, list) or value.id != "mapping":
            continue
        for name, (key, inner) in pairs(value).items():
            entry = Entry(_scalar(inner), _word(key))
            if section == "fsdp_config":
                fsdp[name.removeprefix(prefix)] = entry
            else:
                flat[f"dynamo_{name.removeprefix(prefix)}"] = entry
    return Config(text, flat, fsdp, True)


def _walk(root: Any, job: Job, text: Text, found: Found, seen: set[int]) -> None:
    """Commands below a node, with what the job around them says."""
    waiting = [(root, job)]
    while waiting:
        node, job = waiting.pop()
        if id(node) in seen or len(seen) > _NODES:
            continue  # an alias, or more than any such file has
        seen.add(id(node))
        if node.id == "mapping":
            inner = pairs(node)
            job = _job(inner, job)
            _container(inner, job, text, found, seen)
            waiting.extend((value, job) for _, value in inner.values())
        elif node.id == "sequence":
            _sequence(node, job, text, found)
            waiting.extend((item, job) for item in node.value)
        elif node.id == "scalar" and any(mark in str(node.value) for mark in _STARTERS):
            _text(node, job, text, found)


def _job(inner: dict[str, tuple[Any, Any]], job: Job) -> Job:
    kind = inner["kind"][1].value if "kind" in inner else ""
    if kind not in ("PyTorchJob", "TrainJob") or "spec" not in inner or inner["spec"][1].id != "mapping":
        return job
    spec = pairs(inner["spec"][1])
    nodes: int | None = None
    if kind == "PyTorchJob" and "pytorchReplicaSpecs" in spec and spec["pytorchReplicaSpecs"][1].id == "mapping":
        nodes = 0
        for _, role in pairs(spec["pytorchReplicaSpecs"][1]).values():
            count = _scalar(pairs(role)["replicas"][1]) if role.id == "mapping" and "replicas" in pairs(role) else 1
            if not isinstance(count, int):
                return job
            nodes += count
        if "elasticPolicy" in spec:
            nodes = None
    elif kind == "TrainJob" and "trainer" in spec and spec["trainer"][1].id == "mapping":
        trainer = pairs(spec["trainer"][1])
        count = _scalar(trainer["numNodes"][1]) if "numNodes" in trainer else None
        nodes = count if isinstance(count, int) else None
    return Job(nodes=nodes, kind=f"the {kind}'s replicas")


def _container(inner: dict[str, tuple[Any, Any]], job: Job, text: Text, found: Found, seen: set[int]) -> None:
    """``command`` and ``args`` of one container are one command line; ``env`` its variables; ``resources`` its GPUs."""
    parts = [inner[name][1] for name in ("command", "args") if name in inner and inner[name][1].id == "sequence"]
    gpus = None
    if "resources" in inner and inner["resources"][1].id == "mapping":
        for _, amounts in pairs(inner["resources"][1]).values():
            if amounts.id == "mapping":
                for name, (_, amount) in pairs(amounts).items():
                    if name.endswith("/gpu"):
                        value = _scalar(amount)
                        gpus = int(value) if str(value).isdigit() and len(str(value)) < 5 else gpus
    if parts:
        words = [_word(item) for part in parts for item in part.value if item.id == "scalar"]
        if any(any(mark in word.text for mark in _STARTERS) for word in words):
            seen.update(id(part) for part in parts)
            seen.update(id(item) for part in parts for item in part.value)
            found.scripts.append((_script(words), job._replace(gpus=gpus, kind=job.kind or "the container")))
    if "env" in inner and inner["env"][1].id == "sequence" and ("image" in inner or parts):
        for item in inner["env"][1].value:
            fields = pairs(item) if item.id == "mapping" else {}
            if "name" in fields and "value" in fields and fields["value"][1].id == "scalar":
                found.settings.append(Setting(str(fields["name"][1].value), _word(fields["value"][1]), True))


def _script(words: list[Word]) -> Script:
    plain = tuple(word if not _filled(word.text) else word._replace(text=_unknown(word.text)) for word in words)
    return Script((Command(plain, (), False, 0),), (), (), plain[0].line)


def _filled(text: str) -> bool:
    return "$" in text or "{{" in text or "<" in text


def _unknown(text: str) -> str:
    """A word with what somebody fills in later marked as not known; a script (many words) stays, for the shell's reader."""
    if " " in text.strip() or "\n" in text:
        return text
    name, sign, _ = text.partition("=")
    return f"{name}={UNKNOWN}" if sign and not _filled(name) else UNKNOWN


def _sequence(node: Any, job: Job, text: Text, found: Found) -> None:
    """A list of words that is a command."""
    words = [_word(item) for item in node.value if item.id == "scalar"]
    heads = [word.text.rpartition("/")[2] for word in words[:3]]
    starts = heads[:1] == ["torchrun"] or "torch.distributed.run" in heads or heads[:2] == ["accelerate", "launch"]
    if words and len(words) == len(node.value) and starts:
        found.scripts.append((_script(words), job))


def _text(node: Any, job: Job, text: Text, found: Found) -> None:
    """A shell script as the text of a value."""
    block = node.style in ("|", ">")
    if node.style == ">":
        return  # folded: lines and columns are not those of the file
    line = node.start_mark.line + (2 if block else 1)
    value = str(node.value)
    if not block and ("\n" in value or " " not in value):
        return
    if "{{" in value:
        while "{{" in value and "}}" in value[value.index("{{") :]:
            start = value.index("{{")
            end = value.index("}}", start) + 2
            value = value[: start - (value[start - 1 : start] == "$")] + "$_" + value[end:]
    column = node.start_mark.column + 1 + (node.style in ("'", '"'))
    if block:
        lines = text.text.split("\n")
        here = lines[line - 1] if line <= len(lines) else ""
        column = len(here) - len(here.lstrip()) + 1
    script = shell.read(value, text.path, line, column)
    found.scripts.append((script, job))
