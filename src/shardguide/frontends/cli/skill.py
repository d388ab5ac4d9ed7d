"""``shardguide skill``: shows the agent skill, puts it into an agent's folder, takes it away."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from shardguide.frontends.render.safe import one_line
from shardguide.guidance.errors import UnusableInput

from . import asking, output
from .parser import add_common, wants_json

EPILOG = """examples:
  shardguide skill show                              SKILL.md
  shardguide skill show references/join.md           one of its files
  shardguide skill install --agent claude-code       into this project, after showing what and a yes
  shardguide skill install --agent codex --user      into the home folder
  shardguide skill uninstall --agent claude-code

agents: claude-code, codex, cursor, gemini, copilot, windsurf; --to FOLDER for any other"""


def configure(parser: ArgumentParser) -> None:
    """What to do, and for whom."""
    parser.epilog = EPILOG
    parser.add_argument("action", choices=("show", "list", "install", "uninstall"), help="what to do")
    parser.add_argument("file", nargs="?", metavar="FILE", help="show: which of its files (default: SKILL.md)")
    parser.add_argument("--agent", metavar="NAME", help="whose folder")
    parser.add_argument("--user", action="store_true", help="in the home folder, not in this project")
    parser.add_argument("--to", metavar="FOLDER", help="a folder of skills, for any other agent")
    parser.add_argument("--yes", action="store_true", help="do it without asking; what is done is still shown")
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs."""
    import shardguide.frontends.skill.content
    import shardguide.frontends.skill.places

    _ = shardguide.frontends.skill.places


def call(arguments: Namespace) -> int:
    """Show, write or remove."""
    from shardguide.frontends.skill import content, places

    files = content.files(arguments.torch or content.RELEASE)
    if arguments.action in ("show", "list"):
        return _show(files, arguments)
    if arguments.file:
        raise UnusableInput(f"skill {arguments.action} takes no file.")
    if bool(arguments.agent) == bool(arguments.to):
        raise UnusableInput(f"say for whom: --agent {' or '.join(list(places.AGENTS)[:2])}, … or --to FOLDER.")
    if arguments.to:
        import os

        folder = os.path.join(os.path.abspath(arguments.to), content.NAME)  # noqa: PTH100, PTH118
    else:
        folder = places.folder_of(arguments.agent, arguments.user)
    return _install(folder, files, arguments) if arguments.action == "install" else _uninstall(folder, arguments)


def _show(files: dict[str, str], arguments: Namespace) -> int:
    if arguments.action == "list":
        rows = {name: len(text.encode()) for name, text in files.items()}
        if wants_json(arguments):
            output.as_json({"files": rows})
        else:
            sys.stdout.write("".join(f"{name}\n" for name in rows))
        return 0
    name = arguments.file or "SKILL.md"
    if name not in files:
        raise UnusableInput(f"the skill has no file {name[:80]!r}; shardguide skill list names them.")
    if wants_json(arguments):
        output.as_json({"file": name, "text": files[name]})
    else:
        sys.stdout.write(files[name])
    return 0


def _install(folder: str, files: dict[str, str], arguments: Namespace) -> int:
    from shardguide.frontends.skill import places

    plan = places.planned(folder, files)
    if not (plan.new or plan.changed or plan.stray):
        print(f"{one_line(folder)} holds the skill as it is.")
        return 0
    size = sum(len(files[name].encode()) for name in (*plan.new, *plan.changed))
    print(f"{one_line(folder)}:", file=sys.stderr)
    for words, names in (("new", plan.new), ("changed", plan.changed), ("removed", plan.stray)):
        for name in names:
            print(f"  {words}  {name}", file=sys.stderr)
    print(
        f"{len(plan.new)} new, {len(plan.changed)} changed, {len(plan.stray)} removed, {size >> 10} KiB",
        file=sys.stderr,
    )
    if plan.edited:
        print(places.difference(plan, files), end="", file=sys.stderr)
        print(f"Not as they were installed, and kept as .bak: {', '.join(plan.edited)}", file=sys.stderr)
    if not _confirmed(arguments, "Write this?"):
        return 0
    if places.planned(folder, files) != plan:
        raise UnusableInput(f"{one_line(folder)} has changed while it was shown; nothing was written.")
    places.write(plan, files)
    print(f"Installed in {one_line(folder)}.")
    return 0


def _uninstall(folder: str, arguments: Namespace) -> int:
    from shardguide.frontends.skill import places

    have = places.present(folder)
    if "SKILL.md" not in have:
        raise UnusableInput(f"{one_line(folder)} holds no skill of this name.")
    print(f"{one_line(folder)}: {len(have)} files would be removed.", file=sys.stderr)
    if not _confirmed(arguments, "Remove them?"):
        return 0
    places.remove(folder)
    print(f"Removed from {one_line(folder)}.")
    return 0


def _confirmed(arguments: Namespace, question: str) -> bool:
    if arguments.yes:
        return True
    if not asking.may_ask(arguments):
        raise UnusableInput("nothing was changed, since nobody is here to say yes; --yes does it.")
    if asking.confirm(question):
        return True
    print("Nothing was changed.", file=sys.stderr)
    return False
