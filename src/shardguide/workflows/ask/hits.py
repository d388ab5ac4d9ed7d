"""What a question is led to: pages, commands, names of the API, each with the command that opens it and why it was chosen."""

from __future__ import annotations

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Next
from shardguide.knowledge import ask_store, topic_store

from .names import SHOWN, Named
from .rank import Ranked
from .reading import Question
from .stated import Stated

WORKFLOW = "workflow:"
MOST = 5
NEAR = 3  # of which the commands are put forward
FAINT = 0.4  # of the best one's score: what is below is not shown beside those three
# Commands that take what the question asks for; "" for what this version has no command for.
COMMANDS = {
    "tune": "shardguide tune CONFIG --current FILE",
    "backend": "shardguide backend",
    "init": "shardguide init",
    "join": "shardguide join",
    "fsdp2": "shardguide fsdp2",
    "explain": "shardguide explain --full-script",
    "diagnose": "shardguide diagnose LOG",
    "migrate": "shardguide migrate FILE",
    "review": "shardguide review FILE",
}


class Hit(NamedTuple):
    """One thing that answers."""

    kind: str  # "topic", "workflow" or "api"
    id: str  # of the topic, "workflow:NAME", or the dotted name
    title: str
    command: str
    why: tuple[str, ...]  # words of the question that it was found by
    next: Next | None

    def shown(self) -> dict[str, Any]:
        """As it stands in the record."""
        named = self._asdict()
        del named["next"]
        return named | {"why": list(self.why)}


def hits(question: Question, told: Stated, names: list[Named], ranked: list[Ranked]) -> list[Hit]:
    """The best targets, then the names of the API that the question has."""
    titles = topic_store.titles()
    api = [one for one in names if one.name][:SHOWN]
    found = []
    for at, one in enumerate(ranked[: MOST - len(api)]):
        if at >= NEAR and one.score < FAINT * ranked[0].score:
            break
        why = _why(question, one.target)
        if one.target.startswith(WORKFLOW):
            name = one.target[len(WORKFLOW) :]
            command, step = _command(name, told, api)
            found.append(Hit("workflow", one.target, ask_store.title(one.target), command, why, step))
        else:
            title = titles[one.target][1] if one.target in titles else ask_store.title(one.target)
            command = f"shardguide explain {one.target}" if one.target in titles else ""
            step = Next("explain", {"topic": one.target}, title) if command else None
            found.append(Hit("topic", one.target, title, command, why, step))
    for named in api:
        step = Next("docs", {"action": "api", "names": [named.name]}, "how it is called in each release")
        found.append(Hit("api", named.name, named.name, f"shardguide docs api {named.name}", (named.asked,), step))
    return found


def _command(name: str, told: Stated, api: list[Named]) -> tuple[str, Next | None]:
    """The command line that leads on, with what the question states already."""
    if name == "plan":
        arguments: dict[str, Any] = dict(told.plan())
        options = " ".join(f"--{key} {value}" for key, value in arguments.items() if key != "model")
        return f"shardguide plan {arguments.get('model', 'CONFIG')} {options}".strip(), Next(
            "plan", arguments, "work it out"
        )
    if name == "docs-api":
        if not api:
            return "shardguide docs api NAME", Next("docs", {"action": "api"}, "look a name up")
        step = Next("docs", {"action": "api", "names": [api[0].name]}, "how it is called in each release")
        return f"shardguide docs api {api[0].name}", step
    if name == "docs-changes":
        between = sorted(told.releases, key=lambda release: int(release.partition(".")[2]))
        ends = [between[0], between[-1]] if len(between) > 1 else []
        step = Next(
            "docs", {"action": "changes", **({"names": ends} if ends else {})}, "what changed between two releases"
        )
        return f"shardguide docs changes {' '.join(ends) or 'A B'}", step
    command = COMMANDS.get(name, "")
    if not command:
        return "", None
    tool = command.split()[1]
    arguments = {"torch": told.releases[0]} if len(told.releases) == 1 and tool == "fsdp2" else {}
    if name == "explain":
        arguments = {"full_script": True}
    return command, Next(tool, arguments, ask_store.title(f"{WORKFLOW}{name}"))


def _why(question: Question, target: str) -> tuple[str, ...]:
    """The words of the question that stand on the page."""
    every = dict.fromkeys((*question.phrases[:16], *question.words[:16]))
    every.pop(ask_store.VERSION, None)
    found = [words for words in every if ask_store.page_has(target, f'"{words}"')]
    single = [word for word in found if not any(f" {word} " in f" {other} " for other in found if other != word)]
    return tuple(single[:6])
