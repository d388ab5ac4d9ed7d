"""From the answers about hardware to what they mean together: device, link, one host or a cluster, and their sources."""

from __future__ import annotations

from collections.abc import Mapping

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.record import Answer, Question, Source
from shardguide.knowledge.hardware.links import INTER, INTRA
from shardguide.knowledge.hardware.table import sources

from .gather import FileFact, Gathered

# Links of one vendor's GPUs, which another vendor's never have.
from .hardware import KINDS, MIG_LINK, Hardware, Origins, _same, _says, mig, refused_link, resolve


def understand(gathered: Gathered, facts: Mapping[str, FileFact]) -> tuple[Gathered, Hardware]:
    """The hardware that the answers and reports mean; the answers with the link that the table knows for that GPU.

    Options that contradict the table raise UnusableInput; where a file or the notebook has a part in it, it is asked.
    """
    answers = dict(gathered.answers)
    _cpu_only(answers)
    report, mixed = facts.get("mig"), facts.get("mixed")
    by = Origins(_origin(answers.get("gpu")), _origin(answers.get("gpu_memory")))
    found = resolve(
        _text(answers, "gpu"),
        _text(answers, "gpu_memory"),
        _text(answers, "device"),
        by,
        report.where.removeprefix("file:") if report else "",
        mixed.value if mixed else (),
    )
    if any(question.id == "gpu" for question in gathered.conflicts):  # which GPU is asked: its memory waits for that
        found = found._replace(questions=())
    conflicts = [*gathered.conflicts, *_device(answers, found), *_link(answers, found)]
    notes = (*found.notes, *_link_notes(answers, found))
    found = found._replace(notes=notes, sources=_sources(answers, found))
    return Gathered(answers, tuple(conflicts)), found


def _text(answers: Mapping[str, Answer], name: str) -> str:
    return str(answers[name].value) if name in answers else ""


def _origin(answer: Answer | None) -> str:
    """Where an answer comes from, for a sentence; "" for the user."""
    if answer is None or answer.source == "user":
        return ""
    return "the notebook" if answer.source == "notebook" else answer.source.removeprefix("file:")


def _cpu_only(answers: dict[str, Answer]) -> None:
    """On the CPU no GPU matters: one that was said contradicts it, one that a file or the notebook has is left aside."""
    device = answers.get("device")
    if device is None or device.value != "cpu" or "gpu" not in answers:
        return
    if device.source != "user":
        del answers["device"]
    elif answers["gpu"].source == "user":
        raise UnusableInput(f"--device cpu and --gpu {answers['gpu'].value} contradict each other; give one of them.")
    else:
        for name in ("gpu", "gpu_memory"):
            if name in answers and answers[name].source != "user":
                del answers[name]


def _device(answers: dict[str, Answer], found: Hardware) -> list[Question]:
    """The stated kind of device against the table's for that GPU."""
    device, gpu = answers.get("device"), answers.get("gpu")
    if device is None or gpu is None or not found.device or device.value == found.device:
        return []
    text = f"{gpu.value} is {KINDS[found.device]} device, not {device.value}"
    if device.source == gpu.source == "user":
        raise UnusableInput(f"{text}: correct --gpu or --device.")
    del answers["device"]
    if device.source == "notebook":
        return []
    why = f"{_says(_origin(gpu))} {gpu.value}, {_says(_origin(device))} {device.value}: correct the wrong one."
    return [Question("device", f"{text}: which holds?", why[0].upper() + why[1:], (found.device,))]


def _link(answers: dict[str, Answer], found: Hardware) -> list[Question]:
    """Puts the table's link into the answers where none was stated; refuses or asks about one that cannot be."""
    asked: list[Question] = []
    intra = answers.get("intra")
    if intra is not None:
        name = _text(answers, "gpu") if found.gpus else ""
        problem = refused_link(intra.value, name, found.device, found.partition)
        by_report = found.partition and not mig(_text(answers, "gpu"))
        if (
            problem
            and not by_report
            and intra.source == answers.get("gpu", answers.get("device", intra)).source == "user"
        ):
            raise UnusableInput(f"{problem}: correct --intra or the GPU.")
        if problem:
            del answers["intra"]
            origins = [f"{key} {one.value} is from {_origin(one) or 'you'}" for key, one in
                       (("gpu", answers.get("gpu")), ("intra", intra)) if one]  # fmt: skip
            if intra.source != "notebook":
                known = "" if found.partition or not found.gpus else _same(found.gpus, "link")
                choices = tuple(dict.fromkeys(str(one) for one in (known, "pcie") if one))
                asked = [
                    Question("intra", f"{problem}: what links the GPUs of a node?", "; ".join(origins) + ".", choices)
                ]
    if "intra" not in answers and not asked and not _single(answers):
        link = "pcie" if found.partition else _same(found.gpus, "link") if found.gpus else ""
        if link:
            answers["intra"] = Answer(link, f"table:{found.name}")
    return asked


def _single(answers: Mapping[str, Answer]) -> bool:
    """Whether there is one GPU to a node, so that nothing links GPUs within one."""
    gpus, nodes = (answers[name].value if name in answers else 0 for name in ("gpus", "nodes"))
    return bool(gpus == 1 or (gpus and gpus == nodes))


def _link_notes(answers: Mapping[str, Answer], found: Hardware) -> tuple[str, ...]:
    """A link below the one that the table has for the GPU, which is possible but worth a look."""
    intra = answers.get("intra")
    link = _same(found.gpus, "link") if found.gpus else ""
    if intra is None or not link or link == "pcie" or intra.value != "pcie" or found.partition:
        return ()
    said = _says(_origin(intra))
    return (
        f"The GPUs of a host with {found.name} have {INTRA[str(link)].title}; {said} pcie, and the plan takes that. If it is there, "
        f"say --intra {link}.",
    )


def _sources(answers: Mapping[str, Answer], found: Hardware) -> tuple[Source, ...]:
    """Where the facts about this hardware come from, each once."""
    kept = {source.id: source for row in found.gpus for source in sources(row)}
    if found.partition:
        kept[MIG_LINK.id] = MIG_LINK
    for name, links in (("intra", INTRA), ("inter", INTER)):
        link = links.get(_text(answers, name))
        if link is not None:
            kept |= {source.id: source for source in link.sources}
    return tuple(kept.values())
