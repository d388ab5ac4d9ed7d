# ruff: noqa: PTH103, PTH106, PTH107, PTH111, PTH112, PTH113, PTH118, PTH123, PTH208
# (os.path as in the rest of the product: pathlib costs start-up time)
"""Where agents look for skills, and putting the skill there or taking it away: shown first, only after a yes."""

from __future__ import annotations

import os

from shardguide import guard
from shardguide.frontends.applying import Change, File, keep, shown, whole
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.sha import sha256

from .content import NAME

MANIFEST = (
    ".shardguide"  # beside SKILL.md: the digests of what was installed, so that what the user changed is told from it
)

# Agent -> folder of skills in a project, and in the home folder. Source: https://github.com/vercel-labs/skills, "Supported Agents",
# and the agents' own documentation.
AGENTS: dict[str, tuple[str, str]] = {
    "claude-code": (".claude/skills", "~/.claude/skills"),
    "codex": (".agents/skills", "~/.agents/skills"),
    "cursor": (".agents/skills", "~/.cursor/skills"),
    "gemini": (".agents/skills", "~/.gemini/skills"),
    "copilot": (".agents/skills", "~/.copilot/skills"),
    "windsurf": (".windsurf/skills", "~/.codeium/windsurf/skills"),
}


class Plan(NamedTuple):
    """What would be written or removed."""

    folder: str  # of the skill itself
    new: tuple[str, ...]
    changed: tuple[str, ...]
    same: int
    stray: tuple[str, ...]  # files of an earlier version that the skill no longer has
    edited: tuple[
        str, ...
    ]  # of those that are changed or removed: not as they were installed, so they are kept as .bak


def folder_of(agent: str, user: bool) -> str:
    """The skill's folder for an agent. Raises UnusableInput for one that is not known."""
    if agent not in AGENTS:
        raise UnusableInput(f"--agent takes {', '.join(AGENTS)}, not {agent[:40]!r}.")
    project, home = AGENTS[agent]
    root = os.path.expanduser(home) if user else os.path.abspath(project)  # noqa: PTH100
    if root.startswith("~"):
        raise UnusableInput("there is no home folder; install into the project, without --user.")
    return os.path.join(root, NAME)


def planned(folder: str, files: dict[str, str]) -> Plan:
    """What an installation would change. Raises UnusableInput for a folder that is not the skill's own."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UnusableInput(f"{folder} is in the way: it is no folder.")
    have = present(folder)
    if have and "SKILL.md" not in have:
        raise UnusableInput(f"{folder} holds something else than this skill; nothing is written there.")
    new = tuple(name for name in files if name not in have)
    changed = tuple(name for name in files if name in have and have[name] != files[name])
    stray = tuple(name for name in have if name not in files and name.startswith("references/"))
    mine = _installed(folder)
    edited = tuple(name for name in (*changed, *stray) if mine.get(name) != _digest(have[name]))
    return Plan(folder, new, changed, len(files) - len(new) - len(changed), stray, edited)


def difference(plan: Plan, files: dict[str, str]) -> str:
    """What of the user's own would be replaced or removed, as a diff that is safe to print."""
    have = present(plan.folder)
    changes = (
        File(os.path.join(plan.folder, name), name, have[name].encode(), files.get(name, "").encode())
        for name in plan.edited
    )
    return shown(Change("", plan.folder, tuple(changes), ()))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _installed(folder: str) -> dict[str, str]:
    """The digests of the files as they were installed, by name; nothing where that is not known."""
    try:
        with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
            rows = [line.split(maxsplit=1) for line in file.read(1 << 20).splitlines()]
    except (OSError, UnicodeDecodeError):
        return {}
    return {row[1]: row[0] for row in rows if len(row) == 2}


def present(folder: str) -> dict[str, str]:
    """The skill's files that are there, by name."""
    out = {}
    for below in ("", "references"):
        where = os.path.join(folder, below)
        if not os.path.isdir(where):
            continue
        for name in sorted(os.listdir(where)):
            path = os.path.join(where, name)
            if name.endswith(".md") and os.path.isfile(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    out[f"{below}/{name}" if below else name] = file.read()
    return out


def write(plan: Plan, files: dict[str, str]) -> None:
    """Write what the plan says, each file whole or not at all; what the skill no longer has is removed, what was edited kept."""
    with guard.allow_write(plan.folder):
        os.makedirs(os.path.join(plan.folder, "references"), exist_ok=True)
        for name in (*plan.new, *plan.changed):
            whole(os.path.join(plan.folder, name), files[name].encode("utf-8"), backup=name in plan.edited)
        for name in plan.stray:
            if name in plan.edited:
                keep(os.path.join(plan.folder, name))
            os.remove(os.path.join(plan.folder, name))
        rows = "".join(f"{_digest(text)} {name}\n" for name, text in files.items())
        whole(os.path.join(plan.folder, MANIFEST), rows.encode(), backup=False)


def remove(folder: str) -> None:
    """Take the skill's files away, and its folders where nothing else is in them."""
    with guard.allow_write(folder):
        mine = _installed(folder)
        for name, text in present(folder).items():
            if mine and mine.get(name) != _digest(text):
                keep(os.path.join(folder, name))
            os.remove(os.path.join(folder, name))
        if os.path.lexists(os.path.join(folder, MANIFEST)):
            os.remove(os.path.join(folder, MANIFEST))
        for below in ("references", ""):
            where = os.path.join(folder, below) if below else folder
            if os.path.isdir(where) and not os.listdir(where):
                os.rmdir(where)
