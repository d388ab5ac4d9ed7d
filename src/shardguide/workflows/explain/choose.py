"""Which topic is meant, and which patterns go with it."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge import pattern_store, topic_store
from shardguide.knowledge.topic_store import Topic

ARCHITECTURES = ("transformer", "moe", "vision", "multi-tower", "tied")
FORMS = ("fsdp2", "fsdp1", "ddp", "c10d")
SCRIPTS = {"fsdp2": "fsdp2-full-script", "fsdp1": "fsdp1-full-script", "ddp": "ddp-full-script"}


def find(words: str) -> Topic:
    """The topic of that id, or whose id or title has these words.

    Raises UnusableInput, naming the nearest ones, where none or several are meant.
    """
    name = "-".join(words.strip().lower().replace("_", " ").replace("-", " ").split())
    titles = topic_store.titles()
    if name in titles:
        return topic_store.get(name)
    if name in pattern_store.ids():  # a pattern by its own name: the page that it stands on
        return topic_store.get(pattern_store.get(name).topics[0])
    parts = name.split("-")
    found = [
        other
        for other, (_, title) in titles.items()
        if all(part in f"{other} {title.lower()}".replace("-", " ") for part in parts)
    ]
    if len(found) == 1:
        return topic_store.get(found[0])
    if found:
        raise UnusableInput(f"{words[:60]!r} fits several topics: {', '.join(found[:8])}.")
    near = [other for other in titles if any(len(part) > 3 and part in other for part in parts)]
    hint = f"near it: {', '.join(near[:6])}" if near else "shardguide explain lists them"
    raise UnusableInput(f"there is no topic {words[:60]!r}; {hint}. A question in words goes to shardguide ask.")


def newest_script(release: str) -> str:
    """The form of the whole script for a release: FSDP2's where the release has what it uses, else FSDP1's."""
    return "fsdp2" if pattern_store.offered(pattern_store.get(SCRIPTS["fsdp2"]), release) else "fsdp1"


def chosen(topic: Topic | None, architecture: str, form: str, full_script: bool) -> list[str]:
    """The ids of the patterns to show, the general ones first; a whole script only when it was asked for."""
    if full_script:
        if form and form not in SCRIPTS:
            raise UnusableInput(f"--full-script goes with --form {', '.join(SCRIPTS)}, not with {form}.")
        return [SCRIPTS[form or "fsdp2"]]
    if topic is not None:
        names = pattern_store.of_topic(topic.id)
    elif architecture:
        names = pattern_store.of_architecture(architecture)
    else:
        return []
    kept = []
    for name in names:
        pattern = pattern_store.get(name)
        if name in SCRIPTS.values() or (form and pattern.form != form):
            continue
        if architecture and pattern.architecture not in ("", architecture):
            continue
        kept.append((FORMS.index(pattern.form), bool(pattern.architecture), name))
    return [name for _, _, name in sorted(kept)]
