"""Writes the shell completions that ``shardguide completion`` prints, from the commands' own parsers, by shtab.

usage: build_completion.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

import shtab

from shardguide.frontends.cli import main as entry
from shardguide.frontends.mcp import schemas
from shardguide.frontends.mcp.hosts import HOSTS
from shardguide.frontends.skill.places import AGENTS
from shardguide.workflows import catalogue

FOLDER = Path(__file__).resolve().parents[1] / "src" / "shardguide" / "frontends" / "completions"
SHELLS = ("bash", "zsh")


def parser() -> argparse.ArgumentParser:
    """One parser with every command below it; the program itself has one for each, made when it is needed."""
    whole = argparse.ArgumentParser(prog="shardguide", description="FSDP guidance that is checked")
    below = whole.add_subparsers(dest="command")
    for name, (module, words) in entry.COMMANDS.items():
        one = below.add_parser(name, help=words, description=words)
        import_module(f"shardguide.frontends.cli.{module}").configure(one)
        listed = closed(name)
        for action in one._actions:
            if not action.choices and action.dest in listed:
                action.choices = listed[action.dest]
            if action.metavar in ("PATH", "FILE", "MODEL", "FOLDER", "DIR") and not action.choices:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return whole


def closed(command: str) -> dict[str, tuple[str, ...]]:
    """Option -> the words it takes, where it takes no others but the parser leaves that to the workflow."""
    task = catalogue.TASKS.get(command)
    out = {field.name: schemas.closed(field) for field in task.fields()} if task else {}
    out.update({"print_config": HOSTS} if command == "mcp" else {"agent": tuple(AGENTS)} if command == "skill" else {})
    return {name: words for name, words in out.items() if words}


def main() -> int:
    stale = []
    for shell in SHELLS:
        text = shtab.complete(parser(), shell)
        path = FOLDER / f"shardguide.{shell}"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                FOLDER.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"{', '.join(stale)} differ from the commands: run scripts/build_completion.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
