# ruff: noqa: PTH103, PTH106, PTH107, PTH111, PTH112, PTH113, PTH118, PTH123, PTH208
# (os.path as in the rest of the product: pathlib costs start-up time)
"""Where agents look for skills, and putting the skill there or taking it away: shown first, only after a yes."""

from __future__ import annotations

import os

from shardguide import guard
from shardguide.frontends.applying import whole
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple

from .content import NAME

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
    return Plan(folder, new, changed, len(files) - len(new) - len(changed), stray)


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
    """Write what the plan says, each file whole or not at all; what the skill no longer has is removed."""
    with guard.allow_write(plan.folder):
        os.makedirs(os.path.join(plan.folder, "references"), exist_ok=True)
        for name in (*plan.new, *plan.changed):
            whole(os.path.join(plan.folder, name), files[name].encode("utf-8"), backup=False)
        for name in plan.stray:
            os.remove(os.path.join(plan.folder, name))


def remove(folder: str) -> None:
    """Take the skill's files away, and its folders where nothing else is in them."""
    with guard.allow_write(folder):
        for name in present(folder):
            os.remove(os.path.join(folder, name))
        for below in ("references", ""):
            where = os.path.join(folder, below) if below else folder
            if os.path.isdir(where) and not os.listdir(where):
                os.rmdir(where)
